"""The two partitions of an L2: against a simulation access by access, by hand, and against buffers measured on an H200."""

import csv
import random
import sys
from collections import OrderedDict
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest

from iosim.lru import SIDES, Cache

NONE = np.empty(0, np.int64)
KINDS = ("read", "write", "both")
ONE = ((1,), (1,), (1,))


def touch(cache, cells, kind, by=(0,)):
    """These cells, each loaded, stored or both by some sides, in one step."""
    cells = np.asarray(cells)
    sides = [cells if side in by else NONE for side in range(SIDES)]
    none = [NONE] * SIDES
    cache.touch(none if kind == "write" else sides, none if kind == "read" else sides, cells)


# ---------------------------------------------------------------- access by access


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
        while self.used:
            oldest = next(iter(self.used.values()))[0]
            together = [(thing, size) for thing, (when, size) in self.used.items() if when == oldest]
            if self.total() - sum(size for _, size in together) / 2 <= self.room:
                break
            gone += together
            for thing, _ in together:
                del self.used[thing]
        return gone


class Textbook:
    """The rules as they are told at the top of lru.py, one cell at a time."""

    def __init__(self, sizes, room, touched_room, dirty_room):
        self.sizes, self.touched_room = sizes, touched_room
        self.sides, self.dirty = [Recent(room), Recent(room)], Recent(dirty_room)
        self.last, self.reads, self.writes, self.first = {}, 0, 0, 0

    def load(self, cell, side, now):
        mine, other, half = self.sides[side], self.sides[1 - side], self.sizes[cell] // 2
        self.first += 0 if cell in self.last else self.sizes[cell]
        if ("home", cell) not in mine.used:
            self.reads += half
        if ("copy", cell) not in mine.used:  # of the half that lives on the other side, which is asked for it
            self.reads += 0 if ("home", cell) in other.used else half
            other.use(("home", cell), half, now)
        mine.use(("copy", cell), half, now)
        mine.use(("home", cell), half, now)

    def store(self, cell, now):
        for side in self.sides:
            side.use(("home", cell), self.sizes[cell] // 2, now)
        self.dirty.use(cell, self.sizes[cell], now)

    def touch(self, cell, kind, side, now):
        if kind != "write":
            self.load(cell, side, now)
        if kind != "read":
            self.store(cell, now)
        self.last[cell] = now
        for partition in self.sides:
            partition.leave()
        self.writes += sum(size for _, size in self.dirty.leave())
        for written, (when, size) in list(self.dirty.used.items()):
            if self.since(when) > self.touched_room:
                self.writes += size
                del self.dirty.used[written]

    def since(self, then):
        """Bytes of all cells touched after a touch, and half of what was last touched then."""
        younger = sum(self.sizes[cell] for cell, when in self.last.items() if when > then)
        return younger + sum(self.sizes[cell] for cell, when in self.last.items() if when == then) / 2

    def flush(self):
        dirty = self.dirty.total()
        for held in (*self.sides, self.dirty):
            held.used.clear()
        return dirty


@pytest.mark.parametrize("seed", range(60))
def test_one_touch_a_step_is_the_textbook(seed):
    """Reads, writes, first and dirty bytes after every touch; every third seed flushes now and then."""
    rng = random.Random(seed)
    cells = rng.randint(1, 24)
    sizes = [32] * cells if seed % 2 else [rng.randint(1, 20) * 4 for _ in range(cells)]
    capacity, shares = rng.randint(0, 2 * sum(sizes)), [rng.choice((0.25, 0.5, 0.9, 1, 1.1, 2)) for _ in range(3)]
    cache = Cache(np.array(sizes), capacity, tuple((share,) for share in shares))
    book = Textbook(sizes, *(capacity * share for share in shares))
    for now in range(300):
        cell, kind, side = rng.randrange(cells), rng.choices(KINDS, (4, 1, 1))[0], rng.randrange(SIDES)
        touch(cache, [cell], kind, (side,))
        book.touch(cell, kind, side, now)
        found = cache.read_bytes, cache.write_bytes, cache.first_bytes, cache.dirty_bytes
        assert found == (book.reads, book.writes, book.first, book.dirty.total()), f"touch {now}"
        if seed % 3 == 0 and rng.random() < 0.02:
            assert cache.flush() == book.flush()


# ---------------------------------------------------------------- by hand


def turns(capacity, rounds=10, by=(0,), cells=10):
    """Bytes read by going through ten cells of 100 B again and again."""
    cache = Cache(np.full(cells, 100), capacity, ONE)
    for _ in range(rounds):
        for cell in range(cells):
            touch(cache, [cell], "read", by)
    return cache.read_bytes


def test_one_side_remembers_the_half_that_lives_on_the_other():
    """1000 B. All fits its own partition; or that is asked for nothing in time, but the other, which only has to keep
    half of it and is asked again and again, is; or neither."""
    assert turns(1000) == 1000
    assert turns(700) == 1000 + 9 * 500
    assert turns(300) == 10 * 1000


def test_both_sides_keep_what_they_share_twice():
    """Two partitions of 700 B do not hold 1000 B of what both read; of what each reads alone they hold 1400 B."""
    assert turns(1000, by=(0, 1)) == 1000
    assert turns(700, by=(0, 1)) == 10 * 1000
    cache = Cache(np.full(14, 100), 1400, ONE)
    for _ in range(5):
        for cell in range(14):
            touch(cache, [cell], "read", (cell % 2,))
    assert cache.read_bytes == 1400


def test_what_is_written_leaves_when_as_much_was_touched():
    """4 cells of 100 B written, then others read: a written cell goes to DRAM when the room for younger ones is full, and
    stays readable."""
    cache = Cache(np.full(20, 100), 1000, ((10,), (1,), (10,)))
    touch(cache, [0, 1, 2, 3], "write")
    for cell in range(4, 12):
        touch(cache, [cell], "read")
    assert (cache.write_bytes, cache.dirty_bytes) == (0, 400), "800 B younger, and half of 400 B"
    touch(cache, [12], "read")
    assert (cache.write_bytes, cache.dirty_bytes, cache.read_bytes) == (400, 0, 900)
    touch(cache, [0, 1, 2, 3], "read")
    assert (cache.read_bytes, cache.first_bytes) == (900, 900), "clean, and still there"


def test_no_more_is_dirty_than_there_is_room():
    """Ten cells written again and again, room for four: each goes to DRAM every time, but for the last four."""
    cache = Cache(np.full(10, 100), 400, ((10,), (10,), (1,)))
    for cell in list(range(10)) * 3:
        touch(cache, [cell], "write")
    assert (cache.write_bytes, cache.dirty_bytes, cache.read_bytes) == (3000 - 400, 400, 0)


def test_written_again_in_time_goes_once():
    cache = Cache(np.full(4, 100), 1000, ONE)
    for _ in range(5):
        touch(cache, [0, 1, 2], "both")
    assert (cache.read_bytes, cache.write_bytes, cache.dirty_bytes) == (300, 0, 300)


def test_a_flush_empties_it():
    """What was dirty is told and not counted; what was there is read again, though not for the first time."""
    cache = Cache(np.full(4, 100), 1000, ONE)
    touch(cache, [0, 1], "both")
    touch(cache, [2], "read")
    assert cache.flush() == 200 and cache.flush() == 0
    assert (cache.write_bytes, cache.dirty_bytes) == (0, 0)
    touch(cache, [0, 1, 2, 3], "read")
    assert (cache.read_bytes, cache.first_bytes) == (300 + 400, 400)


def test_a_first_touch_that_stores_reads_nothing():
    cache = Cache(np.array([100, 60]), 1000, ONE)
    touch(cache, [0], "write")
    touch(cache, [0, 1], "read", (0, 1))
    assert (cache.read_bytes, cache.first_bytes, cache.dirty_bytes) == (60, 60, 100)


@pytest.mark.parametrize("capacity, held", [(450, 4), (120, 1)])
def test_any_number_of_steps(capacity, held):
    """Beyond the steps that the arrays have room for at first: four cells in turn, of which it holds all or one."""
    cache, count = Cache(np.full(4, 100), capacity, ONE), 2600
    for step in range(count):
        touch(cache, [step % 4], "both", (0, 1))
    misses = 4 if held == 4 else count
    assert (cache.read_bytes, cache.write_bytes) == (100 * misses, 100 * (misses - held))
    assert cache.dirty_bytes == 100 * held


def test_members_are_averaged():
    """A cache that holds all beside one that holds nothing."""
    sizes = np.full(4, 100)
    spread = [Cache(sizes, 1000, ((share,), (share,), (share,))) for share in (1, 0)]
    spread.append(Cache(sizes, 1000, ((1, 0), (1, 0), (1, 0))))
    for cache in spread:
        for _ in range(3):
            touch(cache, [0, 1, 2, 3], "both", (0, 1))
    for name in ("read_bytes", "write_bytes", "dirty_bytes"):
        large, small, both = (getattr(cache, name) for cache in spread)
        assert both == (large + small) / 2 and large != small, name


# ---------------------------------------------------------------- against what an H200 did

FILE = Path(__file__).parent.parent / "validation" / "h200-2026-11-21" / "l2_buffers.csv"
CAPACITY_BYTES = 33_554_432  # as calibrated on it: the largest buffer that all multiprocessors read at the L2's rate
needs_measurements = pytest.mark.skipif(not FILE.exists(), reason="no measurement of a GPU is in validation/")


@pytest.fixture(scope="module")
def buffers():
    """(row, bytes of the buffer, measured reads and writes, modelled reads and writes)."""
    sys.path.insert(0, str(FILE.parent.parent))
    from l2_buffers import modelled

    with FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row.update({name: int(row[name]) for name in ("blocks", "buffer_mib", "rounds")})
    return [
        (
            row,
            row["buffer_mib"] * 2**20,
            (int(row["dram_read_bytes"]), int(row["dram_write_bytes"])),
            modelled(row, CAPACITY_BYTES),
        )
        for row in rows
    ]


@needs_measurements
def test_what_fits_and_what_does_not(buffers):
    """Buffers that were read once are; buffers that were read every time are, to nine tenths."""
    fits, misses = 0, 0
    for row, size, (reads, _), (model, _) in buffers:
        if row["access"] != "write" and abs(reads / size - 1) < 0.02:
            fits += 1
            assert model == pytest.approx(size, rel=0.05), row
        elif reads >= 0.95 * row["rounds"] * size:
            misses += 1
            assert model >= 0.9 * row["rounds"] * size, row
    assert fits >= 30 and misses >= 20


@needs_measurements
@pytest.mark.parametrize(
    "side, rows, middle, average", [(0, 88, 0.002, 0.12), (1, 52, 0.03, 0.14)], ids=["reads", "writes"]
)
def test_bytes_of_an_h200(buffers, side, rows, middle, average):
    """Relative errors over all rows of more than 5 MB; the mean is that of the few sizes between all and nothing. Kernels
    that only read see up to 2.7 MB written, which others left dirty: not theirs."""
    rows_of = [entry for entry in buffers if side == 0 or entry[0]["access"] != "read"]
    errors = [abs(model[side] / found[side] - 1) for _, _, found, model in rows_of if found[side] > 5e6]
    assert len(errors) == rows
    assert median(errors) <= middle and mean(errors) <= average, (median(errors), mean(errors))


@needs_measurements
def test_what_is_dirty_stays_until_it_does_not_fit(buffers):
    """Buffers written five times of which (but for what others left) nothing went to DRAM; and those of which all did, but for what stayed."""
    small = [model for row, size, found, (_, model) in buffers if row["access"] != "read" and found[1] < 0.05 * size]
    assert len(small) >= 8 and max(small) == 0
    for row, size, (_, writes), (_, model) in buffers:
        if row["access"] != "read" and row["buffer_mib"] >= 48:
            total = row["rounds"] * size
            assert total - model == pytest.approx(total - writes, rel=0.4), row
