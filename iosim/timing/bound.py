"""The least time of a schedule on a GPU, from data sheets alone.

A launch takes at least as long as its slowest resource: HBM, the L2, shared memory, matrix units, exponentials. HBM
moves each word of a tensor once, as with an ideal L2; on a chip without an L2 it moves all that multiprocessors load
and store. What an earlier launch wrote, and the L2 holds whole, moves no byte. The last three work at the rate of
a multiprocessor, and thread blocks come in whole waves over multiprocessors: 133 equal blocks on 132 of them take twice
the time of one. A resource whose rate is not stated has no time. Launches follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.arrays import anywhere, smaller
from ..core.problem import every, mask_matters, narrowed, with_mask
from ..verdict import joined
from .products import unit_of
from .work import Work, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size, Test
    from ..hardware import Hardware
    from ..schedules import Schedule
    from .products import MatrixUnit

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
        sums = {
            name: sum(getattr(work, name) for work in works) for name in (*names, "smem_write_bytes", "added_bytes")
        }
        touched: dict[tuple[str, str], int] = {}
        for work in works:
            for key, many in work.touched.items():
                touched[key] = touched.get(key, 0) + many
        unmarked = frozenset[str]().union(*(work.unmarked for work in works))
        return Work(**sums, blocks=self.blocks, touched=touched, unmarked=unmarked)


class Equal(NamedTuple):
    """Thread blocks that are equal: how many there are, and their work. Of arrays each element is a kind of blocks."""

    number: Size
    work: Work


def time_at_least(schedule: Schedule, problem: Attention, tiling: Tiling, chip: Hardware) -> TimeBound:
    """The least time of a schedule with given tiles on a chip, over all heads. One without tiles has no blocks, and
    reads shared memory as it likes."""
    if "ideal" in schedule.rules:
        chip = replace(chip, sms=1, shared_memory_bytes_per_second=None)
    unit = unit_of(chip, problem.dtype)
    works, equal = work_of(schedule, problem, tiling, unit), equal_blocks(schedule, problem, tiling, unit)
    return bound_of(works, [[one] for one in equal] or [[]] * len(works), chip, problem.dtype)


def bound_of(works: Sequence[Work], equal: Sequence[Sequence[Equal]], chip: Hardware, dtype: str) -> TimeBound:
    """The least time of launches that follow each other: `equal` are the blocks of each that come in whole waves."""
    rates, found = rates_of(chip, dtype), []
    for work, blocks, in_memory in zip(works, equal, memory_bytes(works, chip), strict=True):
        times = seconds_of(work, in_memory, rates, max(1.0, chip.sms / work.blocks))
        for name in OF_AN_SM if blocks else ():
            if name in times:
                times[name] = max(times[name], chip.sms / rates[name] * in_waves(blocks, name, chip.sms))
        found.append(LaunchTime(work, times))
    return TimeBound(tuple(found))


def in_waves(blocks: Sequence[Equal], resource: str, sms: int) -> float:
    """The least that some multiprocessor does of a resource, if each block runs on one of `sms`.

    Of the k sms + 1 blocks that have most of it one multiprocessor has k + 1, and so no less than the last k + 1 of
    them. Between the sizes at which other blocks begin that is linear in k, so it is tried there.
    """
    alone, work = blocks[0]
    if len(blocks) == 1 and isinstance(alone, int):
        return -(-alone // sms) * (amounts_of(work)[resource] / work.blocks)
    import numpy as np

    number = np.concatenate([np.asarray(one.number, float).ravel() for one in blocks])
    shares = (amounts_of(one.work)[resource] / one.work.blocks for one in blocks)
    each = np.concatenate([np.asarray(share, float).ravel() for share in shares])
    order = np.argsort(-each)
    ends, most = (np.cumsum(np.append(0.0, one[order])) for one in (number, number * each))
    corners = np.append((ends - 1) // sms, ends // max(1, sms - 1))
    k = np.unique(np.maximum(0.0, [*corners, *(corners + 1)]))
    k = k[k * sms + 1 <= ends[-1]]
    found = np.interp(k * sms + 1, ends, most) - np.interp(k * (sms - 1), ends, most)
    return float(found.max(initial=0.0))


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


def amounts_of(work: Work) -> dict[str, int]:
    """The work of a launch by resource, but for the memory."""
    shared = work.smem_read_bytes + work.smem_write_bytes
    return {"l2": work.l2_bytes, "shared": shared, "matrix": work.matrix_flops, "exp": work.exps}


def seconds_of(work: Work, in_memory: int, rates: dict[str, int], turns: float) -> dict[str, float]:
    """Seconds of each resource. `turns` is how much longer multiprocessors take than if all were always busy."""
    amounts = {"memory": in_memory, **amounts_of(work)}
    return {name: amounts[name] / rate * (turns if name in OF_AN_SM else 1) for name, rate in rates.items()}


def memory_bytes(works: Sequence[Work], chip: Hardware) -> list[int]:
    """The least bytes that each launch moves to and from HBM."""
    if not chip.l2_bytes:
        return [work.l2_bytes for work in works]
    written = {name for work in works for way, name in work.touched if way == "write"}
    read_later = {name for work in works[1:] for way, name in work.touched if way == "read"}
    largest = {name: max(w.touched.get((way, name), 0) for w in works for way in ("read", "write")) for name in written}
    kept = {name for name in written & read_later if largest[name] <= chip.l2_bytes}
    return [sum(many for (_, name), many in work.touched.items() if name not in kept) for work in works]


def equal_blocks(schedule: Schedule, problem: Attention[Size], tiling: Tiling[Size], unit: MatrixUnit) -> list[Equal]:
    """The thread blocks of each launch that have a whole tile of queries and see all keys. None if blocks differ in
    another way, if the mask hides a tile, or if fewer queries would have fewer keys."""
    p = cast("Attention", problem.packed)  # or of arrays
    if schedule.outer != "queries":
        return []
    dense, rows = with_mask(p), smaller(p.N, tiling.rows_q)
    whole = p.N // rows * rows
    part = dense if every(whole == p.N) else narrowed(dense, N=whole)
    if part is not dense and not every(schedule.about(part).Nk == p.Nk):
        return []
    found = work_of(schedule, part, tiling, unit)
    shown: Test = True
    if mask_matters(schedule, p):
        both = zip(work_of(schedule, p, tiling, unit), work_of(schedule, dense, tiling, unit), strict=True)
        for masked, plain in both:
            shown = shown & (masked.matrix_flops == plain.matrix_flops)
    return [Equal(one.blocks * shown, one) for one in found] if anywhere(shown) else []


OF_MEMORY = {"memory": "HBM", "l2": "L2", "shared": "shared memory"}


def thing_of(resource: str, dtype: str) -> str:
    """A resource for people."""
    return {**OF_MEMORY, "matrix": f"{dtype} products", "exp": "exponentials"}[resource]


def without_rates(chip: Hardware | None, dtype: str) -> list[str]:
    """The note on resources whose rate a chip does not state, if any. A chip without an L2 needs no rate of one."""
    if chip is None:
        return []
    absent = {*rates_of(chip, dtype), *([] if chip.l2_bytes else ["l2"])}
    missing = [thing_of(name, dtype) for name in RESOURCES if name not in absent]
    them = "it" if len(missing) == 1 else "them"
    return [f"{chip.name} states no rate of {joined(missing)}: times leave {them} out"] if missing else []
