"""Floors across devices: met by schedules where the page says so, exact arithmetic, and no schedule below any."""

import random
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import ceil

import floors_by_page as by_page
import pytest
from link_words import mesh, pass_q, ring, ulysses, ulysses_of_meshes, widths

import iosim
from iosim import Attention
from iosim.distributed.floors import LAYOUTS, floor_across
from iosim.distributed.theorems import (
    balanced_floor,
    blocks_and_balance_floor,
    blocks_floor,
    causal_striped_floor,
    causal_zigzag_floor,
    cheapest_meeting,
    decoding_floor,
    memory_floor,
)
from iosim.errors import InputError
from iosim.masks import parse_mask

FIXED = ("blocks", "zigzag", "striped")
CAUSAL = parse_mask("causal")


def some_problem(r, P, causal=False, **more):
    """A random problem whose tokens 2P divides."""
    group, kv_heads, N = r.randint(1, 2 * P), r.randint(1, 9), 2 * P * r.choice([1, 4, r.randint(1, 300)])
    Nk = N if causal else 2 * P * r.choice([1, 4, r.randint(1, 300)])
    sizes = {"d": r.randint(1, 80), "dv": r.randint(1, 80), "batch": r.randint(1, 3)} | more
    heads = {"heads": group * kv_heads, "kv_heads": kv_heads}
    return Attention(N, Nk=Nk, **sizes, **heads, **({"mask": CAUSAL} if causal else {}))


# ---------------------------------------------------------------- met


@pytest.mark.parametrize("what", [{}, {"backward": True}, {"step": True}], ids=str)
@pytest.mark.parametrize("P", [2, 3, 8, 64])
def test_ring_pass_q_and_ulysses_meet_p3(P, what):
    """Whichever of the three is best moves exactly the floor, and which one that is follows from the group."""
    for heads, kv_heads in ((8, 8), (8, 1), (64, 1)):
        p = Attention(1024 * P, 128, heads=heads, kv_heads=kv_heads)
        found, words = floor_across(p, P, **what), [f(p, P, **what) for f in (ring, pass_q, ulysses)]
        assert found.received_words == min(words) and found.theorem == ("P3s" if what.get("step") else "P3")
        assert found.mean_received_words * P == found.received_words
        if not what:
            assert (ring(p, P) == min(words)) == (heads // kv_heads >= P - 1)
    few = Attention(8 * P, 16, Nk=1024 * P)  # few rows: passing rows is best
    assert floor_across(few, P, **what).received_words == pass_q(few, P, **what)


@pytest.mark.parametrize("what, a, b", [({}, 8, 8), ({}, 4, 4), ({"backward": True}, 6, 8)], ids=str)
def test_a_mesh_meets_p1(what, a, b):
    """alpha N / a = beta Nk / b: equal to the word, forward and backward."""
    p = Attention(65536 * 3, 128)
    found = floor_across(p, a * b, layout="free", balanced=True, **what)
    assert (found.received_words, found.theorem) == (mesh(p, a, b, **what), "P1")


def test_numbers_of_the_page():
    one, many = Attention(65536, 128), Attention(65536, 128, heads=32)
    free = floor_across(one, 64, layout="free", balanced=True)
    assert free.mean_received_words == 3670016 == Fraction(mesh(one, 8, 8), 64)
    assert ring(one, 64) // 64 == 16515072 and ring(one, 64) / mesh(one, 8, 8) == (8 + 1) / 2
    both = floor_across(many, 128, balanced=True)
    assert both.theorem == "P4" and ceil(both.mean_received_words) == 16451464
    met = ulysses_of_meshes(many, 128, 2, 2)
    assert met == 128 * 16515072 and round(met / both.received_words, 3) == 1.004


@pytest.mark.parametrize("group", [1, 4, 40])
def test_gathered_queries_meet_the_floor_of_decoding(group):
    """All-gather of the queries and reduce-scatter of the results: (P - 1) (d + dv) words a query head."""
    p = Attention(1, 128, Nk=8192, batch=3, heads=2 * group, kv_heads=2)
    found = floor_across(p, 8, layout="decode")
    assert (found.received_words, found.theorem) == (7 * 256 * p.batch * p.heads, "decoding")


PASSES = [{}, {"backward": True}, {"step": True}, {"latent": True}]


def of_pass(P, what, group, **more):
    """A problem in blocks that are large enough, with d = dv, and the keywords of its pass."""
    what = dict(what)
    sizes = {"latent": True} if what.pop("latent", False) else {}
    return Attention(1024 * P, 128, heads=group, kv_heads=1, **sizes, **more), what


def causal_ring(p, P, layout, what):
    """The words of a causal ring that sends only needed keys."""
    return {"blocks": Fraction(1, 2), "zigzag": Fraction(3, 4)}[layout] * ring(p, P, **what)


@pytest.mark.parametrize("what", PASSES, ids=str)
@pytest.mark.parametrize("P", [2, 3, 4, 8])
def test_when_rings_are_optimal(P, what):
    """If and only if alpha g >= (P - 1) beta, twice that in zigzag: a ring, and causal rings that send needed keys."""
    for group in (*range(1, 9), 2 * P, 3 * P):
        p, keywords = of_pass(P, what, group)
        alpha, beta = widths(p, **keywords)
        dense, large = floor_across(p, P, **keywords).received_words, alpha * group >= (P - 1) * beta
        assert (ring(p, P, **keywords) == dense) == large
        assert (pass_q(p, P, **keywords) == dense) == ((P - 1) * alpha * group <= beta)
        if not large and (P - 1) * alpha * group > beta:
            assert ulysses(p, P, **keywords) == dense
        p, _ = of_pass(P, what, group, mask=CAUSAL)
        for layout, least in (("blocks", P - 1), ("zigzag", 2 * (P - 1))):
            found = floor_across(p, P, layout=layout, **keywords).received_words
            assert (found == causal_ring(p, P, layout, keywords)) == (alpha * group >= least * beta), (layout, group)


@pytest.mark.parametrize("what", PASSES, ids=str)
@pytest.mark.parametrize("P", [3, 4, 8])
def test_causal_floors_of_single_heads(P, what):
    """(P - 2)(x + y) and (2P - 3)(x + y) where alpha = beta. Elsewhere less, but for 3 blocks."""
    p, keywords = of_pass(P, what, 1, mask=CAUSAL)
    alpha, beta = widths(p, **keywords)
    for layout, times, tokens in (("blocks", P - 2, 1024), ("zigzag", 2 * P - 3, 512)):
        found, said = floor_across(p, P, layout=layout, **keywords).received_words, times * (alpha + beta) * tokens
        assert (found == said) == (alpha == beta or (P, layout) == (3, "blocks")) and found <= said


# ---------------------------------------------------------------- never above a schedule


def test_no_schedule_is_below_a_floor():
    """At 10,000 random points the schedules of a layout are at or above its floor, whichever theorem gives it."""
    r, theorems = random.Random(7), set()
    for _ in range(10_000):
        P = r.choice([2, 3, 4, 6, 8, 9, 16])
        what = r.choice([{}, {"backward": True}, {"step": True}])
        p = some_problem(r, P, causal=r.random() < 0.3, **({"dv": r.randint(1, 20)} if r.random() < 0.5 else {}))
        balanced, layout = r.random() < 0.5, r.choice(FIXED)
        if p.mask is CAUSAL and layout != "zigzag":
            balanced = False  # the work of these rings is not
        found = floor_across(p, P, layout=layout, balanced=balanced, **what)
        words = {"ring": ring(p, P, **what), "pass Q": pass_q(p, P, **what)}
        if not balanced or p.batch * p.kv_heads % P == 0:
            words["Ulysses"] = ulysses(p, P, **what)
        assert found.received_words <= min(words.values()), (p, P, what, found)
        theorems.add(found.theorem)
    assert theorems >= {"P3", "P3s", "P4", "causal blocks", "causal zigzag", "causal striped"}


def test_balance_under_a_causal_mask():
    """Zigzag, 64 GPUs, a million tokens: P4 by hand, and above the floors of balance or of blocks alone."""
    p, n = Attention(2**20, 128, heads=32, kv_heads=8, mask=CAUSAL), 2**14
    found = floor_across(p, 64, layout="zigzag", balanced=True)
    missing = 32 * (Fraction(2**20 * (2**20 + 1), 128) - Fraction(n * (n + 1), 2)) - 8 * 4
    X = Fraction(found.received_words, 64 * 256)
    assert found.theorem == "P4" and 4 * n * X + X**2 / 4 >= missing
    less = Fraction(found.received_words - 1, 64 * 256)
    assert 4 * n * less + less**2 / 4 < missing
    for other in ({"layout": "zigzag"}, {"layout": "free", "balanced": True}):
        assert floor_across(p, 64, **other).received_words < found.received_words


def test_no_mesh_is_below_p1_or_p2():
    r, met = random.Random(8), 0
    for _ in range(3000):
        a, b = r.randint(1, 8), r.randint(1, 8)
        d = r.randint(1, 40)
        m = r.randint(1, 999)
        even = Attention(a * m, d, Nk=b * m)  # forward: alpha N / a = beta Nk / b
        p = r.choice([even, some_problem(r, a * b, d=d, dv=r.randint(1, d))])
        what = r.choice([{}, {"backward": True}])
        alpha, beta = widths(p, **what)
        tokens_room = alpha * p.N * p.heads // p.kv_heads // a + beta * p.Nk // b
        memory = r.choice([None, p.batch * p.kv_heads * tokens_room])
        found = floor_across(p, a * b, layout="free", balanced=True, memory_words=memory, **what)
        assert found.received_words <= mesh(p, a, b, **what)
        met += 0 < found.received_words == mesh(p, a, b, **what)
    assert met > 10


def test_a_ring_with_little_memory_is_near_p2():
    """Blocks of Q and O, and of K and V, are all that a device holds: within 2 (P - 1) / P of the floor."""
    for P in (32, 64, 1024):
        p = Attention(1024 * P, 128)
        found = floor_across(p, P, layout="free", balanced=True, memory_words=2 * 256 * 1024)
        assert found.theorem == "P2"
        assert found.received_words <= ring(p, P) <= Fraction(2 * (P - 1), P) * found.received_words
        assert found.received_words == 256 * p.N * P // 2, "each of P devices is known to do its share"
        alone = floor_across(p, P, layout="free", memory_words=2 * 256 * 1024).received_words
        assert alone == 256 * p.N * (P - 4) // 2 + 512 * 1024, "without balance all together do it"


# ---------------------------------------------------------------- arithmetic


def test_p1_is_the_least_whole_number():
    """R + held is the least whole number whose square is at least 4 Pi pairs^2 / most."""
    r = random.Random(9)
    for _ in range(3000):
        pi, pairs, P, held = r.randint(1, 10**5), r.randint(1, 10**9), r.randint(1, 99), r.randint(0, 10**6)
        most = Fraction(pairs, P) * (1 + Fraction(r.randint(0, 9), 10))
        left = balanced_floor(pairs, most, pi, held) + held
        square = pairs**2 * min(Fraction(4 * pi) / most, Fraction(1))
        assert left == held or (left**2 >= square > (left - 1) ** 2)
        assert left > held or held**2 >= square


def test_p2_is_the_best_of_its_segments():
    """It is the largest of the account, by the page, and of what fractions give at any length T of a segment."""
    r = random.Random(10)
    for _ in range(60):
        pi, pairs, H, held = r.randint(1, 60), r.randint(1, 500), r.randint(1, 60), r.randint(0, 20)
        busy, devices = r.randint(0, 3), r.randint(1, 4)
        share = Fraction(r.randint(0, pairs), devices)

        def account(work, pi=pi, H=H, pairs=pairs):
            if not work:
                return 0
            return max(
                by_page.least(Fraction(work), by_page.F(4 * pi), K) - (K - 1) * H for K in range(1, pairs // H + 9)
            )

        def at(T, pi=pi, pairs=pairs, H=H, busy=busy):
            """ceil(T pairs / max(X^2 / 4 pi, X) + busy H^2 / X), where X = H + T."""
            X = H + T
            most = max(X * X, 4 * pi * X)
            return -(-(4 * pi * T * pairs * X + busy * H * H * most) // (most * X))

        every, found = max(map(at, range(1, 1000))), memory_floor(pairs, H, pi, held, busy, devices, share)
        accounts = max(account(pairs), devices * account(share))
        assert max(0, accounts - held) <= found <= max(0, accounts - held, every - held)
        if not busy:
            assert found == max(0, accounts - held) and (devices > 1 or accounts >= every)


def test_p4_is_the_least_whole_number():
    r = random.Random(11)
    for _ in range(2000):
        P, K, rows, keys, width = (r.randint(1, n) for n in (64, 64, 900, 900, 300))
        most = max(rows, keys)
        found = blocks_and_balance_floor(P, K * (P - 1) * rows * keys, most, width)
        if most < width:
            assert found == 0
            continue
        X = Fraction(found, P * width)  # what a device receives and sends, in rows
        gained = most * X + X * X / 4
        assert gained >= K * (P - 1) * rows * keys
        less = max(Fraction(found - 1, P * width), Fraction(0))
        assert found == 0 or most * less + less * less / 4 < K * (P - 1) * rows * keys


# ---------------------------------------------------------------- conditions


def test_a_theorem_is_not_used_beyond_its_condition():
    """Blocks smaller than a row or key is wide: P3 says nothing, because scores may be sent instead."""
    assert blocks_floor(4, 255, 255, 256, 256) == 0 < blocks_floor(4, 255, 256, 256, 256)
    assert decoding_floor(4, 255, 255, 256, 256) == 0 < decoding_floor(4, 1, 256, 256, 256)
    assert causal_striped_floor(4, 1, 255, 256, 256) == 0 < causal_striped_floor(4, 1, 256, 256, 256)
    small = Attention(8 * 255, 128)
    assert floor_across(small, 8).theorem == "none"
    assert floor_across(small, 8, layout="free").theorem == "none"
    assert floor_across(Attention(8 * 256, 128), 8).theorem == "P3"
    assert floor_across(Attention(8 * 256, 128), 1, balanced=True, memory_words=1000).condition.startswith("one device")


def test_what_was_not_asked_is_not_used():
    one = Attention(65536, 128)
    assert floor_across(one, 64, layout="free").received_words == 0, "one device may do all"
    assert floor_across(one, 64).theorem == "P3"
    many = Attention(65536, 128, heads=32)
    assert floor_across(many, 128, balanced=True).theorem == "P4"
    assert floor_across(many, 128, balanced=True, layout="free").theorem == "P1"
    window = Attention(65536, 128, mask=parse_mask("window:64"))
    assert floor_across(window, 64, balanced=True).theorem in ("none", "P1"), "P3 is for dense and causal masks"
    latent = Attention(65536, 576, dv=512, latent=True, heads=16, kv_heads=1)
    assert floor_across(latent, 8).received_words == 7 * 576 * 65536
    assert floor_across(latent, 8, backward=True).theorem == "none"
    wide = Attention(65536, 16, dv=64)
    assert floor_across(wide, 64, backward=True, layout="free", balanced=True).theorem == "none", "dv > 2d"


def test_more_is_never_less():
    """Asking for balance, or for a step instead of a pass, cannot lower a floor; nor can more memory raise it."""
    r = random.Random(12)
    for _ in range(500):
        P = r.choice([2, 4, 8])
        p, layout = some_problem(r, P), r.choice([*FIXED, "free"])
        plain = floor_across(p, P, layout=layout).received_words
        assert plain <= floor_across(p, P, layout=layout, balanced=True).received_words
        step = floor_across(p, P, layout=layout, step=True).received_words
        assert step >= max(plain, floor_across(p, P, layout=layout, backward=True).received_words)
        H = r.randint(1, 10**6)
        little, much = (floor_across(p, P, layout=layout, memory_words=m).received_words for m in (H, 2 * H))
        assert plain <= much <= little


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_that_do_not_divide(layout):
    p = Attention(100, 8)
    if layout == "free":
        assert floor_across(p, 7, layout=layout).received_words == 0
    else:
        with pytest.raises(InputError, match="ranks: found 7; allowed: "):
            floor_across(p, 7, layout=layout)


def test_bad_input():
    p = Attention(64, 8)
    for bad in ({"ranks": 0}, {"ranks": 2, "layout": "rows"}, {"ranks": 2, "memory_words": 0}):
        with pytest.raises(InputError):
            floor_across(p, **bad)


# ---------------------------------------------------------------- the set lemma


def least_meeting(homes, prices, y, visible):
    """The least cost of sets of devices that meet for each visible (row class r, key class s), by trying all sets of
    rows. Both classes lie on homes[r]. A device beside its home costs prices[r] for a row, and y for a key.

    Each set of rows has an axis of its own. With the sets of rows given, each set of keys is chosen alone.
    """
    import numpy as np

    sets = range(1 << max(homes) + 1)
    beside = np.array([m.bit_count() - 1 for m in sets])
    choices = [[m for m in sets if m >> home & 1] for home in homes]
    rows = np.ix_(*choices)
    cost = sum(x * beside[A] for x, A in zip(prices, rows, strict=True))
    for s in range(len(homes)):
        seeing = [A for r, A in enumerate(rows) if visible(r, s)]
        found = [
            np.where(reduce(np.logical_and, [A & B != 0 for A in seeing], np.True_), y * beside[B], 10**9)
            for B in choices[s]
        ]
        cost = cost + reduce(np.minimum, found)
    return int(cost.min())


PRICES = [(1, 1), (1, 2), (2, 1), (1, 3), (5, 2), (7, 1), (1, 9)]


@pytest.mark.parametrize("P", [2, 3, 4])
def test_the_set_lemma_of_decoding(P):
    """Rows on one device, or on several, each with some of them: never below the floor, and equal to it for one."""
    r = random.Random(P)
    for _ in range(40):
        x, y, rows = r.randint(1, 9), r.randint(9, 60), r.randint(P, 9)
        cuts = sorted(r.randint(0, rows) for _ in range(P - 1))
        each = [b - a for a, b in pairwise([0, *cuts, rows])]
        several, one = least_decoding(P, x, y, each), least_decoding(P, x, y, [rows] + [0] * (P - 1))
        assert several >= one == decoding_floor(P, rows, y, x, 1)


def least_decoding(P, x, y, rows):
    """The least cost of sets that meet: a row of device r costs x for each of its `rows[r]`, a block of keys y."""
    return least_meeting(range(P), [x * n for n in rows], y, lambda r, s: rows[r] > 0)


@pytest.mark.parametrize("P", [2, 3, 4])
def test_the_set_lemma(P):
    for x, y in PRICES:
        assert least_meeting(range(P), [x] * P, y, lambda r, s: True) == cheapest_meeting(P, x, y)


@pytest.mark.parametrize("P", [2, 3, 4, 5])
def test_the_causal_set_lemma(P):
    from iosim.distributed.theorems import causal_blocks_floor

    for x, y in PRICES:
        found = causal_blocks_floor(P, 1, 10**3, x, y)  # a row of x words, a key of y, 1,000 tokens a block
        assert least_meeting(range(P), [x] * P, y, lambda r, s: r > s) * 10**3 == found


@pytest.mark.parametrize("P", [2, 3])
def test_the_zigzag_set_lemma(P):
    """Late and early chunks, by trying all sets: late rows see all early keys, the rest as in the page's proof."""
    homes = [min(c, 2 * P - 1 - c) for c in range(2 * P)]
    for x, y in PRICES:
        best = least_meeting(homes, [x] * 2 * P, y, lambda r, s: r > s)
        assert causal_zigzag_floor(P, 1, 1000, x, y) == 1000 * best


def test_the_causal_formula_is_the_least_over_its_cases():
    """The closed form against the minimum over all r, s >= 1 with r + s <= P - 1 that the page gives."""
    from iosim.distributed.theorems import causal_blocks_floor

    r = random.Random(13)
    for _ in range(1000):
        P, x, y = r.randint(2, 24), r.randint(1, 60), r.randint(1, 60)
        cases = [P * (P - 1) * x // 2, P * (P - 1) * y // 2]
        cases += [x * (P - 1 - a + b * (b - 1) // 2) + y * (P - 1 - b + a * (a - 1) // 2)
                  for a in range(1, P) for b in range(1, P - a)]  # fmt: skip
        assert causal_blocks_floor(P, 1, 100, x, y) == 100 * min(cases)


def test_the_zigzag_formula_is_the_least_over_its_cases():
    """The bisection against the minimum over all numbers of devices whose late rows, or early keys, stay at home."""
    r = random.Random(14)
    for _ in range(1000):
        P, x, y = r.randint(2, 24), r.randint(1, 60), r.randint(1, 60)
        cases = [
            sum(min(x, y * k) + min(y, x * k) for k in range(1, P - m))
            + key * m * (P - 1) + row * (P - m) + key * m * (m - 1) // 2
            for m in range(1, P + 1) for row, key in ((x, y), (y, x))
        ]  # fmt: skip
        assert causal_zigzag_floor(P, 1, 100, x, y) == 100 * min(cases)


@pytest.mark.parametrize("nodes, options, name, words, theorem", [
    ("6x2", {"heads": 2, "kv_heads": 1}, "mesh", 378, "P1"),
    ("4x2", {"heads": 4, "mask": "causal"}, "usp-zigzag", 384, "causal blocks"),
])  # fmt: skip
def test_floors_of_nodes(nodes, options, name, words, theorem):
    """Nodes are balanced if GPUs are. A group of two nodes in zigzag order has a block of tokens on each."""
    found = next(one for one in iosim.links(48, 1, nodes=nodes, **options).results if one.schedule == name)
    assert (found.node_floor_words, found.node_theorem) == (words, theorem)
