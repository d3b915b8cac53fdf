"""The words of a batch are those that generated kernels count while they run, request by request, on the CPU."""

import time
from pathlib import Path

import numpy as np
import pytest
import triton_launches

import iosim
from iosim.core.problem import DENSE, Attention, narrowed
from iosim.core.tiling import Tiling
from iosim.masks import parse_mask
from iosim.schedules import SCHEDULES

on_cpu = pytest.importorskip("on_cpu", exc_type=ImportError)
generate = pytest.importorskip("iosim.gpu.cuda.machine").generate

REQUESTS = [(1, 40), (1, 7), (9, 9), (5, 33)]
FIELDS = {"d": 16, "heads": 4, "kv_heads": 2, "mask": "causal", "dtype": "fp32", "tiles": "6x5"}


def problem_of(way, new, tokens):
    """The problem of a request, as a way runs it."""
    p = Attention(new, 16, tokens, heads=4, kv_heads=2, mask=parse_mask("causal"), dtype="fp32", splits=3)
    if way in APART:
        return narrowed(p, heads=2, page_size=8)
    return p if way == "repeat" else narrowed(p, N=2 * new, heads=2, mask=DENSE)


CASES = {
    "repeat": ("flash2", REQUESTS), "pack": ("flash2", REQUESTS[:2]), "split": ("split-kv", REQUESTS),
    "paged": ("paged", REQUESTS), "paged-split": ("paged-split-kv", REQUESTS),
}  # fmt: skip
APART = {"split", "paged", "paged-split"}  # under the mask, with heads that share nothing


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """(a library of the programs of all cases, [(number in the library, program)] of each case)."""
    numbered = {way: [] for way in CASES}
    programs = []
    for way, (schedule, requests) in CASES.items():
        for new, tokens in requests:
            program = generate(SCHEDULES[schedule], problem_of(way, new, tokens), Tiling(6, 5), count=True)
            numbered[way].append((len(programs), program))
            programs.append(program)
    return on_cpu.build(programs, tmp_path_factory.mktemp("kernels")), numbered


@pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
@pytest.mark.parametrize("way", CASES)
def test_words_are_those_that_generated_kernels_count(way, compiled):
    (library, numbered), rng = compiled, np.random.default_rng(1)
    total = {}
    for number, program in numbered[way]:
        inputs = {name: rng.normal(size=program.arrays[name].full_shape) for name in "QKV"}
        if "table" in program.arrays:
            pages = program.arrays["table"].full_shape
            inputs["table"] = np.broadcast_to(np.arange(pages[-1]), pages)
        _, counted, pointers = on_cpu.run(library, number, program, inputs, False)
        assert counted == pointers
        for name, (reads, writes) in counted.items():
            before = total.get(name, (0, 0))
            total[name] = before[0] + reads, before[1] + writes
    text = ", ".join(f"{new}:{tokens}" for new, tokens in CASES[way][1])
    fields = {**FIELDS, "heads": 2, "page_size": 8} if way in APART else FIELDS
    found = iosim.batch(text, **fields, splits=3)[way].tensors
    assert {name: (words["reads"], words["writes"]) for name, words in found.items()} == total


@pytest.mark.needs("triton")
@pytest.mark.parametrize("BM", [16, 32])
def test_words_are_those_of_a_paged_kernel_in_triton(BM):
    """The same block table, from the kernel's own code. Each program also reads two starts and a length."""
    pytest.importorskip("iosim.kernels")
    from iosim.kernels.read.kernel_file import kernel_of

    kernel, grid, given = triton_launches.paged(triton_launches.REQUESTS, 16, 6, 2, BM, 16)
    arguments = {
        name: iosim.tensor(*value) if isinstance(value, tuple) else np.array(value, "int32") if isinstance(value, list)
        else value
        for name, value in given.items()
    }  # fmt: skip
    file = Path(triton_launches.__file__).parent / "triton_kernels.py"
    explained = iosim.explain(kernel_of(str(file), kernel), grid, resources=False, **arguments).ways
    text = ", ".join(f"{new}:{seen}" for new, seen in triton_launches.REQUESTS)
    found = iosim.batch(text, d=16, heads=6, kv_heads=2, mask="causal", tiles=f"{BM}x16", page_size=16)["paged-tiles"]
    programs = grid[0] * grid[1] * grid[2]
    words = {name: explained[name]["reads"].words for name in ("Q", "K", "V", "TABLE")}
    assert words == {name: found.tensors[name if name in "QKV" else "table"]["reads"] for name in words}
    assert explained["O"]["writes"].words == found.tensors["O"]["writes"]
    assert explained["STARTS"]["reads"].words == 2 * programs and explained["SEEN"]["reads"].words == programs
    assert found.blocks < programs, "programs of shorter requests end early"


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
