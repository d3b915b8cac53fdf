"""Belady's optimum (1966): on a miss, the unit whose next use is farthest away leaves. Exact, and run by run.

An object is a run of units (words, lines) that are always touched one after the other, so all of it has the same next
use but for the order inside: of a victim the last units leave first, and what stays of an object is a few pieces.
A miss always places its unit (no bypass). The optimum is over misses; write-backs are those that this optimum has.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any

Piece = tuple[int, int, bool]  # units [start, stop) of an object, and whether they are dirty


class Cache:
    """What is resident, and which object's next use is farthest."""

    def __init__(self, capacity: int):
        self.capacity, self.room = capacity, capacity
        self.pieces: dict[int, list[Piece]] = {}
        self.next: dict[int, int] = {}
        self.queue: list[tuple[int, int]] = []  # (-next use, object); an entry may be out of date
        self.misses, self.write_backs = [0, 0], 0  # of loads, of stores

    def keep(self, x: int, pieces: list[Piece], following: int) -> None:
        self.pieces[x], self.next[x] = pieces, following
        heappush(self.queue, (-following, x))

    def farthest(self) -> tuple[int, int]:
        """(next use, object) of the resident object that is used last; (-1, -1) if there is none."""
        while self.queue:
            following, x = -self.queue[0][0], self.queue[0][1]
            if x in self.pieces and self.next[x] == following:
                return following, x
            heappop(self.queue)
        return -1, -1

    def evict(self, x: int, most: int) -> int:
        """Drop up to `most` units from the end of an object; returns how many."""
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
        """Touch the units of x in order; what was resident of it hits."""
        ahead, place = deque(self.pieces.pop(x, ())), 0
        done: list[Piece] = []
        while place < units:
            if ahead and ahead[0][0] == place:
                _, stop, dirty = ahead.popleft()
                append(done, (place, stop, dirty or store))
            else:
                stop = ahead[0][0] if ahead else units
                self.place(ahead, done, place, stop, store, following)
            place = stop
        self.keep(x, done, following)

    def place(self, ahead: Any, done: list[Piece], start: int, stop: int, store: bool, following: int) -> None:
        """Units [start, stop) miss. Room comes, in this order, from what is free, from objects used after this one,
        from the units of this one that were just touched, from objects used before it, and from its units ahead."""
        missing = stop - start
        self.misses[store] += missing
        free = min(missing, self.room)
        self.room -= free
        missing -= free
        while missing and self.farthest()[0] > following:
            missing -= self.evict(self.farthest()[1], missing)
        if missing and not done and stop - missing == start:  # nothing of it was touched yet: one unit from elsewhere
            self.give_one(ahead)
            missing -= 1
        if stop - missing > start:
            append(done, (start, stop - missing, store))
        if missing:  # each unit takes the place of the one touched before it
            first, last, dirty = done.pop()
            if last - 1 > first:
                done.append((first, last - 1, dirty))
            self.write_backs += missing if store else dirty
            append(done, (stop - 1, stop, store))

    def give_one(self, ahead: Any) -> None:
        _, x = self.farthest()
        if x >= 0:
            self.evict(x, 1)
            return
        start, stop, dirty = ahead.pop()
        self.write_backs += dirty
        if stop - 1 > start:
            ahead.append((start, stop - 1, dirty))

    def flush(self) -> None:
        """What is dirty at the end goes to memory."""
        for x in list(self.pieces):
            self.evict(x, self.capacity)


def append(pieces: list[Piece], piece: Piece) -> None:
    """Add a piece behind the others, joined to the last one where nothing parts them."""
    if pieces and pieces[-1][1] == piece[0] and pieces[-1][2] == piece[2]:
        pieces[-1] = (pieces[-1][0], piece[1], piece[2])
    else:
        pieces.append(piece)


class WholeCache(Cache):
    """The same rule where objects come and go as a whole. The optimum only if all have one weight: with several,
    finding it is NP-hard, and this is the usual greedy choice. `bytes` are misses and write-backs by weight."""

    def __init__(self, capacity: int):
        super().__init__(capacity)
        self.fetched, self.written = 0, 0

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
        ((_, units, dirty),) = self.pieces.pop(x)
        self.room += units
        self.write_backs += dirty
        self.written += units * dirty

    def flush(self) -> None:
        for x in list(self.pieces):
            self.drop(x)


def replay(cache: Any, ids: Any, weights: Any, stores: Any, following: Any) -> Any:
    """Run an access string through a cache, and flush it."""
    for x, units, store, later in zip(
        ids.tolist(), weights[ids].tolist(), stores.tolist(), following.tolist(), strict=True
    ):
        cache.access(x, units, store, later)
    cache.flush()
    return cache
