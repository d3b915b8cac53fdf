"""DRAM traffic: the tile trace of the blocks that run together, through a model of the L2 (`lru.py`).

The text is run once, unrolled, for one head: each turn of an outermost `parallel` loop is a block, and what a block
loads and stores is a row of touches of cells (tiles, or the common parts of tiles of several sizes). Blocks of all
heads then start in grid order on sms x blocks-per-SM places and take a step each in turn; `lru.py` is the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd, log
from types import MappingProxyType
from typing import Any

import numpy as np

from .dram import Dram
from .errors import InputError
from .lru import SIDES, Cache, pages_of
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

    def touched(self, row: int, rows: int, column: int, columns: int) -> Any:
        """The cells that a part of the tensor lies in."""
        i = np.arange(row // self.rows, -(-(row + rows) // self.rows))
        j = np.arange(column // self.columns, -(-(column + columns) // self.columns))
        return (self.first + i[:, None] * self.across + j).ravel()

    def sizes_bytes(self) -> Any:
        heights = np.minimum(self.rows, self.length - np.arange(0, self.length, self.rows))
        widths = np.minimum(self.columns, self.width - np.arange(0, self.width, self.columns))
        return (heights[:, None] * widths * self.word_bytes).ravel()


@dataclass
class Launch:
    """Blocks of one head: `touches[starts[b]:starts[b + 1]]` are block b's cells, `writes` says which are stores."""

    touches: Any
    writes: Any
    starts: Any


@dataclass(frozen=True)
class Trace:
    """What one head does to memory, launch by launch."""

    launches: list[Launch]
    sizes_bytes: Any
    shared_cells: int
    """Cells [0, shared_cells) belong to a key/value head, the others to a query head."""
    firsts: tuple[int, ...]
    """The first cell of each tensor."""


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
    return Trace(launches, sizes, shared, tuple(cells.first for cells in ordered))


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
    """The cells of all heads, numbered: those of key/value heads first, then those of query heads; then a cell for
    each place on the GPU, which every block that takes it writes; then one of somebody else."""

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
        self.sizes = np.concatenate([tensors, np.array(more, int)])
        self.pages = self._pages(found.firsts, problem.instances)
        self.mark = np.zeros(len(self.sizes), np.int64)

    def _pages(self, firsts: tuple[int, ...], instances: int) -> Any:
        """Of memory, in which each cell lies: a tensor is an array of all its heads. `firsts`: cell of each tensor."""
        pages, free = np.zeros(len(self.sizes), np.int64), 0
        for first, end in pairwise((*firsts, self.shared + self.own)):
            heads = np.arange(0, instances, self.group if first < self.shared else 1)
            cells = self.cells(np.arange(first, end), heads[:, None]).ravel()
            pages[cells] = free + pages_of(self.sizes[cells])
            free = pages[cells[-1]] + 1
        pages[self.first_place :] = free
        return pages

    def cells(self, touches: Any, heads: Any) -> Any:
        own = touches >= self.shared
        return touches + np.where(own, self.own_first + heads * self.own, heads // self.group * self.shared)

    def of_places(self, places: Any) -> Any:
        """The cells of some places; none if blocks write none."""
        return self.first_place + places if self.places else places[:0]

    def once(self, cells: Any) -> Any:
        """Each of them once, in any order."""
        order = np.arange(len(cells))
        self.mark[cells] = order
        return cells[self.mark[cells] == order]


def places_on_sides(known: Mapping[str, str], blocks: int) -> Any:
    """The side of the L2 on which each place of a launch of so many blocks lies. `known`: of a few sizes of launches,
    the largest of which has a block on each multiprocessor; those between are like the nearest. Without it, sides take
    turns."""
    if not known:
        return np.arange(blocks) % SIDES
    sms = max(map(int, known))
    like = min(map(int, known), key=lambda size: abs(log(size / blocks))) if blocks < sms else sms
    pattern, place = np.array([int(side) for side in known[str(like)]]), np.arange(blocks)
    return pattern[place % sms if blocks >= sms else place * like // blocks]


def dram_bytes(
    found: Trace,
    problem: Attention,
    places: list[int],
    capacity_bytes: int,
    cold: bool = False,
    sides: Mapping[str, str] = MappingProxyType({}),
    block_bytes: int = 0,
    left_bytes: int = 0,
) -> Dram:
    """The trace of all heads through an L2, in grid order, as many blocks at a time as a launch has places.
    `sides`: of the L2, on which blocks sit (`places_on_sides`). The L2 starts empty; `cold`: at every launch, what is
    still dirty then having gone to DRAM between the launches. `block_bytes`: each block writes so much when it starts,
    over what the block before it wrote in its place (registers that are spilled once). `left_bytes`: dirty in the L2
    when a launch starts, by somebody else."""
    heads = Heads(found, problem, max(places), block_bytes, left_bytes)
    cache = Cache(heads.sizes, capacity_bytes, pages=heads.pages)
    dirty, by_launch, last = 0, [], np.array([len(heads.sizes) - 1])
    for launch, room in zip(found.launches, places, strict=True):
        reads, writes = cache.read_bytes, cache.write_bytes
        if left_bytes:
            cache.touch([last[:0]] * SIDES, [last, last[:0]], last)
        _run(launch, cache, heads, problem, room, sides)
        by_launch.append((cache.read_bytes - reads, cache.write_bytes - writes))
        if cold:
            dirty += cache.flush()
    dirty += cache.dirty_bytes
    ends = cache.least_bytes, cache.most_bytes
    return Dram(cache.read_bytes, cache.write_bytes, cache.first_bytes, dirty, tuple(by_launch), *ends)


def _run(
    launch: Launch, cache: Cache, every: Heads, problem: Attention, places: int, sides: Mapping[str, str]
) -> None:  # fmt: skip
    """One launch: blocks of a head follow each other, then those of the next head; a place that is free takes one."""
    blocks = len(launch.starts) - 1
    queue, total = 0, blocks * problem.instances
    places = min(places, total)
    work = -(-len(launch.touches) * problem.instances // places)
    stride = -(-work // MOST_STEPS)
    position, end, head = np.zeros(places, np.int64), np.zeros(places, np.int64), np.zeros(places, np.int64)
    side = places_on_sides(sides, places)
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
        cache.touch(loaded, stored, np.append(every.once(cells), every.of_places(free)))
        position[busy] += stride
