"""The least time of a schedule on a GPU, from data sheets alone.

A launch takes at least as long as its slowest resource: HBM, the L2, shared memory, matrix units, exponentials. HBM
moves each word of a tensor once, as with an ideal L2; on a chip without an L2 it moves all that multiprocessors load
and store. What an earlier launch wrote, and the L2 holds whole, moves no byte. The last three work at the rate of
a multiprocessor, and thread blocks come in whole waves over multiprocessors: 133 equal blocks on 132 of them take twice
the time of one. A resource whose rate is not stated has no time. Launches follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.problem import mask_matters, narrowed
from .products import unit_of
from .work import Work, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..hardware import Hardware
    from ..schedules import Schedule

RESOURCES = {
    "memory": "the HBM binds",
    "l2": "the L2 binds",
    "shared": "shared memory binds",
    "matrix": "matrix products bind",
    "exp": "exponentials bind",
}
"""The resources of a launch, and the words that say that one of them is the slowest."""
OF_AN_SM = ("shared", "matrix", "exp")  # those that each multiprocessor has a share of


@dataclass(frozen=True)
class LaunchTime:
    """The least seconds of one launch, by resource; none of a resource whose rate is not stated."""

    work: Work
    times: dict[str, float]

    @property
    def seconds(self) -> float:
        """Those of the slowest resource; 0 if no rate is stated."""
        return max(self.times.values(), default=0.0)

    @property
    def binds(self) -> str:
        """The slowest resource."""
        return max(self.times, key=self.times.__getitem__, default="memory")


@dataclass(frozen=True)
class TimeBound:
    """The least time of a schedule with its tiles: that of its launches, one after the other."""

    launches: tuple[LaunchTime, ...]

    @property
    def seconds(self) -> float:
        """The least seconds of all launches."""
        return sum(launch.seconds for launch in self.launches)

    @property
    def times(self) -> dict[str, float]:
        """Seconds of each resource in all launches."""
        names = dict.fromkeys(name for launch in self.launches for name in launch.times)
        return {name: sum(launch.times.get(name, 0.0) for launch in self.launches) for name in names}

    @property
    def binds(self) -> str:
        """The resource that is the slowest for the longest time."""
        spent: dict[str, float] = {}
        for launch in self.launches:
            spent[launch.binds] = spent.get(launch.binds, 0.0) + launch.seconds
        return max(spent, key=spent.__getitem__)

    @property
    def blocks(self) -> int:
        """Thread blocks of the launch that takes longest."""
        return max(self.launches, key=lambda launch: launch.seconds).work.blocks

    @property
    def work(self) -> Work:
        """The work of all launches together."""
        works = [launch.work for launch in self.launches]
        names = ("read_bytes", "write_bytes", "matrix_flops", "exps", "smem_read_words", "smem_read_bytes")
        sums = {name: sum(getattr(work, name) for work in works) for name in (*names, "smem_write_bytes")}
        touched: dict[tuple[str, str], int] = {}
        for work in works:
            for key, many in work.touched.items():
                touched[key] = touched.get(key, 0) + many
        unmarked = frozenset[str]().union(*(work.unmarked for work in works))
        return Work(**sums, blocks=self.blocks, touched=touched, unmarked=unmarked)


def time_at_least(schedule: Schedule, problem: Attention, tiling: Tiling, chip: Hardware) -> TimeBound:
    """The least time of a schedule with given tiles on a chip, over all heads. One without tiles has no blocks, and
    reads shared memory as it likes."""
    if "ideal" in schedule.rules:
        chip = replace(chip, sms=1, shared_memory_bytes_per_second=None)
    unit, rates = unit_of(chip, problem.dtype), rates_of(chip, problem.dtype)
    works = work_of(schedule, problem, tiling, unit)
    whole = whole_blocks(schedule, problem.packed, tiling)
    equal = whole is problem.packed
    full = works if equal or whole is None else work_of(schedule, whole, tiling, unit)
    found = []
    for work, part, in_memory in zip(works, full, memory_bytes(works, chip), strict=True):
        times = seconds_of(work, in_memory, rates, max(1.0, chip.sms / work.blocks))
        if whole is not None:
            least = seconds_of(part, 0, rates, -(-part.blocks // chip.sms) * chip.sms / part.blocks)
            times = {name: max(many, least[name]) if name in OF_AN_SM else many for name, many in times.items()}
        found.append(LaunchTime(work, times))
    return TimeBound(tuple(found))


def times_of(work: Mapping[str, int], rates: Mapping[str, int]) -> dict[str, float]:
    """The seconds of some work at the rates that are stated."""
    return {name: many / rates[name] for name, many in work.items() if name in rates}


def rates_of(chip: Hardware, dtype: str) -> dict[str, int]:
    """What a chip does in a second, by resource, of those that its file states: bytes, FLOPs of products of this type,
    exponentials."""
    peak = chip.flops_per_second
    found = {
        "memory": chip.hbm_bytes_per_second,
        "l2": chip.l2_bytes_per_second,
        "shared": chip.shared_memory_bytes_per_second,
        "matrix": peak.get(dtype),
        "exp": peak.get("exp"),
    }
    return {name: rate for name, rate in found.items() if rate}


def seconds_of(work: Work, in_memory: int, rates: dict[str, int], turns: float) -> dict[str, float]:
    """Seconds of each resource. `turns` is how much longer multiprocessors take than if all were always busy."""
    amounts = {
        "memory": in_memory,
        "l2": work.total_bytes,
        "shared": work.smem_read_bytes + work.smem_write_bytes,
        "matrix": work.matrix_flops,
        "exp": work.exps,
    }
    return {name: amounts[name] / rate * (turns if name in OF_AN_SM else 1) for name, rate in rates.items()}


def memory_bytes(works: Sequence[Work], chip: Hardware) -> list[int]:
    """The least bytes that each launch moves to and from HBM."""
    if not chip.l2_bytes:
        return [work.total_bytes for work in works]
    written = {name for work in works for way, name in work.touched if way == "write"}
    read_later = {name for work in works[1:] for way, name in work.touched if way == "read"}
    largest = {name: max(w.touched.get((way, name), 0) for w in works for way in ("read", "write")) for name in written}
    kept = {name for name in written & read_later if largest[name] <= chip.l2_bytes}
    return [sum(many for (_, name), many in work.touched.items() if name not in kept) for work in works]


def whole_blocks(schedule: Schedule, p: Attention, tiling: Tiling) -> Attention | None:
    """The problem of the thread blocks that have a whole tile of queries and are equal: `p` itself if all are. None if
    blocks differ in another way, as under a mask that hides tiles, or if fewer queries would have fewer keys."""
    if mask_matters(schedule, p) or schedule.outer != "queries":
        return None
    ragged = p.N % tiling.rows_q
    if not ragged or tiling.rows_q > p.N:
        return p
    part = narrowed(p, N=p.N - ragged)
    return part if schedule.about(part).Nk == p.Nk else None
