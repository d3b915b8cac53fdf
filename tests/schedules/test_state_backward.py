"""The backward passes of attention with a state: every rule in every machine, against gradients by hand, and those
against finite differences."""

import random

import numpy as np
import pytest
from verdicts import mutant, wrong

import iosim
from iosim import SCHEDULES, Attention, Capacity, Folded, InputError, Machine, Numeric, Tiling, Traffic
from iosim.core.dependent_tiles import Backwards
from iosim.oracles.state import recurrence
from iosim.oracles.state_backward import gradients
from iosim.schedules.state import RULES

BACKWARD = ("state-bwd", "state-bwd-saved", "state-bwd-saved")


def problem(name, rule, N, d, dv, **more):
    return SCHEDULES[name].about(Attention(N, d, dv=dv, rule=rule, **more))


# ---------------------------------------------------------------- the reference itself


def difference(loss, array, index, step=1e-6):
    """A central difference of a loss by one word of an array, which is put back."""
    kept, values = array[index], []
    for sign in (1, -1):
        array[index] = kept + sign * step
        values.append(loss())
    array[index] = kept
    return (values[0] - values[1]) / (2 * step)


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("words", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_by_hand_are_finite_differences(delta, words, seed):
    """Of every word of q, k, v, of the gates and of the first state, with a gradient of the last state too."""
    rng = np.random.default_rng(seed)
    N, d, dv = 5, 3, 2
    hbm = {name: rng.normal(size=(N, width)) for name, width in (("Q", d), ("K", d), ("V", dv), ("dO", dv))}
    hbm |= {"beta": rng.uniform(size=N)} if delta else {}
    g, first, last = -rng.exponential(0.3, size=(N, words)), rng.normal(size=(d, dv)), rng.normal(size=(d, dv))

    def loss():
        found = recurrence(hbm["Q"], hbm["K"], hbm["V"], g, hbm.get("beta"), first)
        return (found.outputs * hbm["dO"]).sum() + (found.states[-1] * last).sum()

    found = gradients(hbm, g, first, last)
    by = {"dQ": hbm["Q"], "dK": hbm["K"], "dV": hbm["V"], "dg": g, "dS0": first}
    by |= {"dbeta": hbm["beta"]} if delta else {}
    assert found.keys() == by.keys()
    for name, array in by.items():
        numeric = np.array([difference(loss, array, index) for index in np.ndindex(array.shape)])
        np.testing.assert_allclose(found[name].ravel(), numeric, atol=1e-7, err_msg=name)


# ---------------------------------------------------------------- every rule and schedule, at random


def check_random(seed):
    rng = random.Random(seed)
    name, rule = BACKWARD[seed % len(BACKWARD)], rng.choice(list(RULES))
    options = {"initial_state": rng.random() < 0.5, "final_state": rng.random() < 0.5}
    if rng.random() < 0.3:
        options["padding"] = rng.randint(1, 5)
    p = problem(name, rule, rng.randint(1, 40), rng.randint(1, 9), rng.randint(1, 9), **options)
    tiling = Tiling(rng.randint(1, 45), 1)
    assert wrong(SCHEDULES[name], p, tiling, seed=seed) == set(), (name, p.unusual(), tiling)


@pytest.mark.parametrize("seed", range(0, 60, 20))
def test_words_and_gradients_at_random(seed):
    for each in range(seed, seed + 20):
        check_random(each)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 600, 100))
def test_words_and_gradients_of_many(seed):
    for each in range(seed, seed + 100):
        check_random(each)


# ---------------------------------------------------------------- mistakes, and golden words


GATED = (Attention(13, 4, dv=5, rule="gla", initial_state=True, final_state=True), Tiling(4, 1))
MISTAKES = [  # (within, a place, what takes its place, the checks that see it)
    ("query_gradients", "chip.update(state, add_chunk, k, v, *gates)", "pass", {"output"}),
    ("query_gradients", "chip.update(dq, add_earlier, w, k, *gates)", "pass", {"output"}),
    ("two_scans", "Backwards(p.N, 0, length(p))", "tokens(p)", {"output"}),
    ("key_gradients", "chip.update(ds, add_chunk_back, q, do, *gates)", "pass", {"output"}),
    ("key_gradients", "chip.update(dk, add_later, w, q, *gates)", "chip.update(dk, add_later, w, q)", {"output"}),
    ("key_gradients", "gate_gradients, q, dq", "gate_gradients, k, dq", {"output"}),
    ("key_gradients", "chip.free(dk)", "pass", {"footprint"}),
    ("key_gradients", 'k = chip.load("K", c)', 'chip.free(chip.load("K", c)); k = chip.load("K", c)', {"formula"}),
    ("last_gradient", "state_dots, state, ds)", "zeros)", {"output"}),
]  # fmt: skip


@pytest.mark.parametrize("within, old, new, caught", MISTAKES)
def test_a_mistake_is_caught(within, old, new, caught):
    assert wrong(mutant(SCHEDULES["state-bwd"], old, new, within), *GATED) == caught


DELTA = (Attention(13, 4, dv=5, rule="kda", initial_state=True, final_state=True), Tiling(4, 1))
MISTAKES_WITH_SAVED_STATES = [
    ("chip.update(n, solve_back, s, b)", "pass", {"output"}),
    ("chip.update(dk, add_rows, before)", "pass", {"output"}),
    ("chip.update(each, more_keys, k, before)", "pass", {"output"}),
    ("chip.update(ds, add_keys_back, k, n, *gates)", "pass", {"output"}),
    ("chip.update(n, weigh_down, b)", "pass", {"output"}),
    ("chip.free(w)\n", "pass\n", {"footprint"}),
    ("Backwards(p.N, 0, length(p))", "p.N", {"output"}),
    ('chip.load("SN")', 'chip.load("dSN")', {"output", "formula"}),
]


@pytest.mark.parametrize("old, new, caught", MISTAKES_WITH_SAVED_STATES)
def test_a_mistake_with_saved_states_is_caught(old, new, caught):
    assert wrong(mutant(SCHEDULES["state-bwd-saved"], old, new), *DELTA) == caught


def test_the_text_without_a_mistake_passes_every_check():
    assert wrong(mutant(SCHEDULES["state-bwd-saved"]), *DELTA) == set()
    assert wrong(mutant(SCHEDULES["state-bwd"]), *GATED) == set()


@pytest.mark.parametrize(
    "rule, reads, writes, peak",
    [
        ("linear", 3 * 128 + 4 * 128, 2 * 128 + 128, 128 * 128 + 64 * 512 + 64 * 64),
        ("retnet", 3 * 128 + 4 * 128, 2 * 128 + 128, 128 * 128 + 64 * 512 + 64 * 64),
        ("mamba2", 4 * 128 + 4 * 128 + 2, 2 * 128 + 128 + 1, 128 * 128 + 1 + 64 * 513 + 64 * 64),
        ("gla", 4 * 128 + 4 * 128 + 256, 2 * 128 + 128 + 128, 128 * 128 + 128 + 64 * 768),
    ],
)
def test_words_a_token(rule, reads, writes, peak):
    """Two scans read 3d + 4dv words a token and write 2d + dv; rules with a gate read dQ and the gate again."""
    traffic, room = Traffic(), Capacity()
    Folded(problem("state-bwd", rule, 8192, 128, 128), traffic, room).run(SCHEDULES["state-bwd"], Tiling(64, 1))
    assert (sum(traffic.reads.values()), sum(traffic.writes.values())) == (8192 * reads, 8192 * writes)
    assert room.peak_words == peak


@pytest.mark.parametrize("rule, words", [("linear", 0), ("mamba2", 1), ("gdn", 2), ("kda", 129)])
@pytest.mark.parametrize("chunk", [64, 100])
def test_words_a_token_with_saved_states(rule, words, chunk):
    """2d + 2dv + s / C words a token are read and 2d + dv written, with two states on chip; a gate once each way."""
    traffic, p = Traffic(), problem("state-bwd-saved", rule, 8192, 128, 128)
    Folded(p, traffic).run(SCHEDULES["state-bwd-saved"], Tiling(chunk, 1))
    assert sum(traffic.reads.values()) == 8192 * (512 + words) + -(-8192 // chunk) * 128 * 128
    assert sum(traffic.writes.values()) == 8192 * (384 + words)


def test_from_which_chunk_on_saved_states_are_read_faster_than_two_scans():
    for chunk, less in ((42, False), (43, True)):
        found = iosim.count(2**20, 128, rule="linear", chunk=chunk, schedules=["state-bwd", "state-bwd-saved"])
        assert (found["state-bwd-saved"].reads < found["state-bwd"].reads) is less


def test_the_states_are_those_that_a_forward_pass_saves():
    """`state-saved` leaves them in the slots from which they are read."""
    sizes, tiling = (13, 4, 5), Tiling(4, 1)
    p, back = (problem(name, "gdn", *sizes, initial_state=True) for name in ("state-saved", "state-bwd-saved"))
    hbm = SCHEDULES["state-bwd-saved"].example(np.random.default_rng(1), back, None)
    forward = Numeric(p, {name: x for name, x in hbm.items() if name != "H"}).run(SCHEDULES["state-saved"], tiling)
    for first in range(0, 13, 4):
        rows = slice(4 * first, 4 * first + 4)
        np.testing.assert_allclose(forward.array("H")[rows], hbm["H"][rows], atol=1e-13)


# ---------------------------------------------------------------- loops that go backwards


def test_a_loop_goes_backwards():
    """Over the same tiles: the short one, which is the last, comes first."""
    seen = []

    def text(chip, p, t):
        for i in chip.tiles(Backwards(p.N, 0, 10), t.rows_q):
            seen.append((i.index, i.start, i.size))

    Machine(Attention(12, 1)).run(text, Tiling(4, 1))
    assert seen == [(2, 8, 2), (1, 4, 4), (0, 0, 4)]


# ---------------------------------------------------------------- questions


def test_a_count_says_what_the_gradients_cost():
    found = iosim.count(8192, 128, rule="retnet", heads=4, schedules="state-bwd", chunk=32)["state-bwd"]
    assert found.Br == 32 and found.total == 4 * 8192 * (5 * 128 + 5 * 128)
    best = iosim.tune(8192, 128, M="227KB", rule="linear", schedules="state-bwd", tile_multiple=16)
    assert best.results[0].Br % 16 == 0 and best.results[0].fits


def test_the_compulsory_words_of_gradients():
    """2d + 2dv read and 2d + dv written a token; the first decay acts on nothing unless a first state is given."""
    for options, more in (({}, -2), ({"initial_state": True}, 2 * 64), ({"final_state": True}, 64 - 2)):
        (least, *_) = iosim.count(20, 8, rule="mamba2", schedules="state-bwd", **options).bounds
        assert least.name == "state-bwd: compulsory" and least.words == 20 * (7 * 8 + 2) + more


@pytest.mark.parametrize(
    "given, said",
    [({"rule": "gdn"}, "delta rule"), ({"normalise": True}, "no --normalise"), ({"mask": "causal"}, "--padding"),
     ({"features": 3}, "no --features")],
)  # fmt: skip
def test_what_a_backward_pass_refuses(given, said):
    with pytest.raises(InputError, match=said):
        iosim.count(**{"N": 8, "d": 4, "rule": "linear", "schedules": "state-bwd", **given})
