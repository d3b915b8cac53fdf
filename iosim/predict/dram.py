"""DRAM traffic: the tile trace of the blocks that run together, through a model of the L2 (`predict/l2.py`).

The text is run once, unrolled, for one head: each turn of an outermost `parallel` loop is a block, and what a block
loads and stores is a row of touches of cells (tiles, or the common parts of tiles of several sizes). Blocks of all
heads then start in grid order on sms x blocks-per-SM places, and in each step every block makes its next touch. Places
lie on the two sides of the L2 in turn. `predict/l2.py` is the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.problem import Attention
from .blocks import Launch, Trace
from .l2 import SIDES, SPREAD, Cache, room_of
from .l2 import Cells as Numbers

MOST_STEPS = 200_000


class Heads:
    """The cells of all heads, numbered: first those of key/value heads, then those of query heads. After them one cell
    for each place on the GPU, if blocks write there, then one for what others left in the L2, if they did."""

    def __init__(self, found: Trace, problem: Attention, places: int = 0, place_bytes: int = 0, left_bytes: int = 0):
        self.shared, self.group = found.shared_cells, problem.heads // problem.kv_heads
        self.own = len(found.sizes_bytes) - self.shared
        kv_instances = problem.batch * problem.kv_heads
        self.own_first = kv_instances * self.shared - self.shared
        shared, own = np.split(found.sizes_bytes, [self.shared])
        tensors = np.concatenate([np.tile(shared, kv_instances), np.tile(own, problem.instances)])
        self.first_place = len(tensors)
        self.places = places if place_bytes else 0
        more = [place_bytes] * self.places + [left_bytes] * (left_bytes > 0)
        self.sizes = np.concatenate([tensors, np.array(more, np.int64)])
        self.left = np.arange(len(self.sizes) - (left_bytes > 0), len(self.sizes))
        self.mark = np.zeros(len(self.sizes), np.int64)

    def cells(self, touches: Numbers, heads: NDArray[np.int64]) -> Numbers:
        """The cells of all heads that these touches of one head each mean."""
        own = touches >= self.shared
        return touches + np.where(own, self.own_first + heads * self.own, heads // self.group * self.shared)

    def of_places(self, places: NDArray[np.int64]) -> Numbers:
        """The cells of some places; none if blocks write none."""
        return self.first_place + places if self.places else places[:0]

    def once(self, cells: Numbers) -> Numbers:
        """Each of them once, in any order."""
        order = np.arange(len(cells))
        self.mark[cells] = order
        return cells[self.mark[cells] == order]


def dram_bytes(
    found: Trace,
    problem: Attention,
    places: list[int],
    capacity_bytes: int,
    cold: bool = False,
    block_bytes: int = 0,
    left_bytes: int = 0,
    with_range: bool = False,
) -> Dram:
    """DRAM traffic of all heads, in grid order, as many blocks at a time as a launch has places.

    The L2 starts empty, and its partitions hold `capacity_bytes` of what all blocks share. `cold`: empty it before
    every launch; write-backs between launches are not counted. `block_bytes`: each block writes so much when it starts,
    over what the block before it wrote in its place (registers that are spilled once). `left_bytes` of others are dirty
    in the L2 when a launch starts. `with_range`: follow an L2 with less and one with more room as well, unless all
    fits into the one with less.
    """
    heads = Heads(found, problem, max(places), block_bytes, left_bytes)
    cache = Cache(heads.sizes, room_of(capacity_bytes))
    dirty, by_launch = _follow(found, problem, places, heads, [cache], cold)
    caches = [cache]
    if with_range and cache.fills(1 - SPREAD):
        others = [Cache(heads.sizes, room_of(capacity_bytes, times)) for times in (1 - SPREAD, 1 + SPREAD)]
        _follow(found, problem, places, heads, others, cold)
        caches += others
    moved = [each.moved_bytes for each in caches]
    return Dram(cache.read_bytes, cache.write_bytes, cache.first_bytes, dirty, by_launch, min(moved), max(moved))


def _follow(
    found: Trace, problem: Attention, places: list[int], heads: Heads, caches: list[Cache], cold: bool
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """All launches through each cache -> of the first one: bytes left dirty, and bytes read and written by launch."""
    cache, dirty, by_launch, none = caches[0], 0, [], heads.left[:0]
    for launch, room in zip(found.launches, places, strict=True):
        reads, writes = cache.read_bytes, cache.write_bytes
        if len(heads.left):
            _touch(caches, [none, none], [heads.left, none])
        _run(launch, caches, heads, problem, room)
        by_launch.append((cache.read_bytes - reads, cache.write_bytes - writes))
        if cold:
            dirty += cache.dirty_bytes
            for each in caches:
                each.flush()
    return dirty + cache.dirty_bytes, tuple(by_launch)


def _touch(caches: list[Cache], loaded: list[Numbers], stored: list[Numbers]) -> None:
    for cache in caches:
        cache.touch(loaded, stored)


def _run(launch: Launch, caches: list[Cache], every: Heads, problem: Attention, places: int) -> None:
    """One launch: blocks of a head follow each other, then those of the next head; a place that is free takes one."""
    blocks = len(launch.starts) - 1
    queue, total = 0, blocks * problem.instances
    places = min(places, total)
    work = -(-len(launch.touches) * problem.instances // places)
    stride = -(-work // MOST_STEPS)
    position, end, head = np.zeros(places, np.int64), np.zeros(places, np.int64), np.zeros(places, np.int64)
    side = np.arange(places) % SIDES
    while True:
        free = np.flatnonzero(position >= end)[: total - queue]
        if len(free):
            new = np.arange(queue, queue + len(free))
            position[free], end[free] = launch.starts[new % blocks], launch.starts[new % blocks + 1]
            head[free] = new // blocks
            queue += len(free)
        busy = position < end
        if not busy.any():
            return
        at = position[busy, None] + np.arange(stride)
        inside = at < end[busy, None]
        counts = inside.sum(1)
        at, asking = at[inside], np.repeat(side[busy], counts)
        cells = every.cells(launch.touches[at], np.repeat(head[busy], counts))
        loads, stores = ~launch.writes[at], launch.writes[at]
        loaded, stored = ([every.once(cells[kind & (asking == s)]) for s in range(SIDES)] for kind in (loads, stores))
        stored = [np.append(stored[s], every.of_places(free[side[free] == s])) for s in range(SIDES)]
        _touch(caches, loaded, stored)
        position[busy] += stride


EDGE = 0.4  # of the bytes: twice what a prediction may be off


@dataclass(frozen=True)
class Dram:
    """Bytes between DRAM and L2 during the launches. `first_bytes` of the reads are first touches; what is still
    dirty in the L2 at the end (`dirty_bytes`) was not written yet."""

    read_bytes: int
    write_bytes: int
    first_bytes: int
    dirty_bytes: int
    by_launch: tuple[tuple[int, int], ...] = ()  # read and written by the kernels
    least_bytes: int = 0  # read and written, with a little more room than the mean that read_bytes and write_bytes are,
    most_bytes: int = 0  # and with a little less
    idle_bytes: int = 0  # of the writes: read and written by the driver beside the kernels

    @property
    def reread_bytes(self) -> int:
        return self.read_bytes - self.first_bytes

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    @property
    def at_the_edge(self) -> bool:
        """Whether what is used again just about fills the L2, so that it matters where arrays lie."""
        return self.most_bytes - self.least_bytes > EDGE * self.total_bytes

    def beside(self, idle_bytes: int) -> Dram:
        """With what the driver writes."""
        more = {name: getattr(self, name) + idle_bytes for name in ("write_bytes", "least_bytes", "most_bytes")}
        return replace(self, **more, idle_bytes=idle_bytes)
