"""The visits of a ring, in closed form, against a look at every pair of tokens."""

from collections import Counter

import numpy as np
import pytest

from iosim import Attention, InputError, Tiling
from iosim.core.problem import DENSE
from iosim.distributed.hops import LAYOUT, hops_of, strip_visit
from iosim.masks import parse_mask

MASKS = ["dense", "causal", "window:3", "causal&window:5", "causal&window:0", "documents:10,14", "global:3",
         "causal&sink:2|window:1", "~causal", "causal&documents:10,14"]  # fmt: skip
CASES = [(N, Nk, ring) for N, Nk in ((24, 24), (16, 48)) for ring in (1, 2, 3, 4) if not N % (2 * ring)]


def ring_of(mask, N, Nk, ring, layout):
    if "documents" in mask and Nk != N:
        pytest.skip("documents have as many queries as keys")
    return hops_of(Attention(N, 4, Nk=Nk, mask=parse_mask(mask)), ring, layout)


@pytest.mark.parametrize("N, Nk, ring", CASES)
@pytest.mark.parametrize("layout", LAYOUT)
@pytest.mark.parametrize("mask", MASKS)
def test_a_visit_is_what_every_pair_of_tokens_says(mask, layout, N, Nk, ring):
    hops, R = ring_of(mask, N, Nk, ring, layout), range(ring)
    for r in R:
        for s in R:
            seen, visit = hops.visible(r, s), hops.visit(r, s)
            assert visit[:3] == (seen.any(axis=1).sum(), seen.any(axis=0).sum(), seen.sum())
            if hops.strip is not None and visit.rows and not hops.in_chunks:
                inside = Attention(visit.rows, 4, Nk=visit.keys, mask=visit.mask)
                trimmed = seen[seen.any(axis=1)][:, seen.any(axis=0)]
                table = visit.mask is DENSE or visit.mask.bind(inside, Tiling(1, 1)).table
                assert (trimmed == table).all()


@pytest.mark.parametrize("N, Nk, ring", CASES)
@pytest.mark.parametrize("layout", LAYOUT)
@pytest.mark.parametrize("mask", MASKS)
def test_classes_and_sums_are_those_of_all_visits(mask, layout, N, Nk, ring):
    hops, R = ring_of(mask, N, Nk, ring, layout), range(ring)
    others = Counter(hops.visit(r, s) for r in R for s in R if r != s)
    assert {visit: times for times, visit in hops.others} == others
    assert {visit: times for times, visit in hops.own} == Counter(hops.visit(r, r) for r in R)
    assert hops.pairs_of_mesh(1) == [sum(hops.visit(r, s).pairs for s in R) for r in R]
    assert hops.pairs_of_mesh(ring) == [sum(hops.visit(r, s).pairs for r in R) for s in R]
    assert hops.needed == [sum(hops.visit(r, s).keys for s in R if s != r) for r in R]
    assert hops.shown == [sum(hops.visit(r, s).keys for r in R if s != r) for s in R]


def test_the_order_has_every_token_once():
    for layout in LAYOUT:
        order = hops_of(Attention(24, 4), 4, layout).order(24)
        assert sorted(order) == list(range(24)), layout
    assert list(hops_of(Attention(8, 4), 2, "zigzag").order(8)) == [0, 1, 6, 7, 2, 3, 4, 5]
    assert list(hops_of(Attention(8, 4), 2, "striped").order(8)) == [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.mark.parametrize("seed", range(40))
def test_a_strip_counts_its_pairs(seed):
    rng = np.random.default_rng(seed)
    rows, keys = rng.integers(1, 9, 2)
    low, high = sorted(rng.integers(-12, 13, 2))
    y_x = np.arange(keys)[None, :] - np.arange(rows)[:, None]
    seen = (y_x >= low) & (y_x <= high)
    assert strip_visit(rows, keys, low, high)[:3] == (seen.any(axis=1).sum(), seen.any(axis=0).sum(), seen.sum())


def test_published_shares_of_a_causal_mask():
    """A causal ring needs 1/2, 3/4 or nearly all of the keys (docs/distributed-proofs.md), and is at most P / (2 P - 1) busy."""
    p, P, n = Attention(4096, 4, mask=parse_mask("causal")), 8, 512
    needed = {layout: sum(hops_of(p, P, layout).needed) for layout in LAYOUT}
    sent = (P - 1) * 4096
    assert needed == {"blocks": sent // 2, "zigzag": sent * 3 // 4, "striped": (P - 1) * (4096 - P // 2)}
    pairs = hops_of(p, P, "blocks").pairs_of_mesh(1)
    assert max(pairs) == pairs[-1] == 7 * n * n + n * (n + 1) // 2
    assert len(set(hops_of(p, P, "zigzag").pairs_of_mesh(1))) == 1


def test_a_mask_without_a_form_has_a_limit():
    p = Attention(2**14, 4, mask=parse_mask("causal&sink:2|window:1"))
    with pytest.raises(InputError, match="pairs of tokens"):
        hops_of(p, 4, "blocks").visit(0, 1)
