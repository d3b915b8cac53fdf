"""memory-efficient: the bytes that its kernel was measured to read, its formula, its search, planted mistakes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts import wrong

from iosim import Attention, Folded, Machine, Tiling, Traffic, count
from iosim.core.watchers import same_counts
from iosim.errors import FoldingError
from iosim.masks import parse_mask
from iosim.masks.reach import needed
from iosim.schedules import find

NAME = "memory-efficient"
SCHEDULE = find(NAME)


def test_what_the_kernel_was_measured_to_read(ask):
    """The kernel ran on an H200 with N = 1024, d = 128, 32 heads, fp16, tiles 64x128, causal."""
    args = ["--N", 1024, "--d", 128, "--heads", 32, "--tiles", "64x128", "--mask", "causal", "--acc-dtype", "fp32"]
    result = ask("count", *args, "--schedule", NAME)["results"][0]
    assert result["read_bytes"] == 180_355_072
    assert result["tensors"]["K"] == result["tensors"]["V"] == {"reads": 32 * 128 * 64 * (16 * 17 // 2), "writes": 0}
    assert result["write_bytes"] == 2 * 32 * 1024 * 128


@pytest.mark.parametrize("N, Nk, d, Br, Bc", [(1024, 1024, 64, 64, 64), (1000, 777, 24, 64, 128), (5, 3, 2, 8, 8)])
def test_dense_closed_form(N, Nk, d, Br, Bc):
    result = count(N, d, Nk=Nk, tiles=f"{Br}x{Bc}", schedules=[NAME])[NAME]
    assert result.reads == 2 * Nk * d * -(-N // Br) + N * d * -(-Nk // Bc)
    assert result.writes == N * d


def counted(machine, p, t):
    traffic = Traffic()
    machine(p, traffic).run(SCHEDULE, t)
    return traffic.tensors


def test_the_last_tile_ends_at_the_last_key_seen():
    """With N = Nk = 8 and 3x3 tiles, query tiles end at queries 2, 5, 7. They read 3, 6, 8 keys in 1, 2, 3 tiles."""
    p, t = Attention(8, 1, mask=parse_mask("causal")), Tiling(3, 3)
    assert needed(p.tiled(t).mask, t.rows_q, cut=False) == [(3, 3), (3, 6), (2, 8)]
    assert counted(Folded, p, t)["K"] == (3 + 6 + 8, 0)
    p, t = Attention(8, 1, mask=parse_mask("causal")), Tiling(2, 3)  # 2, 4, 6, 8 keys in 1, 2, 2, 3 tiles
    assert counted(Folded, p, t) == {"Q": (2 * 8, 0), "K": (20, 0), "V": (20, 0), "O": (0, 8)}


def test_holes_are_read_and_what_sees_nothing_reads_nothing():
    p, t = Attention(6, 1, Nk=9, mask=parse_mask("strided:100&~causal")), Tiling(2, 4)
    for machine in (Folded, Machine):
        assert same_counts(counted(machine, p, t), {"O": (0, 6)})
    p = Attention(9, 1, mask=parse_mask("window:0"))  # a diagonal: all keys up to it are read
    assert counted(Folded, p, Tiling(3, 2))["K"] == (3 + 6 + 9, 0)


MASKS = ["causal", "window:3", "window:1b", "global:2&window:4", "causal:b&~window:2", "~causal", "strided:5&causal"]
sizes = st.integers(1, 50)


@settings(max_examples=80, deadline=None)
@given(sizes, sizes, sizes, sizes, st.sampled_from(MASKS), st.booleans())
def test_folded_is_unrolled_is_by_hand(N, Nk, rows_q, rows_k, mask, keep_p):
    p, t = Attention(N, 3, Nk=Nk, dv=2, mask=parse_mask(mask), keep_p=keep_p), Tiling(rows_q, rows_k)
    assert wrong(SCHEDULE, p, t) == set()


def test_a_mask_counts_one_problem_at_a_time():
    p = Attention(np.array([8, 9]), 4, mask=parse_mask("causal"))
    with pytest.raises((FoldingError, TypeError)):
        counted(Folded, p, Tiling(2, 2))
