"""The DRAM traffic of a schedule: what its thread blocks touch, through a model of the L2.

predict/blocks.py gives the touches of the blocks of one head, predict/l2.py is the cache. Between them this file plays
the launches:

- A GPU has a number of places: its multiprocessors, times the blocks that each holds. Places belong to the two sides of
  the L2 in turn.
- The blocks of all heads start in grid order. A place whose block has ended takes the next one.
- In each step every running block makes its next touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.problem import Attention
from .blocks import Launch, Touches
from .l2 import SIDES, SPREAD, Cache, CellNumbers, room_of

MOST_STEPS = 200_000  # steps of a launch; if there would be more, blocks make several touches a step
MOST_AT_ONCE = 2**16  # touches that are looked up together

Places = NDArray[np.int64]
"""A number for each place on the GPU, or for some of them."""


class Heads:
    """The cells of all heads, numbered: first those of key/value heads, then those of query heads.

    After them comes a cell for each place on the GPU if blocks write `place_bytes` there, then one cell of `left_bytes`
    if others left something in the L2. `sizes` are the bytes of all cells, `left` holds the number of the last one.
    `fit`: the L2 has room for all of them. Then only the first load and the first store of a cell in a launch matter.
    """

    def __init__(self, found: Touches, problem: Attention, places: int = 0, place_bytes: int = 0, left_bytes: int = 0):
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
        self.met = np.zeros(2 * len(self.sizes), bool)
        self.fit = False

    def cells(self, touches: CellNumbers, heads: NDArray[np.int64]) -> CellNumbers:
        """The cells that blocks of these heads touch, as numbers among the cells of all heads."""
        own = touches >= self.shared
        return touches + np.where(own, self.own_first + heads * self.own, heads // self.group * self.shared)

    def of_places(self, places: NDArray[np.int64]) -> CellNumbers:
        """The numbers of the cells of some places; none if blocks write nothing there."""
        return self.first_place + places if self.places else places[:0]

    def once(self, cells: CellNumbers) -> CellNumbers:
        """These cells, each once."""
        if len(cells) < 2:
            return cells
        order = np.arange(len(cells))
        self.mark[cells] = order
        return cells[self.mark[cells] == order]

    def firsts(self, cells: CellNumbers, writes: NDArray[np.bool], inside: NDArray[np.bool]) -> NDArray[np.bool]:
        """Of the touches inside, which are the first load or the first store of a cell in this launch."""
        places = np.flatnonzero(inside)
        kinds, first = np.unique((2 * cells + writes).ravel()[places], return_index=True)
        found = np.zeros(inside.size, bool)
        found[places[first[~self.met[kinds]]]] = True
        self.met[kinds] = True
        return found.reshape(inside.shape)


@dataclass(frozen=True)
class Conditions:
    """How launches run on a GPU, and what is in its L2 beside their tensors."""

    cold: bool = False
    """Whether every launch starts with an empty L2, as under Nsight Compute, which flushes it. Write-backs between
    launches are not counted then."""
    backwards: bool = False
    """Whether inner loops go from the last tile to the first."""
    taken_bytes: int = 0
    """Bytes of the L2 that hold no tensor."""
    block_bytes: int = 0
    """Bytes of registers that each block spills once at its start, where the block before it spilled."""
    left_bytes: int = 0
    """Dirty bytes of others that are in the L2 when a launch starts."""


WARM = Conditions()


def dram_bytes(
    found: Touches,
    problem: Attention,
    places: list[int],
    capacity_bytes: int,
    conditions: Conditions = WARM,
    with_range: bool = False,
) -> Dram:
    """The DRAM traffic of all heads. `places` says for each launch how many blocks run at a time.

    The L2 starts empty. `capacity_bytes` is the size of one partition. predict/l2.py computes how much of it holds
    data.

    `with_range`: also play an L2 with less room and one with more, unless everything fits into the one with less.
    """
    heads = Heads(found, problem, max(places), conditions.block_bytes, conditions.left_bytes)
    cache = Cache(heads.sizes, room_of(capacity_bytes))
    heads.fit = bool(heads.sizes.sum() <= min(room_of(capacity_bytes, 1 - SPREAD)))
    dirty, by_launch = _follow(found, problem, places, heads, [cache], conditions.cold)
    caches = [cache]
    if with_range and cache.fills(1 - SPREAD):
        others = [Cache(heads.sizes, room_of(capacity_bytes, times)) for times in (1 - SPREAD, 1 + SPREAD)]
        _follow(found, problem, places, heads, others, conditions.cold)
        caches += others
    moved = [each.moved_bytes for each in caches]
    return Dram(cache.read_bytes, cache.write_bytes, cache.first_bytes, dirty, by_launch, min(moved), max(moved))


def _follow(
    found: Touches, problem: Attention, places: list[int], heads: Heads, caches: list[Cache], cold: bool
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Play all launches through each cache. Returns (dirty bytes, (bytes read, bytes written) of each launch) of
    the first cache.

    Dirty bytes are those that were not written to DRAM in any launch.
    """
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


def _touch(caches: list[Cache], loaded: list[CellNumbers], stored: list[CellNumbers]) -> None:
    for cache in caches:
        cache.touch(loaded, stored)


def _run(launch: Launch, caches: list[Cache], every: Heads, problem: Attention, places: int) -> None:
    """Play one launch through each cache: first the blocks of one head in grid order, then those of the next head."""
    blocks = len(launch.starts) - 1
    queue, total, none = 0, blocks * problem.instances, every.left[:0]
    places = min(places, total)
    work = -(-len(launch.touches) * problem.instances // places)
    stride = -(-work // MOST_STEPS)
    position, end, head = np.zeros(places, np.int64), np.zeros(places, np.int64), np.zeros(places, np.int64)
    side = np.arange(places) % SIDES
    every.met[:] = False
    while True:
        free = np.flatnonzero(position >= end)[: total - queue]
        if len(free):
            new = np.arange(queue, queue + len(free))
            position[free], end[free] = launch.starts[new % blocks], launch.starts[new % blocks + 1]
            head[free] = new // blocks
            queue += len(free)
        busy = np.flatnonzero(position < end)
        if not len(busy):
            return
        until = -(-int((end - position)[busy].min()) // stride)  # a block ends; no other one starts before that
        steps = min(until, MOST_AT_ONCE // (len(busy) * stride) + 1)
        at = position[busy] + np.arange(0, steps * stride, stride)[:, None]
        starting = [every.of_places(free[side[free] == s]) for s in range(SIDES)]
        for loaded, stored in _steps(launch, every, at, end[busy], head[busy], side[busy], stride):
            if every.places:
                stored = [np.append(*both) for both in zip(stored, starting, strict=True)]
                starting = [none, none]
            _touch(caches, loaded, stored)
        position[busy] += steps * stride


def _steps(
    launch: Launch, every: Heads, at: Places, end: Places, head: Places, side: Places, stride: int
) -> Iterator[tuple[list[CellNumbers], list[CellNumbers]]]:
    """The cells that each side loads, and those that it stores, step by step.

    Each row of `at` is a step, and each column a block: its next `stride` touches, from this one up to `end`.
    """
    at = (at[:, :, None] + np.arange(stride)).reshape(len(at), -1)
    end, head, side = (np.repeat(each, stride) for each in (end, head, side))
    inside, at = at < end, np.minimum(at, len(launch.touches) - 1)
    cells, writes = every.cells(launch.touches[at], head), launch.writes[at]
    inside = every.firsts(cells, writes, inside) if every.fit else inside
    loads, stores = ([inside & (writes == kind) & (side == s) for s in range(SIDES)] for kind in (False, True))
    for k in range(len(at)):
        if every.fit and not inside[k].any():
            continue
        loaded, stored = ([every.once(cells[k, asked[k]]) for asked in kind] for kind in (loads, stores))
        yield loaded, stored


EDGE = 0.4  # share of the bytes: twice the allowed deviation of a prediction


@dataclass(frozen=True)
class Dram:
    """Bytes between DRAM and L2 during the launches."""

    read_bytes: int
    write_bytes: int
    first_bytes: int
    """The bytes that are read for the first time."""
    dirty_bytes: int
    """Bytes that blocks wrote, and that were not in DRAM yet when a launch ended."""
    by_launch: tuple[tuple[int, int], ...] = ()
    """(bytes read, bytes written) of each launch."""
    least_bytes: int = 0
    """Bytes read and written if the L2 has a little more room."""
    most_bytes: int = 0
    """Bytes read and written if the L2 has a little less room."""
    idle_bytes: int = 0
    """The part of `write_bytes` that the driver reads and writes beside the kernels."""

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    @property
    def at_the_edge(self) -> bool:
        """Whether a little more or less room changes much. Then it matters where in memory the arrays lie."""
        return self.most_bytes - self.least_bytes > EDGE * self.total_bytes

    def beside(self, idle_bytes: int) -> Dram:
        """This traffic, with that of the driver added."""
        return replace(
            self,
            write_bytes=self.write_bytes + idle_bytes,
            least_bytes=self.least_bytes + idle_bytes,
            most_bytes=self.most_bytes + idle_bytes,
            idle_bytes=idle_bytes,
        )
