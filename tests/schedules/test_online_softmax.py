"""Softmax in passes: the 3-pass form as described and as coded in the source, rows of attention, masked rows."""

import numpy as np
import pytest

import iosim
from iosim import SCHEDULES, Attention, Numeric, Tiling
from iosim.masks import parse_mask

ALONE = {"softmax-3pass": (3, 1), "softmax-3pass-code": (3, 2), "softmax-2pass": (2, 1)}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("tiles", ["1x1", "1x4", "3x100", "7x5"])
def test_words_a_number_do_not_depend_on_the_tiles(name, tiles):
    result = iosim.count(7, 3, Nk=10, tiles=tiles, schedules=[name], heads=2)[name]
    assert (result.reads, result.writes) == tuple(2 * 7 * 10 * passes for passes in ALONE[name])


@pytest.mark.parametrize("name", ALONE)
def test_three_words_of_sram_are_enough(name):
    for words, fits in ((3, True), (2, False)):
        assert iosim.count(7, 1, f"{words}el", schedules=[name])[name].fits is fits


@pytest.mark.parametrize("passes", [3, 2])
def test_q_and_k_are_read_once_a_pass(passes):
    """With Br = 1, Q is read once a pass, K once a pass and row, V once a row. flash2 with Br = 1 has one pass."""
    name, N, Nk, d = f"attention-{passes}pass", 6, 11, 4
    report = iosim.count(N, d, Nk=Nk, tiles="1x3", schedules=[name, "flash2"])
    many, one = report[name].tensors, report["flash2"].tensors
    assert many["Q"]["reads"] == passes * N * d == passes * one["Q"]["reads"]
    assert many["K"]["reads"] == passes * N * Nk * d == passes * one["K"]["reads"]
    assert many["V"] == one["V"] == {"reads": N * Nk * d, "writes": 0} and many["O"] == one["O"]


def test_p_is_stored_normalised_when_asked_for():
    schedule, p = SCHEDULES["attention-2pass"], Attention(5, 3, Nk=8, keep_p=True)
    hbm = schedule.example(np.random.default_rng(1), p, None)
    stored = Numeric(p, hbm).run(schedule, Tiling(2, 3)).array("P")
    s = hbm["Q"] @ hbm["K"].T / np.sqrt(3)
    np.testing.assert_allclose(stored, np.exp(s) / np.exp(s).sum(axis=1, keepdims=True), atol=1e-13)


@pytest.mark.parametrize("name", [*ALONE, "attention-3pass", "attention-2pass"])
def test_rows_and_tiles_that_see_nothing_give_zeros(name):
    """Under ~causal with N = Nk the last query sees nothing, and many tiles are wholly hidden."""
    schedule, p, t = SCHEDULES[name], Attention(6, 2, mask=parse_mask("~causal")), Tiling(2, 2)
    visible = np.triu(np.ones((6, 6), bool), 1)
    hbm = schedule.example(np.random.default_rng(2), p, visible)
    machine = Numeric(p, hbm).run(schedule, t)
    for tensor, right in schedule.answer(hbm, p, visible).items():
        assert not right[-1].any() and right[:-1].any(axis=1).all()
        np.testing.assert_allclose(machine.array(tensor), right, atol=1e-14)


def test_large_scores_do_not_overflow():
    """Without the maximum, fp16 overflows at ln 65504 = 11.09. These scores would overflow exp even in float64."""
    schedule, p = SCHEDULES["softmax-2pass"], Attention(1, 1, Nk=4)
    p_row = Numeric(p, {"S": np.array([[1000.0, 2000.0, 2000.0, -3000.0]])}).run(schedule, Tiling(1, 2)).array("P")
    np.testing.assert_allclose(p_row, [[0, 0.5, 0.5, 0]], atol=1e-15)
