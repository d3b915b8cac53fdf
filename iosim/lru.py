"""An L2 of two partitions, over cells: which of its bytes go to DRAM.

A line has its home in one partition, beside its DRAM. A multiprocessor asks the partition on its own side, which keeps
a copy of what it had to fetch from the other. So what all multiprocessors read is kept twice; what one of them reads is
kept once or twice, for as long as its home remembers it. Each partition replaces what was touched least recently.
What was written goes to DRAM, and stays, when about four fifths of what a partition holds were touched in it since,
or when about half of it is dirty. (A GPU whose L2 has one partition has no model of its own.)
(Seen on an H200 with buffers of 16 to 72 MiB that one, 16 or all multiprocessors read, write or both, and with
arrays of 28 to 48 MiB that were allocated apart.)

Half of a cell has its home in each partition. Each cell then needs, for a partition, the step when its own side last
touched it and the step when its home half was last asked for: a cell is there exactly if that is younger than an age,
which is all that has to be known of an LRU. Sets are not filled evenly; how evenly depends on where arrays lie, which
is not known here: caches of a little more and a little less room are followed side by side, by the ages that they
share, and the mean of what they do is the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ROOM = (0.89, 0.95, 0.99, 1.03, 1.09)  # of the size up to which buffers are read at the L2's rate
TOUCHED_ROOM = (0.69, 0.77, 0.83, 0.90, 1.00)  # the same, of what was touched since something was written
DIRTY_ROOM = (0.40, 0.45, 0.485, 0.515, 0.55)  # the same, of what was written and is not in DRAM yet
SIDES = 2


class Cache:
    """`sizes`: bytes of each cell. A partition holds `capacity_bytes` of what both sides read.

    `read_bytes`, `write_bytes`: between DRAM and L2 so far; `first_bytes` of the reads were the first of their cell.
    """

    def __init__(self, sizes: Any, capacity_bytes: int, spread: tuple[Any, ...] = (ROOM, TOUCHED_ROOM, DIRTY_ROOM)):
        self.sizes, self.halves = np.asarray(sizes), np.asarray(sizes) / 2
        self.room, self.touched_room, self.dirty_room = (capacity_bytes * np.array(each) for each in spread)
        cells, members = len(self.sizes), len(self.room)
        self.near = np.full((SIDES, cells), -1, np.int64)  # step of the last touch from a side
        self.home = np.full((SIDES, cells), -1, np.int64)  # of the home half of a partition, from any side
        self.last = np.full(cells, -1, np.int64)  # of any touch
        self.written = np.full(cells, -1, np.int64)
        self.resident_at = np.zeros((SIDES, 1024))  # bytes of a partition last touched in a step
        self.dirty_at = np.zeros(1024)  # bytes of each side last written in a step
        self.oldest = np.zeros((members, SIDES), np.int64)  # steps before are not in the cache
        self.young = np.zeros((members, SIDES), np.int64)  # what was written in steps before leaves for DRAM
        self.clean = np.zeros((members, SIDES), np.int64)  # what was last written in steps before is in DRAM
        self.resident, self.touched, self.dirty = (np.zeros((members, SIDES)) for _ in range(3))  # sums of steps since
        self.reads, self.writes, self.step, self.first_bytes = np.zeros(members), np.zeros(members), 0, 0

    @property
    def read_bytes(self) -> int:
        return round(float(self.reads.mean()))

    @property
    def write_bytes(self) -> int:
        return round(float(self.writes.mean()))

    @property
    def dirty_bytes(self) -> int:
        """What was written and is not in DRAM yet."""
        return round(float(self.dirty.sum(1).mean()))

    def flush(self) -> int:
        """Empty the cache -> the bytes that were dirty, and went to DRAM uncounted."""
        dirty = self.dirty_bytes
        for first in (self.oldest, self.young, self.clean):
            first[:] = self.step
        for held in (self.resident, self.touched, self.dirty):
            held[:] = 0
        return dirty

    def touch(self, loaded: list[Any], stored: list[Any], both: Any) -> None:
        """One step: the cells that each side loads, then those that it stores; and all of them, each once."""
        if self.step == len(self.dirty_at):
            self.dirty_at = np.append(self.dirty_at, np.zeros(self.step))
            self.resident_at = np.hstack([self.resident_at, np.zeros((SIDES, self.step))])
        for side in range(SIDES):
            if len(loaded[side]):
                self._load(side, loaded[side])
        for side in range(SIDES):
            if len(stored[side]):
                self._store(side, stored[side])
        self.last[both] = self.step
        self._evict()
        self.step += 1

    def _load(self, side: int, cells: Any) -> None:
        far, half = 1 - side, self.halves[cells]
        near, home, away = self.near[side, cells], self.home[side, cells], self.home[far, cells]
        self.first_bytes += int(self.sizes[cells[self.last[cells] < 0]].sum())
        self.last[cells] = self.step
        here, there = self.oldest[:, side, None], self.oldest[:, far, None]
        fetched = near < here  # the copy of the half whose home is on the other side
        self.reads += ((home < here).astype(float) + (fetched & (away < there))) @ half
        middle = fetched[len(fetched) // 2]  # what the members do to the other side must be one thing
        self._refresh(self.near[side], side, cells)
        self._refresh(self.home[side], side, cells)
        self._refresh(self.home[far], far, cells[middle])

    def _store(self, near: int, cells: Any) -> None:
        """The side that stores keeps a copy, too."""
        self._refresh(self.near[near], near, cells)
        before = self.written[cells]
        for side in range(SIDES):
            self._refresh(self.home[side], side, cells)
            self.dirty[:, side] += (before < self.clean[:, side, None]) @ self.halves[cells]
        self._move(self.dirty_at, before, self.halves[cells])
        self.written[cells] = self.step

    def _refresh(self, ages: Any, side: int, cells: Any) -> None:
        """Halves of these cells are the youngest of a partition."""
        before, half = ages[cells], self.halves[cells]
        self.resident[:, side] += (before < self.oldest[:, side, None]) @ half
        self.touched[:, side] += (before < self.young[:, side, None]) @ half
        self._move(self.resident_at[side], before, half)
        ages[cells] = self.step

    def _move(self, at: Any, before: Any, sizes: Any) -> None:
        known = before >= 0
        np.subtract.at(at, before[known], sizes[known])
        at[self.step] += sizes.sum()

    def _evict(self) -> None:
        for side, at in enumerate(self.resident_at):
            self._leave(at, self.oldest[:, side], self.resident[:, side], self.room)
            self._leave(at, self.young[:, side], self.touched[:, side], self.touched_room)
            clean, before = self.clean[:, side], self.clean[:, side].copy()
            self._leave(self.dirty_at, clean, self.dirty[:, side], self.dirty_room, self.young[:, side])
            for member in np.flatnonzero(before != clean):
                self.writes[member] += self.dirty_at[before[member] : clean[member]].sum()

    def _leave(self, at: Any, oldest: Any, held: Any, room: Any, least: Any = None) -> None:
        """What is too old, by member: all before `least`, and what does not fit. A step leaves as a whole; half of it
        is the point where that is as often too early as too late."""
        least = oldest if least is None else least
        for member in np.flatnonzero((held > room) | (oldest < least)):
            first, total = oldest[member], held[member]
            while first < least[member] or (first <= self.step and total - at[first] / 2 > room[member]):
                total, first = total - at[first], first + 1
            oldest[member], held[member] = first, total
