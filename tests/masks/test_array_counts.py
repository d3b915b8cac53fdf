"""Masks counted for arrays of sizes, and the last key that each query sees, against every pair of tokens."""

import random
from itertools import product

import numpy as np
import pytest
from random_masks import random_mask

from iosim import Attention, Tiling
from iosim.errors import InputError
from iosim.masks import intervals, parse_mask, pieces, reach
from iosim.masks.mask import Mask


def random_sizes(rng, count, most):
    """N, Nk, Br, Bc of so many problems; one in five is in Python integers."""
    sizes = np.array([[rng.randint(1, most) for _ in range(4)] for _ in range(count)]).T
    sizes[2:] = sizes[2:] % 9 + 1
    return sizes.astype(object) if rng.random() < 0.2 else sizes


def judge(rng, count):
    text = random_mask(rng, 3, "b" if rng.random() < 0.3 else "")
    mask = parse_mask(text)
    if not isinstance(mask, Mask):
        return
    N, Nk, Br, Bc = random_sizes(rng, count, 30)
    if rng.random() < 0.2:  # some sizes in Python integers, as where only some are large
        Br = Br.astype(object)
    together = mask.bind(Attention(N, 1, Nk=Nk), Tiling(Br, Bc))._counts
    for k in range(count):
        one = mask.bind(Attention(int(N[k]), 1, Nk=int(Nk[k])), Tiling(int(Br[k]), int(Bc[k])))
        for part, expected in zip(together, one.table_counts(one.table), strict=True):
            assert {key: np.broadcast_to(part[key], count)[k] for key in expected} == expected, (text, one)
        if not mask.tile_units:
            whole = mask.bind(Attention(one.N, 1, Nk=one.Nk), Tiling(1, 1))
            assert ends(whole) == ends_by_pair(one), (text, one)


def ends(bound):
    """The first key that each query sees, and the key after the last one."""
    return [part.tolist() for part in reach.ends_of_rows(bound)]


def ends_by_pair(bound):
    """The same from every pair; the number of keys, and 0, for a query that sees nothing."""
    keys = [np.flatnonzero(row).tolist() for row in bound.visible(0, bound.N, 0, bound.Nk)]
    return [[min(row, default=bound.Nk) for row in keys], [max(row, default=-1) + 1 for row in keys]]


@pytest.mark.parametrize("seed", range(8))
def test_random_masks_against_every_pair(seed, monkeypatch):
    monkeypatch.setattr(intervals, "ENDS_AT_ONCE", [10, 2**22][seed % 2])
    monkeypatch.setattr(pieces, "ROWS_AT_ONCE", [3, 2**18][seed % 2])
    rng = random.Random(seed)
    for _ in range(5):
        judge(rng, 6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_random_masks_against_every_pair(seed):
    rng = random.Random(f"long {seed}")
    for _ in range(150):
        judge(rng, 12)


@pytest.mark.parametrize("mask", ["documents:5,9,3", "documents:5,9,3&~strided:2|window:1", "sink:2|documents:17"])
def test_documents_against_every_pair(mask):
    bound = parse_mask(mask).bind(Attention(17, 1), Tiling(1, 1))
    assert ends(bound) == ends_by_pair(bound)
    Br = np.array([1, 4, 5, 17])
    together = parse_mask(mask).bind(Attention(17, 1), Tiling(Br, Br))
    for k, size in enumerate(Br.tolist()):
        assert together.active_tiles[k] == parse_mask(mask).bind(Attention(17, 1), Tiling(size, size)).table.sum()


def test_documents_have_all_tokens_of_every_problem():
    N = np.array([17, 16])
    with pytest.raises(InputError, match="17 tokens in all"):
        parse_mask("documents:5,9,3").bind(Attention(N, 1), Tiling(N, N)).active_tiles  # noqa: B018


@pytest.mark.parametrize("mask", ["window:100|global:7", "~(causal&window:50)", "global:3&~window:9|causal"])
def test_large_sizes_are_counted_like_numbers(mask):
    """Sizes of which a table would be too large, and of which int64 does not hold the counts."""
    sizes = [(10**6 + 3, 10**6, 128, 64), (2**40, 2**40 + 1, 2**20, 777), (5, 10**9, 2, 2**14)]
    N, Nk, Br, Bc = np.array(sizes, object).T
    together = parse_mask(mask).bind(Attention(N, 1, Nk=Nk), Tiling(Br, Bc))._counts
    for k, (n, nk, br, bc) in enumerate(sizes):
        alone = parse_mask(mask).bind(Attention(n, 1, Nk=nk), Tiling(br, bc))._counts
        for part, expected in zip(together, alone, strict=True):
            assert {key: part[key][k] for key in expected} == expected


def test_equal_problems_are_counted_once(monkeypatch):
    """M and d do not change what a mask hides."""
    seen, count = [], intervals.pieces
    monkeypatch.setattr(intervals, "pieces", lambda e, N, *more: seen.append(N) or count(e, N, *more))
    N = np.array([50, 60, 50, 50, 60])
    bound = parse_mask("window:3|global:2").bind(Attention(N, 1), Tiling(N * 0 + 8, N * 0 + 4))
    assert len(bound.active_tiles) == 5 and [len(rows) for rows in seen] == [2]


def test_problems_are_told_apart_whatever_their_sizes():
    """One number for each problem would not fit an int64 here: the first two have the same one modulo 2^64."""
    columns = [np.array(column) for column in ([5, 9, 1], [1, 1, 2**32], [1, 1, 2**32], [3, 3, 3])]
    rows, places = intervals.distinct(columns)
    assert [row[places].tolist() for row in rows] == [column.tolist() for column in columns]


def test_the_pieces_of_a_problem_are_cut_once_for_all_tiles(monkeypatch):
    """`tune` asks for thousands of tiles of one problem."""
    cuts, visible_intervals = [], pieces.visible_intervals
    pieces.pieces_of.cache_clear()
    monkeypatch.setattr(pieces, "visible_intervals", lambda *given: cuts.append(given) or visible_intervals(*given))
    mask = parse_mask("chunk:3|window:5")
    for Br, Bc in product(range(1, 9), repeat=2):
        assert mask.bind(Attention(97, 4, Nk=89), Tiling(Br, Bc)).active_tiles
    assert len(cuts) == 1
