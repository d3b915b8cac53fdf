"""The words of a batch are those that generated kernels count while they run, request by request, on the CPU."""

import time

import numpy as np
import on_cpu
import pytest

import iosim
from iosim.core.problem import DENSE, Attention, narrowed
from iosim.core.tiling import Tiling
from iosim.cuda.machine import generate
from iosim.masks import parse_mask
from iosim.schedules import SCHEDULES

REQUESTS = [(1, 40), (1, 7), (9, 9), (5, 33)]
FIELDS = {"d": 16, "heads": 4, "kv_heads": 2, "mask": "causal", "dtype": "fp32", "tiles": "6x5"}


def problem_of(way, new, tokens):
    """The problem of a request, as a way runs it."""
    p = Attention(new, 16, tokens, heads=4, kv_heads=2, mask=parse_mask("causal"), dtype="fp32", splits=3)
    return p if way == "repeat" else narrowed(p, N=2 * new, heads=2, mask=DENSE)


@pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
@pytest.mark.parametrize(
    ("way", "schedule", "requests"),
    [("repeat", "flash2", REQUESTS), ("split", "split-kv", REQUESTS), ("pack", "flash2", REQUESTS[:2])],
)
def test_words_are_those_that_generated_kernels_count(way, schedule, requests, tmp_path):
    problems = [problem_of(way, new, tokens) for new, tokens in requests]
    programs = [generate(SCHEDULES[schedule], p, Tiling(6, 5), count=True) for p in problems]
    library, rng = on_cpu.build(programs, tmp_path), np.random.default_rng(1)
    total = {}
    for number, program in enumerate(programs):
        inputs = {name: rng.normal(size=program.arrays[name].full_shape) for name in "QKV"}
        _, counted, pointers = on_cpu.run(library, number, program, inputs, False)
        assert counted == pointers
        for name, (reads, writes) in counted.items():
            before = total.get(name, (0, 0))
            total[name] = before[0] + reads, before[1] + writes
    text = ", ".join(f"{new}:{tokens}" for new, tokens in requests)
    found = iosim.batch(text, **FIELDS, splits=3)[way].tensors
    assert {name: (words["reads"], words["writes"]) for name, words in found.items()} == total


@pytest.mark.long
@pytest.mark.parametrize("longest", [1, 4000])
def test_a_hundred_thousand_requests_take_seconds(longest):
    """The bound is loose, because machines differ."""
    rng = np.random.default_rng(2)
    pairs = [(int(new), int(new + cached)) for new, cached in rng.integers(1, (longest + 1, 130_000), (100_000, 2))]
    iosim.batch(pairs[:10], d=128, heads=32, kv_heads=8, mask="causal", tiles="128x64")
    start = time.process_time()
    found = iosim.batch(pairs, d=128, heads=32, kv_heads=8, mask="causal", tiles="128x64")
    assert time.process_time() - start < 5
    assert found.batch.shapes.requests == 100_000
