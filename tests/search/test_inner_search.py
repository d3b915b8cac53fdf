"""Best tiles of schedules that declare nothing about their traffic, against every tiling there is."""

import random
import re
import time

import pytest
from paths import DOCS

import iosim
from iosim import SCHEDULES, Attention, Schedule, Tiling, count
from iosim.masks import parse_mask
from iosim.search.best import best_tiles, footprint, inner_matters, moved_bytes, search, sizes_by_passes
from iosim.steps.softmax import zeros
from iosim.tuning.curve import curve, exact, step_at

PAGE = DOCS / "adding-a-schedule.md"


@pytest.fixture
def wasteful():
    """The schedule of the page, registered by the page's own code."""
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "register" in block
    )
    exec(code, {})
    yield SCHEDULES["wasteful"]
    del SCHEDULES["wasteful"]


def parts(chip, p, t):
    """A schedule with keys outside. What it loads again depends on ragged tiles, not only on the numbers of tiles."""
    for j in chip.tiles(p.Nk, t.rows_k):
        k = chip.load("K", j)
        for _ in chip.tiles(j, t.rows_q):
            chip.free(chip.load("Q"))
        for i in chip.tiles(p.N, t.rows_q):
            q = chip.load("Q", i)
            chip.free(chip.load("V", j), q)
            chip.store(chip.compute("O", (i, p.dv), zeros), "O", i)
        chip.free(k)


PARTS = Schedule("parts", parts, "made up", outer="keys")


def turns_in_a_tile(chip, p, t):
    """What it loads depends on the inner tile only where the outer tile is larger."""
    for i in chip.tiles(p.N, t.rows_q):
        q = chip.load("Q", i)
        for _ in chip.tiles(i, t.rows_k):
            chip.free(chip.load("K"))
        chip.store(q, "O", i)


def test_an_inner_tile_that_matters_beside_a_large_outer_tile_only():
    rng, schedule = random.Random(4), Schedule("turns", turns_in_a_tile, "made up")
    for _ in range(12):
        p, M = Attention(rng.randint(2, 16), rng.randint(1, 4), Nk=rng.randint(2, 16)), rng.randint(20, 400)
        assert inner_matters(schedule, p)
        found, least = best_tiles(schedule, p, M), every(schedule, p, M)
        assert (found is None) == (least is None)
        assert found is None or moved_bytes(schedule, p, found) == least


def every(schedule, p, M, multiple=1):
    """The least traffic of all tilings that fit, found by counting each; None if none fits."""
    sizes = [range(multiple, length + multiple, multiple) for length in (p.N, p.Nk)]
    tilings = [Tiling(q, k) for q in sizes[0] for k in sizes[1]]
    skips = p.mask is not iosim.core.problem.DENSE and schedule.skips
    counted = p if skips else Attention(p.N, p.d, Nk=p.Nk)
    return min(
        (moved_bytes(schedule, counted, t) for t in tilings if footprint(schedule, p, t).peak_bytes <= M), default=None
    )


def test_the_case_that_was_wrong(wasteful):
    found = count(512, 64, "64KB", schedules=["wasteful"], tiles="best")["wasteful"]
    given = count(512, 64, "64KB", schedules=["wasteful"], tiles="103x83")["wasteful"]
    assert given.fits and found.fits and found.total <= given.total == 589_824


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_against_every_tiling(wasteful, mask):
    rng = random.Random(mask)
    for schedule in (wasteful, PARTS):
        for _ in range(12):
            p = Attention(rng.randint(1, 24), rng.randint(1, 5), Nk=rng.randint(1, 24), mask=parse_mask(mask))
            M, multiple = rng.randint(4 * p.d, 60 * p.d + 400), rng.choice([1, 1, 2, 3])
            found, least = best_tiles(schedule, p, M, multiple), every(schedule, p, M, multiple)
            assert (found is None) == (least is None)
            if found is not None:
                assert footprint(schedule, p, found).peak_bytes <= M
                assert moved_bytes(schedule, Attention(p.N, p.d, Nk=p.Nk), found) == least
                assert found.rows_q % multiple == found.rows_k % multiple == 0


@pytest.mark.parametrize("mask", ["causal", "window:2", "global:1"])
def test_against_every_tiling_under_a_mask_that_it_skips(wasteful, mask):
    rng, skipping = random.Random(mask), Schedule("skipping", wasteful.text, "made up", skips=True)
    for _ in range(6):
        p = Attention(rng.randint(1, 12), rng.randint(1, 4), Nk=rng.randint(1, 12), mask=parse_mask(mask))
        M = rng.randint(10 * p.d, 60 * p.d + 200)
        found, least = best_tiles(skipping, p, M), every(skipping, p, M)
        assert (found is None) == (least is None) and (found is None or moved_bytes(skipping, p, found) == least)
    with pytest.raises(iosim.InputError, match="best among more than"):
        best_tiles(skipping, Attention(2048, 8, mask=parse_mask(mask)), 2**17)


def test_arrays_find_the_same(wasteful):
    np = pytest.importorskip("numpy")
    N, M = np.array([5, 70, 512]), np.array([30, 2048, 65536])
    tiling, found = search(wasteful, Attention(N, 8), M)
    for k in range(3):
        alone = best_tiles(wasteful, Attention(int(N[k]), 8), int(M[k]))
        assert found[k] == (alone is not None)
        assert alone is None or (alone.rows_q, alone.rows_k) == (tiling.rows_q[k], tiling.rows_k[k])


def test_what_is_built_in_is_found_out_at_once():
    for name in ("flash1", "flash2", "standard-tiled", "block-sparse-q", "split-kv"):
        assert SCHEDULES[name].candidates is None
        assert not inner_matters(SCHEDULES[name], Attention(300, 8, Nk=260))
    before = time.process_time()
    best_tiles(SCHEDULES["flash2"], Attention(2**20, 128), 102400)
    assert time.process_time() - before < 0.1  # it takes 2 ms on an idle machine


def test_large_sizes_take_no_walk_for_each_tile(wasteful):
    before = time.process_time()
    found = best_tiles(wasteful, Attention(2**20, 128), 102400)
    assert found is not None and time.process_time() - before < 5


def test_no_curve_where_nobody_stated_the_candidates(wasteful):
    p = Attention(64, 8)
    assert not exact(wasteful, p) and exact(SCHEDULES["flash2"], p)


def by_passes(p, multiple):
    """A tiling for each pair of numbers of tiles, which is enough for the schedule of the page."""
    import numpy as np

    q, k = (np.array(list(sizes_by_passes(n, multiple)), object) for n in (p.N, p.Nk))
    return [Tiling(np.repeat(q, len(k)), np.tile(k, len(q)))]


def one_by_one(p, multiple):
    return [
        Tiling(int(q), int(k))
        for tiling in by_passes(p, multiple)
        for q, k in zip(tiling.rows_q, tiling.rows_k, strict=True)
    ]


@pytest.mark.parametrize("candidates", [by_passes, one_by_one])
def test_stated_candidates_give_the_curve_and_the_best_at_one_m(wasteful, candidates):
    """The least at one M is the step of the curve, and the least of every tiling."""
    rng, schedule = random.Random(9), Schedule("stated", wasteful.text, "made up", candidates=candidates)
    for _ in range(12):
        p = Attention(rng.randint(1, 24), rng.randint(1, 5), Nk=rng.randint(1, 24), acc_dtype="fp32")
        M, multiple = rng.randint(4 * p.d, 60 * p.d + 400), rng.choice([1, 1, 2, 3])
        found, least = best_tiles(schedule, p, M, multiple), every(schedule, p, M, multiple)
        step = step_at(curve([schedule], p, multiple), M)
        assert exact(schedule, p) and (found is None) == (least is None) == (step is None)
        if found is not None:
            assert moved_bytes(schedule, p, found) == least == step.total_bytes
            assert footprint(schedule, p, found).peak_bytes == step.M_bytes <= M
    with pytest.raises(iosim.InputError, match="a schedule without a search of its own"):
        best_tiles(schedule, Attention(64, 8, stages=2), 1000)
