"""The least time on a GPU: by hand, in whole waves, and never above a measured time."""

import random
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import VALIDATION

from iosim import Attention, Tiling
from iosim.core.tiling import parse_tiles
from iosim.counting.needed import needed_by_problem, problem_times
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.timing.bound import RESOURCES, Equal, in_waves, time_at_least
from iosim.timing.products import unit_of
from iosim.timing.work import Work, work_of

over = pytest.importorskip("over_bounds", exc_type=ImportError)
H100 = load("h100")
P = Attention(4096, 64, heads=33, kv_heads=1, acc_dtype="fp32")  # 1,056 blocks of 128 rows: 8 whole waves on 132


def test_by_hand():
    """flash2 with 128x64: words and operations from the paper, rates from the data sheet."""
    found = time_at_least(find("flash2"), P, Tiling(128, 64), H100)
    pairs, heads = 32 * 64, 33  # tiles of a head
    elements = 4096 * 64 * heads
    of_keys = 2 * elements // 33  # K and V, which all heads share
    reads = pairs * heads * (128 * 64 + 2 * 64 * 64 + 2 * 64 * 64)  # Q once, K and V twice
    writes = elements * (1 + 2 * 32)  # Q, and K and V for each of 32 query tiles
    exps = heads * (4096 * 4096 + 4096 * 64)
    assert found.times == pytest.approx(
        {
            "memory": (2 * elements + of_keys) * 2 / H100.hbm_bytes_per_second,
            "l2": (writes + elements) * 2 / H100.l2_bytes_per_second,
            "shared": (reads + writes) * 2 / H100.shared_memory_bytes_per_second,
            "matrix": 4 * 4096 * elements / H100.flops_per_second["fp16"],
            "exp": exps / H100.flops_per_second["exp"],
        }
    )
    assert found.seconds == max(found.times.values()) and found.binds in RESOURCES and found.blocks == 1056


def test_key_tiles_that_add_run_at_once():
    """flash2-bwd by hand: five products, ceil(Nk / Bc) blocks a head, and dQ passes the L2 once for each of them."""
    p, tiles = replace(P, heads=32, kv_heads=32), Tiling(64, 128)
    first, main = time_at_least(find("flash2-bwd"), p, tiles, H100).launches
    elements, key_tiles = 4096 * 64 * 32, 32
    assert main.work.blocks == 32 * key_tiles
    statistics = 2 * 4096 * 32  # LSE and D, fp32
    through = elements * (2 + 2 + 3 * key_tiles) * 2 + statistics * key_tiles * 4  # K, V, dK, dV; Q, dO, dQ
    waves = 8 * 132 / 1024
    assert main.work.l2_bytes == through
    assert main.times["l2"] == pytest.approx(through / H100.l2_bytes_per_second)
    flops = 5 * 2 * 4096**2 * 64 * 32
    assert flops / 989.4e12 <= main.times["matrix"] * 1.0001 <= waves * flops / 989.4e12
    second = time_at_least(find("flash2-bwd-second-pass"), p, tiles, H100)
    assert main.seconds + first.seconds < second.seconds, "which has seven products"


def test_blocks_come_in_whole_waves():
    one, two = (time_at_least(find("flash2"), replace(P, heads=n), Tiling(4096, 64), H100) for n in (132, 133))
    assert two.seconds == pytest.approx(2 * one.seconds), "133 blocks need two waves"
    few = time_at_least(find("flash2"), replace(P, heads=1, kv_heads=1), Tiling(4096, 64), H100)
    assert few.seconds == pytest.approx(one.seconds), "one block takes as long as 132"


def test_a_ragged_block_is_not_a_whole_one():
    """Of 133 blocks one has 2 rows: it starts while others run, and takes no second wave of 128 rows."""
    p, t = Attention(128 * 132 + 2, 64, heads=1), Tiling(128, 64)
    ragged = time_at_least(find("flash2"), p, t, H100)
    whole = time_at_least(find("flash2"), replace(p, N=128 * 132, Nk=p.Nk), t, H100)
    assert whole.seconds <= ragged.seconds < 1.1 * whole.seconds


def test_under_a_mask_blocks_are_not_equal():
    causal = time_at_least(find("block-sparse-q"), replace(P, mask=parse_mask("causal")), Tiling(128, 64), H100)
    work = causal.work
    assert causal.times["matrix"] == pytest.approx(work.matrix_flops / H100.flops_per_second["fp16"])


def test_fewer_queries_with_fewer_keys_are_no_part():
    """state-fused has as many keys as queries: its 40 whole rows of 41 are another problem."""
    p = Attention(41, 8, heads=4)
    assert time_at_least(find("state-fused"), p, Tiling(8, 8), H100).blocks == 4


def test_rates_that_are_not_stated_bound_nothing():
    bare = replace(H100, flops_per_second={"int8": 1}, shared_memory_bytes_per_second=None, l2_bytes_per_second=None)
    assert set(time_at_least(find("flash2"), P, Tiling(128, 64), bare).times) == {"memory"}
    no_l2 = time_at_least(find("flash2"), P, Tiling(128, 64), replace(bare, l2_bytes=0))
    assert no_l2.times["memory"] == pytest.approx(no_l2.work.total_bytes / H100.hbm_bytes_per_second)


def test_what_the_l2_holds_needs_no_hbm():
    """S and P of one small head stay in the L2 between launches; of many heads they do not."""
    moved = {}
    for heads in (1, 64):
        p = Attention(1024, 64, heads=heads)
        found = time_at_least(find("standard-tiled"), p, Tiling(128, 64), H100)
        moved[heads] = found.times["memory"] * H100.hbm_bytes_per_second / (p.N * p.d * 2 * heads)
    assert moved[1] == pytest.approx(4) and moved[64] == pytest.approx(4 + 4 * 1024 / 64)


# ---------------------------------------------------------------- what any kernel needs

MASKS = ("dense", "causal", "window:0", "window:3", "causal&window:2", "strided:3", "documents:5,4,11")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("N", [1, 7, 20])
def test_the_work_of_a_problem_by_hand(mask, N):
    """Rows of queries with two keys or more, and the keys that they see, of each head of their own; a query of one key
    needs its V alone."""
    p = Attention(N, 8, Nk=20, dv=4, heads=6, kv_heads=2, batch=3, mask=parse_mask(mask), visit_all=mask != "dense")
    visible = p.mask.bind(p, Tiling(1, 1)).visible(0, N, 0, 20) if mask != "dense" else np.ones((N, 20), bool)
    several = visible[visible.sum(1) > 1]
    pairs, rows, keys, every = visible.sum(), len(several), several.any(0).sum(), visible.any(0).sum()
    work = needed_by_problem(p)
    assert work["matrix"] == 2 * pairs * (8 + 4) * 18 and work["exp"] == pairs * 18
    assert work["memory"] == 2 * (18 * (rows * 8 + visible.any(1).sum() * 4) + 6 * (keys * 8 + every * 4))


def test_no_tiles_take_less_than_the_problem():
    for mask in MASKS:
        p = Attention(40, 16, heads=4, kv_heads=2, mask=parse_mask(mask.replace("5,4,11", "25,15")))
        for name, (rows, keys) in product(("flash1", "flash2", "block-sparse-q"), product((8, 16, 40), (8, 40))):
            bound = time_at_least(find(name), p, Tiling(rows, keys), H100)
            assert max(problem_times(p, H100).values()) <= bound.seconds * (1 + 1e-9)


# ---------------------------------------------------------------- never above a measured time


def generated():
    """The GPU, measured seconds and bounds of kernels that iosim writes itself."""
    folders = {chip: f"{chip}-2026-11-22" for chip in ("h100", "h200")}
    files = [*((chip, VALIDATION / folder / "rows.csv") for chip, folder in folders.items())]
    for chip, file in [*files, ("h200", VALIDATION / folders["h200"] / "tiles_time.csv")]:
        for row in over.read(file):
            if row["seconds"] and row.get("mask", "dense") in ("dense", "causal"):
                schedule = find(row.get("schedule", "flash2").split()[0])
                bound = time_at_least(schedule, over.problem_of(row), parse_tiles(row["tiles"]), load(chip))
                yield chip, float(row["seconds"]), bound.seconds


@pytest.mark.parametrize("kernels", [generated, over.of_triton, over.of_pytorch])
def test_no_measured_time_is_below_its_bound(kernels):
    shares = [seconds / bound for _, seconds, bound in kernels()]
    assert len(shares) >= 20 and min(shares) > 1


# ---------------------------------------------------------------- waves, and keys that tiles see in common


def least_makespan(jobs, machines):
    """The least time of jobs on machines, by trying all assignments."""
    return min(
        max(sum(job for job, one in zip(jobs, where, strict=True) if one == m) for m in range(machines))
        for where in product(range(machines), repeat=len(jobs))
    )


@pytest.mark.parametrize("seed", range(30))
def test_no_multiprocessor_does_less_than_the_waves_say(seed):
    """Blocks of unequal work: never above the best assignment, and never below the largest block and the mean."""
    own = random.Random(seed)
    kinds = [(own.randint(1, 3), own.randint(1, 9)) for _ in range(own.randint(1, 3))]
    jobs, sms = [size for number, size in kinds for _ in range(number)], own.randint(1, 3)
    blocks = [Equal(np.array([number]), Work(matrix_flops=size * number, blocks=number)) for number, size in kinds]
    bound = in_waves(blocks, "matrix", sms)
    assert max(jobs) <= bound <= least_makespan(jobs, sms)
    if len({*jobs}) == 1:
        assert bound == least_makespan(jobs, sms) == -(-len(jobs) // sms) * jobs[0]


def test_waves_of_many_kinds_are_those_of_each_k():
    """The corners of which one is tried are as good as all k."""
    own = random.Random(1)
    for _ in range(100):
        kinds, sms = [(own.randint(1, 50), own.randint(1, 99)) for _ in range(6)], own.randint(1, 9)
        jobs = sorted((size for number, size in kinds for _ in range(number)), reverse=True)
        blocks = [Equal(np.array([number]), Work(exps=size * number, blocks=number)) for number, size in kinds]
        every_k = (sum(jobs[k * (sms - 1) : k * sms + 1]) for k in range((len(jobs) - 1) // sms + 1))
        assert in_waves(blocks, "exp", sms) == pytest.approx(max(every_k))


@pytest.mark.parametrize("mask", ["causal&window:9", "causal&(window:5|sink:2)", "strided:7"])
def test_keys_that_tiles_see_in_common_come_from_the_memory_once(mask):
    """Two query heads of a KV head, and tiles of queries whose windows overlap: the tiles of keys that any of them sees."""
    p = Attention(24, 8, Nk=96, heads=4, kv_heads=2, mask=parse_mask(mask))
    seen = p.mask.bind(p, Tiling(1, 1)).visible(0, 24, 0, 96).any(0)
    keys = sum(4 for first in range(0, 96, 4) if seen[first : first + 4].any())
    (work,) = work_of(find("flash2"), p, Tiling(8, 4), unit_of(H100, "fp16"))
    assert work.touched["read", "K"] == work.touched["read", "V"] == 2 * keys * 8 * 2
    assert work.touched["read", "Q"] == 4 * 24 * 8 * 2 and work.read_bytes > work.touched["read", "K"]
