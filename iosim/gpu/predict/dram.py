"""The DRAM traffic of a schedule: what its thread blocks touch, through a model of the L2.

predict/blocks.py gives the touches of the blocks of one head, predict/l2.py is the cache. Between them this file plays
the launches:

- A GPU has a number of places: its multiprocessors, times the blocks that each holds. Places belong to the two sides of
  the L2 in turn.
- The blocks of all heads start in grid order. A place whose block has ended takes the next one.
- In each step every running block makes its next touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...core.problem import Attention
from .blocks import Launch, Touches
from .l2 import SIDES, SPREAD, Cache, CellNumbers, Touched, room_of

MOST_STEPS = 200_000  # steps of a launch; if there would be more, blocks make several touches a step
MOST_AT_ONCE = 2**16  # touches that are looked up together

Places = NDArray[np.int64]
"""A number for each place on the GPU, or for some of them."""


@dataclass(frozen=True)
class Turn:
    """Some steps in which the same blocks run. A row of an array is a step, and a column a touch of a block."""

    cells: CellNumbers
    writes: NDArray[np.bool]
    inside: NDArray[np.bool]
    """Whether the block still makes this touch."""
    side: Places
    """The side of the L2 that each column asks."""


class Heads:
    """The cells of all heads, numbered: first those of key/value heads, then those of query heads.

    After them comes a cell for each place on the GPU if blocks write `place_bytes` there, then one cell of `left_bytes`
    if others left something in the L2. `left` holds the number of the last one.

    Not all touches are played. If `fit`, the L2 has room for all cells, so only the first load and the first store of a
    cell in a launch matter. Else cells can be joined: those that are touched in the same steps, by the same sides and
    in the same way, are one cell with the bytes of all. `number` says which one, and only one of them `speaks`: its
    touches are played. `sizes` are the bytes of the cells that are played.
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
        self.met = np.zeros(2 * len(self.sizes), bool)
        self.number, self.speaks = np.arange(len(self.sizes)), np.ones(len(self.sizes), bool)
        self.fit = False

    def cells(self, touches: CellNumbers, heads: NDArray[np.int64]) -> CellNumbers:
        """The cells that blocks of these heads touch, as numbers among the cells of all heads."""
        own = touches >= self.shared
        return touches + np.where(own, self.own_first + heads * self.own, heads // self.group * self.shared)

    def of_places(self, places: NDArray[np.int64]) -> CellNumbers:
        """The numbers of the cells of some places; none if blocks write nothing there."""
        return self.first_place + places if self.places else places[:0]

    def join(self, turns: Iterable[Turn]) -> None:
        """Join the cells that all these turns touch alike.

        Each step has a random number of 64 bits for each side and way, and a cell the sum of those of its touches. Two
        cells that are touched differently have the same sum with a probability of 2^-64.
        """
        chance, total = np.random.default_rng(0), np.zeros(len(self.sizes), np.uint64)
        total[self.left] = chance.integers(2**64, size=len(self.left), dtype=np.uint64)
        for turn in turns:
            numbers = chance.integers(2**64, size=(len(turn.cells), 2 * SIDES), dtype=np.uint64)
            each = np.take_along_axis(numbers, 2 * turn.side + turn.writes, axis=1)
            np.add.at(total, turn.cells[turn.inside], each[turn.inside])
        _, first, self.number = np.unique(total, return_index=True, return_inverse=True)
        self.speaks[:] = False
        self.speaks[first] = True
        self.sizes = np.bincount(self.number, self.sizes).astype(np.int64)
        self.left = self.number[self.left]

    def played(self, turn: Turn) -> tuple[CellNumbers, NDArray[np.bool]]:
        """The cells of a turn, as numbers among those that are played, and which touches of them are played."""
        if self.fit:
            return turn.cells, self._firsts(turn)
        return self.number[turn.cells], turn.inside & self.speaks[turn.cells]

    def _firsts(self, turn: Turn) -> NDArray[np.bool]:
        """The touches that are the first load or the first store of a cell in this launch."""
        places = np.flatnonzero(turn.inside)
        kinds, first = np.unique((2 * turn.cells + turn.writes).ravel()[places], return_index=True)
        found = np.zeros(turn.inside.size, bool)
        found[places[first[~self.met[kinds]]]] = True
        self.met[kinds] = True
        return found.reshape(turn.inside.shape)


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
    launches, least = list(zip(found.launches, places, strict=True)), room_of(capacity_bytes, 1 - SPREAD)
    all_dirty = 2 * least.dirty  # each partition has half of what is dirty
    heads.fit = bool(heads.sizes.sum() <= min(least.held, least.touched, all_dirty))
    if not heads.fit:
        heads.join(turn for launch, room in launches for turn in _turns(launch, heads, problem, room))
    shares = (1, 1 - SPREAD, 1 + SPREAD) if with_range and not heads.fit else (1,)
    cache = Cache(heads.sizes, *(room_of(capacity_bytes, share) for share in shares))
    dirty, by_launch = 0, []
    for launch, room in launches:
        reads, writes = cache.read_bytes, cache.write_bytes
        _play(_turns(launch, heads, problem, room), cache, heads)
        by_launch.append((cache.read_bytes - reads, cache.write_bytes - writes))
        if conditions.cold:
            dirty += cache.dirty_bytes
            cache.flush()
    moved, dirty = cache.moved_bytes, dirty + cache.dirty_bytes
    ends = min(moved), max(moved)
    return Dram(cache.read_bytes, cache.write_bytes, cache.first_bytes, dirty, tuple(by_launch), *ends)


def _play(turns: Iterable[Turn], cache: Cache, heads: Heads) -> None:
    """Play the turns of a launch through a cache."""
    none = heads.left[:0]
    heads.met[:] = False
    if len(heads.left):
        cache.touch([none, none], [heads.left, none])
    for turn in turns:
        cells, played = heads.played(turn)
        cache.play(_touched(turn, cells, played, len(cache.sizes)))


def _touched(turn: Turn, cells: CellNumbers, played: NDArray[np.bool], most: int) -> Touched:
    """The touches of a turn that are played, each once. `most` is the number of cells."""
    step, column = np.nonzero(played)
    ways = SIDES * turn.writes[step, column] + turn.side[column]
    each, cell = np.divmod(np.unique((2 * SIDES * step + ways) * most + cells[step, column]), most)
    return Touched(each // (2 * SIDES), each // SIDES % 2 == 1, each % SIDES, cell)


def _turns(launch: Launch, every: Heads, problem: Attention, places: int) -> Iterator[Turn]:
    """The turns of a launch: first the blocks of one head in grid order, then those of the next head."""
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
        busy = np.flatnonzero(position < end)
        if not len(busy):
            return
        until = -(-int((end - position)[busy].min()) // stride)  # a block ends; no other one starts before that
        steps = min(until, MOST_AT_ONCE // (len(busy) * stride) + 1)
        at = position[busy] + np.arange(0, steps * stride, stride)[:, None]
        turn = _turn(launch, every, at, end[busy], head[busy], side[busy], stride)
        yield _with_starts(turn, every.of_places(free), side[free]) if every.places else turn
        position[busy] += steps * stride


def _turn(launch: Launch, every: Heads, at: Places, end: Places, head: Places, side: Places, stride: int) -> Turn:
    """The turn in which each block makes `stride` touches a step. `at` is the first touch of each step (rows) and block
    (columns)."""
    at = (at[:, :, None] + np.arange(stride)).reshape(len(at), -1)
    end, head, side = (np.repeat(each, stride) for each in (end, head, side))
    inside, at = at < end, np.minimum(at, len(launch.touches) - 1)
    return Turn(every.cells(launch.touches[at], head), launch.writes[at], inside, side)


def _with_starts(turn: Turn, cells: CellNumbers, side: Places) -> Turn:
    """The turn, in whose first step these cells are stored as well."""
    shape = len(turn.cells), len(cells)
    first = np.broadcast_to(np.arange(len(turn.cells))[:, None] == 0, shape)
    return Turn(
        np.hstack([turn.cells, np.broadcast_to(cells, shape)]),
        np.hstack([turn.writes, np.ones(shape, bool)]),
        np.hstack([turn.inside, first]),
        np.concatenate([turn.side, side]),
    )


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
