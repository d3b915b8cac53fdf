"""The least time of schedules on a GPU, launch by launch and by resource, and whether a claimed time is possible.

The counts, the tiles and the sentences are those of `count` on that GPU, the times those of timing/bound.py. Kept
measurements of PyTorch's kernels (configs/measured/kernels.csv) stand beside them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Unpack

from ..answer import Answer, Column, Columns, Piece, Pieces, Row, Table, in_order, numbered, rounded
from ..core.problem import DENSE, Attention, narrowed
from ..core.tiling import read_tiles
from ..counting.asked import asked, divided_text, size_line
from ..counting.columns import problem_row
from ..counting.conditions import Conditions, conditions
from ..counting.count import asked_or_usual, count_published
from ..counting.given import head_dimension
from ..counting.names import takes_options
from ..counting.needed import needed_by_problem
from ..counting.notes import notes_on_tiles
from ..counting.on_gpu import seconds
from ..counting.published import floor_line, published_line
from ..counting.report import Report
from ..counting.result import Result, tiles_cell
from ..counting.run import counted_tiling, rules_of, run, with_time
from ..counting.sentence import lead_lines, leaders, reason_lines, winners
from ..errors import InputError
from ..hardware import Hardware, configs_folder, load
from ..masks import parse_mask
from ..schedules import Schedule, family_of, find, require
from ..timing.bound import RESOURCES, TimeBound, rates_of, thing_of, time_at_least
from ..timing.claim import Judged, in_narrower_types, judged, parse_claim
from ..timing.measured import measured_over_bounds
from ..units import format_bytes, format_rate, parse_bytes
from ..verdict import joined

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import Rule, TilesAsked
    from ..schedules.registry import SchedulesAsked
    from ..timing.work import Work


ALL = "all"  # the name of all launches together
ATTENTION = "attention"  # the family of softmax attention's forward pass
SIZES = ("N", "Nk", "d", "batch", "heads", "kv_heads")


# ---------------------------------------------------------------- kept measurements


@dataclass(frozen=True)
class MeasuredKernel:
    """The time of one of PyTorch's kernels on a GPU, alone and with an empty L2."""

    gpu: str
    kernel: str
    problem: Attention
    seconds: float


@cache
def kept() -> tuple[MeasuredKernel, ...]:
    """All kept times."""
    with open(configs_folder() / "measured" / "kernels.csv", newline="", encoding="utf-8") as file:
        return tuple(map(read, csv.DictReader(file)))


def read(row: dict[str, str]) -> MeasuredKernel:
    """A row of the file."""
    N, Nk, d, batch, heads, kv_heads = (int(row[name]) for name in SIZES)
    p = Attention(
        N, d, Nk=Nk, batch=batch, heads=heads, kv_heads=kv_heads, dtype=row["dtype"], mask=parse_mask(row["mask"])
    )
    return MeasuredKernel(row["gpu"], row["kernel"], p, float(row["seconds"]))


def measured_beside(chip: Hardware, p: Attention) -> list[MeasuredKernel]:
    """The kept times of this problem on a GPU, the fastest first; none with options that add work."""
    more = {"keep_p", "elementwise", *(["visit_all"] if p.mask is not DENSE else [])}
    if more & p.unusual().keys():
        return []
    found = [one for one in kept() if one.gpu == chip.name and one.problem.computed == p.computed]
    return sorted(found, key=lambda one: one.seconds)


class Beside(NamedTuple):
    """A kept measurement beside the bound of a phase."""

    phase: str
    kernel: str
    seconds: float
    x_bound: float


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class RooflineRow:
    """A launch of a schedule, or all of them (`launch` = all), on one GPU.

    `result` is the count of all launches. `times` are the least seconds by resource, of which `binds` is the slowest;
    of all launches they are sums.
    """

    phase: str
    result: Result
    launch: str
    work: Work
    times: Mapping[str, float]
    at_least_seconds: float
    binds: str
    ridge: float | None

    @property
    def intensity(self) -> float | None:
        """FLOPs of products a byte that multiprocessors load and store; None of a launch without products."""
        return self.work.matrix_flops / self.work.total_bytes if self.work.matrix_flops else None


class Phase(NamedTuple):
    """The counts of one problem on a GPU, and the rows of their launches. `label` is prefill or decode."""

    label: str
    report: Report
    rows: list[RooflineRow]

    @property
    def best(self) -> list[Result]:
        """The result of least time of each family of schedules."""
        return [self.report.results[k] for k in winners(self.report.results)]


def phase_of(
    p: Attention, chip: Hardware, M_bytes: int, schedules: Sequence[Schedule], rule: Rule | None, under: Conditions
) -> Phase:
    """A problem on a GPU: each schedule with its tiles, and published tiles beside them."""
    pairs = [(schedule, own) for schedule in schedules for own in rules_of(schedule, rule, p)]
    results = [run(schedule, own, p, M_bytes, under.multiple, under.chip) for schedule, own in pairs]
    label = "decode" if p.N == 1 and (p.Nk > 1 or family_of(p) == "state") else "prefill"
    bounds = [None if r.total is None else bound_of(r, p, chip) for r in results]
    timed = [r if bound is None else with_time(r, bound) for r, bound in zip(results, bounds, strict=True)]
    rows = [row for r, b in zip(timed, bounds, strict=True) if b is not None for row in rows_of(label, r, b, chip, p)]
    report = Report(p, M_bytes, [], timed, under=under)
    if rule is None and under.implies:
        names = {schedule.name for schedule in schedules}
        report = replace(report, published=[*count_published(report, M_bytes, names, chip)])
    for tiles, result in report.published:
        own = tiles.as_run(p)
        rows += rows_of(label, result, bound_of(result, own, chip), chip, own)
    return Phase(label, report, rows)


def bound_of(result: Result, p: Attention, chip: Hardware) -> TimeBound:
    """The least time of a result."""
    return time_at_least(find(result.schedule), p.packed, counted_tiling(result), chip)


def rows_of(label: str, result: Result, bound: TimeBound, chip: Hardware, p: Attention) -> list[RooflineRow]:
    """A row for each launch if there are several, and one for all."""
    ridge, launches = chip.ridge(p.dtype), bound.launches
    each = [
        RooflineRow(label, result, str(k), one.work, one.times, one.seconds, one.binds, ridge)
        for k, one in enumerate(launches, 1)
    ]
    whole = RooflineRow(label, result, ALL, bound.work, bound.times, bound.seconds, bound.binds, ridge)
    return [*(each if len(launches) > 1 else []), whole]


# ---------------------------------------------------------------- the answer


@dataclass(frozen=True, repr=False)
class Roofline(Answer):
    """The answer of `roofline`: its phases, which are the problem that was asked for, and one query with `decode`."""

    problem: Attention
    hardware: Hardware
    M_bytes: int
    phases: list[Phase]
    claim: Judged | None = None
    """The judgement of a claim about the last phase."""

    @property
    def rows(self) -> list[RooflineRow]:
        """The rows of all phases."""
        return [row for phase in self.phases for row in phase.rows]

    @property
    def nothing_fits(self) -> list[str]:
        """The schedules of which no tiles fit."""
        found = (r.schedule for phase in self.phases for r in phase.report.results if r.total is None)
        return list(dict.fromkeys(found))

    @property
    def unmarked(self) -> list[str]:
        """Steps whose exponentials nobody stated."""
        return sorted(frozenset[str]().union(*(row.work.unmarked for row in self.rows)))

    def table(self) -> Table:
        rates, divided = rates_of(self.hardware, self.problem.dtype), self.problem.divided
        one_phase = len({row.phase for row in self.rows}) == 1
        columns = [replace(column, spare=1) if one_phase and column.name == "phase" else column for column in LAUNCH]
        absent = {*(() if divided else ON_CHIP), *(TIME_OF[name] for name in RESOURCES if name not in rates)}
        best = [one for phase in self.phases for one in leading(on_chip(phase.report, self.hardware))]
        bold = [k for k, row in enumerate(self.rows) if row.launch == ALL and any(row.result is one for one in best)]
        shown = in_order(columns, (name for name in SHOWN if name not in absent))
        return Table(columns, self.rows, shown=shown, best=bold, tall=True)

    def pieces(self) -> Pieces:
        p, chip = self.problem, self.hardware
        lead, reasons = lead_and_reasons(self)
        published = [one for phase in self.phases for one in phase.report.published]
        lines: list[Piece] = [
            *lead,
            f"{size_line(p)}, {p.dtype}, {p.acc_dtype} accumulators{p.cache_text}, mask {p.mask}",
            f"{chip.name}: M = {format_bytes(self.M_bytes)}{divided_text(p)}; {rates_text(chip, p.dtype)}",
            "",
            self.table(),
            EXPLAINED,
            *floor_line(self.phases[0].report.under.chip, p),
            *published_line(published, p),
        ]
        if self.nothing_fits:
            lines.append("no tiles fit: " + ", ".join(self.nothing_fits))
        if self.unmarked:
            lines.append("steps whose exponentials are not counted: " + ", ".join(self.unmarked))
        return [*lines, "", *reasons]

    def to_dict(self) -> Row:
        chip = self.hardware
        peaks = {"hbm_bytes_per_second": chip.hbm_bytes_per_second, "flops_per_second": dict(chip.flops_per_second)}
        ridges = {name: chip.ridge(name) for name in chip.flops_per_second if name != "exp"}
        return {
            "problem": problem_row(self.problem),
            "hardware": {"name": chip.name, **peaks, "ridges": ridges},
            "sram": {"M_bytes": self.M_bytes, "M_words": self.M_bytes // self.problem.word_bytes},
            "unmarked_steps": self.unmarked,
            "nothing_fits": self.nothing_fits,
            "results": self.to_rows(),
            "measured": [one._asdict() for phase in self.phases for one in measured(self.hardware, phase)],
            "claim": None if self.claim is None else self.claim.to_dict(),
            "answer": " ".join(line for part in lead_and_reasons(self) for line in part),
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{asked(self.problem, self.M_bytes)} on {self.hardware.name}; {numbered(len(self.rows), 'row')}"

    @property
    def notes(self) -> list[str]:
        """Those of the counts."""
        reports = [phase.report for phase in self.phases]
        tiles = [] if reports[0].under.chip else [note for one in reports for note in notes_on_tiles(one)]
        return list(dict.fromkeys([*(note for one in reports for note in one.notes), *tiles, *copied_once(reports)]))


@takes_options()
def roofline(
    N: int,
    d: int | None = None,
    hardware: str | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    decode: bool = False,
    claim: str | None = None,
    mask: str | Mask = "dense",
    paper_model: bool = False,
    **options: Unpack[ProblemOptions],
) -> Roofline:
    """The least time of schedules on a GPU and what binds, launch by launch: a Roofline.

    `hardware` is a preset, as `H100`, or a hardware file. M is that of the GPU unless given, and the conditions are
    those that `count` names. `decode` adds rows for one query over the same keys. `claim` is a time or a rate, as
    `215us`, `3.5TB/s` or `700TFLOP/s`: the answer's `claim` says whether it is possible; with `decode` it is about the
    one query. Other options are those of `count`, `model` too. Raises InputError for whatever is not allowed.
    """
    d = head_dimension(d)
    if hardware is None:
        raise InputError("--hardware", "nothing", "a preset: see iosim hardware", "as --hardware h100")
    under = conditions(hardware, options, tile_multiple, paper_model, tiles)
    problem, rule, chip = Attention(N, d, mask=parse_mask(mask), **under.options), read_tiles(tiles), load(hardware)
    M_bytes = chip.sram_bytes if M is None else parse_bytes(M, problem.word_bytes)
    chosen, problem, under = asked_or_usual(schedules, problem, under)
    for schedule in chosen:
        require(schedule, problem)
    problems = [*([] if decode and problem.N == 1 else [problem]), *([one_token(problem)] if decode else [])]
    judgement = None if claim is None else claim_on(claim, problems[-1], chip, chosen)
    phases = [phase_of(p, chip, M_bytes, chosen, rule, under) for p in problems]
    return Roofline(problem, chip, M_bytes, phases, judgement)


def claim_on(text: str, p: Attention, chip: Hardware, schedules: Sequence[Schedule]) -> Judged:
    """The judgement of a claim about a forward pass of attention."""
    if all(schedule.family == "state" for schedule in schedules):
        return claim_on_state(text, p, chip)
    other = [schedule.name for schedule in schedules if schedule.family != ATTENTION]
    if other:
        raise InputError("--claim", text, "a forward pass of attention", f"leave out {joined(other)}")
    work = {dtype: needed_by_problem(own) for dtype, own in in_narrower_types(p).items()}
    return judged(parse_claim(text), needed_by_problem(p), chip, p.dtype, work)


def one_token(p: Attention) -> Attention:
    """The step of one token: over the same keys, or behind a state, which is read and written."""
    state = {"Nk": 1, "initial_state": True, "final_state": True, "padding": 0} if family_of(p) == "state" else {}
    return narrowed(p, N=1, **state)


def claim_on_state(text: str, p: Attention, chip: Hardware) -> Judged:
    """The judgement of a claim about a pass of attention with a state, by the bytes that it moves at least."""
    from ..counting.state_heads import heads_of_problem, problem_of

    claim, heads, one = parse_claim(text, flops=False), heads_of_problem(p), problem_of(p)
    work = sum(heads.moved(one.N, one.initial, one.final))
    instead = heads.otherwise([(one.N, True, 1)]) if one.initial and one.final else {}
    return judged(claim, {"memory": work}, chip, p.dtype, {}, instead)


# ---------------------------------------------------------------- columns


def of_all(name: str) -> Column[RooflineRow]:
    """The column of a value that only all launches together have."""
    return Column(name, of=lambda row: getattr(row.result, name) if row.launch == ALL else None)


def of_result(name: str) -> Column[RooflineRow]:
    """The column of a value of the result."""
    return Column(name, of=lambda row: getattr(row.result, name))


def of_work(name: str) -> Column[RooflineRow]:
    """The column of a count of work."""
    return Column(name, of=lambda row: getattr(row.work, name))


def of_tiles(name: str) -> Column[RooflineRow]:
    """The column of a count of work that only tiles have."""
    return Column(name, of=lambda row: getattr(row.work, name) if row.result.Br else None)


def time_column(name: str, spare: int) -> Column[RooflineRow]:
    """The column of the time of a resource: seconds, and microseconds for people."""

    def shown(row: RooflineRow) -> str | None:
        digits = 1 if row.at_least_seconds >= 1e-4 else 2
        return f"{row.times[name] * 1e6:,.{digits}f}" if name in row.times else None

    return Column(TIME_OF[name], "number", f"{SHORT[name]} us", shown, spare, lambda row: row.times.get(name))


TIME_OF = {name: f"{name}_seconds" for name in RESOURCES}
SHORT = {**dict(zip(RESOURCES, RESOURCES, strict=True)), "memory": "HBM", "l2": "L2"}
LAUNCH: Columns[RooflineRow] = (
    Column("phase", "string", "phase", spare=12),
    replace(of_result("schedule"), type="string", heading="schedule"),
    replace(of_result("tiling"), type="string"),
    of_result("Br"),
    of_result("Bc"),
    Column("tiles", None, "tiles", lambda row: tiles_cell(row.result), folds=True),
    replace(of_result("fits"), type="boolean", heading="fits", cell="yes or NO", spare=11),
    Column("launch", "string", "launch", spare=13),
    of_work("read_bytes"),
    of_work("write_bytes"),
    replace(of_work("total_bytes"), type=None, heading="bytes", cell="bytes", spare=6),
    of_work("floor_bytes"),
    of_work("matrix_flops"),
    of_work("exps"),
    of_tiles("smem_read_words"),
    of_tiles("smem_read_bytes"),
    Column("intensity", "number", "FLOP/B", ".2f", 4),
    Column("ridge", "number", "ridge", ".1f", 3),
    replace(of_all("ratio_to_floor"), type="number", heading="x floor", cell=".3f", spare=2),
    replace(of_tiles("blocks"), heading="blocks", spare=5),
    *(time_column(name, spare=11 - k) for k, name in enumerate(RESOURCES)),
    Column("at_least_seconds", "number", "us at least", lambda row: f"{row.at_least_seconds * 1e6:,.2f}"),
    Column("binds", "string", "binds"),
    of_all("sram_peak_bytes"),
    replace(of_all("smem_peak_bytes"), heading="shared bytes", spare=14),
    replace(of_all("register_peak_bytes"), heading="register bytes", spare=15),
    replace(of_all("limit"), type="string"),
)
ON_CHIP = ("smem_peak_bytes", "register_peak_bytes")  # shown if tiles may be in both
SHOWN = (
    "phase", "schedule", "tiles", "fits", *ON_CHIP, "launch", "total_bytes", "intensity", "ridge", "ratio_to_floor",
    "blocks", *TIME_OF.values(), "at_least_seconds", "binds",
)  # fmt: skip
EXPLAINED = (
    "us at least: each launch takes as long as its slowest resource, at the rates of the data sheet, in whole waves of "
    "thread blocks."
)


# ---------------------------------------------------------------- sentences


def lead_and_reasons(found: Roofline) -> tuple[list[str], list[str]]:
    """The sentences that lead, which are the judgement of a claim, the bound of each phase and what was measured, and
    those on why."""
    lead, reasons = list[str](), list[str]()
    for phase in found.phases:
        label = f"{phase.label}: " * (len(found.phases) > 1)
        report = on_chip(phase.report, found.hardware)
        lead += [*(label + line for line in lead_lines(report)), *measured_sentence(found.hardware, phase)]
        reasons += [label + line for line in reason_lines(report)]
    bounds = [row.at_least_seconds for row in found.phases[-1].rows if row.launch == ALL and row.result.fits]
    claimed = [] if found.claim is None else found.claim.beside(bounds, "tiles")
    return [*claimed, *lead], [*reasons, measured_over_bounds()]


def leading(report: Report) -> list[Result]:
    """The results that the first sentence names."""
    every = [*report.results, *(result for _, result in report.published)]
    return [every[k] for k in leaders(report)]


def on_chip(report: Report, chip: Hardware) -> Report:
    """The report with sentences about time, under the paper's model too."""
    return replace(report, under=report.under._replace(chip=chip))


def measured(chip: Hardware, phase: Phase) -> list[Beside]:
    """The kept measurements of PyTorch's kernels on this GPU for the problem of a phase, the fastest first; none if no
    softmax attention fits."""
    best = next((r for r in phase.best if find(r.schedule).family == ATTENTION), None)
    if best is None:
        return []
    every = measured_beside(chip, phase.report.problem)
    return [Beside(phase.label, one.kernel, one.seconds, one.seconds / seconds(best)) for one in every]


def measured_sentence(chip: Hardware, phase: Phase) -> list[str]:
    """The sentence about kept measurements; nothing if there is none for this problem."""
    rows = measured(chip, phase)
    slower = any(row.x_bound < 1 for row in rows)  # than kernels that do it otherwise
    bound = f"bound of {phase.best[0].schedule}" if slower else "bound"
    each = [f"{row.kernel} {row.seconds * 1e6:,.2f} us ({rounded(row.x_bound)} times the {bound})" for row in rows]
    return [f"Measured on {chip.name}: {', '.join(each)}."] if rows else []


def rates_text(chip: Hardware, dtype: str) -> str:
    """The rates of a chip for people: `HBM 3.35 TB/s, L2 15.46 TB/s, fp16 products 989.4 TFLOP/s`."""
    unit = {"matrix": "TFLOP/s", "exp": "T/s"}
    return ", ".join(
        f"{thing_of(name, dtype)} {f'{rate / 1e12:,.4g} {unit[name]}' if name in unit else format_rate(rate)}"
        for name, rate in rates_of(chip, dtype).items()
    )


def copied_once(reports: Sequence[Report]) -> list[str]:
    """The note on a launch that a sequence has once, before its first token; none without one."""
    states = [report for report in reports if family_of(report.problem) == "state"]
    if not states:
        return []
    from ..schedules.state import INITIAL_STATE

    given = [r.schedule for report in states if report.problem[INITIAL_STATE] for r in report.results]
    names = [name for name in dict.fromkeys(given) if "slot" in find(name).tensors]
    copies = "copies the given state into its slot, once for a sequence: a step is what follows it"
    return [f"launch 1 of {joined(names)} {copies}"] if names else []
