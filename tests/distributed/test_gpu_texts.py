"""The texts of attention across GPUs: numerics, words and room by hand, and folded == unrolled == numeric."""

import random
from dataclasses import replace
from functools import partial

import links_by_hand
import numpy as np
import pytest
from gpu_texts import attention_of_heads, moved, numeric, one_and_others, runs, splits, visible_to

from iosim import Attention, Capacity, Folded, Numeric, Tiling, Traffic
from iosim.core.machine import Machine
from iosim.distributed import texts
from iosim.distributed.across import Across
from iosim.distributed.messages import Messages
from iosim.distributed.needed import work_of
from iosim.distributed.schedules import SCHEMES
from iosim.errors import ScheduleError
from iosim.steps.softmax import zeros

MASKS = ["dense", "causal", "window:3", "documents:10,14", "global:3"]
SIZES = [
    {"N": 24, "d": 3, "dv": 2, "heads": 4, "kv_heads": 2},
    {"N": 24, "d": 2, "heads": 6, "kv_heads": 1},
    {"N": 12, "Nk": 24, "d": 2, "dv": 3, "heads": 8},
    {"N": 4, "Nk": 24, "d": 3, "dv": 2, "heads": 12, "kv_heads": 4, "latent": True},
]
RANKS = (1, 2, 3, 4, 6, 8, 12)


def cases(name, mask):
    for sizes in SIZES:
        if not (mask.startswith("documents") and "Nk" in sizes):
            for P in RANKS:
                yield from splits(name, P, mask, **sizes)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCHEMES)
def test_three_ways(name, mask):
    """One of the cases; the next test takes the others."""
    one, _ = one_and_others(cases(name, mask), name + mask)
    compare_three_ways(SCHEMES[name], one)


@pytest.mark.long
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCHEMES)
def test_three_ways_in_the_other_cases(name, mask):
    _, others = one_and_others(cases(name, mask), name + mask)
    assert len(others) >= 2
    for t in others:
        compare_three_ways(SCHEMES[name], t)


def compare_three_ways(scheme, t):
    (folded, room), (unrolled, _) = runs(scheme, t)
    messages = Messages(t.ranks)
    hbm, traffic, o = numeric(scheme, t, messages)
    assert moved(folded) == moved(unrolled) == moved(traffic) == links_by_hand.words(scheme, t)
    assert room.peak_words == links_by_hand.room(scheme, t)
    np.testing.assert_allclose(o, attention_of_heads(hbm, t, scheme), atol=1e-12)
    assert links_by_hand.sent(scheme, t) == messages.pairs(), "who sends, by the memories in which words lie"


def test_words_of_papers():
    """The words received over P GPUs, for one sequence of S tokens: H query heads, G KV heads, w = d + dv."""
    S, d, dv, H, G, P = 240, 3, 2, 12, 4, 4
    sizes, w = {"N": S, "d": d, "dv": dv, "heads": H, "kv_heads": G}, d + dv
    total = {
        name: [sum(links_by_hand.words(SCHEMES[name], t).values()) for t in splits(name, P, **sizes)]
        for name in SCHEMES
    }
    assert total["ring"] == total["zigzag"] == total["striped"] == total["all-gather"] == [(P - 1) * S * G * w]
    assert total["ring-coded"] == [P * S * G * w]
    assert total["pass-q"] == [(P - 1) * S * H * (w + 1)]
    assert total["ulysses"] == [S * (P - 1) * (H + G) * w // P]
    assert total["usp"] == [S * (H + G) * w // 2 + S * G * w * 2 // 2]  # u = r = 2: (u - 1) / u, and r - 1
    assert total["mesh"] == [S * (H * w + H) + S * G * w]  # a = b = 2: (b - 1) H (d + dv) and LSE, (a - 1) G (d + dv)
    (copied,) = splits("ulysses", 12, **sizes)
    assert (
        copied.kv_heads == 1 and links_by_hand.words(SCHEMES["ulysses"], copied)["K"] == S * 11 * d
    )  # each GPU needs one KV head


@pytest.mark.parametrize("P", [2, 3, 4, 6, 8])
def test_a_tree_sends_each_part_once(P):
    (t,) = splits("tree", P, N=1, Nk=48, d=4, heads=3)
    assert sum(links_by_hand.words(SCHEMES["tree"], t).values()) == (P - 1) * 3 * (4 + 4 + 1)


@pytest.mark.parametrize("mask", ["dense", "causal", "window:3", "documents:10,14"])
@pytest.mark.parametrize("name", SCHEMES)
def test_the_work_of_each_gpu(name, mask):
    """All pairs are done once; those of a mesh and of a ring are counted here token by token."""
    scheme = SCHEMES[name]
    for t in random.Random(name).sample(list(cases(name, mask)), 3):
        p, seen = t.problem, visible_to(t, scheme)
        total = p.N * p.Nk if seen is None else int(seen.sum())
        work = work_of(scheme, t)
        assert len(work) == t.ranks and sum(work) == total * p.heads
        if name == "mesh" and seen is not None:
            b, n, nk = t.keys_apart, t.n, t.nk
            keys = [np.concatenate([np.arange(c * nk, (c + 1) * nk) for c in range(j, t.ranks, b)]) for j in range(b)]
            rows = [slice(r // b * b * n, (r // b + 1) * b * n) for r in range(t.ranks)]
            assert work == [int(seen[rows[r]][:, keys[r % b]].sum()) * p.heads for r in range(t.ranks)]


# ---------------------------------------------------------------- mistakes, each caught by a named check


def ring_mutant(kind):
    """A ring with a planted mistake."""

    def text(chip, p, t):
        for r in t.gpus(chip):
            heads, kv = t.my_heads(r), t.my_kv_heads(r)
            q = chip.load("Q", t.group(r), heads, own=True)
            m, l, o = texts.fresh(chip, p, "O", q.shape[0])
            k, v = texts.keys_of(chip, p, t.group(r, keys=True), kv, own=kind != "own keys received")
            chip.update((m, l, o), texts.attend_own, q, k, v, texts.Own(t, r))
            for j in t.others_of_ring(chip, r):
                there, part = t.member(j, keys=True), texts.Part(texts.Kind(t, r, j))
                k, v = texts.keys_of(chip, p, there, kv, own=kind == "keys of others taken for own")
                if kind == "V sent twice":
                    chip.free(chip.load("V", there, kv))
                if kind != "one hop forgotten":
                    chip.update((m, l, o), texts.attend_shard, q, k, v, part)
                if kind != "keys kept too long":
                    chip.free(k, v)
                else:
                    chip.compute("K", k.shape, zeros)
            chip.update((o, l), texts.finish, m)
            chip.store(o, "O", *o.shape[:1], own=kind != "output sent")

    return text


def caught(check):
    try:
        check()
    except (AssertionError, ScheduleError):
        return True
    return False


def checks(kind):
    scheme = replace(SCHEMES["ring"], text=ring_mutant(kind))
    (t,) = splits("ring", 4, N=16, d=2, heads=2)

    def words():
        assert sum(moved(runs(scheme, t, Folded)[0][0]).values()) == sum(links_by_hand.words(scheme, t).values())
        assert runs(scheme, t, Folded)[0][0].total == sum(links_by_hand.words(scheme, t).values())

    def room():
        assert runs(scheme, t, Folded)[0][1].peak_words == links_by_hand.room(scheme, t)

    def numbers():
        hbm, _, o = numeric(scheme, t)
        np.testing.assert_allclose(o, attention_of_heads(hbm, t, scheme))

    return {"words": words, "room": room, "numbers": numbers}


@pytest.mark.parametrize(
    "kind, by",
    [
        ("own keys received", {"words"}),
        ("keys of others taken for own", {"words", "numbers"}),
        ("V sent twice", {"words"}),
        ("one hop forgotten", {"numbers"}),
        ("keys kept too long", {"room"}),
        ("output sent", {"words"}),
        ("", set()),
    ],
)
def test_a_mistake_is_caught(kind, by):
    assert {name for name, check in checks(kind).items() if caught(check)} >= by
    if not by:
        assert not any(map(caught, checks(kind).values()))


# ---------------------------------------------------------------- what the core says of its own words


def run_numeric(text):
    rng = np.random.default_rng(0)
    return Numeric(Attention(4, 1), {name: rng.normal(size=(4, 1)) for name in "QKV"}).run(text, Tiling(2, 2))


def test_own_words_take_room_and_do_not_move():
    def text(chip, p, t):
        for r in chip.tiles(p.N, t.rows_q, parallel=True):
            chip.load("Q", r, own=True)
            chip.load("K", own=(r,))

    for machine in (Machine, Folded):
        traffic, room = Traffic(), Capacity()
        machine(Attention(4, 3), traffic, room).run(text, Tiling(2, 2))
        assert traffic.tensors == {"Q": (0, 0), "K": (2 * (4 - 2) * 3, 0)}
        assert room.peak_words == (2 + 4) * 3


def test_the_numeric_machine_knows_where_words_lie():
    def receives_own(chip, p, t):
        for r in chip.tiles(p.N, t.rows_q, parallel=True):
            chip.load("K", r, own=True)
            chip.load("K", r)

    def takes_anothers(chip, p, t):
        for _ in chip.tiles(p.N, t.rows_q, parallel=True):
            chip.load("K", own=True)

    def says_so(chip, p, t):
        for r in chip.tiles(p.N, t.rows_q, parallel=True):
            chip.load("K", r, own=True)
            chip.load("K", r, own=())

    with pytest.raises(ScheduleError, match="lie in its own memory"):
        run_numeric(receives_own)
    with pytest.raises(ScheduleError, match="taken for its own"):
        run_numeric(takes_anothers)
    run_numeric(says_so)


def test_visits_say_how_often_and_with_which_sizes():
    found = {}

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            for j in chip.tiles(p.Nk, t.rows_k):
                found.setdefault(type(chip), []).extend((n, sizes[i], sizes[j]) for n, sizes in chip.occurrences(i, j))

    for machine in (Folded, Machine):
        machine(Attention(7, 1, Nk=5)).run(text, Tiling(3, 2))
    one = {}
    for times, rows, keys in found[Machine]:
        one[rows, keys] = one.get((rows, keys), 0) + times
    assert {(rows, keys): times for times, rows, keys in found[Folded] if times} == one
    assert one == {(3, 2): 4, (3, 1): 2, (1, 2): 2, (1, 1): 1}


def test_the_same_text_is_ring_ulysses_and_usp():
    assert SCHEMES["ring"].text is SCHEMES["ulysses"].text is SCHEMES["usp"].text is texts.pass_kv
    assert isinstance(SCHEMES["ring-needed"].text, partial) and SCHEMES["all-gather"].text is SCHEMES["mesh"].text
    assert Across(Attention(8, 1, heads=4), 4, apart=2).ring == 2
