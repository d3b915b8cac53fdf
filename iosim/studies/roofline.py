"""Arithmetic of each kind against bytes, launch by launch: intensity, ridge, and the least time on a GPU.

The times are those of the ideal roofline (ideal_roofline.py), at the GPU's peaks. Kept measurements of PyTorch's
kernels (configs/measured/kernels.csv) stand beside them.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Unpack

from ..answer import Answer, Column, Columns, Piece, Pieces, Row, Table, columns_of, in_order, numbered, rounded
from ..core.problem import DENSE, Attention
from ..core.tiling import read_tiles
from ..counting.asked import asked, divided_text, size_line
from ..counting.bounds import floor_of
from ..counting.columns import problem_row
from ..counting.conditions import conditions
from ..counting.count import asked_or_usual, choose_tiling, limit_of, measure, rules_of
from ..counting.names import takes_options
from ..counting.notes import mask_notes, tile_notes
from ..counting.sentence import BASELINE
from ..hardware import Hardware, configs_folder, load
from ..masks import parse_mask
from ..schedules import Schedule, find, require
from ..units import format_bytes, format_rate, parse_bytes
from ..verdict import NEAR, Way, times, verdict
from .ideal_roofline import RooflineRow, peaks, rows_of, work_by_kind

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import Rule, TilesAsked, Tiling
    from ..schedules.registry import SchedulesAsked


SIZES = ("N", "Nk", "d", "batch", "heads", "kv_heads")


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


@dataclass(frozen=True, repr=False)
class Roofline(Answer):
    """The answer of `roofline`. `implied` are the notes on what the GPU implies."""

    problem: Attention
    hardware: Hardware
    M_bytes: int
    rows: list[RooflineRow]
    unmarked: list[str] = field(default_factory=list)
    nothing_fits: list[str] = field(default_factory=list)
    implied: tuple[str, ...] = ()

    def table(self) -> Table:
        one_phase = len({row.phase for row in self.rows}) == 1
        columns = [replace(column, spare=1) if one_phase and column.name == "phase" else column for column in LAUNCH]
        if not self.hardware.l2_bytes:
            columns = [replace(column, heading=ALONE.get(column.name, column.heading)) for column in columns]
        absent = (*ON_CHIP * (not self.problem.divided), *WITH_L2 * (not self.hardware.l2_bytes))
        known = {column.name for column in columns}.difference(absent)
        names = [name for name in SHOWN if name in known]
        best = [*map(self.rows.index, winners(self))]
        return Table(columns, self.rows, shown=in_order(columns, names), best=best, tall=True)

    def pieces(self) -> Pieces:
        p, chip = self.problem, self.hardware
        ridges = ", ".join(f"{name} {chip.ridge(name):.1f}" for name in chip.flops_per_second if name != "exp")
        memory = f"M = {format_bytes(self.M_bytes)}{divided_text(p)}"
        first, reasons = lead_and_reasons(self)
        lines: list[Piece] = [
            *first,
            f"{size_line(p)}, {p.dtype}, {p.acc_dtype} accumulators{p.cache_text}, mask {p.mask}",
            f"{chip.name}: {format_rate(chip.hbm_bytes_per_second)}, {memory}",
            f"ridge in FLOP/B: {ridges}",
            "",
            self.table(),
            "",
            *times_explained(self),
        ]
        if self.nothing_fits:
            lines.append("no tiles fit: " + ", ".join(self.nothing_fits))
        if self.unmarked:
            lines.append("steps whose exponentials and other operations are not counted: " + ", ".join(self.unmarked))
        return [*lines, *([""] if reasons else []), *reasons]

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
            "measured": [row._asdict() for winner in winners(self) for row in measured(self, winner)],
            "answer": " ".join(line for part in lead_and_reasons(self) for line in part),
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{asked(self.problem, self.M_bytes)} on {self.hardware.name}; {numbered(len(self.rows), 'row')}"

    @property
    def notes(self) -> list[str]:
        """Notes on what the GPU implies, on schedules that skip nothing under the mask, and on tiles that tensor cores
        cannot use."""
        p, best = self.problem, winners(self)
        found = [(replace(p, N=1) if row.phase == "decode" else p, row) for row in best]
        tiles = tile_notes(found, self.M_bytes, (row.schedule for row in self.rows if row.tiling == "best"))
        return [*self.implied, *mask_notes(p, (row.schedule for row in self.rows)), *tiles]


@takes_options()
def roofline(
    N: int,
    d: int,
    hardware: str,
    M: int | str | None = None,
    *,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    decode: bool = False,
    mask: str | Mask = "dense",
    paper_model: bool = False,
    **options: Unpack[ProblemOptions],
) -> Roofline:
    """Work, bytes and least times of schedules on a GPU, launch by launch: a Roofline.

    `hardware` is a preset, as `H100`, or a hardware file. M is that of the GPU unless given, and the conditions are
    those that `count` names. `decode` adds rows for one query over the same keys. Other options are those of
    `count`. Raises InputError for whatever is not allowed.
    """
    under = conditions(hardware, options, tile_multiple, paper_model, tiles)
    problem, rule = Attention(N, d, mask=parse_mask(mask), **under.options), read_tiles(tiles)
    chip = load(hardware)
    peaks(chip, problem)
    M_bytes = chip.sram_bytes if M is None else parse_bytes(M, problem.word_bytes)
    chosen, under = asked_or_usual(schedules, problem, under)
    found = Roofline(problem, chip, M_bytes, [], implied=under.notes)
    return filled(found, chosen, rule, under.multiple, decode)


def filled(
    found: Roofline, schedules: Sequence[Schedule], rule: Rule | None, tile_multiple: int = 1, decode: bool = False
) -> Roofline:
    """A roofline with its rows."""
    for schedule in schedules:
        require(schedule, found.problem)
    problems = [found.problem, replace(found.problem, N=1)] if decode and found.problem.N > 1 else [found.problem]
    for p in problems:
        for schedule in schedules:
            for own_rule in rules_of(schedule, rule, p):
                tiling = choose_tiling(schedule, own_rule, p.packed, found.M_bytes, tile_multiple)
                add_rows(found, schedule, own_rule, p, tiling)
    return found


def add_rows(found: Roofline, schedule: Schedule, rule: Rule, p: Attention, tiling: Tiling | None) -> None:
    """Add the rows of one schedule with one tile rule; without a tiling, its name to those of which nothing fits."""
    if tiling is None:
        found.nothing_fits[:] = dict.fromkeys([*found.nothing_fits, schedule.name])
        return
    watcher = work_by_kind(schedule, p.packed, tiling)
    found.unmarked[:] = sorted(watcher.unmarked.union(found.unmarked))
    *parts, whole = rows_of(schedule, rule, p, tiling, watcher.launches, found.hardware, found.M_bytes)
    whole = with_words(whole, schedule, p, tiling, found.M_bytes)
    found.rows.extend([*parts, whole])


def with_words(row: RooflineRow, schedule: Schedule, p: Attention, tiling: Tiling, M_bytes: int) -> RooflineRow:
    """The row of all launches with its footprint, what is too small for it, and the ratio of its words to their
    floor."""
    counted = measure(schedule, p.packed, tiling)
    least = floor_of(p, M_bytes, schedule.family) if row.fits else None
    share = counted["total"] / least if least else None
    return replace(
        row,
        ratio_to_floor=share,
        limit=limit_of(row.fits, counted["least_smem_bytes"], M_bytes),
        sram_peak_bytes=counted["sram_peak_bytes"],
        smem_peak_bytes=counted["smem_peak_bytes"],
        register_peak_bytes=counted["register_peak_bytes"],
    )


# ---------------------------------------------------------------- columns and texts


def microseconds(seconds: float | None) -> str | None:
    """A time for people."""
    return None if seconds is None else f"{seconds * 1e6:.2f}"


ROW: Columns[RooflineRow] = columns_of(
    RooflineRow,
    Column("phase", "string", "phase", spare=12),
    Column("schedule", "string", "schedule"),
    Column("fits", "boolean", "fits", "yes or NO", 13),
    Column("launch", "string", "launch", spare=14),
    Column("intensity", "number", "FLOP/B", ".2f", 5),
    Column("ridge", "number", "ridge", ".1f", 4),
    Column("ratio_to_floor", "number", "x floor", ".3f", 3),
    Column("ideal_l2_seconds", "number", "us ideal L2", lambda row: microseconds(row.ideal_l2_seconds)),
    Column("ideal_l2_binds", "string", "limit"),
    Column("sm_traffic_seconds", "number", "us SM traffic", lambda row: microseconds(row.sm_traffic_seconds), 11),
    Column("sm_traffic_binds", "string", "its limit", spare=10),
    Column("smem_peak_bytes", heading="shared bytes", spare=8),
    Column("register_peak_bytes", heading="register bytes", spare=7),
)
WORK: Columns[RooflineRow] = (
    Column("tiles", None, "tiles", lambda row: f"{row.Br}x{row.Bc}" if row.Br else row.tiling),
    Column("read_bytes", of=lambda row: row.work.read_bytes),
    Column("write_bytes", of=lambda row: row.work.write_bytes),
    Column("total_bytes", None, "bytes", "bytes", 6, of=lambda row: row.work.total_bytes),
    Column("floor_bytes", of=lambda row: row.work.floor_bytes),
    Column("matrix_flops", heading="matrix FLOP", cell=".3e", spare=3, of=lambda row: row.work.matrix_flops),
    Column("exps", heading="exp", cell=".3e", spare=1, of=lambda row: row.work.exps),
    Column("other_ops", heading="other", cell=".3e", spare=2, of=lambda row: row.work.other_ops),
)
LABELS = 7  # columns that say what a row is about
LAUNCH = (*ROW[:LABELS], *WORK, *ROW[LABELS:])
ON_CHIP = ("smem_peak_bytes", "register_peak_bytes")  # shown if tiles may be in both
WITH_L2 = ("ideal_l2_seconds", "ideal_l2_binds")
ALONE = {"sm_traffic_seconds": "us", "sm_traffic_binds": "limit"}  # headings of a chip without an L2
SHOWN = (
    "phase", "schedule", "tiles", "fits", *ON_CHIP, "launch", "total_bytes", "matrix_flops", "exps", "other_ops",
    "intensity", "ridge", "ratio_to_floor", "ideal_l2_seconds", "ideal_l2_binds", "sm_traffic_seconds",
    "sm_traffic_binds",
)  # fmt: skip


def times_explained(found: Roofline) -> list[str]:
    """The meaning of the times."""
    at_peaks = "microseconds at the peaks, perfectly overlapped"
    lines = [
        f"us ideal L2: the bound. {at_peaks.capitalize()}, if each launch moves each byte to or from HBM once",
        "us SM traffic: the same if all that multiprocessors load and store came from HBM; the L2 makes kernels faster",
    ]
    return [
        *(lines if found.hardware.l2_bytes else [f"us: {at_peaks}"]),
        "limit: the slowest resource, which binds: memory, matrix (products), exp (exponentials), other (operations)",
    ]


# ---------------------------------------------------------------- the answer in a sentence

SLOWEST = {
    "memory": "the HBM binds",
    "matrix": "matrix products bind",
    "exp": "exponentials bind",
    "other": "operations outside of products bind",
}


def winners(found: Roofline) -> list[RooflineRow]:
    """The row of the least bound for each phase and family of schedules: of all launches, among those that fit. Ties go
    to fewer bytes."""
    within = [row for row in found.rows if row.launch == "all" and row.fits]
    return [min((row for row in within if kind(row) == one), key=cost) for one in dict.fromkeys(map(kind, within))]


def kind(row: RooflineRow) -> tuple[str, str]:
    """The phase, and the family of the schedule. Rows of the same kind are compared."""
    return row.phase, find(row.schedule).family


def cost(row: RooflineRow) -> tuple[float, int]:
    """The least time of a row in whole picoseconds, then the bytes that its multiprocessors move."""
    return round(row.bound_seconds * 1e12), row.work.total_bytes


def lead_and_reasons(found: Roofline) -> tuple[list[str], list[str]]:
    """The sentences that lead, which are the bound of each phase and what was measured, and those on why."""
    best, lead, reasons = winners(found), list[str](), list[str]()
    for row in best:
        label = f"{row.phase}: " * (len({each.phase for each in best}) > 1)
        first, *more = time_lines(found, row)
        lead += [label + first, *more]
        reasons += [*([label.rstrip()] if label else []), *reasons_of(found, row)]
    return lead or ["Nothing that was asked for fits in this SRAM."], reasons


def reasons_of(found: Roofline, winner: RooflineRow) -> list[str]:
    """The sentences about one phase below its bound: standard attention beside it, and what is next."""
    alike = sorted((row for row in found.rows if row.launch == "all" and kind(row) == kind(winner)), key=cost)
    rows = {named(row): row for row in alike}
    ways = [
        Way(name, cost(row)[0], row.fits, row.smem_peak_bytes or 0, shown=f"{microseconds(row.bound_seconds)} us")
        for name, row in rows.items()
    ]
    baseline = next((way for way in ways if rows[way.name].schedule == BASELINE), None)
    _, *rest = verdict(
        ways, "take", found.M_bytes, baseline, lambda best, other: why(rows[best.name], rows[other.name])
    )
    return rest


def why(best: RooflineRow, other: RooflineRow) -> str:
    """Why a row takes longer than the best one."""
    for text, mine, its in (
        ("HBM moves {} times as many bytes", best.bound_bytes, other.bound_bytes),
        ("it computes {} times as many FLOPs of products", best.work.matrix_flops, other.work.matrix_flops),
    ):
        if its > NEAR * mine:
            return text.format(times(its, mine))
    return SLOWEST[other.bound_binds]


def time_lines(found: Roofline, row: RooflineRow) -> list[str]:
    """The sentences about the times of a row: the bound, and what was measured."""
    return [bound_sentence(found, row), *measured_sentence(found, row)]


def bound_sentence(found: Roofline, row: RooflineRow) -> str:
    """The sentence that leads: the least time of a row, and what binds."""
    chip = found.hardware
    cached = "with an ideal L2, which serves all that is read again, " if chip.l2_bytes else ""
    least = f"{named(row)} takes at least {row.bound_seconds * 1e6:,.2f} us at the data-sheet peaks of {chip.name}"
    return f"{least}: {cached}{SLOWEST[row.bound_binds]}."


class Beside(NamedTuple):
    """A kept measurement beside the bound of a phase."""

    phase: str
    kernel: str
    seconds: float
    x_bound: float


def measured(found: Roofline, winner: RooflineRow) -> list[Beside]:
    """The kept measurements of PyTorch's kernels on this GPU for the winner's problem, the fastest first; none if it
    computes something else than softmax attention."""
    if find(winner.schedule).family != "attention":
        return []
    p = replace(found.problem, N=1) if winner.phase == "decode" else found.problem
    every = measured_beside(found.hardware, p)
    return [Beside(winner.phase, one.kernel, one.seconds, one.seconds / winner.bound_seconds) for one in every]


def measured_sentence(found: Roofline, winner: RooflineRow) -> list[str]:
    """The sentence about kept measurements; nothing if there is none for this problem."""
    rows = measured(found, winner)
    of_slower = f" of {winner.schedule}" * any(row.x_bound < 1 for row in rows)  # than kernels that do it otherwise
    each = [
        f"{row.kernel} {row.seconds * 1e6:,.2f} us ({rounded(row.x_bound)} times the bound{of_slower})" for row in rows
    ]
    return [f"Measured on {found.hardware.name}: {', '.join(each)}."] if rows else []


def named(row: RooflineRow) -> str:
    """A row by its schedule and tiles."""
    return row.schedule + (f" ({row.Br}x{row.Bc})" if row.Br else "")
