"""Sparse attention in which each query gathers its keys."""

import numpy as np
import pytest

import iosim


@pytest.mark.parametrize("mask", ["window:3", "causal", "strided:4", "global:2|window:1", "dense", "causal&window:5"])
def test_a_gather_moves_what_each_query_sees(mask, ask):
    """Each visible pair moves d + dv words; Q and O move once. The pairs are counted one by one here."""
    N, d = 23, 4
    x, y = np.arange(N)[:, None], np.arange(N)[None, :]
    visible = {
        "window:3": abs(x - y) <= 3,
        "causal": y <= x,
        "strided:4": x % 4 == y % 4,
        "global:2|window:1": (x < 2) | (y < 2) | (abs(x - y) <= 1),
        "dense": x == x + 0 * y,
        "causal&window:5": (y <= x) & (x - y <= 5),
    }[mask]
    result = ask("count", "--N", N, "--d", d, "--mask", mask, "--schedule", "local-gather")["results"][0]
    assert result["reads"] == int(visible.sum()) * 2 * d + N * d and result["writes"] == N * d


def test_a_query_that_sees_nothing_is_not_read():
    result = iosim.count(6, 4, schedules=["local-gather"], mask="~causal").results[0]
    assert result.tensors["Q"]["reads"] == 5 * 4 and result.writes == 6 * 4


def test_tiles_reuse_what_a_gather_reads_again():
    report = iosim.count(256, 16, tiles="32x32", mask="window:31", schedules=["local-gather", "block-sparse-q"])
    assert report["local-gather"].total > 5 * report["block-sparse-q"].total
