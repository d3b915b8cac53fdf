"""Arithmetic of each kind against bytes, launch by launch: intensity, ridge, and the time that a GPU's peaks allow.

One launch takes as long as its slowest resource: memory, matrix products, exponentials or other operations, each at
its peak and perfectly overlapped; launches follow each other. That is a floor on the time under an assumption about
memory, and there are two of them: every word of the two-level model comes from HBM (no L2), or each launch touches
each word of a tensor once and the L2 does the rest (ideal L2). Real kernels are slower than the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.folded import Folded
from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..core.watchers import Watcher
from ..counting.count import choose, default_schedules, rules_of
from ..errors import InputError
from ..hardware import Hardware, load
from ..masks import parse_mask
from ..schedules import Schedule, find_all, require
from ..search.best import footprint
from ..units import parse_bytes

KINDS = ("memory", "matrix", "exp", "other")


@dataclass
class Launch:
    """What one kernel does, over all heads. `floor_bytes` touches every word of its tensors once."""

    read_bytes: Any = 0
    write_bytes: Any = 0
    floor_bytes: Any = 0
    matrix_flops: Any = 0
    exps: Any = 0
    other_ops: Any = 0

    @property
    def total_bytes(self) -> Any:
        return self.read_bytes + self.write_bytes

    def __add__(self, more: Launch) -> Launch:
        return Launch(**{name: value + getattr(more, name) for name, value in vars(self).items()})


class Work(Watcher):
    """Bytes and operations by kind, for each launch; `unmarked` are steps whose operations nobody stated."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.unmarked: set[str] = set()
        self._restart()

    def _restart(self) -> None:
        self._now = Launch()
        self._moved: dict[tuple[str, str], Any] = {}

    def start(self, machine: Any) -> None:
        self.machine, self.p = machine, machine.p

    def load(self, block: Any, tensor: str, words: Any) -> None:
        self._move("read_bytes", tensor, words)

    def store(self, block: Any, tensor: str, words: Any) -> None:
        self._move("write_bytes", tensor, words)

    def _move(self, way: str, tensor: str, words: Any) -> None:
        moved = words * self.p.hbm_bytes(self.machine.tensors[tensor]) * self.p.instances
        setattr(self._now, way, getattr(self._now, way) + moved)
        self._moved[way, tensor] = self._moved.get((way, tensor), 0) + moved

    def step(self, step: Any, outputs: tuple[Any, ...], inputs: tuple[Any, ...], flops: Any) -> None:
        self._now.matrix_flops += flops * self.p.instances
        if not hasattr(step, "work"):
            self.unmarked.add(step.__name__)
            return
        shapes = [getattr(x, "shape", ()) for x in (*outputs, *inputs)]
        exps, other = (sum(self.machine.total(term) for term in terms(*shapes)) for terms in step.work)
        self._now.exps += exps * self.p.instances
        self._now.other_ops += other * self.p.instances

    def launch_ended(self) -> None:
        sizes = {name: self._whole(name) for _, name in self._moved}
        self._now.floor_bytes = sum(min(moved, sizes[name]) for (_, name), moved in self._moved.items())
        self.launches.append(self._now)
        self._restart()

    def _whole(self, name: str) -> Any:
        """Bytes of a tensor over all heads; query heads of a group share their K and V."""
        tensor, p = self.machine.tensors[name], self.p
        shared = tensor.kind == "input" and tensor.axes[0] != "N"
        size = p.batch * (p.kv_heads if shared else p.heads) * p.hbm_bytes(tensor)
        for length in p.shape(tensor):
            size = size * length
        return size


@dataclass(frozen=True)
class Row:
    """A launch, or all of them (`launch` = all), on one GPU. Seconds are what the peaks allow; `binds` is the slowest
    resource. `intensity` is matrix FLOPs a byte, or of a launch without any, all its operations a byte; `ridge` is the
    intensity from which on that kind of arithmetic is the limit, and not the HBM."""

    phase: str
    schedule: str
    tiling: str
    Br: int | None
    Bc: int | None
    fits: bool
    launch: str
    work: Launch
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


@dataclass(frozen=True)
class Roofline:
    """What `roofline` answers."""

    problem: Attention
    hardware: Hardware
    M_bytes: int
    rows: list[Row]
    unmarked: list[str] = field(default_factory=list)
    nothing_fits: list[str] = field(default_factory=list)


def roofline(
    N: int, d: int, hardware: str, M: int | str | None = None, *, schedules: str | Sequence[str] = (),
    tiles: str | None = None, tile_multiple: int = 1, decode: bool = False, mask: Any = "dense", **options: Any,
) -> Roofline:  # fmt: skip
    """Work, bytes and times of schedules on a preset; M is that of the preset unless given.

    `decode` adds the same with one query over the same keys.
    """
    problem = Attention(N, d, mask=parse_mask(mask), **options)
    chip = load(hardware)
    rates(chip, problem)
    M_bytes = chip.sram_bytes if M is None else parse_bytes(M, problem.word_bytes)
    chosen = find_all(schedules) or default_schedules(problem)
    for schedule in chosen:
        require(schedule, problem)
    problems = [problem, replace(problem, N=1)] if decode and problem.N > 1 else [problem]
    rows: list[Row] = []
    nothing_fits: list[str] = []
    unmarked: set[str] = set()
    for p in problems:
        for schedule in chosen:
            for rule in rules_of(schedule, tiles, p):
                tiling = choose(schedule, rule, p.packed, M_bytes, tile_multiple)
                if tiling is None:
                    nothing_fits.append(schedule.name)
                    continue
                watcher = measured(schedule, p.packed, tiling)
                unmarked |= watcher.unmarked
                rows += rows_of(schedule, rule, p, tiling, watcher.launches, chip, M_bytes)
    return Roofline(problem, chip, M_bytes, rows, sorted(unmarked), list(dict.fromkeys(nothing_fits)))


def measured(schedule: Schedule, p: Attention, tiling: Tiling) -> Work:
    """One folded walk; a mask that only hides moves no word and saves no step."""
    seen = p if schedule.skips or p.mask is DENSE else replace(p, mask=DENSE)
    watcher = Work()
    Folded(seen, watcher).run(schedule, tiling)
    return watcher


def rates(chip: Hardware, p: Attention) -> dict[str, float]:
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
    schedule: Schedule, rule: str, p: Attention, tiling: Tiling, launches: list[Launch], chip: Hardware, M_bytes: int
) -> list[Row]:
    """A row for each launch, and one for all together if there are several."""
    ideal = rule == "ideal"
    label: dict[str, Any] = {
        "phase": "decode" if p.N == 1 < p.Nk else "prefill",
        "schedule": schedule.name,
        "tiling": rule if rule in ("ideal", "paper", "best") else "given",
        "Br": None if ideal else tiling.rows_q,
        "Bc": None if ideal else tiling.rows_k,
        "fits": footprint(schedule, p.packed, tiling).peak_bytes <= M_bytes,
    }
    rows = [Row(**label, launch=str(i), **timed(launch, p, chip)) for i, launch in enumerate(launches, 1)]
    if len(rows) == 1:
        return [replace(rows[0], launch="all")]
    whole = timed(sum(launches[1:], launches[0]), p, chip)
    whole["seconds"] = sum(row.seconds for row in rows)  # one after the other: each waits for its own slowest resource
    whole["ideal_l2_seconds"] = sum(row.ideal_l2_seconds for row in rows)
    return [*rows, Row(**label, launch="all", **whole)]


def timed(work: Launch, p: Attention, chip: Hardware) -> dict[str, Any]:
    """Intensity, ridge and times of one launch."""
    peak = rates(chip, p)
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
    return {
        "work": work,
        "intensity": operations / work.total_bytes if work.total_bytes else None,
        "ridge": chip.flops_per_second[kind] / chip.hbm_bytes_per_second,
        **{f"{name}_seconds": seconds for name, seconds in times.items()},
        "seconds": times[slowest],
        "binds": slowest,
        "ideal_l2_seconds": cached[slowest_cached],
        "ideal_l2_binds": slowest_cached,
    }
