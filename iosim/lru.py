"""An L2 of two partitions, over cells: which of its bytes go to DRAM.

A line has its home in one partition, beside its DRAM. A multiprocessor asks the partition on its own side, which keeps
a copy of what it had to fetch from the other. So what all multiprocessors read is kept twice; what one of them reads is
kept once or twice, for as long as its home remembers it. Each partition replaces what was touched least recently.
What was written goes to DRAM, and stays, when about four fifths of what a partition holds were touched in it since,
or when about half of it is dirty. (A GPU whose L2 has one partition has no model of its own.)
(Seen on an H200 with buffers of 16 to 72 MiB that one, 16 or all multiprocessors read, write or both, with arrays of 28
to 48 MiB that were allocated apart, and with pieces of larger memory, 20 to 60 MiB of them.)

Half of a cell has its home in each partition. Each cell then needs, for a partition, the step when its own side last
touched it and the step when its home half was last asked for: a cell is there exactly if that is younger than an age,
which is all that has to be known of an LRU. Sets are not filled evenly; how evenly depends on where arrays lie, which
is not known here: caches of a little more and a little less room, the members, are followed side by side, and the mean
of what they do is the answer. One piece of memory fills sets more evenly than arrays that lie apart, as tensors do. And
a page of memory of which only a part is in use fills them like chance: as many lines of a set as would fill it with m
ways then vary by sqrt(m), so of 16 ways a room of r times the cache varies by sqrt(r / 16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

MEMBERS = 15
# In deviations from the mean: the middles of parts of the normal distribution that are equally likely.
MIDDLES = np.array([NormalDist().inv_cdf((n + 0.5) / MEMBERS) for n in range(MEMBERS)])
# Means and deviations over the members, of the size of a partition: of all that is held, of what was touched since
# something was written, and of what was written and is not in DRAM yet.
APART = ((1.077, 0.096), (0.902, 0.085), (0.501, 0.059))  # arrays that were allocated one by one
SIDES = 2
FEW_STEPS = 1024
WAYS, PAGE_BYTES = 16, 2**21
LOOKS = 4  # at the pages, while as much is touched as the cache holds


def pages_of(sizes: Any) -> Any:
    """The page in which each cell of an array starts."""
    return ((np.cumsum(sizes) - sizes) // PAGE_BYTES).astype(np.int64)


Rooms = Callable[[float], Iterable[Any]]
"""Of how full the pages in use are (1: whole) -> shares of the capacity, of each member: its room, its touched room and
its dirty room."""


def rooms_of(shares: tuple[tuple[float, float], ...]) -> Rooms:
    """`shares`: means and deviations where pages are whole."""

    def rooms(fullness: float) -> Iterable[Any]:
        for mean, deviation in shares:
            yield mean + sqrt(deviation**2 + mean * (1 - fullness) / WAYS) * MIDDLES

    return rooms


class Cache:
    """`sizes`: bytes of each cell; `pages`: of memory, in which they lie (None: whole ones). A partition holds
    `capacity_bytes` of what both sides read, times what each of the members has of `rooms`.

    `read_bytes`, `write_bytes`: between DRAM and L2 so far; `first_bytes` of the reads were the first of their cell.
    """

    def __init__(self, sizes: Any, capacity_bytes: int, rooms: Rooms | None = None, pages: Any = None):
        self.sizes, self.halves = np.asarray(sizes), np.asarray(sizes) / 2
        self.capacity, self.rooms, self.pages, self.touched_bytes = capacity_bytes, rooms or rooms_of(APART), pages, 0.0
        self.page_bytes: Any = None if pages is None else np.bincount(pages, self.sizes)
        self._make_room(fullness=1.0)
        cells, members = len(self.sizes), len(self.room)
        self.near = np.full((SIDES, cells), -1, np.int64)  # step of the last touch from a side
        self.home = np.full((members, SIDES, cells), -1, np.int64)  # of the home half of a partition, from any side
        self.last = np.full(cells, -1, np.int64)  # of any touch
        self.written = np.full(cells, -1, np.int64)
        # Bytes that were last touched in a step: by the side itself, at home, and written (half of a partition's).
        self.near_at, self.home_at = np.zeros((SIDES, FEW_STEPS)), np.zeros((members, SIDES, FEW_STEPS))
        self.dirty_at = np.zeros(FEW_STEPS)
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
    def least_bytes(self) -> int:
        """Read and written, by the member that moved least."""
        return round(float((self.reads + self.writes).min()))

    @property
    def most_bytes(self) -> int:
        return round(float((self.reads + self.writes).max()))

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
            more = [np.zeros_like(at) for at in (self.near_at, self.home_at, self.dirty_at)]
            self.near_at, self.home_at, self.dirty_at = (
                np.concatenate(pair, -1) for pair in zip((self.near_at, self.home_at, self.dirty_at), more, strict=True)
            )
        for side in range(SIDES):
            if len(loaded[side]):
                self._load(side, loaded[side])
        for side in range(SIDES):
            if len(stored[side]):
                self._store(side, stored[side])
        self.last[both] = self.step
        self.touched_bytes += self.sizes[both].sum()
        if self.pages is not None and self.touched_bytes > self.capacity / LOOKS:
            self._look_at_pages()
        self._evict()
        self.step += 1

    def _look_at_pages(self) -> None:
        """How full those in use are: of a byte that is held, how much of its page is held. Of the median member."""
        held = np.flatnonzero(self.last >= np.median(self.oldest))
        pages, sizes = self.pages[held], self.sizes[held]
        part = np.bincount(pages, sizes)[pages] / self.page_bytes[pages]
        self._make_room(float(np.average(part, weights=sizes)))
        self.touched_bytes = 0.0

    def _make_room(self, fullness: float) -> None:
        self.room, self.touched_room, self.dirty_room = (
            self.capacity * np.asarray(room) for room in self.rooms(fullness)
        )

    def _load(self, side: int, cells: Any) -> None:
        far, half = 1 - side, self.halves[cells]
        self.first_bytes += int(self.sizes[cells[self.last[cells] < 0]].sum())
        self.last[cells] = self.step
        here, there = self.oldest[:, side, None], self.oldest[:, far, None]
        fetched = self.near[side, cells] < here  # the copy of the half whose home is on the other side
        missed = self.home[:, side, cells] < here
        self.reads += (missed.astype(float) + (fetched & (self.home[:, far, cells] < there))) @ half
        self._refresh_near(side, cells)
        self._refresh_home(side, cells, half, True)
        if fetched.any():
            self._refresh_home(far, cells, half, fetched)

    def _store(self, near: int, cells: Any) -> None:
        """The side that stores keeps a copy, too."""
        self._refresh_near(near, cells)
        before, half = self.written[cells], self.halves[cells]
        for side in range(SIDES):
            self._refresh_home(side, cells, half, True)
            self.dirty[:, side] += (before < self.clean[:, side, None]) @ half
        self._move(self.dirty_at, before, half)
        self.written[cells] = self.step

    def _refresh_near(self, side: int, cells: Any) -> None:
        """Copies of the half that is at home on the other side are the youngest of this one."""
        before, half = self.near[side, cells], self.halves[cells]
        self.resident[:, side] += (before < self.oldest[:, side, None]) @ half
        self.touched[:, side] += (before < self.young[:, side, None]) @ half
        self._move(self.near_at[side], before, half)
        self.near[side, cells] = self.step

    def _refresh_home(self, side: int, cells: Any, half: Any, asked: Any) -> None:
        """The same of halves that are at home on a side; `asked`: by which members, or True for all."""
        before = self.home[:, side, cells]
        left, not_young = before < self.oldest[:, side, None], before < self.young[:, side, None]
        at, known = self.home_at[:, side], before >= 0
        if asked is True:
            at[:, self.step] += half.sum()
            self.home[:, side, cells] = self.step
        else:
            left, not_young, known = left & asked, not_young & asked, known & asked
            at[:, self.step] += asked @ half
            self.home[:, side, cells] = np.where(asked, self.step, before)
        self.resident[:, side] += left @ half
        self.touched[:, side] += not_young @ half
        member, cell = known.nonzero()
        np.subtract.at(at, (member, before[member, cell]), half[cell])

    def _move(self, at: Any, before: Any, sizes: Any) -> None:
        known = before >= 0
        np.subtract.at(at, before[known], sizes[known])
        at[self.step] += sizes.sum()

    def _evict(self) -> None:
        for side in range(SIDES):
            near, home = self.near_at[side], self.home_at[:, side]
            self._leave(near, home, self.oldest[:, side], self.resident[:, side], self.room)
            self._leave(near, home, self.young[:, side], self.touched[:, side], self.touched_room)
            clean, before = self.clean[:, side], self.clean[:, side].copy()
            self._leave(self.dirty_at, None, clean, self.dirty[:, side], self.dirty_room, self.young[:, side])
            for member in np.flatnonzero(before != clean):
                self.writes[member] += self.dirty_at[before[member] : clean[member]].sum()

    def _leave(self, all_at: Any, at: Any, oldest: Any, held: Any, room: Any, least: Any = None) -> None:
        """What is too old, by member: all before `least`, and what does not fit. `all_at`, `at`: bytes by step, of all
        members and by member. A step leaves as a whole; half of it is the point where that is as often too early as
        too late."""
        full = held > room if least is None else (held > room) | (oldest < least)
        members = full.nonzero()[0]
        while len(members := members[oldest[members] <= self.step]):
            first, total = oldest[members], held[members]
            leaving = all_at[first] if at is None else all_at[first] + at[members, first]
            goes = total - leaving / 2 > room[members]
            if least is not None:
                goes |= first < least[members]
            members = members[goes]
            oldest[members], held[members] = first[goes] + 1, (total - leaving)[goes]
