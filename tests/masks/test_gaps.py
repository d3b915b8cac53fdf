"""Strides joined with `causal` and windows are counted by the gaps between diagonals: against every pair of tokens."""

import random
from math import lcm
from types import SimpleNamespace

import pytest

from iosim.errors import InputError
from iosim.masks.cells import Rows, kinds
from iosim.masks.gaps import by_diagonals, gap_counts, visible_by_gaps
from iosim.masks.mask import axis, parse
from iosim.masks.reach import ends_by_interval, ends_by_pair
from iosim.masks.visible import by_pair, visible

np = pytest.importorskip("numpy")
MANY = [300, pytest.param(5000, marks=pytest.mark.long)]


def bind(text, N, Nk, Br=1, Bc=1):
    return parse(text).bind(SimpleNamespace(N=N, Nk=Nk), SimpleNamespace(rows_q=Br, rows_k=Bc))


def expression(rng, depth=2):
    """A random expression of strides, `causal` and windows, with a stride."""

    def part(depth):
        if depth == 0 or rng.random() < 0.3:
            kinds = f"strided:{rng.choice((rng.randint(1, 9), rng.randint(2, 60)))}", f"window:{rng.randint(0, 40)}"
            return rng.choice(("", "", "~")) + rng.choice((kinds[0], kinds[0], kinds[0], kinds[1], "causal"))
        return rng.choice(("", "~")) + f"({part(depth - 1)}{rng.choice('&|')}{part(depth - 1)})"

    text = part(depth)
    return text if by_diagonals(parse(text).expr) else expression(rng, depth)


def sizes(rng, most):
    N, Nk = rng.randint(1, most), rng.choice((1, 2, rng.randint(1, most), rng.randint(1, most)))
    return N, Nk, rng.randint(1, min(N, 30)), rng.randint(1, min(Nk, 30))


@pytest.mark.parametrize("masks", MANY)
def test_tiles(masks):
    rng, some = random.Random(41), 0
    for _ in range(masks):
        text, (N, Nk, Br, Bc) = expression(rng), sizes(rng, 150)
        bound = bind(text, N, Nk, Br, Bc)
        table, axes = bound.table, (axis(N, bound.rows_q, "tokens"), axis(Nk, bound.rows_k, "tokens"))
        assert gap_counts(bound.mask.expr, *axes, Nk - N) == bound.table_counts(table), (text, N, Nk, Br, Bc)
        some += 0 < table.sum() < table.size
    assert some > masks / 10


@pytest.mark.parametrize("masks", MANY)
def test_pairs_rows_and_keys(masks):
    rng = random.Random(42)
    for _ in range(masks):
        text, (N, Nk, *_) = expression(rng), sizes(rng, 60)
        mask = parse(text)
        assert visible_by_gaps(mask.expr, N, Nk) == by_pair(mask, N, Nk, None), (text, N, Nk)


@pytest.mark.parametrize("masks", MANY)
def test_first_and_last_keys(masks):
    rng = random.Random(43)
    for _ in range(masks):
        text, (N, Nk, *_) = expression(rng), sizes(rng, 80)
        bound = bind(text, N, Nk)
        for found, seen in zip(ends_by_interval(bound), ends_by_pair(bound), strict=True):
            assert found.tolist() == seen.tolist(), (text, N, Nk)


@pytest.mark.parametrize("masks", MANY)
def test_cells_of_an_axis_that_was_cut_before(masks):
    rng = random.Random(44)
    for _ in range(masks):
        text, (N, Nk, Br, _) = expression(rng), sizes(rng, 120)
        bound, cut = bind(text, N, Nk, Br), (rng.randint(1, Nk), rng.randint(1, Nk))
        rows = axis(N, bound.rows_q, "tokens")
        found = kinds(Rows(rows, Nk, None, bound.mask.expr, bound.keys_seen), *cut)
        assert found == kinds(Rows(rows, Nk, None, None, bound.keys_seen), *cut), (text, N, Nk, Br, cut)


@pytest.mark.parametrize("N, B", [(10**6, 64), (2**20, 250), (2**31 + 5000, 2**12)])
def test_large_unions_are_counted_by_the_diagonals_of_tiles(N, B):
    """Of whole square tiles only k = j - i counts: tile (i, j) is active if its diagonals have a multiple of a stride."""
    T, strides = N // B, (10007, 10009)
    k = np.arange(1 - T, T)
    low, high = k * B - B + 1, k * B + B - 1
    for prefix, top in (("", high), ("causal&", np.minimum(high, 0))):
        seen = np.logical_or(*(top // S * S >= low for S in strides))
        bound = bind(f"{prefix}(strided:10007|strided:10009)", T * B, T * B, B, B)
        assert bound.active_tiles == int((T - abs(k))[seen].sum()) < T * T


def test_a_union_over_2_to_the_48_tokens_takes_no_pass_over_them():
    """Tiles wider than the lesser stride hide nothing; both strides at once are their least common multiple."""
    N, B = 2**48, 2**20
    assert bind("strided:1000003&strided:1000033&window:5", N, N, 64, 64).active_tiles == N // 64
    assert bind("strided:4099|strided:4111", N, N, B, B).active_tiles == (N // B) ** 2
    N = 2**40
    both = bind(f"strided:{lcm(4099, 4111)}", N, N, B, B)
    assert bind("~(~strided:4099|~strided:4111)", N, N, B, B)._counts == both._counts
    assert both.active_tiles < (N // B) ** 2
    S, B = 2**36 + 1, 2
    T, ahead = N // B, range(0, N, S)  # an odd diagonal meets two of tiles
    tiles = sum(T - d // B if d % B == 0 else 2 * T - d // B - (d + 1) // B for d in ahead)
    assert bind(f"strided:{S}&causal", N, N, B, B).active_tiles == tiles


@pytest.mark.parametrize("N, S", [(10**6, 1000), (2**40, 2**36 + 1)])
def test_pairs_of_a_causal_union(N, S):
    """Diagonal d has N - d pairs, and those of both strides count once."""
    pairs = sum(N - d for d in {*range(0, N, S), *range(0, N, S + 1)})
    found = visible(parse(f"causal&(strided:{S}|strided:{S + 1})"), N, N)
    assert found.any_rows == found.any_keys == found.keys == N
    assert found.pairs + found.any_rows - found.rows == pairs and found.rows == N - S
    others = visible(parse(f"causal&~(strided:{S}|strided:{S + 1})"), N, N)  # more than 2^63 pairs for the larger N
    assert others.pairs + others.any_rows - others.rows == N * (N + 1) // 2 - pairs


@pytest.mark.parametrize(
    "text, N, fault",
    [
        (
            "strided:1000|strided:1001|strided:1003",
            2**40,
            "repeat only after 1004003000 tokens, over 1099511627776 keys",
        ),
        ("strided:1024|strided:1025", 2**40, "N too large for 4286586876 stripes"),
        ("strided:16850989", 2**48, "N too large for 33407532 stripes"),
    ],
)
def test_what_would_take_minutes_is_refused(text, N, fault):
    with pytest.raises(
        InputError, match=f"{fault}'; allowed: at most .*try a smaller N, larger tiles or another stride"
    ):
        assert bind(text, N, N, 2**9, 2**9).active_tiles


def test_rows_that_are_looked_at_one_by_one_are_few():
    with pytest.raises(InputError, match="N = 1073741824 queries that see different stripes"):
        visible(parse("causal&strided:1000|sink:4"), 2**30, 2**30)
