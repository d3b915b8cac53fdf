"""The two partitions of an L2 against a simulation access by access."""

import random
from collections import OrderedDict
from itertools import takewhile

import numpy as np
import pytest
from spread import spread
from test_l2 import touch

from iosim.gpu.predict.l2 import SIDES, Cache, Room

KINDS = ("read", "write", "both")


class Recent:
    """Things in the order of their last use. What one touch used last leaves together, from the oldest on, while even
    half of it would not fit beside what is younger."""

    def __init__(self, room):
        self.room, self.used = room, OrderedDict()

    def use(self, thing, size, now):
        self.used[thing] = (now, size)
        self.used.move_to_end(thing)

    def total(self):
        return sum(size for _, size in self.used.values())

    def leave(self):
        """What had to go, with its size."""
        gone = []
        while self.used and self.total() > self.room:
            oldest = next(iter(self.used.values()))[0]
            together = [(thing, size) for thing, (when, size) in self.used.items() if when == oldest]
            if self.total() - sum(size for _, size in together) / 2 <= self.room:
                break
            gone += together
            for thing, _ in together:
                del self.used[thing]
        return gone


class Textbook:
    """The rules as they are told at the top of predict/l2.py, one cell at a time."""

    def __init__(self, sizes, room, touched_room, dirty_room):
        self.sizes, self.touched_room = sizes, touched_room
        self.sides, self.dirty = ([Recent(size) for _ in range(SIDES)] for size in (room, dirty_room))
        self.asked = [{} for _ in range(SIDES)]  # when for what, there or not, in that order
        self.known, self.reads, self.writes, self.first = set(), 0, 0, 0

    def use(self, side, what, cell, now):
        self.sides[side].use((what, cell), self.sizes[cell] // 2, now)
        self.asked[side].pop((what, cell), None)
        self.asked[side][what, cell] = now

    def load(self, cell, side, now):
        mine, other, half = self.sides[side], self.sides[1 - side], self.sizes[cell] // 2
        self.first += 0 if cell in self.known else self.sizes[cell]
        if ("home", cell) not in mine.used:
            self.reads += half
        if ("copy", cell) not in mine.used:  # of the half that lives on the other side, which is asked for it
            self.reads += 0 if ("home", cell) in other.used else half
            self.use(1 - side, "home", cell, now)
        self.use(side, "copy", cell, now)
        self.use(side, "home", cell, now)

    def store(self, cell, side, now):
        """Both halves at home, and a copy where it came from; each partition has a half to write."""
        self.use(side, "copy", cell, now)
        for partition, dirty in enumerate(self.dirty):
            self.use(partition, "home", cell, now)
            dirty.use(cell, self.sizes[cell] // 2, now)

    def touch(self, cell, kind, side, now):
        if kind != "write":
            self.load(cell, side, now)
        if kind != "read":
            self.store(cell, side, now)
        self.known.add(cell)
        for partition, dirty in zip(self.sides, self.dirty, strict=True):
            partition.leave()
            self.writes += sum(size for _, size in dirty.leave())
        for partition, dirty in enumerate(self.dirty):
            for written, (when, size) in list(dirty.used.items()):
                if self.since(when, partition) > self.touched_room:
                    self.writes += size
                    del dirty.used[written]

    def since(self, then, side):
        """Bytes that a partition was asked for after a touch, each once, and half of what it was last asked for then."""
        asked = takewhile(lambda each: each[1] >= then, reversed(self.asked[side].items()))
        return sum(self.sizes[cell] // 2 / (1 if when > then else 2) for (_, cell), when in asked)

    def waiting(self):
        return sum(dirty.total() for dirty in self.dirty)

    def flush(self):
        dirty = self.waiting()
        for held in (*self.sides, *self.dirty):
            held.used.clear()
        return dirty


@pytest.mark.parametrize("seed", spread(range(60), lambda seed: seed < 12))
def test_one_touch_a_step_is_the_textbook(seed):
    """Reads, writes, first and dirty bytes after every touch; every third seed flushes now and then."""
    rng = random.Random(seed)
    cells = rng.randint(1, 24)
    sizes = [32] * cells if seed % 2 else [rng.randint(1, 20) * 4 for _ in range(cells)]
    capacity, shares = rng.randint(0, 2 * sum(sizes)), [rng.choice((0.25, 0.5, 0.9, 1, 1.1, 2)) for _ in range(3)]
    room = Room(*(capacity * share for share in shares))
    cache, book = Cache(np.array(sizes), room), Textbook(sizes, *room)
    for now in range(300):
        cell, kind, side = rng.randrange(cells), rng.choices(KINDS, (4, 1, 1))[0], rng.randrange(SIDES)
        touch(cache, [cell], kind, (side,))
        book.touch(cell, kind, side, now)
        found = cache.read_bytes, cache.write_bytes, cache.first_bytes, cache.dirty_bytes
        assert found == (book.reads, book.writes, book.first, book.waiting()), f"touch {now}"
        if seed % 3 == 0 and rng.random() < 0.02:
            assert cache.dirty_bytes == book.flush()
            cache.flush()
