"""Fully associative caches: LRU of every size in one pass, and Belady's optimum.

A load that misses fetches its lines. A store places its lines without reading them and leaves them dirty. Dirty lines
are written back when they leave the cache, and at the end. An object is a run of units (words or lines) that are always
accessed one after the other. All units of an object share one reuse distance. So an object stands for its lines, and
every count is exact to the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, cast

import numpy as np

from .reuse_distance import UNREACHED, dirty_needs, needs, next_access

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..core.typing import Bools
    from .accesses import Accesses
    from .reuse_distance import Numbers

ResidentRun = tuple[int, int, bool]
"""(start, stop, dirty): units start..stop-1 of an object are in the cache, and `dirty` says whether they are dirty."""


@dataclass(frozen=True)
class CacheCounts:
    """The counts of a cache of `M_bytes`: misses and write-backs in accesses, and bytes fetched and written back."""

    policy: str
    M_bytes: int
    accesses: int
    misses: int
    read_misses: int
    write_misses: int
    write_backs: int
    fetched_bytes: int
    written_bytes: int
    total_bytes: int


class LRU:
    """The LRU caches of all sizes, from one pass over a string of accesses."""

    def __init__(self, string: Accesses):
        self.string = string
        need = needs(string.ids, string.weights)
        older = dirty_needs(string.ids, string.stores, need)
        again = string.stores & (older < UNREACHED)
        self.last = np.unique(string.ids[string.stores])  # a cache of any capacity writes back their last value
        self.loads = (need[~string.stores], string.ids[~string.stores])
        self.stores = (need[string.stores], string.ids[string.stores])
        self.overwrites = (older[again], string.ids[again])

    def breakpoints(self) -> Numbers:
        """The capacities in units at which a count changes, in order. The first is 1, the smallest cache."""
        found = np.concatenate([self.loads[0], self.stores[0], self.overwrites[0]])
        return np.union1d([1], found[found < UNREACHED])

    def counts(self, capacities: ArrayLike) -> list[CacheCounts]:
        """The counts for capacities in units."""
        capacities = np.asarray(capacities, np.int64)
        s = self.string
        found = []
        for unit in (s.amounts, s.weights):
            reads, writes, older = (
                beyond(need, unit[ids], capacities) for need, ids in (self.loads, self.stores, self.overwrites)
            )
            found.append((reads, writes, older + int(unit[self.last].sum())))
        (reads, writes, backs), (fetched, _, written) = found
        table = zip(capacities, reads, writes, backs, fetched, written, strict=True)
        return [counts_in_bytes("lru", s, line) for line in table]


def belady(string: Accesses, capacity: int) -> CacheCounts:
    """The counts of Belady's optimum for one capacity, in units."""
    cache = (WholeObjectCache if string.whole else BeladyCache)(capacity)
    replay_accesses(cache, string.ids, string.weights, string.stores, next_access(string.ids))
    return counts_in_bytes("belady", string, (capacity, *cache.misses, cache.write_backs, *cache.moved))


def counts_in_bytes(policy: str, string: Accesses, numbers: Sequence[int]) -> CacheCounts:
    """The counts of a cache in bytes, from `numbers` in units: (capacity, misses of loads, misses of stores,
    write-backs, units fetched, units written back)."""
    capacity, reads, writes, backs, fetched, written = map(int, numbers)
    size = string.unit_bytes
    moved = (fetched * size, written * size, (fetched + written) * size)
    return CacheCounts(policy, capacity * size, string.total, reads + writes, reads, writes, backs, *moved)


def beyond(need: Numbers, amounts: Numbers, capacities: Numbers) -> Numbers:
    """The sum of the amounts whose need exceeds a capacity, for each capacity."""
    order = np.argsort(need, kind="stable")
    within = np.concatenate([[0], np.cumsum(amounts[order])])
    return cast("Numbers", within[-1] - within[np.searchsorted(need[order], capacities, side="right")])


# ---------------------------------------------------------------- Belady's optimum


class BeladyCache:
    """Belady's optimum (1966): on a miss, the unit with the farthest next use is evicted. Exact, for runs of units.

    The next use of an object's last unit is the farthest of all its units. When an object is evicted, its last units
    leave first. A few pieces of it remain. A unit that misses is always placed in the cache: there is no bypass. The
    number of misses is the least possible. The number of write-backs is not: another replacement may have fewer.
    """

    def __init__(self, capacity: int):
        self.capacity, self.room = capacity, capacity
        self.pieces: dict[int, list[ResidentRun]] = {}
        self.next: dict[int, int] = {}
        self.queue: list[tuple[int, int]] = []  # (-next use, object); an entry may be out of date
        self.misses, self.write_backs = [0, 0], 0  # misses of [loads, stores]

    @property
    def moved(self) -> tuple[int, int]:
        """The units (fetched, written back)."""
        return self.misses[0], self.write_backs

    def keep(self, x: int, pieces: list[ResidentRun], following: int) -> None:
        """Record the resident pieces of an object, and its next use."""
        self.pieces[x], self.next[x] = pieces, following
        heappush(self.queue, (-following, x))

    def farthest(self) -> tuple[int, int]:
        """The (next use, object) of the resident object whose next use is farthest away; (-1, -1) if there is none."""
        while self.queue:
            following, x = -self.queue[0][0], self.queue[0][1]
            if x in self.pieces and self.next[x] == following:
                return following, x
            heappop(self.queue)
        return -1, -1

    def evict(self, x: int, most: int) -> int:
        """Drop up to `most` units from the end of an object, and return their number."""
        pieces, left = self.pieces[x], most
        while pieces and left:
            start, stop, dirty = pieces.pop()
            gone = min(stop - start, left)
            if stop - gone > start:
                pieces.append((start, stop - gone, dirty))
            self.write_backs += gone * dirty
            left -= gone
        if not pieces:
            del self.pieces[x]
        return most - left

    def access(self, x: int, units: int, store: bool, following: int) -> None:
        """Access the units of object x in order. Its resident units hit. `following` is the next use of x."""
        ahead, place = deque(self.pieces.pop(x, ())), 0
        done: list[ResidentRun] = []
        while place < units:
            if ahead and ahead[0][0] == place:
                _, stop, dirty = ahead.popleft()
                append_joined(done, (place, stop, dirty or store))
            else:
                stop = ahead[0][0] if ahead else units
                self.place(ahead, done, place, stop, store, following)
            place = stop
        self.keep(x, done, following)

    def place(
        self, ahead: deque[ResidentRun], done: list[ResidentRun], start: int, stop: int, store: bool, following: int
    ) -> None:
        """Place units start..stop-1 of an object, which miss. `done` holds its units before them, `ahead` those after
        them.

        They take free room first. Next they replace objects whose next use is after that of this one, and then this
        object's own units that were just accessed. If none was accessed yet, one unit is evicted: of an object that is
        used before this one, or of `ahead`.
        """
        missing = stop - start
        self.misses[store] += missing
        free = min(missing, self.room)
        self.room -= free
        missing -= free
        while missing and self.farthest()[0] > following:
            missing -= self.evict(self.farthest()[1], missing)
        if missing and not done and stop - missing == start:  # none of its units was accessed yet
            self.give_one(ahead)
            missing -= 1
        if stop - missing > start:
            append_joined(done, (start, stop - missing, store))
        if missing:  # each unit takes the place of the one accessed before it
            first, last, dirty = done.pop()
            if last - 1 > first:
                done.append((first, last - 1, dirty))
            self.write_backs += missing if store else dirty
            append_joined(done, (stop - 1, stop, store))

    def give_one(self, ahead: deque[ResidentRun]) -> None:
        """Make room for one unit: from another object if there is one, else from the end of `ahead`."""
        _, x = self.farthest()
        if x >= 0:
            self.evict(x, 1)
            return
        start, stop, dirty = ahead.pop()
        self.write_backs += dirty
        if stop - 1 > start:
            ahead.append((start, stop - 1, dirty))

    def flush(self) -> None:
        """Evict everything, so that dirty units are written back."""
        for x in list(self.pieces):
            self.evict(x, self.capacity)


def append_joined(pieces: list[ResidentRun], piece: ResidentRun) -> None:
    """Append a piece, or join it to the last one if the two meet and are both dirty or both clean."""
    if pieces and pieces[-1][1] == piece[0] and pieces[-1][2] == piece[2]:
        pieces[-1] = (pieces[-1][0], piece[1], piece[2])
    else:
        pieces.append(piece)


class WholeObjectCache(BeladyCache):
    """A cache with Belady's rule in which objects are loaded and evicted as a whole.

    This is the optimum only if all objects have the same weight. With different weights the optimum is NP-hard to find,
    and this is the usual greedy heuristic. `misses` and `write_backs` count objects. `fetched` and `written` count
    units.
    """

    def __init__(self, capacity: int):
        super().__init__(capacity)
        self.fetched, self.written = 0, 0

    @property
    def moved(self) -> tuple[int, int]:
        return self.fetched, self.written

    def access(self, x: int, units: int, store: bool, following: int) -> None:
        dirty = x in self.pieces and self.pieces[x][0][2]
        if x not in self.pieces:
            self.misses[store] += 1
            self.fetched += 0 if store else units
            while units > self.room and self.pieces:
                self.drop(self.farthest()[1])
            self.room -= units
        self.keep(x, [(0, units, bool(store or dirty))], following)
        if self.room < 0:  # larger than the cache: it only passes through
            self.drop(x)

    def drop(self, x: int) -> None:
        """Evict an object."""
        ((_, units, dirty),) = self.pieces.pop(x)
        self.room += units
        self.write_backs += dirty
        self.written += units * dirty

    def flush(self) -> None:
        for x in list(self.pieces):
            self.drop(x)


def replay_accesses(cache: BeladyCache, ids: Numbers, weights: Numbers, stores: Bools, following: Numbers) -> None:
    """Run a string of accesses through a cache, and flush it. `following` holds the next use of
    each accessed object."""
    for x, units, store, later in zip(
        ids.tolist(), weights[ids].tolist(), stores.tolist(), following.tolist(), strict=True
    ):
        cache.access(x, units, store, later)
    cache.flush()
