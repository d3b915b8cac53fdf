"""DRAM traffic of schedules through the L2: by hand, against a plain scheduler, and against what an H200 measured."""

import json
import random
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from paths import DATA
from spread import spread

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.gpu.ncu.counters import ProfiledKernel
from iosim.gpu.predict.blocks import Launch, Touches, touches_of
from iosim.gpu.predict.dram import Conditions, Dram, Heads, dram_bytes
from iosim.gpu.predict.l2 import FEW_STEPS, HOLDS, SIDES, SPREAD, Cache, Room, room_of
from iosim.gpu.predict.predict import PROFILER_BYTES, predict
from iosim.gpu.profile.explain import Explanation, explanation_rows, spills
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import find

EVER = 10**12


def dram(name, problem, tiling, places=4, capacity=EVER, **more):
    found = touches_of(find(name), problem, tiling)
    return dram_bytes(found, problem, [places] * len(found.launches), capacity, Conditions(**more))


def reread(found):
    """The bytes that are read again, because the L2 did not keep them."""
    return found.read_bytes - found.first_bytes


@pytest.mark.parametrize("name", ["standard-tiled", "flash1", "flash2"])
@pytest.mark.parametrize("N, Nk", [(64, 64), (70, 45)])
def test_a_cache_that_holds_all_reads_the_inputs_once_and_writes_nothing(name, N, Nk):
    p = Attention(N, 16, Nk=Nk, heads=6, kv_heads=2, batch=2, dtype="fp32")
    found = dram(name, p, Tiling(16, 16))
    inputs = 4 * p.batch * (6 * N * 16 + 2 * 2 * Nk * 16)
    state = 4 * p.instances * (N * 16 + 2 * N)
    assert found.read_bytes == found.first_bytes == inputs + (state if name == "flash1" else 0)
    scores = 2 * 4 * p.instances * N * Nk if name == "standard-tiled" else 0
    written = 4 * p.instances * N * (16 + (2 if name == "flash1" else 0)) + scores
    assert found.write_bytes == 0 and found.dirty_bytes == written


BESIDE = [{}, {"cold": True, "left_bytes": 9000}, {"block_bytes": 64}]


@pytest.mark.parametrize("name", ["standard-tiled", "flash1", "split-kv", "flash2-bwd"])
@pytest.mark.parametrize("more", BESIDE)
@pytest.mark.parametrize(
    "most_steps, at_once", spread([(10**6, 2**16), (10**6, 9), (20, 9)], lambda case: case == (20, 9))
)
def test_touches_that_repeat_one_are_left_out_where_all_fits(name, more, most_steps, at_once, monkeypatch):
    """The same bytes as with all touches, which are played if nothing counts as fitting. `share` is that of the L2's
    partition which all cells would take."""
    p = Attention(24, 16, Nk=29, heads=2, kv_heads=1, batch=2, mask=parse_mask("window:20"))
    monkeypatch.setattr("iosim.gpu.predict.dram.MOST_STEPS", most_steps)
    monkeypatch.setattr("iosim.gpu.predict.dram.MOST_AT_ONCE", at_once)
    touches, conditions = touches_of(find(name), p, Tiling(8, 16)), Conditions(**more)
    total, launches = (
        Heads(touches, p, **{k: v for k, v in more.items() if k == "left_bytes"}).sizes.sum(),
        touches.launches,
    )

    def found(places, share):
        return dram_bytes(touches, p, [places] * len(launches), int(total / share), conditions, with_range=True)

    cases = [(3, 0.1), (20, 0.76), (3, 0.8), (20, 0.89)]
    every = [found(*case) for case in cases]
    monkeypatch.setattr(Heads, "fit", property(lambda heads: False, lambda heads, fit: None), raising=False)
    assert every == [found(*case) for case in cases]


@pytest.mark.parametrize("name", ["standard-tiled", "flash1", "flash2", "split-kv", "flash2-bwd"])
@pytest.mark.parametrize("more", BESIDE)
@pytest.mark.parametrize("Nk", spread([45, 90], lambda Nk: Nk == 90))
def test_cells_that_are_touched_alike_are_played_as_one(name, Nk, more, monkeypatch):
    """The same bytes as cell by cell, with and without blocks of several heads that run side by side. Of 90 keys the last
    are never touched."""
    p = Attention(40, 16, Nk=Nk, heads=4, kv_heads=2, batch=2, mask=parse_mask("window:30"))
    cases, joined, join = ((16, 4096), (64, 8192)), [], Heads.join

    def watched(heads, turns):
        before = heads.sizes
        join(heads, turns)
        assert heads.sizes.sum() == before.sum()
        joined.append(len(heads.sizes) / len(before))

    monkeypatch.setattr(Heads, "join", watched)
    found = [dram(name, p, Tiling(8, 16), *case, **more) for case in cases]
    assert len(joined) == len(cases) and min(joined) < 0.5 and max(joined) <= 1
    monkeypatch.setattr(Heads, "join", lambda heads, turns: None)
    assert found == [dram(name, p, Tiling(8, 16), *case, **more) for case in cases]


@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_a_cache_of_nothing_moves_what_the_sm_moves(name):
    """One block at a time, and a cache smaller than a tile: every access goes to DRAM."""
    p = Attention(64, 16, heads=2, dtype="fp32")
    expected = predict(find(name), p, Tiling(16, 16))
    found = dram(name, p, Tiling(16, 16), places=1, capacity=0)
    assert found.read_bytes == expected.read_bytes
    assert found.write_bytes == expected.write_bytes and found.dirty_bytes == 0


@pytest.mark.parametrize("capacity_kib, half_cycles", [(12, 0), (7, 1), (3.5, 2)])
def test_re_reads_by_hand(capacity_kib, half_cycles):
    """Nk = 4 tiles of K and V (1 KiB each), 2 query tiles, one place: between two uses of a tile lie 7 others, an output
    of which each partition has half, and Q. Its own partition sees 9 KiB with half of the tile itself. The other only
    keeps half of all that, 4.75 KiB, and is asked again where the first forgot: then half is read again."""
    p = Attention(32, 16, Nk=64, dtype="fp32")
    found = dram("flash2", p, Tiling(16, 16), 1, int(capacity_kib * 1024))
    assert reread(found) == half_cycles * 4 * 1024


@pytest.mark.parametrize("capacity_kib, cycles", [(13, 0), (7, 1)])
def test_what_both_sides_read_is_kept_twice(capacity_kib, cycles):
    """The same with two places, one on each side: what one partition forgets, the other forgot as well."""
    p = Attention(64, 16, Nk=64, dtype="fp32")
    assert reread(dram("flash2", p, Tiling(16, 16), 2, capacity_kib * 1024)) == cycles * 8 * 1024


def scheduled(found, p, places, capacity, stride, block_bytes):
    """Blocks in grid order on so many places, one by one; a place takes the next when it has none, and stores so many
    bytes of its own then. Sides of the L2 take turns. The caches are iosim's, the first as large as it should be."""
    shared, own = found.shared_cells, len(found.sizes_bytes) - found.shared_cells
    group, kv_instances = p.heads // p.kv_heads, p.batch * p.kv_heads
    sizes = [*found.sizes_bytes[:shared]] * kv_instances + [*found.sizes_bytes[shared:]] * p.instances
    first_place, sizes = len(sizes), sizes + [block_bytes] * places
    caches, by_launch = [Cache(np.array(sizes), room_of(capacity, times)) for times in (1, 1 - SPREAD, 1 + SPREAD)], []
    cache = caches[0]

    def cell(touch, head):
        return head // group * shared + touch if touch < shared else kv_instances * shared + head * own + touch - shared

    for launch in found.launches:
        before = cache.read_bytes, cache.write_bytes
        spans = list(zip(launch.starts, launch.starts[1:], strict=False))
        waiting = [(head, range(*span)) for head in range(p.instances) for span in spans]
        running = [(0, range(0))] * places
        while waiting or any(at for _, at in running):
            kinds = {(write, side): set() for write in (False, True) for side in range(SIDES)}
            for place, (_, at) in enumerate(running):
                if not at and waiting:
                    running[place] = waiting.pop(0)
                    kinds[True, place % SIDES].update([first_place + place] if block_bytes else [])
            for place, (head, at) in enumerate(running):
                for index in at[:stride]:
                    kinds[bool(launch.writes[index]), place % SIDES].add(cell(int(launch.touches[index]), head))
            running = [(head, at[stride:]) for head, at in running]
            parts = {kind: np.array(sorted(cells), int) for kind, cells in kinds.items()}
            loads, stores = ([parts[write, side] for side in range(SIDES)] for write in (False, True))
            for each in caches:
                each.touch(loads, stores)
        by_launch.append((cache.read_bytes - before[0], cache.write_bytes - before[1]))
    moved = [each.read_bytes + each.write_bytes for each in caches]
    ends = min(moved), max(moved)
    return Dram(cache.read_bytes, cache.write_bytes, cache.first_bytes, cache.dirty_bytes, tuple(by_launch), *ends)


@pytest.mark.parametrize("seed", spread(range(20), lambda seed: seed < 8))
def test_places_take_blocks_in_grid_order(seed, monkeypatch):
    """Random traces; with every second seed a step holds three touches of a place, and with every third a block stores
    bytes of its place. Also where the L2 is a little smaller or larger."""
    rng, p = random.Random(seed), Attention(16, 16, heads=4, kv_heads=2, batch=2)
    shared, cells, stride = rng.randint(1, 6), rng.randint(8, 14), 1 + 2 * (seed % 2)
    lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 5))]
    touches = np.array([rng.randrange(cells) for _ in range(sum(lengths))])
    writes = np.array([cell >= shared and rng.random() < 0.4 for cell in touches])
    launch = Launch(touches, writes, np.cumsum([0, *lengths]))
    found = Touches([launch], np.array([rng.randint(1, 8) * 32 for _ in range(cells)]), shared)
    places, capacity = min(rng.randint(1, 9), p.instances * len(lengths)), rng.randint(1, 8 * cells) * 64
    work = -(-len(touches) * p.instances // places)
    monkeypatch.setattr("iosim.gpu.predict.dram.MOST_STEPS", -(-work // stride))
    conditions = Conditions(block_bytes=48 * (seed % 3 == 0))
    expected = scheduled(found, p, places, capacity, stride, conditions.block_bytes)
    assert dram_bytes(found, p, [places], capacity, conditions, with_range=True) == expected
    alone = dram_bytes(found, p, [places], capacity, conditions)
    assert alone == replace(expected, least_bytes=alone.total_bytes, most_bytes=alone.total_bytes)


def test_blocks_that_run_together_share_what_they_read():
    """All query tiles of a head at once: K and V come once, however small the cache (if it holds a step)."""
    p = Attention(128, 16, heads=1, dtype="fp32")
    together = dram("flash2", p, Tiling(16, 16), places=8, capacity=24 * 1024)
    assert reread(together) == 0
    assert reread(dram("flash2", p, Tiling(16, 16), places=1, capacity=8 * 1024)) > 0


def test_a_cache_counts_what_it_holds():
    """Half of each cell has its home in each partition, and side 0, which stores, keeps a copy of the other half. Room
    is for 24 B in each; and for 12 B that are dirty."""
    cache, none = Cache(np.full(4, 10), Room(24, 240, 12)), np.empty(0, int)
    for cell in ([0], [1], [2]):
        cache.touch([none, none], [np.array(cell), none])
    assert [*cache.held[HOLDS]] == [20, 15], "30 B in the first: the oldest left"
    assert (cache.dirty_bytes, cache.read_bytes, cache.write_bytes) == (20, 0, 10), "15 B in each: the oldest left"


@pytest.mark.parametrize("count", [FEW_STEPS - 2, FEW_STEPS - 1, FEW_STEPS, 2100])
def test_a_cache_too_small_for_a_step_lasts_for_any_number_of_steps(count):
    """All of a step leaves at once, also when the arrays of steps are just full."""
    p = Attention(16, 16)
    touches = Launch(np.arange(count) % 2, np.zeros(count, bool), np.array([0, count]))
    found = dram_bytes(Touches([touches], np.full(2, 32), 0), p, [1], 0)
    assert (found.read_bytes, found.first_bytes) == (32 * count, 64)


def test_cold_launches_read_again_what_the_last_one_wrote():
    """standard-tiled in an L2 that holds all: warm, S and P never go to DRAM; cold, both are read from it, and what
    was dirty leaves between the launches, where nobody counts."""
    p, t = Attention(64, 16, dtype="fp32"), Tiling(16, 16)
    found = touches_of(find("standard-tiled"), p, t)
    warm, cold = (dram_bytes(found, p, [4] * 3, 10**9, Conditions(cold)) for cold in (False, True))
    assert cold.read_bytes - warm.read_bytes == 2 * 64 * 64 * 4 and cold.write_bytes == warm.write_bytes == 0
    assert cold.dirty_bytes == warm.dirty_bytes == (2 * 64 * 64 + 64 * 16) * 4
    assert sum(map(sum, cold.by_launch)) == cold.total_bytes and sum(cold.by_launch[1]) == 64 * 64 * 4


@pytest.mark.parametrize("name", ["standard-tiled", "flash2"])
@pytest.mark.parametrize("capacity, each_launch", [(EVER, 0), (0, 1)])
def test_what_somebody_else_left_dirty_by_hand(name, capacity, each_launch):
    """1000 bytes are dirty when a launch starts: in an L2 that holds all they stay, else each launch sees them go. It reads
    none of them."""
    p, t = Attention(64, 16, heads=2, dtype="fp32"), Tiling(16, 16)
    alone, beside = (dram(name, p, t, capacity=capacity, cold=True, left_bytes=left) for left in (0, 1000))
    assert beside.read_bytes == alone.read_bytes
    assert beside.write_bytes - alone.write_bytes == each_launch * 1000 * len(alone.by_launch)
    more = [here[1] - there[1] for here, there in zip(beside.by_launch, alone.by_launch, strict=True)]
    assert more == [each_launch * 1000] * len(alone.by_launch)


def measured():
    return [k for k in json.loads((DATA / "h200_sdpa.json").read_text())["kernels"] if k["pass"] == "forward"]


def h200_errors():
    """|predicted / measured - 1| of DRAM bytes, PyTorch's flash on an H200: 2 blocks on each of 132 multiprocessors
    (registers), half of 60 MiB for what both sides of the L2 read, less what is spilled; dirty is what the profiler
    left."""
    errors = []
    for k in measured():
        p = Attention(k["N"], k["d"], heads=k["heads"], batch=k["batch"], acc_dtype="fp32", lse=True,
                      mask=parse_mask("causal" if k["causal"] else "dense"))  # fmt: skip
        name = "block-sparse-q" if k["causal"] else "flash2"
        t, m = Tiling(*k["tiles"]), k["metrics"]
        kernel = ProfiledKernel(
            k["kernel"], tuple(json.loads(k["grid"].replace("(", "[").replace(")", "]"))), metrics=m
        )
        taken = spills(kernel, predict(find(name), p, t), t, p, 264)["taken_bytes"]
        found = dram(name, p, t, places=264, capacity=62_914_560 // 2 - taken, left_bytes=PROFILER_BYTES)
        errors.append(abs(found.total_bytes / (m["dram__bytes_read.sum"] + m["dram__bytes_write.sum"]) - 1))
    return errors


def test_dram_of_an_h200():
    errors = h200_errors()
    assert len(errors) == 9 and median(errors) <= 0.05 and max(errors) <= 0.20, errors


# ---------------------------------------------------------------- order of the walk


def test_backwards_under_a_causal_mask_by_hand():
    """Four query tiles at once and no cache between steps. Forwards all are at the same key tile: K and V come once.
    Backwards each starts at its own: 4 different ones, then 3, 2 and 1."""
    p, t = Attention(64, 16, dtype="fp32", mask=parse_mask("causal")), Tiling(16, 16)
    tile, text = 4 * 16 * 16, find("block-sparse-q")
    for backwards, tiles in ((False, 4), (True, 4 + 3 + 2 + 1)):
        found = dram_bytes(touches_of(text, p, t, backwards=backwards), p, [4], 0)
        assert found.read_bytes == (4 + 2 * tiles) * tile and found.write_bytes == 4 * tile


def test_the_kernel_of_flash_attention_is_traced_backwards():
    """By its name; in an L2 far smaller than what stays in use it then reads more. Other kernels go forwards."""
    p = Attention(1024, 64, heads=4, acc_dtype="fp32", mask=parse_mask("causal"))
    small = replace(load("h200"), l2_bytes=400_000, measured=None)
    words = predict(find("block-sparse-q"), p, Tiling(64, 64))
    explained = Explanation("block-sparse-q", Tiling(64, 64), words.read_bytes, words.write_bytes, 1.0, 1.0)
    names = ("void flash_fwd_kernel<traits>", "another")
    back, forth = (
        explanation_rows("", ProfiledKernel(name, (16, 1, 4)), [explained], p, small)[0]["dram_predicted"]
        for name in names
    )
    assert back > 1.5 * forth >= 1.5 * 3 * 4 * 1024 * 64 * 2
