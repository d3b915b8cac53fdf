"""A cache in place of the explicit SRAM, against slow caches of single lines and against theory."""

from collections import OrderedDict
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from iosim import SCHEDULES, Attention, Machine, Tiling
from iosim.core.shapes import Tile
from iosim.masks.mask import parse
from iosim.studies import accesses, cache, reuse_distance

QKVO = ("Q", "K", "V", "O")


# ---------------------------------------------------------------- slow caches: byte addresses, one line at a time


class Lines:
    """A watcher that notes every line that a tile touches, once for each tile, from byte addresses."""

    def __init__(self, line_bytes):
        self.line_bytes, self.trace, self.base = line_bytes, [], {}

    def start(self, machine):
        self.machine, self.free_byte = machine, 0

    def allocate(self, block): ...

    def free(self, block): ...

    def step(self, step, outputs, inputs, flops): ...

    def launch_ended(self): ...

    def load(self, block, tensor, words):
        if words:
            self.add(block, tensor, False)

    def store(self, block, tensor, words):
        self.add(block, tensor, True)

    def add(self, block, tensor, store):
        shape, width = (
            self.machine.p.shape(self.machine.tensors[tensor]),
            self.machine.p.hbm_bytes(self.machine.tensors[tensor]),
        )
        if tensor not in self.base:
            self.base[tensor] = len(self.base) * 10**9 // self.line_bytes * self.line_bytes
        ranges = [range(x.start, x.start + x.size) if isinstance(x, Tile) else range(x) for x in block.shape]
        words = np.ravel_multi_index(np.meshgrid(*ranges, indexing="ij"), shape).ravel()
        first = self.base[tensor] + words * width
        for line in dict.fromkeys((first // self.line_bytes).tolist()):
            self.trace.append((line, store))


def lines_of(schedule, p, tiling, line_bytes):
    watcher = Lines(line_bytes)
    Machine(p, watcher).run(schedule, tiling)
    return watcher.trace


def slow_lru(trace, capacity):
    held, misses, backs = OrderedDict(), [0, 0], 0
    for line, store in trace:
        misses[store] += line not in held
        dirty = held.pop(line, False)
        if len(held) == capacity:
            backs += held.popitem(last=False)[1]
        held[line] = dirty or store
    return (*misses, backs + sum(held.values()))


def slow_belady(trace, capacity):
    later, last = [], {}
    for t in reversed(range(len(trace))):
        later.append(last.get(trace[t][0], 10**9))
        last[trace[t][0]] = t
    held, dirty, misses, backs = {}, set(), [0, 0], 0
    for (line, store), following in zip(trace, reversed(later), strict=True):
        if line not in held:
            misses[store] += 1
            if len(held) == capacity:
                victim = max(held, key=held.get)
                del held[victim]
                backs += victim in dirty
                dirty.discard(victim)
        held[line] = following
        if store:
            dirty.add(line)
    return (*misses, backs + len(dirty))


def least_misses(trace, capacity):
    """The least misses of any replacement, found by trying every victim."""
    states = {frozenset(): 0}
    for line, _ in trace:
        following = {}
        for held, misses in states.items():
            if line in held:
                choices, cost = [held], 0
            elif len(held) < capacity:
                choices, cost = [held | {line}], 1
            else:
                choices, cost = [held - {x} | {line} for x in held], 1
            for state in choices:
                following[state] = min(following.get(state, 10**9), misses + cost)
        states = following
    return min(states.values())


def random_string(rng):
    objects = int(rng.integers(1, 8))
    weights = rng.integers(1, 7, objects)
    ids = rng.integers(0, objects, int(rng.integers(1, 40)))
    stores = rng.random(len(ids)) < 0.4
    lines = [((x, k), bool(store)) for x, store in zip(ids.tolist(), stores, strict=True) for k in range(weights[x])]
    return accesses.Accesses(ids, stores, weights, weights, 64, False), lines


def found(row):
    return row.read_misses, row.write_misses, row.write_backs


# ---------------------------------------------------------------- exactness


def test_any_string_at_any_capacity():
    rng = np.random.default_rng(5)
    for _ in range(150):
        string, lines = random_string(rng)
        lru = cache.LRU(string)
        for capacity in {1, 2, 3, 5, 9, int(string.weights.sum())}:
            row = lru.counts([capacity])[0]
            assert row.accesses == len(lines)
            assert found(row) == slow_lru(lines, capacity)
            assert found(cache.belady(string, capacity)) == slow_belady(lines, capacity)


def test_belady_is_the_optimum():
    rng, seen = np.random.default_rng(6), 0
    while seen < 60:
        string, lines = random_string(rng)
        if len({line for line, _ in lines}) <= 8:
            seen += 1
            for capacity in (1, 2, 3, 4):
                assert cache.belady(string, capacity).misses == least_misses(lines, capacity)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long)])
def test_schedules_line_by_line(name, part):
    """Counts equal those of a slow cache. Tiles are ragged, tiles share lines, and rows are shorter than a line."""
    random = Random(f"{name} {part}")
    for _ in range(2):
        dtype = random.choice(["fp16", "fp32"])
        p = Attention(random.randint(4, 14), random.randint(1, 6), Nk=random.randint(4, 14), acc_dtype=dtype)
        p = SCHEDULES[name].about(p)
        tiling, line = Tiling(random.randint(1, 6), random.randint(1, 6)), random.choice([4, 8, 16, 64])
        string = accesses.accesses(accesses.record(SCHEDULES[name], p, tiling), "line", line)
        trace = lines_of(SCHEDULES[name], p, tiling, line)
        assert string.total == len(trace)
        lru = cache.LRU(string)
        for capacity in (1, 3, 10, 40):
            assert found(lru.counts([capacity])[0]) == slow_lru(trace, capacity)
            assert found(cache.belady(string, capacity)) == slow_belady(trace, capacity)


def test_hidden_tiles_never_reach_the_cache():
    p, tiling = Attention(12, 4, mask=parse("causal")), Tiling(4, 3)
    string = accesses.accesses(accesses.record(SCHEDULES["block-sparse-q"], p, tiling), "word")
    assert string.total == 2 * 12 * 4 + 2 * 27 * 4, "Q, O, and 27 keys a pass of K and of V"


def test_the_curve_is_every_size():
    """Counts change at every breakpoint and nowhere else."""
    p, tiling = Attention(12, 3), Tiling(4, 5)
    string = accesses.accesses(accesses.record(SCHEDULES["flash1"], p, tiling), "line", 4)
    lru = cache.LRU(string)
    points = lru.breakpoints().tolist()
    rows = {row.M_bytes // 4: found(row) for row in lru.counts(points)}
    trace, current = lines_of(SCHEDULES["flash1"], p, tiling, 4), None
    for capacity in range(1, max(points) + 5):
        current = rows.get(capacity, current)
        assert current == slow_lru(trace, capacity)
    assert len(set(rows.values())) == len(rows)


def test_an_lru_loses_a_tile_as_a_whole():
    """All words of a tile have the same reuse distance, so an LRU of tiles moves the same bytes as one of words."""
    p, tiling = Attention(24, 4), Tiling(8, 6)
    moves = accesses.record(SCHEDULES["flash1"], p, tiling)
    tiles, words = cache.LRU(accesses.accesses(moves, "tile")), cache.LRU(accesses.accesses(moves, "word"))
    for size in range(2, 1200, 2):
        a, b = tiles.counts([size])[0], words.counts([size // 2])[0]
        assert (a.fetched_bytes, a.written_bytes) == (b.fetched_bytes, b.written_bytes)


def test_whole_tiles_of_one_size_are_lines():
    """flash2 with Br = Bc moves tiles of one size. So Belady's rule for whole tiles is that for as many lines."""
    moves = accesses.record(SCHEDULES["flash2"], Attention(24, 4), Tiling(4, 4))
    tiles, lines = accesses.accesses(moves, "tile"), accesses.accesses(moves, "line", 32)
    assert set(tiles.weights.tolist()) == {32} and lines.total == tiles.total
    for count in range(1, 12):
        a, b = cache.belady(tiles, 32 * count), cache.belady(lines, count)
        assert found(a) == found(b) and a.total_bytes == b.total_bytes


def test_a_tile_larger_than_the_cache_passes_through():
    string = accesses.Accesses(
        np.array([0, 1, 0, 1]), np.array([False, True, True, False]), np.array([2, 9]), np.array([1, 1]), 1, True
    )
    row = cache.belady(string, 4)
    assert found(row) == (2, 2, 2) and (row.fetched_bytes, row.written_bytes) == (2 + 9, 9 + 2)
    assert cache.LRU(string).counts([4])[0] == cache.CacheCounts("lru", 4, 4, 4, 2, 2, 2, 11, 11, 22)
    twice = replace(string, ids=np.array([1, 1]), stores=np.array([False, False]))
    assert cache.belady(twice, 4).misses == cache.LRU(twice).counts([4])[0].misses == 2


def test_belady_never_loses_to_lru_and_both_reach_the_compulsory_lines():
    string = accesses.accesses(accesses.record(SCHEDULES["flash1"], Attention(40, 8), Tiling(7, 9)), "line", 16)
    lru = cache.LRU(string)
    for capacity in (1, 5, 20, 60, 10**6):
        assert cache.belady(string, capacity).misses <= lru.counts([capacity])[0].misses
    lines = 4 * 40 * 8 * 2 // 16 + 2 * 40 * 2 // 16
    assert lru.counts([10**6])[0].misses == cache.belady(string, 10**6).misses == lines


# ---------------------------------------------------------------- reuse distances


def test_distances_by_hand():
    """In a b b c a with weights 1, 2, 4, the second b needs its own 2. The last a needs a, b and c: 7."""
    ids, weights = np.array([0, 1, 1, 2, 0]), np.array([1, 2, 4])
    assert reuse_distance.needs(ids, weights).tolist() == [
        reuse_distance.UNREACHED,
        reuse_distance.UNREACHED,
        2,
        reuse_distance.UNREACHED,
        7,
    ]


# ---------------------------------------------------------------- the published trace


def flash1_lines(N, d, Br, Bc, line_words):
    """The (accesses, misses) of Q, K, V, O in Algorithm 1, all aligned to lines. K and V are accessed once; for each of
    the Tc key tiles Q is accessed once and O twice."""
    row = d // line_words
    assert d % line_words == 0 and N % Br == N % Bc == 0
    return 2 * N * row + (N // Bc) * 3 * N * row, 2 * N * row + (N // Bc) * 2 * N * row


def test_the_reference_trace(ask):
    """N = 8192, d = 128, 64x64, fp16 and 64-byte lines give 12,648,448 accesses. At 100 KiB an LRU misses on 8,454,144:
    on all but the stores of O, which find the tile that was just loaded."""
    assert flash1_lines(8192, 128, 64, 64, 32) == (12_648_448, 8_454_144)
    answer = ask("cache", "--N", 8192, "--d", 128, "--tiles", "64x64", "--schedule", "flash1", "--tensors", "Q,K,V,O",
                 "--M", "100KB")  # fmt: skip
    lru, optimum = answer["results"]
    assert (answer["accesses"], lru["misses"], lru["write_misses"]) == (12_648_448, 8_454_144, 0)
    assert lru["write_backs"] == 128 * 32768, "each pass writes O back"
    assert lru["total_bytes"] == answer["scratchpad"]["total_bytes"], "the tiles fit, so LRU moves what they move"
    assert optimum["misses"] < lru["misses"]
    counted = ask("count", "--N", 8192, "--d", 128, "--tiles", "64x64", "--schedule", "flash1")["results"][0]["tensors"]
    assert answer["scratchpad"]["tensors"] == {name: counted[name] for name in ("K", "V", "Q", "O")}


@pytest.mark.parametrize("N, d, Br, Bc", [(64, 32, 16, 8), (96, 64, 8, 16)])
def test_the_formula_of_the_reference_trace(N, d, Br, Bc):
    string = accesses.accesses(accesses.record(SCHEDULES["flash1"], Attention(N, d), Tiling(Br, Bc), QKVO))
    lines, misses = flash1_lines(N, d, Br, Bc, 32)
    assert string.total == lines
    capacity = (2 * Br + 2 * Bc) * d // 32
    assert cache.LRU(string).counts([capacity])[0].misses == misses


def test_pieces_join_where_nothing_parts_them():
    pieces = [(0, 2, True)]
    cache.append_joined(pieces, (2, 3, True))
    cache.append_joined(pieces, (3, 4, False))
    assert pieces == [(0, 3, True), (3, 4, False)]


def test_the_m_that_was_asked_for_stays(ask):
    """A cache holds whole lines. What it has of M stands beside M, and two M of as many lines are two rows."""
    args = ("cache", "--N", 64, "--d", 8, "--tiles", "8x8", "--line", 16)
    rows = ask(*args, "--M", "64,70,100")["results"]
    assert [(r["policy"], r["M_bytes"], r["used_bytes"]) for r in rows] == [
        (policy, *sizes) for policy in ("lru", "belady") for sizes in ((64, 64), (70, 64), (100, 96))
    ]
    same = [{k: v for k, v in row.items() if k != "M_bytes"} for row in rows]
    assert same[0] == same[1] and same[3] == same[4] and same[1] != same[2]
    curve = ask(*args, "--M", 70, "--curve")["results"]
    assert all(r["M_bytes"] == r["used_bytes"] for r in curve[:-1]) and curve[-1]["M_bytes"] == 70


def test_a_file_from_python(iosim, ask, tmp_path):
    import iosim as package

    file = tmp_path / "flash1.csv"
    iosim("trace", "--N", 64, "--d", 16, "--tiles", "16x16", "--schedule", "flash1", "-o", file)
    found = package.cache(trace=file, M=["1KB", 4096], dtype="fp32")
    assert found.to_dict()["results"] == ask("cache", "--trace", file, "--M", "1KB,4KB", "--dtype", "fp32")["results"]
    for name, value in {"schedule": "flash2", "tile_multiple": 16, "paper_model": True}.items():
        with pytest.raises(package.InputError, match=f"trace: found {name!r}; allowed: a file alone"):
            package.cache(trace=file, M="4KB", **{name: value})
    with pytest.raises(package.InputError, match="trace: found 'N'; allowed: a file alone"):
        package.cache(64, trace=file, M="1KB")
    with pytest.raises(package.InputError, match="N and d: found 'nothing'; allowed: a number for each; or trace=FILE"):
        package.cache(M="1KB")
