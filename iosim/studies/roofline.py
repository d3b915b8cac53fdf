"""Arithmetic of each kind against bytes, launch by launch: intensity, ridge, and three times on a GPU.

The ideal roofline holds each launch against the GPU's peaks. A launch takes as long as its slowest resource: memory,
matrix products, exponentials or other operations, all perfectly overlapped. Launches follow each other. It gives two
times, which differ in what they assume of memory. Either every word of the two-level model comes from HBM (no L2), or
each launch moves each word of a tensor to or from HBM once (ideal L2).

The third time is predicted (predict/generated.py): that of the generated kernels, with rates measured on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from ..core.folded import Folded
from ..core.problem import DENSE, Attention
from ..core.tiling import MMA, Tiling, tiles_text
from ..core.watchers import Watcher
from ..counting.asked import asked
from ..counting.bounds import floor_of
from ..counting.count import (
    KEYWORDS,
    check_names,
    choose_tiling,
    default_schedules,
    limit_of,
    measure,
    rules_of,
)
from ..errors import InputError, IosimError
from ..hardware import Hardware, load, measured_as
from ..masks import parse_mask
from ..notebook import Answer, numbered
from ..schedules import Schedule, find_all, require
from ..search.best import footprint
from ..units import parse_bytes, parse_count

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.tiling import TilesAsked
    from ..core.typing import Input, Mask, Shape, Size, Step
    from ..counting.typing import ProblemOptions
    from ..grid import Pieces
    from ..predict.predict import Prediction
    from ..schedules.registry import SchedulesAsked
    from ..tables import Row as Cells
    from ..tables import Rows

# The operations of one kind: products of factors, from the shapes of a step's arguments.
OperationTerms = Callable[..., "Iterable[Shape]"]  # type: ignore[explicit-any]  # each step has arguments of its own
TAKEN = ("N", "d", "hardware", "M", "schedules", "tiles", "tile_multiple", "decode", "mask")
LARGE = 128  # rows and keys of tiles that are soon predicted
MOST_SECONDS = 5.0  # about the longest time of one prediction; longer ones are left out


@dataclass
class LaunchWork:
    """The work of one kernel, over all heads. `floor_bytes` touches every word of its tensors once."""

    read_bytes: int = 0
    write_bytes: int = 0
    floor_bytes: int = 0
    matrix_flops: int = 0
    exps: int = 0
    other_ops: int = 0

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    def __add__(self, more: LaunchWork) -> LaunchWork:
        return LaunchWork(**{name: value + getattr(more, name) for name, value in vars(self).items()})


class WorkByKind(Watcher):
    """Bytes and operations by kind, for each launch; `unmarked` are steps whose operations nobody stated."""

    def __init__(self) -> None:
        self.launches: list[LaunchWork] = []
        self.unmarked: set[str] = set()
        self._restart()

    def _restart(self) -> None:
        self._now = LaunchWork()
        self._moved: dict[tuple[str, str], int] = {}

    def start(self, machine: Machine) -> None:
        self.machine, self.p = machine, machine.p

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self._now.read_bytes += self._move("read", tensor, words)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._now.write_bytes += self._move("write", tensor, words)

    def _move(self, way: str, tensor: str, words: Size) -> int:
        """The bytes of all heads that move, which are also kept by tensor."""
        moved = int(words * self.p.hbm_bytes(self.machine.tensors[tensor]) * self.p.instances)
        self._moved[way, tensor] = self._moved.get((way, tensor), 0) + moved
        return moved

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        instances = int(self.p.instances)
        self._now.matrix_flops += int(flops) * instances
        work: tuple[OperationTerms, OperationTerms] | None = getattr(step, "work", None)
        if work is None:
            self.unmarked.add(step.__name__)
            return
        shapes = [getattr(x, "shape", ()) for x in (*outputs, *inputs)]
        exps, other = (sum(int(self.machine.total(term)) for term in terms(*shapes)) for terms in work)
        self._now.exps += exps * instances
        self._now.other_ops += other * instances

    def launch_ended(self) -> None:
        sizes = {name: self._whole(name) for _, name in self._moved}
        self._now.floor_bytes = sum(min(moved, sizes[name]) for (_, name), moved in self._moved.items())
        self.launches.append(self._now)
        self._restart()

    def _whole(self, name: str) -> int:
        """Bytes of a tensor over all heads; query heads of a group share their K and V."""
        tensor, p = self.machine.tensors[name], self.p
        size = p.batch * (p.kv_heads if tensor.shared else p.heads) * p.hbm_bytes(tensor)
        for length in p.shape(tensor):
            size = size * length
        return int(size)


class Labels(TypedDict):
    """The kernels that a row is about."""

    phase: str
    schedule: str
    tiling: str
    Br: int | None
    Bc: int | None
    fits: bool


@dataclass(frozen=True)
class RooflineRow:
    """A launch, or all of them (`launch` = all), on one GPU.

    `seconds` and `ideal_l2_seconds` are times at the peaks; `binds` and `ideal_l2_binds` name the slowest resource.
    `intensity` is matrix FLOPs a byte; for a launch without any it is all its operations a byte. At an intensity above
    `ridge` the limit is that kind of arithmetic, and not the HBM.

    Only rows of all launches have `sram_peak_bytes`, its parts in shared memory and in registers, and the ratio of
    words to their floor. The ratio is there if the tiles fit and there is a floor. `limit` is what is too small for
    tiles that do not fit, as in `Result.limit`.

    These rows also have the predictions for the generated kernels: seconds, the limit (DRAM, L2 or blocks), and DRAM
    bytes. They are None on other rows and without a prediction (`Roofline.not_predicted` says why).
    """

    phase: str
    schedule: str
    tiling: str
    Br: int | None
    Bc: int | None
    fits: bool
    launch: str
    work: LaunchWork
    intensity: float | None
    ridge: float
    memory_seconds: float
    matrix_seconds: float
    exp_seconds: float
    other_seconds: float
    seconds: float
    binds: str
    ideal_l2_seconds: float
    ideal_l2_binds: str
    sram_peak_bytes: int | None = None
    ratio_to_floor: float | None = None
    smem_peak_bytes: int | None = None
    register_peak_bytes: int | None = None
    limit: str | None = None
    predicted_seconds: float | None = None
    predicted_binds: str | None = None
    predicted_dram_read_bytes: int | None = None
    predicted_dram_write_bytes: int | None = None


def roofline_columns() -> tuple[str, ...]:
    """The columns of the rows of a Roofline, even if it has no row because nothing fits."""
    from .roofline_tables import LABELS

    others = [column.name for column in fields(RooflineRow) if column.name not in (*LABELS, "work")]
    return (*LABELS, *(column.name for column in fields(LaunchWork)), *others)


@dataclass(frozen=True)
class Missing:
    """The kernels whose time is not predicted, each with the reason."""

    schedule: str
    tiles: str
    why: str


@dataclass(frozen=True, repr=False)
class Roofline(Answer):
    """The answer of `roofline`. `measured_on` is the GPU whose rates predict; None if none were measured.

    `on_cuda_cores` names predicted kernels whose products cannot run on tensor cores, and says why.
    """

    problem: Attention
    hardware: Hardware
    M_bytes: int
    rows: list[RooflineRow]
    unmarked: list[str] = field(default_factory=list)
    nothing_fits: list[str] = field(default_factory=list)
    measured_on: Hardware | None = None
    not_predicted: list[Missing] = field(default_factory=list)
    on_cuda_cores: list[str] = field(default_factory=list)

    def pieces(self) -> Pieces:
        from .roofline_tables import roofline_pieces

        return roofline_pieces(self)

    def to_rows(self) -> Rows:
        from .roofline_tables import roofline_rows

        return roofline_rows(self)

    def to_dict(self) -> Cells:
        from .roofline_tables import roofline_json

        return roofline_json(self)

    def summary(self) -> str:
        return f"{asked(self.problem, self.M_bytes)} on {self.hardware.name}; {numbered(len(self.rows), 'row')}"

    @property
    def notes(self) -> list[str]:
        """Notes on schedules that skip nothing under the mask, and on tiles that tensor cores cannot use."""
        from .roofline_tables import notes_on_answer

        return notes_on_answer(self)


def roofline(
    N: int, d: int, hardware: str, M: int | str | None = None, *, schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None, tile_multiple: int = 1, decode: bool = False, mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Roofline:  # fmt: skip
    """Work, bytes and times of schedules on a GPU, launch by launch: a Roofline.

    `hardware` is a preset, as `H100`, or a hardware file. M is that of the GPU unless given. `decode` adds rows for
    one query over the same keys. Other options are those of `count`. Raises InputError for whatever is not
    allowed.
    """
    check_names("roofline", options, KEYWORDS, TAKEN)
    problem, tiles = Attention(N, d, mask=parse_mask(mask), **options), tiles_text(tiles)
    parse_count(tile_multiple, "--tile-multiple")
    chip = load(hardware)
    peaks(chip, problem)
    M_bytes = chip.sram_bytes if M is None else parse_bytes(M, problem.word_bytes)
    found = Roofline(problem, chip, M_bytes, [], measured_on=measured_as(hardware))
    return filled(found, find_all(schedules) or default_schedules(problem), tiles, tile_multiple, decode)


def filled(
    found: Roofline, schedules: Sequence[Schedule], tiles: str | None, tile_multiple: int = 1, decode: bool = False
) -> Roofline:
    """A roofline with its rows. Without `measured_on` it has no predicted times, which can take seconds."""
    for schedule in schedules:
        require(schedule, found.problem)
    problems = [found.problem, replace(found.problem, N=1)] if decode and found.problem.N > 1 else [found.problem]
    for p in problems:
        for schedule in schedules:
            for rule in rules_of(schedule, tiles, p):
                tiling = choose_tiling(schedule, rule, p.packed, found.M_bytes, tile_multiple)
                add_rows(found, schedule, rule, p, tiling)
    return found


def add_rows(found: Roofline, schedule: Schedule, rule: str, p: Attention, tiling: Tiling | None) -> None:
    """Add the rows of one schedule with one tile rule; without a tiling, its name to those of which nothing fits."""
    if tiling is None:
        found.nothing_fits[:] = dict.fromkeys([*found.nothing_fits, schedule.name])
        return
    watcher = work_by_kind(schedule, p.packed, tiling)
    found.unmarked[:] = sorted(watcher.unmarked.union(found.unmarked))
    *parts, whole = rows_of(schedule, rule, p, tiling, watcher.launches, found.hardware, found.M_bytes)
    whole = with_words(whole, schedule, p, tiling, found.M_bytes)
    if found.measured_on is not None:
        try:
            whole = with_prediction(whole, predicted(schedule, rule, p, tiling, found.measured_on))
            found.on_cuda_cores.extend(without_tensor_cores(schedule, p.packed, tiling))
        except IosimError as error:
            name = rule if rule == "ideal" else f"{tiling.rows_q}x{tiling.rows_k}"
            found.not_predicted.append(Missing(schedule.name, name, str(error)))
    found.rows.extend([*parts, whole])


def with_words(row: RooflineRow, schedule: Schedule, p: Attention, tiling: Tiling, M_bytes: int) -> RooflineRow:
    """The row of all launches with its footprint, what is too small for it, and the ratio of its words to their
    floor."""
    counted = measure(schedule, p.packed, tiling)
    least = floor_of(p, M_bytes, schedule.family) if row.fits else None
    share = counted["total"] / least if least else None
    return replace(
        row, ratio_to_floor=share, limit=limit_of(row.fits, counted["least_smem_bytes"], M_bytes),
        sram_peak_bytes=counted["sram_peak_bytes"], smem_peak_bytes=counted["smem_peak_bytes"],
        register_peak_bytes=counted["register_peak_bytes"],
    )  # fmt: skip


# ---------------------------------------------------------------- the prediction


def predicted(schedule: Schedule, rule: str, p: Attention, tiling: Tiling, chip: Hardware) -> Prediction:
    """The prediction for the generated kernels on a GPU whose rates were measured. An IosimError gives the reason if
    there is none."""
    from ..cuda.machine import generate
    from ..predict.effort import seconds_to_predict
    from ..predict.generated import check_room, predict_generated

    if rule == "ideal":
        raise IosimError("an ideal schedule has no tiles")
    if p.divided:
        raise IosimError("the generated kernels keep their tiles in shared memory, and load one tile at a time; leave "
                          "out --registers and --stages")  # fmt: skip
    program = generate(schedule, p, tiling)
    check_room(program, chip)
    seconds = seconds_to_predict(schedule, program, chip)
    if seconds > MOST_SECONDS:
        raise IosimError(f"it would take about {seconds:.0f} s to predict; try {shorter(rule, tiling)}")
    return predict_generated(schedule, program, chip)


def shorter(rule: str, tiling: Tiling) -> str:
    """What makes a prediction shorter. Tiles are no advice to those who have such tiles."""
    if tiling.rows_q * tiling.rows_k >= LARGE**2:
        return "a smaller N"
    odd = rule == "best" and (tiling.rows_q % MMA or tiling.rows_k % MMA)
    others = f" or --tile-multiple {MMA}" if odd else ""
    return f"larger tiles or a smaller N, for example with --tiles {LARGE}x{LARGE}{others}"


def without_tensor_cores(schedule: Schedule, p: Attention, tiling: Tiling) -> list[str]:
    """One sentence on why no launch of a generated kernel uses tensor cores; nothing if one does, or has no product."""
    from ..cuda.machine import generate

    rows, keys = min(tiling.rows_q, p.N), min(tiling.rows_k, p.Nk)
    reasons = {
        f"{p.dtype} has more than 16 bits": p.dtype == "fp32",
        f"a tile of {rows} queries has fewer than {MMA}": rows < MMA,
        f"a tile of {keys} keys has fewer than {MMA}": keys < MMA,
        f"d = {p.d} is not a multiple of {MMA}": p.d % MMA != 0,
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    if why is None or any(kernel.tensor_cores for kernel in generate(schedule, p, tiling).kernels):
        return []
    return [f"{schedule.name} {tiling.rows_q}x{tiling.rows_k}: {why}, so its products run on CUDA cores"]


def with_prediction(row: RooflineRow, found: Prediction) -> RooflineRow:
    """The row of all launches with what was predicted for them."""
    from ..predict.predict import DECIMALS

    time, dram = found.time, found.dram
    assert time is not None and dram is not None
    return replace(row, predicted_seconds=round(time.seconds, DECIMALS), predicted_binds=time.bound_by,
                   predicted_dram_read_bytes=dram.read_bytes, predicted_dram_write_bytes=dram.write_bytes)  # fmt: skip


# ---------------------------------------------------------------- the ideal roofline


def work_by_kind(schedule: Schedule, p: Attention, tiling: Tiling) -> WorkByKind:
    """The work of one folded walk. A mask that only hides moves no word and saves no step."""
    seen = p if schedule.skips or p.mask is DENSE else replace(p, mask=DENSE)
    watcher = WorkByKind()
    Folded(seen, watcher).run(schedule, tiling)
    return watcher


def peaks(chip: Hardware, p: Attention) -> dict[str, float]:
    """Peaks a second, by kind: bytes, matrix FLOPs of the problem's type, exponentials, other fp32 operations.

    A peak counts a multiply-add as two; other operations are single, so half of the fp32 peak.
    """
    known = {name: name in chip.flops_per_second for name in (p.dtype, "fp32", "exp")}
    if not all(known.values()):
        missing = next(name for name, there in known.items() if not there)
        has = ", ".join(name for name in chip.flops_per_second if name != "exp")
        raise InputError("--dtype", p.dtype, f"a type whose peak {chip.name} states: {has}",
                         f"no peak is known for {missing}")  # fmt: skip
    peak = chip.flops_per_second
    return {"memory": chip.hbm_bytes_per_second, "matrix": peak[p.dtype], "exp": peak["exp"], "other": peak["fp32"] / 2}


def rows_of(
    schedule: Schedule,
    rule: str,
    p: Attention,
    tiling: Tiling,
    launches: list[LaunchWork],
    chip: Hardware,
    M_bytes: int,
) -> list[RooflineRow]:
    """A row for each launch, and one for all together if there are several."""
    ideal = rule == "ideal"
    label: Labels = {
        "phase": "decode" if p.N == 1 < p.Nk else "prefill",
        "schedule": schedule.name,
        "tiling": rule if rule in ("ideal", "paper", "best") else "given",
        "Br": None if ideal else tiling.rows_q,
        "Bc": None if ideal else tiling.rows_k,
        "fits": int(footprint(schedule, p.packed, tiling).smem_bytes) <= M_bytes,
    }
    rows = [row_at_peaks(label, str(i), launch, p, chip) for i, launch in enumerate(launches, 1)]
    if len(rows) == 1:
        return [replace(rows[0], launch="all")]
    whole = row_at_peaks(label, "all", sum(launches[1:], launches[0]), p, chip)
    # Launches run one after the other, and each waits for its own slowest resource.
    seconds, cached = sum(row.seconds for row in rows), sum(row.ideal_l2_seconds for row in rows)
    return [*rows, replace(whole, seconds=seconds, ideal_l2_seconds=cached)]


def row_at_peaks(label: Labels, launch: str, work: LaunchWork, p: Attention, chip: Hardware) -> RooflineRow:
    """The row of one launch: its work, intensity, ridge, and times at the peaks."""
    peak = peaks(chip, p)
    times = {
        "memory": work.total_bytes / peak["memory"],
        "matrix": work.matrix_flops / peak["matrix"],
        "exp": work.exps / peak["exp"],
        "other": work.other_ops / peak["other"],
    }
    cached = {**times, "memory": work.floor_bytes / peak["memory"]}
    slowest, slowest_cached = max(times, key=times.__getitem__), max(cached, key=cached.__getitem__)
    operations = work.matrix_flops or work.exps + work.other_ops
    kind = p.dtype if work.matrix_flops else "fp32"
    return RooflineRow(
        **label,
        launch=launch,
        work=work,
        intensity=operations / work.total_bytes if work.total_bytes else None,
        ridge=chip.flops_per_second[kind] / chip.hbm_bytes_per_second,
        memory_seconds=times["memory"],
        matrix_seconds=times["matrix"],
        exp_seconds=times["exp"],
        other_seconds=times["other"],
        seconds=times[slowest],
        binds=slowest,
        ideal_l2_seconds=cached[slowest_cached],
        ideal_l2_binds=slowest_cached,
    )
