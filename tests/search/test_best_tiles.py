"""The best tiles against figures of an independent exhaustive search (N = 8192, d = 128), and the paper's rule."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from iosim import SCHEDULES, Attention, Folded, Tiling, Traffic, count
from iosim.core.arrays import last_true
from iosim.counting.run import measure
from iosim.masks import parse_mask
from iosim.schedules import applies, find
from iosim.search import best as best_module
from iosim.search.best import best_tiles, footprint, moved_bytes, search

BEST = [  # M, acc_dtype, multiple, Br x Bc, total words
    ("64KB", "fp16", 16, (96, 16), 182_452_224),
    ("128KB", "fp16", 16, (224, 16), 79_691_776),
    ("228KB", "fp16", 16, (400, 16), 46_137_344),
    ("64KB", "fp32", 16, (64, 16), 270_532_608),
    ("128KB", "fp32", 16, (144, 16), 121_634_816),
    ("228KB", "fp32", 16, (256, 16), 69_206_016),
]


@pytest.mark.parametrize("M, acc, multiple, tiles, total", BEST)
def test_best_tiles_for_matrix_instructions(M, acc, multiple, tiles, total):
    result = count(8192, 128, M, acc_dtype=acc, schedules=["flash2"], tiles="best", tile_multiple=multiple)["flash2"]
    assert ((result.Br, result.Bc), result.total) == (tiles, total)


def test_the_accumulator_decides_what_fits():
    """100 KiB hold 42 query tiles with 2-byte accumulators, 64 with 4-byte ones. R = Nd + 2 N d Tr, W = Nd, fp16."""
    for acc, tiles in (("fp16", 42), ("fp32", 64)):
        result = count(8192, 128, "100KB", acc_dtype=acc, schedules=["flash2"])["flash2"]
        assert result.total_bytes == 2 * 8192 * 128 * (2 + 2 * tiles)


def test_standard_with_tiles_that_fit():
    """64 KiB give 33 query tiles in both products, and 4 N^2 + N d (2 + 2 * 33) words."""
    result = count(8192, 128, "64KB", schedules=["standard-tiled"])["standard-tiled"]
    assert result.fits and result.total == 4 * 8192**2 + 8192 * 128 * (2 + 2 * 33)


def test_nothing_fits_below_4d_plus_3_words():
    for words, fits in ((4 * 16 + 2, False), (4 * 16 + 3, True)):
        for name in ("flash1", "flash2"):
            result = count(64, 16, f"{words}el", schedules=[name], tiles="best")[name]
            assert result.fits is fits and (result.total is None) is not fits


def test_without_an_M_what_needs_it_is_absent():
    result = count(64, 16, tiles="8x4", schedules=["flash1"])["flash1"]
    assert result.fits is None and result.total == 2 * 64 * 16 + 16 * 64 * (3 * 16 + 4)
    assert count(64, 16, schedules=["standard"])["standard"].ratio_to_order is None


LEAST = [  # tune's arguments, the least bytes, and an M at which tiles with so few are known to fit
    (["--N", 1024, "--d", 16, "--mask", "window:64", "--keep-p", "--schedule", "block-sparse-q"], 630_146, 4614),
    (["--N", 1000, "--Nk", 512, "--d", 64, "--acc-dtype", "fp32", "--schedule", "flash2-bwd-second-pass"],
     3_280_864, 232_448),
    (["--N", 11, "--d", 2, "--mask", "global:1&~window:6", "--dtype", "fp16", "--acc-dtype", "fp32",
      "--schedule", "block-sparse-bwd"], 296, 416),
]  # fmt: skip


@pytest.mark.parametrize("args, least, M", LEAST)
def test_more_room_never_moves_more(ask, args, least, M):
    """Larger tiles that move more are not taken. They may move more because of P under a mask, or of words of several
    widths."""
    for room in (M, 232_448):
        assert ask("tune", *args, "--M", room)["winner"]["total_bytes"] <= least


MASKS = ["causal", "window:2", "causal&window:9", "global:3", "window:0", "strided:3", "causal|global:2"]


@pytest.mark.parametrize("name", ["block-sparse", "block-sparse-q"])
@pytest.mark.parametrize("mask", MASKS)
def test_the_search_under_a_mask_finds_the_least(name, mask, monkeypatch):
    """Candidates are counted one by one, and in arrays in chunks. Some queries see no key."""
    rng, schedule = random.Random(name + mask), find(name)
    for _ in range(8):
        N, Nk, d, multiple = rng.randint(1, 40), rng.randint(1, 40), rng.randint(1, 6), rng.choice([1, 1, 2, 3])
        p = Attention(N, d, Nk=Nk, mask=parse_mask(mask))
        outer_is_q = schedule.outer == "queries"
        length, M = (N if outer_is_q else Nk), rng.randint(8 * d + 6, 60 * d + 500)
        tilings = [Tiling(n, multiple) if outer_is_q else Tiling(multiple, n)
                   for n in range(multiple, length + multiple, multiple)]  # fmt: skip
        totals = {t: traffic(schedule, p, t) for t in tilings if footprint(schedule, p, t).peak_bytes <= M}
        ways = []
        for worth in (10**6, 0):
            monkeypatch.setattr(best_module, "WORTH_NUMPY", worth)
            monkeypatch.setattr(best_module, "sys", SimpleNamespace(modules={}))
            ways.append(best_tiles(schedule, p, M, multiple))
        assert ways[0] == (found := ways[1])
        assert (found is None) == (not totals)
        assert not totals or totals[found] == min(totals.values())


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.long), 7, 2**15])
def test_arrays_are_searched_like_numbers(chunk, monkeypatch):
    monkeypatch.setattr(best_module, "AT_ONCE", chunk)
    rng = np.random.default_rng(chunk)
    N, Nk, d, M = rng.integers([[1], [1], [1], [20]], [[60], [60], [8], [900]], (4, 30))
    for name in ("flash1", "flash2", "block-sparse", "block-sparse-q"):
        for mask in ("dense", "causal", "window:5", "global:4"):
            p = Attention(N, d, Nk=Nk, mask=parse_mask(mask))
            tiling, found = search(find(name), p, M)
            sizes = [np.broadcast_to(size, 30).tolist() for size in (tiling.rows_q, tiling.rows_k)]
            for k in range(30):
                one = Attention(int(N[k]), int(d[k]), Nk=int(Nk[k]), mask=p.mask)
                alone = best_tiles(find(name), one, int(M[k]))
                assert (alone is not None) == found[k]
                assert alone is None or alone == Tiling(sizes[0][k], sizes[1][k])


def test_sizes_that_int64_does_not_hold_are_searched_exactly():
    """With window:0 and queries outside, every query and key is read once, whatever the tiles."""
    p, schedule = Attention(2**45, 2**20, mask=parse_mask("window:0")), find("block-sparse-q")
    best = best_tiles(schedule, p, 2**27)
    assert traffic(schedule, p, best) == 4 * 2**45 * 2**20


@pytest.mark.parametrize("name", ["block-sparse", "block-sparse-q"])
@pytest.mark.parametrize("power", [44, 46])
def test_counts_around_what_int64_holds_are_compared_exactly(name, power):
    """Totals of some tiles are below 2^63, and of others above: int64 would call a negative one the least."""
    schedule, p = find(name), Attention(1500, 2**power, dtype="fp64", mask=parse_mask("causal&window:200"))
    tilings = [Tiling(n, 25) if schedule.outer == "queries" else Tiling(25, n) for n in range(25, 1525, 25)]
    totals = [8 * traffic(schedule, p, tiling) for tiling in tilings]
    assert min(totals) < 2**63 and (max(totals) > 2**63) == (power > 44)
    best = best_tiles(schedule, p, 2**70, 25)
    assert traffic(schedule, p, best) == min(traffic(schedule, p, tiling) for tiling in tilings)


@pytest.mark.parametrize("name", ["flash1", "flash2", "standard-tiled", "memory-efficient", "flash2-bwd-second-pass"])
def test_the_inner_tile_is_the_largest_multiple_that_fits(name):
    """Also where the axis ends within it: an axis of 40 has room for 48, three multiples of 16."""
    rng, schedule = random.Random(name), find(name)
    rounded = 0
    for _ in range(25):
        p, multiple = Attention(rng.randint(1, 60), rng.randint(1, 5), Nk=rng.randint(1, 60)), rng.choice([3, 8, 16])
        M = rng.randint(10, 6000)
        best = best_tiles(schedule, p, M, multiple)
        if best is None:
            continue
        field, length = ("rows_k", p.Nk) if schedule.outer == "queries" else ("rows_q", p.N)
        larger = [Tiling(**{**{"rows_q": best.rows_q, "rows_k": best.rows_k}, field: size})
                  for size in range(getattr(best, field) + multiple, length + multiple, multiple)]  # fmt: skip
        assert not any(footprint(schedule, p, tiling).smem_bytes <= M for tiling in larger), (p, M, multiple, best)
        rounded += getattr(best, field) > length
    assert rounded


@pytest.mark.parametrize("most", [0, 1, 2, 50])
def test_last_true(most):
    for limit in range(most + 1):
        assert last_true(lambda n, limit=limit: n <= limit, most) == limit
    limits = np.arange(most + 1)
    assert (last_true(lambda n: n <= limits, np.full(most + 1, most)) == limits).all()


def traffic(schedule, p, tiling):
    watcher = Traffic()
    Folded(p, watcher).run(schedule, tiling)
    return watcher.total


def test_answers_about_numbers_of_numpy_are_not_kept_for_integers():
    """They are equal to integers and have the same hash, but they overflow."""
    sizes = 2**40 + 64, 64
    for kind in (np.int64, int):
        p, tiling = Attention(*map(kind, sizes)), Tiling(kind(2**40), kind(2**40))
        with np.errstate(over="ignore"):
            found = footprint(find("flash2"), p, tiling)
        assert isinstance(found.smem_bytes, kind) and (found.smem_bytes > 2**80) == (kind is int)


HUGE = [  # schedule, N, d, M, rows_q x rows_k: of equal pairs a search that begins elsewhere finds another one
    ("standard-square", 1_000_003, 64, "64KB", (181, 179)),
    ("flash2-bwd-second-pass", 2**48, 1, "16KB", (44, 87)),
    ("flash2-bwd-second-pass", 2**48, 1, "64KB", (89, 178)),
]


@pytest.mark.parametrize("name, N, d, M, tiles", HUGE)
def test_a_pair_beside_a_huge_axis_takes_few_runs(name, N, d, M, tiles, monkeypatch):
    """An axis of 2**48 has 2**25 numbers of passes: none of them is listed."""
    runs = []
    run = Folded.run
    monkeypatch.setattr(Folded, "run", lambda *args, **options: runs.append(args) or run(*args, **options))
    result = count(N, d, M, schedules=[name], tiles="best")[name]
    assert (result.Br, result.Bc) == tiles and len(runs) < 1000


def test_of_equal_tiles_of_a_gradient_the_one_of_fewest_rows_is_found():
    """4 x 5 and 5 x 4 move the same."""
    tiles = best_tiles(find("small-cache-bwd"), Attention(256, 64, acc_dtype="fp32"), 120)
    assert (tiles.rows_q, tiles.rows_k, tiles.rows_o, tiles.cols_o) == (5, 4, 4, 5)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_search_compares_the_bytes_that_are_counted(name):
    """Of every tensor: Q and K of one shape are alike, and so are their gradients, and both count."""
    schedule = SCHEDULES[name]
    p = Attention(24, 4, **({"rule": "linear"} if schedule.family.startswith("state") else {}))
    if not applies(schedule, p):
        pytest.skip("it needs options of its own")
    tiling = Tiling(4, 3)
    assert moved_bytes(schedule, p.packed, tiling) == measure(schedule, p.packed, tiling)["total_bytes"]
