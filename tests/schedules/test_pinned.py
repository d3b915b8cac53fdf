"""flash2-pinned: its numbers by hand, its output and footprint with any keys that stay, its search, planted mistakes."""

import inspect
import random

import numpy as np
import pytest

from iosim import Attention, Capacity, Folded, Machine, Numeric, Tiling, Traffic, count, tune
from iosim.core.watchers import same_counts
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
    assert found["flash2"].total == 6 * N * d and found.bounds[1].words == 4 * N * d


@pytest.mark.parametrize("seed", range(30))
def test_three_ways_with_any_keys_that_stay(seed):
    rng = random.Random(seed)
    mask = rng.choice(["dense", "causal", "window:3", "window:1b"])
    p = Attention(rng.randint(1, 30), rng.randint(1, 7), Nk=rng.randint(1, 30), dv=rng.randint(1, 7),
                  mask=parse_mask(mask), lse=rng.random() < 0.5, keep_p=rng.random() < 0.5)  # fmt: skip
    t = Tiling(rng.randint(1, 35), rng.randint(1, 12), kept=rng.choice([None, 1, rng.randint(1, 40)]))
    visible = None if mask == "dense" else p.tiled(t).mask.visible(0, p.N, 0, p.Nk)
    hbm = SCHEDULE.example(np.random.default_rng(seed), p, visible)
    moved, room = [Traffic() for _ in range(3)], Capacity()
    machine = Numeric(p, hbm, moved[0], room).run(SCHEDULE, t)
    np.testing.assert_allclose(machine.array("O"), SCHEDULE.answer(hbm, p, visible)["O"], atol=1e-12)
    Machine(p, moved[1]).run(SCHEDULE, t)
    Folded(p, moved[2]).run(SCHEDULE, t)
    assert all(same_counts(SCHEDULE.exact_traffic(p, t), one.tensors) for one in moved)
    assert SCHEDULE.footprint(p, t) == room.peak_words == footprint(SCHEDULE, p, t).peak_words
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


# ---------------------------------------------------------------- planted mistakes


def mutant(old, new):
    """The schedule's function with one place of its text changed."""
    source = inspect.getsource(module.all_keys) + inspect.getsource(module.keys_stay)
    assert source.count(old) == 1
    names = dict(vars(module))
    exec("from __future__ import annotations\n" + source.replace(old, new), names)
    return names["keys_stay"]


def failing(text):
    p, t, failed = Attention(13, 4, Nk=17, dv=9), Tiling(4, 3, kept=7), set()
    hbm, traffic, room = SCHEDULE.example(np.random.default_rng(0), p, None), Traffic(), Capacity()
    try:
        machine = Numeric(p, hbm, traffic, room).run(text, t)
    except Exception:
        return {"error"}
    if not np.allclose(machine.array("O"), SCHEDULE.answer(hbm, p, None)["O"], atol=1e-12):
        failed.add("numerics")
    if not same_counts(traffic.tensors, SCHEDULE.exact_traffic(p, t)):
        failed.add("formula")
    if room.peak_words != SCHEDULE.footprint(p, t):
        failed.add("footprint")
    return failed


@pytest.mark.parametrize(
    "old, new, caught_by",
    [
        ("Stretch(p.Nk, first.size, p.Nk - first.size)", "Stretch(p.Nk, 0, p.Nk - first.size)", {"numerics"}),
        ("Stretch(p.Nk, first.size, p.Nk - first.size)", "p.Nk", {"numerics", "formula"}),
        ("Keys(k[j], None, v[j])", 'Keys(chip.load("K", j), None, v[j])', {"formula"}),
        ("Stretch(p.Nk, 0, kept(p, t))", "Stretch(p.Nk, 0, kept(p, t) - 1)", {"formula", "footprint"}),
        ("chip.free(k, v)", "chip.free(k)", {"error"}),
    ],
)
def test_a_mutant_is_caught(old, new, caught_by):
    assert failing(mutant(old, new)) == caught_by


def test_the_text_itself_passes():
    assert failing(module.keys_stay) == set()
