"""flash2-pinned: its numbers by hand, its output and footprint with any keys that stay, its search, planted mistakes."""

import random

import pytest
from verdicts import wrong

from iosim import Attention, Tiling, count, tune
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.schedules import pinned as module
from iosim.search.best import best_tiles, footprint, sizes_by_passes
from iosim.search.kept import Kept
from iosim.tuning.curve import curve, step_at

NAME = "flash2-pinned"
SCHEDULE = find(NAME)


def test_half_of_what_flash2_reads_twice():
    """At M = 1.5 N d words half of Q and O fit, and beside them a quarter of the keys, less what a tile needs. Q is
    read and O written, r keys are read once and the others twice: 2 + 2 (1/4 + 2 * 3/4) = 5.5 times N d."""
    N, d = 8192, 128
    words = 3 * N * d // 2
    found = count(N, d, f"{words}el", tiles="best", schedules=[NAME, "flash2"])
    one = found[NAME]
    r = (words - 4096 * (2 * d + 2) - (4096 + 2 * d)) // (2 * d)
    assert (one.Br, one.Bc, one.more_tiles) == (4096, 1, {"kept": r}) and r == 1999
    assert one.total == 2 * N * d + 2 * d * (r + 2 * (N - r)) and round(one.total / (N * d), 1) == 5.5
    assert found["flash2"].total == 6 * N * d and found.bounds[1].words == 4_358_778  # 4.157 N d


@pytest.mark.parametrize("seed", range(30))
def test_three_ways_with_any_keys_that_stay(seed):
    rng = random.Random(seed)
    mask = rng.choice(["dense", "causal", "window:3", "window:1b"])
    p = Attention(rng.randint(1, 30), rng.randint(1, 7), Nk=rng.randint(1, 30), dv=rng.randint(1, 7),
                  mask=parse_mask(mask), lse=rng.random() < 0.5, keep_p=rng.random() < 0.5)  # fmt: skip
    t = Tiling(rng.randint(1, 35), rng.randint(1, 12), kept=rng.choice([None, 1, rng.randint(1, 40)]))
    assert wrong(SCHEDULE, p, t, seed=seed) == set()
    r = min(t.rows_k if t.kept is None else t.kept, p.Nk)
    p = Attention(p.N, p.d, Nk=p.Nk, dv=p.dv, dtype="fp16", acc_dtype="fp32")
    assert module.need(p, min(t.rows_q, p.N), r, t.rows_k) == footprint(SCHEDULE, p, t).peak_bytes


def every_candidate(p, multiple):
    """(bytes needed, keys read) of each number of query tiles with each number of keys that stay."""
    for rows in sizes_by_passes(p.N, multiple):
        for r in range(multiple, p.Nk + multiple, multiple):
            kept = min(r, p.Nk)
            yield module.need(p, min(rows, p.N), kept, multiple), p.Nk + (-(-p.N // rows) - 1) * (p.Nk - kept)


@pytest.mark.parametrize("seed", range(40))
def test_the_search_and_the_curve_leave_out_nothing(seed):
    """Longer axes than in test_exhaustive.py, so that sizes are left out of the curve for the reason that it states."""
    rng = random.Random(seed)
    N, Nk, multiple = rng.randint(1, 90), rng.randint(1, 120), rng.choice([1, 1, 2, 7])
    p = Attention(N, rng.randint(1, 3), Nk=Nk, dv=rng.randint(1, 3), acc_dtype=rng.choice(["fp16", "fp32", "fp8"]))
    every = list(every_candidate(p, multiple))
    steps = curve([SCHEDULE], p, multiple)
    for M in {need for need, _ in rng.sample(every, min(len(every), 40))}:
        least = min(keys for need, keys in every if need <= M)
        found, step = best_tiles(SCHEDULE, p, M, multiple), step_at(steps, M)
        words = p.N * (p.d + p.dv) + (p.d + p.dv) * least
        assert sum(map(sum, SCHEDULE.exact_traffic(p, found).values())) == words == step.total
        assert footprint(SCHEDULE, p, found).peak_bytes <= M


def test_few_candidates_are_counted():
    """One for about each query row, where all pairs of sizes are hundreds of times as many."""
    p = Attention(4096, 64)
    (tilings,) = Kept(module.need)(p, 1)
    assert len(tilings.kept) < 3 * 4096 and len(tilings.kept) == len(tilings.rows_q)


def test_tune_has_it_where_a_pass_leaves_room():
    found = tune(8192, 128, "3MB")
    assert found.winner.schedule == NAME and found.winner.ratio_to_floor < 1.38
    assert tune(8192, 128, "100KB").winner.schedule != NAME, "a query tile leaves no room for a key there"
