"""Softmax in passes: the 3-pass form as described and as coded in the source, rows of attention, masked rows."""

import numpy as np
import pytest
from verdicts import wrong

import iosim
from iosim import SCHEDULES, Attention, Numeric, Tiling
from iosim.masks import parse_mask
from iosim.steps.passes_and_linear import add_maximum_and_sum, exponentials
from iosim.steps.softmax import hide, minus_infinity, normalise, zeros

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


@pytest.mark.parametrize("name", [*ALONE, "attention-3pass", "attention-2pass"])
def test_check_finds_nothing_wrong(name, ask):
    """The check also runs in fp16, which rounds every partial sum."""
    args = ["--N", 20, "--d", 64, "--tiles", "8x8", "--schedule", name]
    assert ask("verify", "--cpu", *args)["ok"] is True


# ---------------------------------------------------------------- planted mistakes


def sum_without_rescaling(m, l, s):
    before = l.copy()
    add_maximum_and_sum(m, l, s)
    l[...] = before + np.exp(s - m[:, None]).sum(axis=1)


def mutant(kind):
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            m, l = chip.compute("m", (i,), minus_infinity), chip.compute("l", (i,), zeros)
            for j in chip.tiles(p.Nk, t.rows_k):
                s = chip.load("S", i, j)
                chip.update((m, l), sum_without_rescaling if kind == "sum not rescaled" else add_maximum_and_sum, s)
            if kind == "a third pass":
                for j in chip.tiles(p.Nk, t.rows_k):
                    chip.load("S", i, j)
            for j in chip.tiles(p.Nk, t.rows_k):
                s = chip.load("S", i, j)
                chip.update(s, hide, p.mask.part(i, j))
                chip.update(s, exponentials, m)
                if kind != "not divided":
                    chip.update(s, normalise, l)
                chip.store(s, "P", i, j)
            if kind == "maxima stored":
                chip.store(m, "m", i)

    return text


@pytest.mark.parametrize(
    "kind, caught_by",
    [
        ("none", set()),
        ("sum not rescaled", {"numerics"}),
        ("not divided", {"numerics"}),
        ("a third pass", {"formula"}),
        ("maxima stored", {"formula"}),
    ],
)
def test_planted_mistakes_are_caught(kind, caught_by):
    assert wrong(SCHEDULES["softmax-2pass"], mutant(kind), Attention(5, 2, Nk=9), Tiling(2, 4)) == caught_by


def test_a_mask_applied_in_the_last_pass_only_is_caught():
    """The schedule above hides in its last pass only, so maximum and sum include hidden scores."""
    p = Attention(5, 2, Nk=9, mask=parse_mask("causal"))
    assert "numerics" in wrong(SCHEDULES["softmax-2pass"], mutant("none"), p, Tiling(2, 4))
