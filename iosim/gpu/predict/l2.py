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
is counted in steps. A partition records two steps for each cell: the last use of its copy, and the last use of its home
half. An LRU holds exactly the data used since some step. So the cache only has to know that step, the first one of a
window.

Addresses are unknown, so sets of lines are not modelled. They matter if the reused data just about fill the L2. Caches
with SPREAD less room and with SPREAD more show how much depends on it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CellNumbers = NDArray[np.int64]
"""Numbers of cells."""
StepNumbers = NDArray[np.int64]
"""The step in which something last happened to each cell."""
Bytes = NDArray[np.float64]
Rows = NDArray[np.int64]
"""Partitions of some cases, by their rows."""
Places = NDArray[np.int64]
"""Where the last uses of homes or copies of cells stand."""

# Shares of a partition's capacity: what it holds, what may be used after a write until the write goes to DRAM, and what
# may be dirty. Fitted on one card, an H200: to buffers and arrays that are read or written five times, and to the
# shapes whose DRAM bytes were measured with the arrays in several places.
HELD, TOUCHED, DIRTY = 1.08, 0.9, 0.5
# Chosen by hand. The room that fits best has a deviation of 0.1 between those shapes; this is nearly twice as much.
SPREAD = 0.15
SIDES = 2
FEW_STEPS = 1024  # steps for which space is allocated at first
NEVER = 0  # a step before all others
HOLDS, TOUCHES, DIRTIES = range(len((HELD, TOUCHED, DIRTY)))  # the windows, in the order of `Room`


class Room(NamedTuple):
    """The most bytes in each window of a partition: all that it holds, what is used after a write until that goes to
    DRAM, and what is dirty."""

    held: float
    touched: float
    dirty: float


def room_of(capacity_bytes: float, times: float = 1.0) -> Room:
    """The room of a partition with `times` this capacity."""
    return Room(*(capacity_bytes * times * share for share in (HELD, TOUCHED, DIRTY)))


class Touched(NamedTuple):
    """Touches of some steps, sorted by step, then loads before stores, then by side. In a step a side loads a cell at
    most once, and stores it at most once."""

    step: StepNumbers
    """The number of each touch's step, from 0 on. A number without a touch is no step."""
    write: NDArray[np.bool]
    side: NDArray[np.int64]
    cell: CellNumbers


class Cache:
    """An L2 of two partitions, over cells of these sizes in bytes. It is played with several rooms of a partition at
    once; each room is a case.

    `reads` and `writes` are the bytes between DRAM and L2 so far, in each case. Where an array has a row for each
    partition, the two rows of the first case come first.
    """

    def __init__(self, sizes: NDArray[np.int64] | NDArray[np.float64], *rooms: Room):
        cells, partitions = len(sizes), SIDES * len(rooms)
        self.sizes, self.halves, self.step = sizes, sizes / 2, NEVER + 1
        self.reads, self.writes = np.zeros(len(rooms)), np.zeros(len(rooms))
        self.known, self.read_first = np.zeros(cells, bool), np.zeros(cells, bool)
        # Of each partition: the last use of each home, then of each copy. Of each cell: the last store.
        self.width = 2 * cells
        self.last, self.last_stored = np.full(partitions * self.width, NEVER), np.full(cells, NEVER)
        # Of each window and partition: the most bytes, the bytes in it, and the first step whose bytes are in it.
        self.room = np.repeat(np.array(rooms, float).T, SIDES, axis=1)
        self.held, self.first = np.zeros(self.room.shape), np.full(self.room.shape, NEVER + 1)
        # Of each partition: the bytes that were last used in each step. The last row, of both: those last stored.
        self.bytes_in = np.zeros((partitions + 1, FEW_STEPS))
        self.row_of = np.array([range(partitions), range(partitions), [partitions] * partitions])

    @property
    def read_bytes(self) -> int:
        """Bytes read from DRAM in the first case."""
        return round(self.reads[0])

    @property
    def write_bytes(self) -> int:
        """Bytes written to DRAM in the first case."""
        return round(self.writes[0])

    @property
    def moved_bytes(self) -> list[int]:
        """Bytes read and written in each case."""
        return [round(moved) for moved in self.reads + self.writes]

    @property
    def first_bytes(self) -> int:
        """The bytes that were read and never touched before."""
        return int(self.sizes[self.read_first].sum())

    @property
    def dirty_bytes(self) -> int:
        """Bytes that were written and are not in DRAM yet, in the first case."""
        return round(self.held[DIRTIES, :SIDES].sum())

    def flush(self) -> None:
        """Empty the cache. Dirty bytes go to DRAM, and are not counted as written."""
        self.first[:], self.held[:] = self.step, 0.0

    def touch(self, loaded: list[CellNumbers], stored: list[CellNumbers]) -> None:
        """Play one step: the cells that each side loads, then those that each side stores."""
        cells = [*loaded, *stored]
        numbers = np.repeat(np.arange(2 * SIDES), [*map(len, cells)])
        self.play(Touched(np.zeros_like(numbers), numbers >= SIDES, numbers % SIDES, np.concatenate(cells)))

    def play(self, touched: Touched) -> None:
        """Play some steps."""
        step, write, side, cell = touched
        self._note_first(cell, write)
        self._reserve(len(step))
        rows = side[:, None] + np.arange(0, self.room.shape[1], SIDES)
        homes, halves = rows * self.width + cell[:, None], np.broadcast_to(self.halves[cell][:, None], rows.shape)
        parts = np.flatnonzero(np.diff(2 * SIDES * step + SIDES * write + write * side, prepend=-1)).tolist()
        for start, end in pairwise([*parts, len(step)]):
            part = slice(start, end)
            if write[start]:
                self._store(cell[part], homes[part], rows[part], halves[part])
            else:
                self._load(homes[part], rows[part], halves[part])
            if end == len(step) or step[start] != step[end]:
                self._shrink()
                self.step += 1

    def _note_first(self, cell: CellNumbers, write: NDArray[np.bool]) -> None:
        """Note which cells are known, and which of them were read first."""
        cells, first = np.unique(cell, return_index=True)
        self.read_first[cells] |= ~self.known[cells] & ~write[first]
        self.known[cells] = True

    def _reserve(self, steps: int) -> None:
        """Make room for so many steps, and for one that is empty."""
        while self.step + steps >= self.bytes_in.shape[1]:
            self.bytes_in = np.hstack([self.bytes_in, np.zeros_like(self.bytes_in)])

    def _load(self, homes: Places, rows: Rows, halves: Bytes) -> None:
        """Load cells. The half at home on the side that asks comes from DRAM if it is not there. The other half comes
        from its home, unless a copy is on the side that asks; if it is not at home either, it comes from DRAM."""
        places = np.concatenate((homes, homes + len(self.sizes)))
        absent = self._use(places, np.concatenate((rows, rows)), np.concatenate((halves, halves)))
        self.reads += halves[:, 0] @ absent[: len(homes)]
        fetched = np.nonzero(absent[len(homes) :])
        if len(fetched[0]):
            there, rows, halves = self._other(homes[fetched], rows[fetched]), rows[fetched] ^ 1, halves[fetched]
            self.reads += np.bincount(fetched[1], self._use(there, rows, halves) * halves, len(self.reads))

    def _store(self, cells: CellNumbers, homes: Places, rows: Rows, halves: Bytes) -> None:
        """Store cells of one side. Both halves become dirty at home; this side keeps a copy of the other half."""
        places = np.concatenate((homes, homes + len(self.sizes), self._other(homes, rows)))
        self._use(places, np.concatenate((rows, rows, rows ^ 1)), np.concatenate((halves, halves, halves)))
        before, each, stored = self.last_stored[cells], halves[:, 0], self.bytes_in[-1]
        self.held[DIRTIES] += each @ (before[:, None] < self.first[DIRTIES])
        np.subtract.at(stored, before, each)
        stored[self.step] += each.sum()
        self.last_stored[cells] = self.step

    def _other(self, homes: Places, rows: Rows) -> Places:
        """The homes of the other halves of the cells with these homes in these partitions."""
        return homes + ((rows ^ 1) - rows) * self.width

    def _use(self, places: Places, rows: Rows, halves: Bytes) -> NDArray[np.bool]:
        """Use these homes and copies in these partitions. Returns which of them were not there. Those that are not in a
        window enter it."""
        before = self.last[places]
        outside = before < self.first[:DIRTIES, rows]
        if np.count_nonzero(outside):
            for held, entering in zip(self.held, outside, strict=False):
                held += np.bincount(rows.ravel(), (entering * halves).ravel(), len(held))
        np.subtract.at(self.bytes_in.reshape(-1), (rows * self.bytes_in.shape[1] + before).ravel(), halves.ravel())
        self.bytes_in[:-1, self.step] += np.bincount(rows.ravel(), halves.ravel(), self.room.shape[1])
        self.last[places] = self.step
        return outside[HOLDS]

    def _shrink(self) -> None:
        """Remove from each window the oldest data until the rest fits. What is dirty also goes to DRAM when too much
        was touched since.

        All bytes of a step are removed together, as soon as less than half of them would fit. On average this is
        neither too early nor too late.
        """
        while True:
            leaving = self.bytes_in[self.row_of, self.first]
            gone = self.held - leaving / 2 > self.room
            gone[DIRTIES] |= self.first[DIRTIES] < self.first[TOUCHES]
            gone &= self.first <= self.step
            if not np.count_nonzero(gone):
                return
            leaving *= gone
            self.held -= leaving
            self.first += gone
            self.writes += leaving[DIRTIES].reshape(-1, SIDES).sum(axis=1)
