"""The schedules inside a GPU, proven as all schedules are, and the words that an outer run counts of them."""

import random

import numpy as np
import pytest
from inside_by_hand import SCHEDULES
from verdicts import wrong

from iosim import Attention, Folded, Machine, Numeric, Tiling
from iosim.core.levels import Inside
from iosim.distributed.hops import Visit
from iosim.distributed.inside import FIRST, HOP, Below, together
from iosim.distributed.schedules import PASSES, SCHEMES, splits_of
from iosim.masks import parse_mask
from iosim.wings import offered

MASKS = ["dense", "causal", "window:3", "causal&window:2"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)
def test_three_ways(schedule, mask):
    rng = random.Random(schedule.name + mask)
    for seed in range(6):
        N, Nk, rows_q, rows_k = (rng.randint(1, 20) for _ in range(4))
        p, t = (
            Attention(N, rng.randint(1, 5), Nk=Nk, dv=rng.randint(1, 5), mask=parse_mask(mask)),
            Tiling(rows_q, rows_k),
        )
        assert wrong(schedule, p, t, seed=seed) == set()


def test_they_can_be_written_as_cuda():
    why_not = offered("why_not_generated") or (lambda schedule: "")
    assert [why_not(schedule) for schedule in SCHEDULES] == [""] * len(SCHEDULES)


def test_hops_one_after_the_other_are_attention():
    """A first hop and three more over parts of the keys leave the attention to all keys."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(9, 4)), rng.normal(size=(20, 4)), rng.normal(size=(20, 3))
    state = {}
    for hop in range(4):
        part = slice(5 * hop, 5 * hop + 5)
        p, schedule = Attention(9, 4, Nk=5, dv=3), HOP if hop else FIRST
        machine = Numeric(p, {"Q": q, "K": k[part], "V": v[part], **state}).run(schedule, Tiling(4, 2))
        state = {name: machine.array(name) for name in "Olm"}
    whole = Numeric(Attention(9, 4, Nk=20, dv=3), {"Q": q, "K": k, "V": v}).run(FIRST, Tiling(4, 2))
    for name in "Olm":
        np.testing.assert_allclose(state[name], whole.array(name))


@pytest.mark.parametrize("mask", [*MASKS, "global:3"])
@pytest.mark.parametrize("name", SCHEMES)
def test_the_words_inside_are_the_same_folded_and_unrolled(name, mask):
    scheme, p = SCHEMES[name], Attention(24, 3, heads=4, kv_heads=2, mask=parse_mask(mask))
    for t in [t for P in (1, 2, 4) for t in splits_of(scheme, p, P)]:
        found = [Inside(Below(t, 400)) for _ in range(2)]
        for machine, watcher in zip((Folded, Machine), found, strict=True):
            machine(t.run, watcher).run(scheme.bind(t), scheme.tiling(t))
        assert found[0].tensors == found[1].tensors and found[0].bytes == found[1].bytes > 0


@pytest.mark.parametrize("rows_k", [None, 3])
@pytest.mark.parametrize("mask", ["causal", "causal&window:20", "sink:3|window:8"])
def test_two_visits_stand_for_many_that_differ_in_their_keys(mask, rows_k):
    """Twelve GPUs, forward and backward: a machine that counts each visit has the same words."""
    p = Attention(60, 3, Nk=84, heads=2, kv_heads=1, mask=parse_mask(mask))
    for scheme in PASSES["step"].values():
        for t in splits_of(scheme, p, 12):
            found = [Inside(below_with(t, rows_k)) for _ in range(2)]
            for machine, watcher in zip((Folded, Machine), found, strict=True):
                machine(t.run, watcher).run(scheme.bind(t), scheme.tiling(t))
            assert found[0].tensors == found[1].tensors and found[0].bytes == found[1].bytes > 0, scheme.name


def below_with(t, rows_k):
    """The schedules inside with key tiles of so many rows; of all with None."""
    below = Below(t, rows_k and 10**6)
    if rows_k:
        below._tiles = lambda schedule, p: Tiling(4, rows_k)
    return below


def test_visits_of_other_masks_are_counted_one_by_one():
    visits = [(k, Visit(4, k, 1, parse_mask(mask))) for mask in ("causal", "window:2") for k in (5, 7, 9, 10)]
    found = [(times, keys, str(mask)) for times, _, keys, mask in together(visits, 2)]
    windows = [(k, k, "window:2") for k in (5, 7, 9, 10)]
    assert sorted(found) == sorted([(-4, 5, "causal"), (25, 7, "causal"), (10, 10, "causal"), *windows])


@pytest.mark.parametrize("mask", [*MASKS, "window:40"])
def test_a_visit_reads_gradients_once_without_an_M(mask):
    """However many keys it has: dQ comes once, as Q does."""
    scheme = PASSES["backward"]["zigzag"]
    (t,) = scheme.splits(Attention(128, 3, Nk=256, mask=parse_mask(mask)), 4)
    watcher = Inside(Below(t, None))
    Folded(t.run, watcher).run(scheme.bind(t), scheme.tiling(t))
    assert watcher.tensors["dQ"][0] == watcher.tensors["Q"][0] == watcher.tensors["dQ"][1]


def test_the_words_inside_a_ring_by_hand():
    """Q is read P times; O, l, m are read P - 1 times and written P times; a query tile reads all keys of a shard."""
    P, n, d, H = 4, 8, 3, 2
    (t,) = SCHEMES["ring"].splits(Attention(P * n, d, heads=H), P)
    below, watcher = Below(t, 10**6), Inside(Below(t, 10**6))
    below._tiles = watcher.below._tiles = lambda schedule, p: Tiling(4, 2)
    Folded(t.run, watcher).run(SCHEMES["ring"].bind(t), SCHEMES["ring"].tiling(t))
    rows = P * n * H
    assert watcher.tensors == {
        "Q": (P * rows * d, 0),
        "K": (P * rows // 4 * n * d, 0),
        "V": (P * rows // 4 * n * d, 0),
        "O": ((P - 1) * rows * d, P * rows * d),
        "l": ((P - 1) * rows, P * rows),
        "m": ((P - 1) * rows, P * rows),
    }


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_each_word_of_a_visit_once_by_hand(mask):
    """Without an M: in each visit that sees something a GPU reads Q and the keys once, which two query heads share, and
    O, l, m once but in the first."""
    P, n, d, heads = 4, 8, 3, 2
    (t,) = SCHEMES["ring"].splits(Attention(P * n, d, heads=heads, kv_heads=1, mask=parse_mask(mask)), P)
    watcher = Inside(Below(t, None))
    Folded(t.run, watcher).run(SCHEMES["ring"].bind(t), SCHEMES["ring"].tiling(t))
    visits, rows = {"dense": P * P, "causal": P * (P + 1) // 2}[mask], n * heads
    assert watcher.tensors == {
        "Q": (visits * rows * d, 0),
        "K": (visits * n * d, 0),
        "V": (visits * n * d, 0),
        "O": ((visits - P) * rows * d, visits * rows * d),
        "l": ((visits - P) * rows, visits * rows),
        "m": ((visits - P) * rows, visits * rows),
    }


@pytest.mark.parametrize("mask", [*MASKS, "global:3"])
@pytest.mark.parametrize("passes", PASSES)
def test_no_tiles_move_less_than_each_word_once(mask, passes):
    p = Attention(24, 3, heads=4, kv_heads=2, mask=parse_mask(mask))
    for scheme in PASSES[passes].values():
        for t in splits_of(scheme, p, 4):
            once, more = Inside(Below(t, None)), Inside(Below(t, 400))
            Folded(t.run, once, more).run(scheme.bind(t), scheme.tiling(t))
            for name, (reads, writes) in once.tensors.items():
                assert reads <= more.tensors[name][0] and writes <= more.tensors[name][1], (scheme.name, name)


def test_the_merges_of_a_mesh_by_hand():
    """Each of b - 1 parts that a GPU receives is merged once into O and LSE of its rows."""
    (t,) = (t for t in SCHEMES["mesh"].splits(Attention(32, 3, heads=2), 8) if t.keys_apart == 4)
    watcher = Inside(Below(t, 10**6))
    Folded(t.run, watcher).run(SCHEMES["mesh"].bind(t), SCHEMES["mesh"].tiling(t))
    merges = 3 * 32 * 2
    assert watcher.tensors["LSE"] == (merges, merges) and watcher.tensors["Opart"] == (merges * 3, 0)


def test_nothing_fits():
    from iosim import InputError

    (t,) = SCHEMES["ring"].splits(Attention(8, 64), 2)
    with pytest.raises(InputError, match="flash2-first-hop"):
        Folded(t.run, Inside(Below(t, 100))).run(SCHEMES["ring"].bind(t), SCHEMES["ring"].tiling(t))
