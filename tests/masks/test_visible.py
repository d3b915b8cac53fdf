"""Exact numbers of visible pairs, rows and keys, compared with looking at every pair of tokens."""

import random
from itertools import chain, combinations
from math import prod

import numpy as np
import pytest

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.masks.visible import Visible, visible


def looked_at(mask, N, Nk, Br=1, Bc=1):
    bound = parse_mask(mask).bind(Attention(N, 1, Nk), Tiling(Br, Bc))
    part = bound.visible(0, N, 0, Nk)
    each = part.sum(axis=1)
    more, any_row = part[each > 1], part[each > 0]
    return Visible(
        int(more.sum()), len(more), int(more.any(axis=0).sum()), len(any_row), int(any_row.any(axis=0).sum())
    )


def atom(pick, N, Nk):
    kind = pick.choice(["causal", "window", "global", "strided", "dense", "sink", "chunk", "dilated", "documents"])
    if kind == "dilated":
        return f"dilated:{pick.randint(0, 4)}:{pick.randint(1, 4)}"
    if kind == "documents" and Nk == N:
        return "documents:" + ",".join(map(str, [*[1] * (N // 3), N - N // 3 - N // 2, *[N // 2] * (N > 1)]))
    kind = "chunk" if kind == "documents" else kind
    if kind in ("causal", "dense"):
        return kind
    return f"{kind}:{pick.choice([1, 2, 3, 5, 40]) if kind in ('strided', 'chunk') else pick.randint(0, 9)}"


def expression(pick, depth, N, Nk):
    if depth == 0:
        return pick.choice(["", "", "", "~"]) + atom(pick, N, Nk)
    left, right = expression(pick, depth - 1, N, Nk), expression(pick, depth - 1, N, Nk)
    return f"({left} {pick.choice('&|')} {right})"


@pytest.mark.parametrize("masks", [400, pytest.param(7000, marks=pytest.mark.long)])
def test_masks_of_tokens(masks):
    pick = random.Random(22)
    for _ in range(masks):
        N, Nk = pick.randint(1, 40), pick.randint(1, 40)
        Nk = N if pick.random() < 0.5 else Nk
        mask = expression(pick, pick.randint(0, 2), N, Nk)
        if mask != "dense":
            assert visible(parse_mask(mask), N, Nk) == looked_at(mask, N, Nk), (mask, N, Nk)


def test_strides_are_counted_by_residues():
    pick = random.Random(34)
    for _ in range(300):
        parts = [pick.choice(["", "~"]) + f"strided:{pick.randint(1, 6)}" for _ in range(pick.randint(2, 3))]
        mask, N, Nk = pick.choice("&|").join(parts), pick.randint(1, 70), pick.randint(1, 70)
        assert visible(parse_mask(mask), N, Nk) == looked_at(mask, N, Nk), (mask, N, Nk)


def test_strides_over_many_keys():
    """The pairs of a union follow from those of single strides: sums with alternating signs over all intersections."""
    N, strides = 2**16, (7, 11, 13)
    pairs = 0
    for several in chain.from_iterable(combinations(strides, k) for k in range(1, 4)):
        pairs -= (-1) ** len(several) * visible(parse_mask(f"strided:{prod(several)}"), N, N).pairs
    assert visible(parse_mask("|".join(f"strided:{S}" for S in strides)), N, N) == Visible(pairs, N, N, N, N)
    N, size = 2**48, 1001
    assert visible(parse_mask("strided:1001"), N, N).pairs == sum(len(range(r, N, size)) ** 2 for r in range(size))


def test_strides_in_a_window_are_a_few_diagonals():
    """Of 11 diagonals only that of y = x is a multiple of both strides."""
    mask, N = parse_mask("strided:1000003&strided:1000033&window:5"), 2**48
    assert visible(mask, N, N) == Visible(0, 0, 0, N, N)
    bound = mask.bind(Attention(N, 1, N), Tiling(2**40, 2**40))
    assert bound.active_tiles == 256 and bound.visible_pairs() == N
    pick = random.Random(35)
    for _ in range(150):
        text = f"strided:{pick.randint(1, 9)}&~strided:{pick.randint(2, 9)}|strided:2"
        text = f"({text})&window:{pick.randint(0, 6)}" + pick.choice(["", "&causal"])
        N, Nk = pick.randint(1, 40), pick.randint(1, 40)
        assert visible(parse_mask(text), N, Nk) == looked_at(text, N, Nk), (text, N, Nk)
        bound = parse_mask(text).bind(Attention(N, 1, Nk), Tiling(pick.randint(1, 9), pick.randint(1, 9)))
        assert bound._counts == bound.table_counts(bound.table), (text, N, Nk)


@pytest.mark.parametrize("N, Nk", [(1, 1), (1, 7), (7, 1), (5, 9)])
def test_dense(N, Nk):
    assert visible(parse_mask("dense"), N, Nk) == looked_at("window:99", N, Nk)


def test_large_masks_are_counted_without_looking():
    found = visible(parse_mask("causal & (window:128 | strided:64) | global:3"), 2**20, 2**20)
    assert found.pairs == 8728813309 and found.rows == found.keys == 2**20


@pytest.mark.parametrize("mask", ["causal:b", "window:1b | strided:3", "global:1b & causal"])
def test_masks_of_tiles_need_tiles(mask):
    with pytest.raises(InputError, match="tiles"):
        visible(parse_mask(mask), 20, 20)
    assert visible(parse_mask(mask), 20, 20, Tiling(4, 8)) == looked_at(mask, 20, 20, 4, 8)


def test_a_file_of_tokens_needs_none(tmp_path):
    file = tmp_path / "mask.txt"
    file.write_text("100\n000\n011\n")
    assert visible(parse_mask(f"file:{file}"), 3, 3) == Visible(2, 1, 2, 2, 3)
    with pytest.raises(InputError, match="tiles"):
        visible(parse_mask(f"file:{file}"), 6, 6)


def test_blocks_are_looked_at_once(tmp_path):
    """Every other block of 1024 x 512 tokens is visible. Pairs of tokens would be too many to look at."""
    N, file = 2**20, tmp_path / "blocks.npz"
    numbers, indices = np.full(N // 1024, N // 1024), np.tile(np.arange(0, N // 512, 2), (N // 1024, 1))
    np.savez(file, kv_num_blocks=numbers, kv_indices=indices, BLOCK_SIZE=np.array([1024, 512]), seq_lengths=[N, N])
    assert visible(parse_mask(f"file:{file}"), N, N) == Visible(N * N // 2, N, N // 2, N, N // 2)
    np.savez(file, kv_num_blocks=np.array([1, 2]), kv_indices=np.array([[1, 0], [0, 1]]), BLOCK_SIZE=np.array([3, 5]))
    assert visible(parse_mask(f"file:{file}"), 5, 6) == looked_at(f"file:{file}", 5, 6)


def test_what_would_take_too_long_is_refused():
    with pytest.raises(InputError, match="at most"):
        visible(parse_mask("causal:b"), 2**20, 2**20, Tiling(4, 4))


def test_pairs_beyond_int64_of_tiles_blocks_and_cells(tmp_path):
    """Each visible tile has 2^80 pairs, each block of a file too, and each of 2^20 queries sees 2^48 - 4 cells."""
    T = 2**40
    assert visible(parse_mask("window:1b"), 2**48, 2**48, Tiling(T, T)).pairs == (3 * 256 - 2) * T**2
    numbers, places = np.array([1, 2]), np.array([[0, 0], [0, 1]])
    np.savez(
        tmp_path / "b.npz", kv_num_blocks=numbers, kv_indices=places, BLOCK_SIZE=[T, T], seq_lengths=[2 * T, 2 * T]
    )
    assert visible(parse_mask(f"file:{tmp_path / 'b.npz'}"), 2 * T, 2 * T) == Visible(3 * T**2, *[2 * T] * 4)
    N, Nk = 2**20, 2**48
    cells = parse_mask("~sink:4&(causal|~causal)").bind(Attention(N, 1, Nk), Tiling(1, 1)).cells(Nk, 1)
    assert sum(int(kind.seen[0]) for kind in cells) == N * (Nk - 4)


def test_stripes_beside_a_sink_of_2_to_the_40_tokens():
    """Row tile i sees a key tile of each stripe, 2^22 keys apart, and all see the first one."""
    N, S, B = 2**40, 2**22, 64
    stripes = (N // B) * (N // S)
    found = parse_mask(f"strided:{S}|sink:1").bind(Attention(N, 1, N), Tiling(B, B))
    assert found.active_tiles == stripes + N // B - N // S


def test_a_dilated_window_wider_than_any_sequence():
    for mask in ("dilated:281474976710656:65536", "dilated:281474976710656:65536|sink:3"):
        assert visible(parse_mask(mask), 9, 12) == looked_at(mask.replace("281474976710656", "99"), 9, 12)
