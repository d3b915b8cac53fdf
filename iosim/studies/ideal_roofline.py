"""The ideal roofline: the work of each launch by kind, and its times at the peaks of a GPU.

A launch takes as long as its slowest resource: memory, matrix products, exponentials or other operations, all perfectly
overlapped. Launches follow each other. There are two times, which differ in what they assume of memory. With an ideal
L2 each launch moves each word of a tensor to or from HBM once: this is the bound on a chip that has an L2. The time of
the SM traffic takes all that multiprocessors load and store from HBM: a bound only on a chip without an L2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from ..core.folded import Folded
from ..core.problem import Attention, as_moved
from ..core.tiling import rule_name
from ..core.watchers import Watcher
from ..errors import InputError
from ..search.best import footprint

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine
    from ..core.shapes import Shape
    from ..core.tiling import Rule, Tiling
    from ..core.typing import Size, Step
    from ..hardware import Hardware
    from ..schedules import Schedule

# The operations of one kind: products of factors, from the shapes of a step's arguments.
OperationTerms = Callable[..., "Iterable[Shape]"]  # type: ignore[explicit-any]  # each step has arguments of its own


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
        sizes = {name: int(self.p.whole_bytes(self.machine.tensors[name])) for _, name in self._moved}
        self._now.floor_bytes = sum(min(moved, sizes[name]) for (_, name), moved in self._moved.items())
        self.launches.append(self._now)
        self._restart()


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

    `ideal_l2_seconds` and `sm_traffic_seconds` are times at the peaks; `ideal_l2_binds` and `sm_traffic_binds` name the
    slowest resource.
    `intensity` is matrix FLOPs a byte; for a launch without any it is all its operations a byte. At an intensity above
    `ridge` the limit is that kind of arithmetic, and not the HBM. A chip without an L2 has no `ideal_l2` values.

    Only rows of all launches have `sram_peak_bytes`, its parts in shared memory and in registers, and the ratio of
    words to their floor. The ratio is there if the tiles fit and there is a floor. `limit` is what is too small for
    tiles that do not fit, as in `Result.limit`.
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
    sm_traffic_seconds: float
    sm_traffic_binds: str
    ideal_l2_seconds: float | None
    ideal_l2_binds: str | None
    sram_peak_bytes: int | None = None
    ratio_to_floor: float | None = None
    smem_peak_bytes: int | None = None
    register_peak_bytes: int | None = None
    limit: str | None = None

    @property
    def bound_seconds(self) -> float:
        """The time that holds: with an ideal L2 on a chip that has one."""
        return self.sm_traffic_seconds if self.ideal_l2_seconds is None else self.ideal_l2_seconds

    @property
    def bound_binds(self) -> str:
        """The slowest resource in that time."""
        return self.ideal_l2_binds or self.sm_traffic_binds

    @property
    def bound_intensity(self) -> float:
        """FLOPs of products a byte in that time; 0 without any bytes."""
        return self.work.matrix_flops / self.bound_bytes if self.bound_bytes else 0.0

    @property
    def bound_bytes(self) -> int:
        """The bytes that HBM moves in that time."""
        return self.work.total_bytes if self.ideal_l2_seconds is None else self.work.floor_bytes


def work_by_kind(schedule: Schedule, p: Attention, tiling: Tiling) -> WorkByKind:
    """The work of one folded walk. A mask that only hides moves no word and saves no step."""
    watcher = WorkByKind()
    Folded(as_moved(schedule, p), watcher).run(schedule, tiling)
    return watcher


def peaks(chip: Hardware, p: Attention) -> dict[str, float]:
    """Peaks a second, by kind: bytes, matrix FLOPs of the problem's type, exponentials, other fp32 operations.

    A peak counts a multiply-add as two. Any two other operations may be one, so they have the whole fp32 peak.
    """
    peak = chip.flops_per_second
    if p.dtype not in peak:
        has = ", ".join(name for name in peak if name != "exp") or "none"
        allowed = f"a type whose peak {chip.name} states: {has}"
        raise InputError("--dtype", p.dtype, allowed, f"no peak is known for {p.dtype}")
    missing = [name for name in ("fp32", "exp") if name not in peak]
    if missing:
        hint = f"add {' and '.join(missing)} to its [flops_per_second]"
        raise InputError("--hardware", chip.name, "a GPU with peaks of fp32 operations and of exp", hint)
    return {"memory": chip.hbm_bytes_per_second, "matrix": peak[p.dtype], "exp": peak["exp"], "other": peak["fp32"]}


def rows_of(
    schedule: Schedule,
    rule: Rule,
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
        "tiling": rule_name(rule),
        "Br": None if ideal else tiling.rows_q,
        "Bc": None if ideal else tiling.rows_k,
        "fits": int(footprint(schedule, p.packed, tiling).smem_bytes) <= M_bytes,
    }
    rows = [row_at_peaks(label, str(i), launch, p, chip) for i, launch in enumerate(launches, 1)]
    if len(rows) == 1:
        return [replace(rows[0], launch="all")]
    whole = row_at_peaks(label, "all", sum(launches[1:], launches[0]), p, chip)
    # Launches run one after the other, and each waits for its own slowest resource.
    cached = [row.ideal_l2_seconds for row in rows if row.ideal_l2_seconds is not None]
    seconds = sum(row.sm_traffic_seconds for row in rows)
    return [*rows, replace(whole, sm_traffic_seconds=seconds, ideal_l2_seconds=sum(cached) if cached else None)]


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
        sm_traffic_seconds=times[slowest],
        sm_traffic_binds=slowest,
        ideal_l2_seconds=cached[slowest_cached] if chip.l2_bytes else None,
        ideal_l2_binds=slowest_cached if chip.l2_bytes else None,
    )
