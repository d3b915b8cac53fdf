"""Linear attention has the right normaliser and reads everything once; sparse attention gathers keys."""

import numpy as np
import pytest

import iosim
from iosim import SCHEDULES, Attention, Numeric, Tiling
from iosim.steps.passes_and_linear import feature_map


def run(name, p, tiling, **arrays):
    schedule = SCHEDULES[name]
    hbm = {**schedule.example(np.random.default_rng(5), p, None), **arrays}
    return Numeric(p, hbm).run(schedule, tiling).array("O")


def problem(name, N, d, **more):
    return SCHEDULES[name].about(Attention(N, d, **more))


@pytest.mark.parametrize("name", ["linear", "linear-causal"])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_values_of_one_give_ones(name, rows):
    """The weights of a query sum to 1. If each column is divided by the sum of keys, a common mistake, they sum to 2.4
    to 45."""
    p = problem(name, 11, 4, dv=3)
    np.testing.assert_allclose(run(name, p, Tiling(rows, rows), V=np.ones((11, 3))), 1, atol=1e-14)


def test_the_feature_map_is_positive_and_continuous():
    x = np.array([-800.0, -1.0, -1e-12, 0.0, 1e-12, 3.0])
    np.testing.assert_allclose(feature_map(x), [0, np.exp(-1), 1, 1, 1, 4], atol=1e-11)
    assert (feature_map(x[1:]) > 0).all()


def test_the_first_causal_query_sees_its_own_key_only():
    p = problem("linear-causal", 6, 3)
    v = np.arange(18.0).reshape(6, 3)
    o = run("linear-causal", p, Tiling(4, 4), V=v)
    np.testing.assert_allclose(o[0], v[0], atol=1e-13)
    assert not np.allclose(o[5], v[5])


@pytest.mark.parametrize("name", ["linear", "linear-causal"])
def test_everything_moves_once_whatever_the_tiles(name):
    mask = "causal" if name == "linear-causal" else "dense"
    for tiles in ("1x1", "7x3", "100x100"):
        result = iosim.count(30, 8, tiles=tiles, schedules=[name], mask=mask)[name]
        assert (result.reads, result.writes) == (3 * 30 * 8, 30 * 8)


def test_flops_are_linear_in_N():
    """A query takes 2 d dv + 2 d operations, and a key 2 d dv. A causal tile of b rows takes 2 b^2 (d + dv) more."""
    N, d, b = 64, 8, 4
    dense = iosim.count(N, d, tiles=f"{b}x{b}", schedules=["linear"]).results[0]
    assert dense.flops == N * (2 * d * d + 2 * d) + N * 2 * d * d
    causal = iosim.count(N, d, tiles=f"{b}x{b}", schedules=["linear-causal"], mask="causal").results[0]
    assert causal.flops == dense.flops + N // b * 2 * b * b * 2 * d


def test_the_state_must_fit():
    """The least SRAM is d dv + d words of state, and one key with its value or one query with output and normaliser."""
    d = 16
    for words, fits in ((d * d + d + 2 * d + 1, True), (d * d + d + 2 * d, False)):
        assert iosim.count(64, d, f"{words}el", schedules=["linear"]).results[0].fits is fits


# ---------------------------------------------------------------- gathering


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
