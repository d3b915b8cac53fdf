"""A cache that models an L2 of two partitions: the bytes that it reads from DRAM and writes to DRAM.

The model has these properties of an H200. They were seen with buffers of 16 to 72 MiB that one, 16 or all
multiprocessors read, write or both (`l2_buffers.csv`):

- A line of memory has its home in one partition, the one beside its DRAM.
- A multiprocessor asks the partition on its own side. That partition keeps a copy of what it fetches from the other
  one. So data that both sides read are kept twice.
- Each partition replaces the least recently used lines (LRU).
- Written bytes stay in their partition. They go to DRAM when many other bytes were used since (TOUCHED), or when too
  many are dirty (DIRTY). They can still be read from the L2 then.

The unit of the computation is a cell (predict/blocks.py), and half of each cell has its home in each partition. Time
is counted in steps, one for each call of `Cache.touch`. A partition records two steps for each cell: the last use of
its copy, and the last use of its home half. An LRU holds exactly the data used since some step. So the cache only has
to know that step, a `Window`.

Addresses are unknown, so sets of lines are not modelled. They matter if the reused data just about fill the L2. Caches
with SPREAD less room and with SPREAD more show how much depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CellNumbers = NDArray[np.int64]
"""Numbers of cells, each at most once."""
StepNumbers = NDArray[np.int64]
"""The step in which something last happened to each cell."""
Bytes = NDArray[np.float64]

# Shares of a partition's capacity: what it holds, what may be used after a write until the write goes to DRAM, and what
# may be dirty. Fitted on one card, an H200: to buffers and arrays that are read or written five times, and to the
# shapes whose DRAM bytes were measured with the arrays in several places.
HELD, TOUCHED, DIRTY = 1.08, 0.9, 0.5
# Chosen by hand. The room that fits best has a deviation of 0.1 between those shapes; this is nearly twice as much.
SPREAD = 0.15
SIDES = 2
FEW_STEPS = 1024  # steps for which space is allocated at first
NEVER = 0  # a step before all others


class Room(NamedTuple):
    """The most bytes in each window of a partition: all that it holds, what is used after a write until that goes to
    DRAM, and what is dirty."""

    held: float
    touched: float
    dirty: float


def room_of(capacity_bytes: float, times: float = 1.0) -> Room:
    """The room of a partition with `times` this capacity."""
    return Room(*(capacity_bytes * times * share for share in (HELD, TOUCHED, DIRTY)))


class Uses:
    """The bytes that were last used in each step."""

    def __init__(self) -> None:
        self.bytes_in = np.zeros(FEW_STEPS)

    def reserve(self, step: int) -> None:
        """Make room for this step, the next one."""
        if step == len(self.bytes_in):
            self.bytes_in = np.concatenate([self.bytes_in, np.zeros_like(self.bytes_in)])

    def use(self, last: StepNumbers, used: CellNumbers, halves: Bytes, step: int, *windows: Window) -> NDArray[np.bool]:
        """Note that these halves of cells are used in this step. Returns which of them were not in the first window.

        `last` holds the step of the last use of each, and is changed. Those that are not in a window enter it.
        """
        before, whole = last[used], float(halves.sum())
        outside = [before < window.first for window in windows]
        for window, entering in zip(windows, outside, strict=True):
            if many := np.count_nonzero(entering):
                window.held += whole if many == len(used) else float(entering @ halves)
        np.subtract.at(self.bytes_in, before, halves)
        self.bytes_in[step] += whole
        last[used] = step
        return outside[0]

    def shrink(self, window: Window, step: int, least: int = 0) -> float:
        """Remove from a window the data used before step `least`, then the oldest until the rest fits. Returns the
        bytes removed.

        All bytes of a step are removed together, as soon as less than half of them would fit. On average this is
        neither too early nor too late.
        """
        gone, window.most = 0.0, max(window.most, window.held)
        while window.first <= step and (window.held > window.room or window.first < least):
            leaving = float(self.bytes_in[window.first])
            if window.held - leaving / 2 <= window.room and window.first >= least:
                break
            window.first, window.held, gone = window.first + 1, window.held - leaving, gone + leaving
        return gone


@dataclass
class Window:
    """The cells that were used since step `first`: `held` bytes, with room for `room` bytes."""

    room: float
    first: int = NEVER + 1
    held: float = 0.0
    most: float = 0.0
    """The most bytes in it so far, at the end of a step before any are removed."""

    def empty(self, step: int) -> None:
        """Remove everything that was used before this step."""
        self.first, self.held = step, 0.0


class Partition:
    """One side of the L2. It holds the halves at home here, and copies of halves at home on the other side.

    `last`: the step in which each was last used, first of the homes of all cells, then of their copies.
    """

    def __init__(self, cells: int, room: Room):
        self.last = np.full(2 * cells, NEVER)
        self.uses = Uses()
        self.held, self.touched, self.dirty = map(Window, room)

    @property
    def windows(self) -> tuple[Window, Window, Window]:
        """What is held, what is used after a write until that goes to DRAM, and what is dirty."""
        return self.held, self.touched, self.dirty

    def use(self, used: CellNumbers, halves: Bytes, step: int) -> NDArray[np.bool]:
        """Use these homes and copies, numbered as in `last`. Returns which of them were not here."""
        return self.uses.use(self.last, used, halves, step, self.held, self.touched)

    def shrink(self, step: int, written: Uses) -> float:
        """Remove data that do not fit, and return the bytes written to DRAM."""
        self.uses.shrink(self.held, step)
        self.uses.shrink(self.touched, step)
        return written.shrink(self.dirty, step, least=self.touched.first)


class Cache:
    """An L2 of two partitions, with the same room each, over cells of these sizes in bytes.

    `read_bytes` and `write_bytes` went between DRAM and L2 so far. `first_bytes` of the reads were the first of their
    cell.
    """

    def __init__(self, sizes: NDArray[np.int64] | NDArray[np.float64], room: Room):
        self.sizes, self.halves = sizes, sizes / 2
        self.partitions = [Partition(len(sizes), room) for _ in range(SIDES)]
        self.written, self.last_written = Uses(), np.full(len(sizes), NEVER)
        self.known = np.zeros(len(sizes), bool)
        self.reads, self.writes, self.first_bytes, self.step = 0.0, 0.0, 0, NEVER + 1

    @property
    def read_bytes(self) -> int:
        return round(self.reads)

    @property
    def write_bytes(self) -> int:
        return round(self.writes)

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written."""
        return round(self.reads + self.writes)

    @property
    def dirty_bytes(self) -> int:
        """Bytes that were written and are not in DRAM yet."""
        return round(sum(partition.dirty.held for partition in self.partitions))

    def flush(self) -> None:
        """Empty the cache. Dirty bytes go to DRAM, and are not counted as written."""
        for partition in self.partitions:
            for window in partition.windows:
                window.empty(self.step)

    def fills(self, share: float) -> bool:
        """Whether a cache with this share of the room would have removed something that this one kept."""
        return any(window.most > share * window.room for one in self.partitions for window in one.windows)

    def touch(self, loaded: list[CellNumbers], stored: list[CellNumbers]) -> None:
        """Play one step: the cells that each side loads, then those that each side stores."""
        for uses in (self.written, *(partition.uses for partition in self.partitions)):
            uses.reserve(self.step)
        for side in range(SIDES):
            if len(loaded[side]):
                self._load(side, loaded[side])
        for side in range(SIDES):
            if len(stored[side]):
                self._store(side, stored[side])
        for partition in self.partitions:
            self.writes += partition.shrink(self.step, self.written)
        self.step += 1

    def _load(self, side: int, cells: CellNumbers) -> None:
        """Load cells on one side. The half at home here comes from DRAM if it is not here. The other half comes from
        its home, unless a copy is here; if it is not at home either, it comes from DRAM."""
        here, there, halves = self.partitions[side], self.partitions[1 - side], self.halves[cells]
        new = cells[~self.known[cells]]
        if len(new):
            self.first_bytes += int(self.sizes[new].sum())
            self.known[new] = True
        absent = here.use(*self._both(cells, halves), self.step)
        self.reads += float(absent[: len(cells)] @ halves)
        fetched = absent[len(cells) :]
        if fetched.any():
            cells, halves = cells[fetched], halves[fetched]
            self.reads += float(there.use(cells, halves, self.step) @ halves)

    def _both(self, cells: CellNumbers, halves: Bytes) -> tuple[CellNumbers, Bytes]:
        """The homes of these cells, then their copies, and the bytes of each."""
        return np.concatenate((cells, cells + len(self.sizes))), np.concatenate((halves, halves))

    def _store(self, side: int, cells: CellNumbers) -> None:
        """Store cells on one side. Both halves become dirty at home; this side keeps a copy of the other half."""
        halves = self.halves[cells]
        self.known[cells] = True
        self.partitions[side].use(*self._both(cells, halves), self.step)
        self.partitions[1 - side].use(cells, halves, self.step)
        self.written.use(self.last_written, cells, halves, self.step, *(each.dirty for each in self.partitions))
