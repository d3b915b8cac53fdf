"""DRAM traffic: the tile trace of the blocks that run together, through a model of the L2 (`lru.py`).

The text is run once, unrolled, for one head: each turn of an outermost `parallel` loop is a block, and what a block
loads and stores is a row of touches of cells (tiles, or the common parts of tiles of several sizes). Blocks of all
heads then start in grid order on sms x blocks-per-SM places, and in each step every block makes its next touch. Places
lie on the two sides of the L2 in turn. `lru.py` is the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dram import Dram
from .errors import InputError
from .lru import SIDES, SPREAD, Cache, room_of
from .lru import Cells as Numbers
from .problem import DENSE, Attention
from .unrolled import Unrolled
from .watchers import Watcher, extent_of

MOST_TOUCHES = 6_000_000  # of one head: half a minute of unrolled walking
LEAST_ROWS = 16  # tiles with fewer rows share a cell: their blocks run together
MOST_STEPS = 200_000


@dataclass
class Cells:
    """A tensor cut into cells, of one head: their sizes, and the number of the first."""

    rows: int
    columns: int
    length: int
    width: int
    word_bytes: int
    first: int
    shared: bool

    @property
    def across(self) -> int:
        return -(-self.width // self.columns)

    @property
    def count(self) -> int:
        return -(-self.length // self.rows) * self.across

    def touched(self, row: int, rows: int, column: int, columns: int) -> Numbers:
        """The cells that a part of the tensor lies in."""
        i = np.arange(row // self.rows, -(-(row + rows) // self.rows))
        j = np.arange(column // self.columns, -(-(column + columns) // self.columns))
        return (self.first + i[:, None] * self.across + j).ravel()

    def sizes_bytes(self) -> NDArray[np.int64]:
        heights = np.minimum(self.rows, self.length - np.arange(0, self.length, self.rows))
        widths = np.minimum(self.columns, self.width - np.arange(0, self.width, self.columns))
        return (heights[:, None] * widths * self.word_bytes).ravel()


@dataclass
class Launch:
    """Blocks of one head: `touches[starts[b]:starts[b + 1]]` are block b's cells, `writes` says which are stores."""

    touches: Numbers
    writes: NDArray[np.bool_]
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """What one head does to memory, launch by launch."""

    launches: list[Launch]
    sizes_bytes: NDArray[np.int64]
    shared_cells: int
    """Cells [0, shared_cells) belong to a key/value head, the others to a query head."""


@dataclass
class _Blocks(Watcher):
    """Events as (launch, block, tensor, row, rows, column, columns, write)."""

    machine: Any = None
    launch: int = 0
    events: list[tuple[Any, ...]] = field(default_factory=list)

    def start(self, machine: Any) -> None:
        self.machine = machine

    def load(self, block: Any, tensor: str, words: Any) -> None:
        if words:
            self._add(block, tensor, False)

    def store(self, block: Any, tensor: str, words: Any) -> None:
        self._add(block, tensor, True)

    def _add(self, block: Any, tensor: str, write: bool) -> None:
        rows, columns = extent_of(block)
        self.events.append((self.launch, self.machine.block, tensor, *rows, *columns, write))
        if len(self.events) > MOST_TOUCHES:
            raise InputError("--tiles", f"more than {MOST_TOUCHES} tile events a head", "larger tiles or a smaller N")

    def launch_ended(self) -> None:
        self.launch += 1


def trace(schedule: Any, problem: Attention, tiling: Any, *watchers: Any, backwards: bool = False) -> Trace:
    """The touches of one head; other watchers may see the same run. `backwards`: inner loops go from the last tile to
    the first. Under a causal mask blocks that run together are then at different keys, which stay in use for longer."""
    from dataclasses import replace

    if not getattr(schedule, "skips", True) and problem.mask is not DENSE:
        problem = replace(problem, mask=DENSE)  # a mask that only hides moves no word
    watcher = _Blocks()
    machine = Unrolled(problem, watcher, *watchers, backwards=backwards).run(schedule, tiling)
    if not watcher.events:
        raise InputError("--mask", "a mask that hides every tile", "one with an active tile", "nothing would be moved")
    tensors = _cells(watcher.events, machine)
    by_launch = ([event for event in watcher.events if event[0] == number] for number in range(watcher.launch))
    launches = [_launch(events, tensors) for events in by_launch if events]
    ordered = sorted(tensors.values(), key=lambda cells: cells.first)
    sizes = np.concatenate([cells.sizes_bytes() for cells in ordered])
    shared = sum(cells.count for cells in ordered if cells.shared)
    return Trace(launches, sizes, shared)


def _cells(events: list[tuple[Any, ...]], machine: Any) -> dict[str, Cells]:
    """Cells so small that every tile is made of whole ones; but rows in groups of 16, columns down to 32 bytes."""
    found: dict[str, Cells] = {}
    p = machine.p
    names = dict.fromkeys(event[2] for event in events)
    shared = {name: machine.tensors[name].axes[0] == "Nk" for name in names}
    first = 0
    for name in sorted(names, key=lambda name: not shared[name]):
        axes = p.shape(machine.tensors[name])
        length, width = axes[0], axes[1] if len(axes) > 1 else 1
        rows = columns = 0
        for _, _, tensor, row, _, column, _, _ in events:
            if tensor == name:
                rows, columns = gcd(rows, row), gcd(columns, column)
        word_bytes = p.hbm_bytes(machine.tensors[name])
        rows, columns = max(rows or length, min(LEAST_ROWS, length)), max(columns or width, min(32, width))
        found[name] = Cells(rows, columns, length, width, word_bytes, first, shared[name])
        first += found[name].count
    return found


def _launch(events: list[tuple[Any, ...]], tensors: dict[str, Cells]) -> Launch:
    parts = [tensors[name].touched(*part) for _, _, name, *part, _ in events]
    counts = np.array([len(part) for part in parts])
    writes = np.repeat(np.array([event[-1] for event in events]), counts)
    blocks = np.repeat(np.array([event[1] for event in events]), counts)
    edges = np.flatnonzero(np.diff(blocks)) + 1
    return Launch(np.concatenate(parts), writes, np.concatenate([[0], edges, [len(blocks)]]))


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
