"""An L2 of two partitions, over cells: which of its bytes go to DRAM.

A line has its home in one partition, beside its DRAM. A multiprocessor asks the partition on its own side, which keeps
a copy of what it fetched from the other. So what both sides read is kept twice. What one side reads is kept once or
twice, for as long as its home remembers it. Each partition replaces what was used least recently. Written bytes go to
DRAM, and stay readable, when their partition was asked for `TOUCHED` of its capacity since, or when `DIRTY` of its
capacity is dirty. (Seen on an H200 with buffers of 16 to 72 MiB that one, 16 or all multiprocessors read, write or
both: `l2_buffers.csv`.)

Half of each cell has its home in each partition. For each partition a cell has two steps: when its own side last used
it, and when its home half was last asked for. A cell is there exactly if that step is younger than an age; an LRU needs
no more than this age. Addresses are not known, so sets of lines are not modelled. Where what is used again just about
fills the L2, its sets decide what stays: caches with `SPREAD` less and more room show how much depends on that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int64]
"""Numbers of cells, each at most once."""
Steps = NDArray[np.int64]
Bytes = NDArray[np.float64]

# Shares of the capacity. Fitted on one card, an H200: on buffers and arrays that are gone through five times, and on
# the shapes whose DRAM bytes were measured in several places.
HELD, TOUCHED, DIRTY = 1.08, 0.9, 0.5
# Chosen by hand, not measured: nearly twice the deviation (0.1) of the room that fitted those same shapes of the H200.
SPREAD = 0.15
SIDES = 2
FEW_STEPS = 1024
NEVER = 0  # the step before all others


class Room(NamedTuple):
    """Bytes of one partition: all that it holds, what it was asked for since a write, and what is dirty."""

    held: float
    touched: float
    dirty: float


def room_of(capacity_bytes: float, times: float = 1.0) -> Room:
    """The room of a partition that holds `capacity_bytes`, `times` over."""
    return Room(*(capacity_bytes * times * share for share in (HELD, TOUCHED, DIRTY)))


class Uses:
    """The bytes that were last used in each step; `use` also notes the step of each cell that is used."""

    def __init__(self) -> None:
        self.bytes_in = np.zeros(FEW_STEPS)

    def reserve(self, step: int) -> None:
        if step == len(self.bytes_in):
            self.bytes_in = np.concatenate([self.bytes_in, np.zeros_like(self.bytes_in)])

    def use(self, last: Steps, cells: Cells, halves: Bytes, step: int, *windows: Window) -> None:
        """Use the cells now; `last` is the step of each before. Those that had left a window enter it."""
        before = last[cells]
        for window in windows:
            window.held += float((before < window.first) @ halves)
        np.subtract.at(self.bytes_in, before, halves)
        self.bytes_in[step] += halves.sum()
        last[cells] = step

    def shrink(self, window: Window, step: int, least: int = 0) -> float:
        """The bytes that leave a window: all before step `least`, then the oldest, until the rest fits.

        A step leaves as a whole if half of it would not fit: that is as often too early as too late.
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
    """The youngest uses: those since step `first`, of `held` bytes, for which there is `room`.

    `most`: the most bytes that were in it so far, before any had to leave."""

    room: float
    first: int = NEVER + 1
    held: float = 0.0
    most: float = 0.0

    def empty(self, step: int) -> None:
        self.first, self.held = step, 0.0


class Partition:
    """What one side of the L2 holds: halves at home here, and copies of halves at home on the other side."""

    def __init__(self, cells: int, room: Room):
        self.homes, self.copies = np.full(cells, NEVER), np.full(cells, NEVER)  # the step of the last use
        self.uses = Uses()
        self.held, self.touched, self.dirty = map(Window, room)

    @property
    def windows(self) -> tuple[Window, Window, Window]:
        return self.held, self.touched, self.dirty

    def use(self, last: Steps, cells: Cells, halves: Bytes, step: int) -> None:
        """Use homes or copies of this partition."""
        self.uses.use(last, cells, halves, step, self.held, self.touched)

    def shrink(self, step: int, written: Uses) -> float:
        """Forget what does not fit -> the bytes written to DRAM."""
        self.uses.shrink(self.held, step)
        self.uses.shrink(self.touched, step)
        return written.shrink(self.dirty, step, least=self.touched.first)


class Cache:
    """An L2 of two partitions of so much room each, over cells of so many bytes.

    `read_bytes`, `write_bytes`: between DRAM and L2 so far; `first_bytes` of the reads were the first of their cell.
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
        return round(self.reads + self.writes)

    @property
    def dirty_bytes(self) -> int:
        """Bytes that were written and are not in DRAM yet."""
        return round(sum(partition.dirty.held for partition in self.partitions))

    def flush(self) -> int:
        """Empty the cache -> the bytes that were dirty, and went to DRAM uncounted."""
        dirty = self.dirty_bytes
        for partition in self.partitions:
            for window in partition.windows:
                window.empty(self.step)
        return dirty

    def fills(self, share: float) -> bool:
        """Whether a cache of this share of the room would have had to let anything go that this one kept."""
        return any(window.most > share * window.room for one in self.partitions for window in one.windows)

    def touch(self, loaded: list[Cells], stored: list[Cells]) -> None:
        """One step: the cells that each side loads, then those that each side stores."""
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

    def _load(self, side: int, cells: Cells) -> None:
        """A half at home on the other side is fetched from there if no copy is here; halves at home come from DRAM."""
        here, there, halves = self.partitions[side], self.partitions[1 - side], self.halves[cells]
        self.first_bytes += int(self.sizes[cells[~self.known[cells]]].sum())
        self.known[cells] = True
        fetched = here.copies[cells] < here.held.first
        self.reads += float((here.homes[cells] < here.held.first) @ halves)
        here.use(here.copies, cells, halves, self.step)
        here.use(here.homes, cells, halves, self.step)
        if fetched.any():
            cells, halves = cells[fetched], halves[fetched]
            self.reads += float((there.homes[cells] < there.held.first) @ halves)
            there.use(there.homes, cells, halves, self.step)

    def _store(self, side: int, cells: Cells) -> None:
        """Both halves are dirty at home; the side that stores keeps a copy of the far one."""
        here, halves = self.partitions[side], self.halves[cells]
        self.known[cells] = True
        here.use(here.copies, cells, halves, self.step)
        for partition in self.partitions:
            partition.use(partition.homes, cells, halves, self.step)
        self.written.use(self.last_written, cells, halves, self.step, *(each.dirty for each in self.partitions))
