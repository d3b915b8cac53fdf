"""The texts across GPUs as real processes that exchange arrays over pipes: outputs, and bytes counted at the pipes."""

import sys
from collections import Counter

import numpy as np
import pytest
from gpu_texts import attention_of_heads, random_inputs, splits
from paths import VALIDATION

from iosim.distributed.schedules import SCHEMES

sys.path.append(str(VALIDATION / "links"))

import gpu_processes

SIZES = {"N": 24, "d": 3, "dv": 2, "heads": 8, "kv_heads": 4}
BYTES = 8  # of a word: the processes compute in float64


def by_hand(scheme, t):
    """{(sender, receiver): bytes}, derived without the text."""
    found = Counter()
    for receiver in range(t.ranks):
        for sender, _, words in scheme.by_hand.senders(t, receiver):
            found[sender, receiver] += BYTES * words
    assert sum(found.values()) == BYTES * sum(scheme.by_hand.words(t).values())
    return {pair: n for pair, n in found.items() if n}


def compare(P, masks):
    """Run all schemes on P processes. Outputs are those of attention, and each pair of processes exchanges the bytes
    that are expected by hand."""
    cases, where = [], []
    for mask in masks:
        for name in SCHEMES:
            for t in splits(name, P, mask, **SIZES):
                cases.append((name, t, random_inputs(t.problem)))
                where.append((name, mask, t.apart, t.keys_apart))
    found = gpu_processes.run(cases, P)
    for (name, t, hbm), (o, moved), label in zip(cases, found, where, strict=True):
        np.testing.assert_allclose(o, attention_of_heads(hbm, t, SCHEMES[name]), atol=1e-12, err_msg=str(label))
        assert sum(moved.values()) == BYTES * sum(SCHEMES[name].by_hand.words(t).values()), label
    return {name for name, _, _ in cases}


def test_all_schemes_on_four_processes():
    assert compare(4, ["causal"]) == {*SCHEMES}


@pytest.mark.long
@pytest.mark.parametrize("P", [2, 3, 4, 6])
def test_other_numbers_of_processes(P):
    found = compare(P, ["dense", "causal", "window:7"])
    assert found >= {"ring", "zigzag", "striped", "pass-q", "all-gather"}
