"""The texts across GPUs as real processes that exchange arrays over pipes: outputs, and bytes counted at the pipes."""

import sys
from collections import Counter

import links_by_hand
import numpy as np
import pytest
from gpu_texts import attention_of_heads, random_inputs, visible_to
from paths import VALIDATION

from iosim import Attention
from iosim.distributed.schedules import PASSES, splits_of
from iosim.masks import parse_mask
from iosim.oracles.backward import forward, gradients

sys.path.append(str(VALIDATION / "links"))

import gpu_processes

SIZES = {"N": 24, "d": 3, "dv": 2, "heads": 8, "kv_heads": 4}
BYTES = 8  # of a word: the processes compute in float64
SOME = ("ring", "all-gather", "pass-q", "ulysses", "mesh")  # of the backward passes, in the short test


def counted(scheme, t):
    """{(sender, receiver): bytes}."""
    found = Counter()
    for (sender, receiver, _), words in links_by_hand.sent(scheme, t).items():
        found[sender, receiver] += BYTES * words
    assert found.total() == BYTES * links_by_hand.words(scheme, t).total()
    return found


def inputs_and_results(kind, scheme, t):
    """What lies on the GPUs at the start, and what must lie there at the end, by the oracles."""
    p, given = t.problem, random_inputs(t.problem)
    expected = {"O": attention_of_heads(given, t, scheme)}
    if kind == "forward":
        return given, expected
    given["dO"], g = np.random.default_rng(5).normal(size=(p.N, p.heads, p.dv)), p.heads // p.kv_heads
    heads = [(given["Q"][:, h], given["K"][:, h // g], given["V"][:, h // g]) for h in range(p.heads)]
    visible = visible_to(t, scheme)
    found = [gradients(*heads[h], given["dO"][:, h], visible) for h in range(p.heads)]
    expected["dQ"] = np.stack([one["dQ"] for one in found], axis=1)
    for name in ("dK", "dV"):
        sums = [sum(one[name] for one in found[k * g : (k + 1) * g]) for k in range(p.kv_heads)]
        expected[name] = np.stack(sums, axis=1)
    if kind == "backward":  # what a forward pass leaves
        ahead = [forward(*one, visible) for one in heads]
        given |= {name: np.stack([one[name] for one in ahead], axis=1) for name in ("O", "LSE")}
        del expected["O"]
    return given, expected


def run(P, masks, kinds, names=None):
    """[(case, what came out)] of schemes, all or some, on P processes. A case is its kind and scheme, the split, the
    inputs and the results of the oracles."""
    cases = [
        (kind, name, t, *inputs_and_results(kind, scheme, t))
        for kind in kinds
        for name, scheme in PASSES[kind].items()
        for mask in (masks if names is None or kind == "forward" or name in names else ())
        for t in splits_of(scheme, Attention(mask=parse_mask(mask), **SIZES), P)
    ]
    return [*zip(cases, gpu_processes.run([case[:4] for case in cases], P), strict=True)]


def compare(done):
    """Results are those of the oracles, and each pair of processes exchanges the bytes that are counted."""
    for (kind, name, t, _, expected), (got, moved) in done:
        label = (kind, name, str(t.problem.mask), t.apart, t.keys_apart)
        assert got.keys() == expected.keys()
        for tensor, values in expected.items():
            np.testing.assert_allclose(got[tensor], values, atol=1e-10, err_msg=str((*label, tensor)))
        assert moved == counted(PASSES[kind][name], t), label
    return {case[:2] for case, _ in done}


@pytest.fixture(scope="module")
def on_four():
    """What four processes did, which are started once: all forward passes, and some of the others."""
    return run(4, ["causal"], PASSES, SOME)


def test_all_schemes_on_four_processes(on_four):
    assert compare([one for one in on_four if one[0][0] == "forward"]) == {
        ("forward", name) for name in PASSES["forward"]
    }


def test_backward_passes_on_four_processes(on_four):
    """The sum of dK and dV of a shard goes round the ring of processes."""
    kinds = ("backward", "step")
    assert compare([one for one in on_four if one[0][0] in kinds]) == {(k, n) for k in kinds for n in SOME}


@pytest.mark.long
@pytest.mark.parametrize("P", [2, 3, 4, 6])
def test_other_numbers_of_processes(P):
    found = compare(run(P, ["dense", "causal", "window:7"], PASSES))
    assert found >= {("forward", name) for name in ("ring", "zigzag", "striped", "all-gather", "pass-q")}
    assert found >= {(kind, name) for kind in ("backward", "step") for name in ("ring", "ring-coded", "zigzag-needed")}
