"""A cache in place of the explicit SRAM, against slow caches of single lines and against theory."""

from collections import OrderedDict
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from paths import DOCS
from sessions import sessions

from iosim import SCHEDULES, Attention, Machine, Tiling
from iosim.core.shapes import Tile
from iosim.studies import accesses, cache, cache_answer, reuse_distance

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
    for _ in range(100):
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


# ---------------------------------------------------------------- reuse distances


def test_distances_by_hand():
    """In a b b c a with weights 1, 2, 4, the second b needs its own 2. The last a needs a, b and c: 7."""
    ids, weights = np.array([0, 1, 1, 2, 0]), np.array([1, 2, 4])
    never = reuse_distance.UNREACHED
    assert reuse_distance.needs(ids, weights).tolist() == [never, never, 2, never, 7]
    far = reuse_distance.needs(np.array([0, 1, 0]), np.array([2**45, 2**45]))
    assert far.tolist() == [never, never, 2**46], "objects so large that units come near the largest number"
    assert cache.beyond(far, np.ones(3, np.int64), np.array([2**46 - 1, 2**46, 2**60])).tolist() == [3, 2, 2]


# ---------------------------------------------------------------- theory, by hand

# N, Nk, d, Br, Bc: whole tiles, ragged ends, more keys than queries, one row a tile
CASES = [(12, 12, 4, 4, 3), (10, 10, 3, 4, 3), (8, 14, 2, 3, 5), (9, 7, 5, 2, 2), (6, 6, 2, 1, 1)]


def read_misses(name, N, Nk, d, Br, Bc):
    """The misses of reads of words in an LRU, as a function of its words."""
    moves = accesses.record(SCHEDULES[name], Attention(N, d, Nk=Nk), Tiling(Br, Bc))
    lru = cache.LRU(accesses.accesses(moves, "word"))
    return lambda capacity: lru.counts([capacity])[0].read_misses


@pytest.mark.parametrize("N, Nk, d, Br, Bc", CASES)
def test_flash2_streams_miss_below_their_reuse_distance(N, Nk, d, Br, Bc):
    """K and V are read once for each of the Tr query tiles, in the same order, each word once a pass.

    Between two reads of a word of K (or V) in passes i and i+1 come all 2 Nk d - 1 other words of K and V, the O tile
    of pass i (stored at its end), and the Q tile of pass i+1. O is only written, Q only read, and no tile of theirs
    comes twice. With Br_i rows in pass i, D = 2 Nk d - 1 + (Br_i + Br_(i+1)) d. An LRU of C <= min D misses on all
    these words, as flash2 counts. With one word more, the passes of that distance hit, and at C = max D + 1 all but the
    first do.
    """
    missed, Tr = read_misses("flash2", N, Nk, d, Br, Bc), -(-N // Br)
    heights = [min(Br, N - i * Br) for i in range(Tr)]
    distances = [2 * Nk * d - 1 + (a + b) * d for a, b in zip(heights, heights[1:], strict=False)]
    for capacity in (1, 2 * Bc * d, 2 * Nk * d - 1, min(distances)):
        assert missed(capacity) == N * d + Tr * 2 * Nk * d
    hits = 2 * Nk * d * distances.count(min(distances))
    assert missed(min(distances) + 1) == N * d + Tr * 2 * Nk * d - hits
    assert missed(max(distances) + 1) == N * d + 2 * Nk * d == missed(10**6)


@pytest.mark.parametrize("N, Nk, d, Br, Bc", CASES)
def test_flash1_misses_below_its_reuse_distance(N, Nk, d, Br, Bc):
    """K and V are read once. Pass j over the keys reads Q, O, l, m of each query tile and stores O, l, m again. Between
    a store in pass j-1 and the read in pass j of a word of tile i come all 2d + 2 words a row of the other N - Br_i
    rows, and the K, V tile of pass j. So D >= (N - Br)(2d + 2) + 2 d Bc_min, and an LRU of that many words misses on
    every read: 2 Nk d + Tc N (2d + 2). One that holds 2d + 2 words of every row and two neighbouring K, V tiles reads
    each word once.
    """
    missed, Tc = read_misses("flash1", N, Nk, d, Br, Bc), -(-Nk // Bc)
    for capacity in (1, 2 * d * Br, (N - Br) * (2 * d + 2) + 2 * d * (Nk - (Tc - 1) * Bc)):
        assert missed(capacity) == 2 * Nk * d + Tc * N * (2 * d + 2)
    assert missed(N * (2 * d + 2) + 4 * d * Bc) == N * (2 * d + 2) + 2 * Nk * d == missed(10**6)


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
    for name, value in {"schedule": "flash2", "tile_multiple": 16, "paper_model": True, "N": 64}.items():
        with pytest.raises(package.InputError, match=f"--trace: found '--{name.replace('_', '-')}'; allowed: a file"):
            package.cache(trace=file, M="4KB", **{name: value})
    with pytest.raises(package.InputError, match="N and d: found 'nothing'; allowed: a number for each; or trace=FILE"):
        package.cache(M="1KB")


def test_each_stage_is_told():
    """On a terminal the first text is shown after a second: recording, then each cache."""
    said = []
    caches = cache_answer.caches_of([1024, 4096], 2, "line", None, "both", False, ())
    cache_answer.cache_of(Attention(64, 16), SCHEDULES["flash1"], Tiling(16, 16), None, caches, tell=said.append)
    assert said[:2] == ["recording the loads and stores of flash1", "putting the accesses in order"]
    assert "through an LRU of every size" in said[2]
    assert [text.rpartition(" of ")[2] for text in said[3:]] == ["1,024 B", "4,096 B"]


@pytest.mark.parametrize(
    "command, output", sessions((DOCS / "hardware" / "files.md").read_text()), ids=lambda x: x[-30:]
)
def test_the_page_prints_what_is_printed(command, output, iosim):
    assert iosim(*command.split()).stdout == output


def test_a_mask_that_hides_all_leaves_no_access(ask):
    """flash1 skips every tile, so that nothing moves; flash2 still writes O, 3 x 64 words in 6 lines."""
    asked = ["--N", 3, "--d", 64, "--mask", "~dense", "--tiles", "2x2"]
    for more in (["--M", "1KB"], ["--M", "1KB", "--granularity", "tile"], ["--curve", "--policy", "lru"]):
        found = ask("cache", *asked, *more, "--schedule", "flash1")
        assert found["accesses"] == 0 and {row["total_bytes"] for row in found["results"]} == {0}
        assert {row["x_scratchpad"] for row in found["results"]} == {None}
    assert ask("cache", *asked, "--M", "1KB", "--schedule", "flash2")["results"][0]["write_backs"] == 6
