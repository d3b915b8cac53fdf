"""Belady's optimum (1966): on a miss, the unit with the farthest next use is evicted. Exact, for runs of units.

An object is a run of units (words or lines) that are always accessed one after the other. So the next use of its last
unit is the farthest of all its units. When an object is evicted, its last units leave first. A few
pieces of it remain.

A unit that misses is always placed in the cache: there is no bypass. The number of misses is the least possible. The
number of write-backs is not: another replacement may have fewer.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.typing import Bools
    from .reuse_distance import Numbers

ResidentRun = tuple[int, int, bool]
"""(start, stop, dirty): units start..stop-1 of an object are in the cache, and `dirty` says whether they are dirty."""


class BeladyCache:
    """A cache of `capacity` units that evicts the object with the farthest next use. A part of the object may stay."""

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
