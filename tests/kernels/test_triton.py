"""Kernels written in Triton are counted as Triton's own interpreter counts them, and as closed forms say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import triton_launches
from triton_launches import LAUNCHES

import iosim
from iosim.errors import InputError

pytestmark = pytest.mark.needs("triton")
HELPERS = Path(triton_launches.__file__).parent
FILE = HELPERS / "triton_kernels.py"


def value_of(given):
    """An argument for `iosim.explain`."""
    if isinstance(given, list):
        return np.array(given, "int32")
    return iosim.tensor(*given) if isinstance(given, tuple) else given


def counted(kernel, grid, arguments, file=FILE, **more):
    """The answer for a launch, without the rest of the compilation."""
    from iosim.kernels.read.kernel_file import kernel_of

    values = {name: value_of(given) for name, given in arguments.items()}
    return iosim.explain(kernel_of(str(file), kernel), grid, **{"resources": False, **more}, **values)


def interpreted(launches):
    """What Triton's interpreter finds for launches (file, kernel, grid, arguments)."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HELPERS / "triton_interpreter.py"], input=json.dumps(launches, default=str), text=True,
        capture_output=True, env={**os.environ, "TRITON_INTERPRET": "1"}, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def by_interpreter():
    launches = [[str(FILE), *launch] for launch in LAUNCHES.values()]
    return dict(zip(LAUNCHES, interpreted(launches), strict=True))


def as_interpreter(answer):
    """An answer in the form of the interpreter's."""
    return {
        name: {way: [w.words, w.distinct_words] for way, w in ways.items() if w.words}
        for name, ways in answer.ways.items()
    }


@pytest.mark.parametrize("name", LAUNCHES)
def test_words_are_those_of_the_interpreter(name, by_interpreter):
    assert as_interpreter(counted(*LAUNCHES[name])) == by_interpreter[name]


def test_nothing_lies_outside_of_its_tensor():
    assert [w for launch in LAUNCHES.values() for w in counted(*launch).warnings] == []


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("N, causal", [(512, False), (2048, True), (2000, True)])
def test_attention_has_the_words_of_its_schedule(N, causal):
    kernel, grid, arguments = triton_launches.attention(N, 64, 4, 128, 64, causal)
    problem = iosim.Attention(N=N, d=64, heads=4, mask=parse("causal" if causal else "dense"))
    answer = counted(kernel, grid, arguments, problem=problem)
    count = iosim.count(N=N, d=64, heads=4, mask="causal" if causal else "dense", tiles="128x64")
    exact = count["flash2"].tensors
    assert {name: {way: row[way] for way in ("reads", "writes")} for name, row in answer.tensors.items()} == exact
    assert answer.nearest.equal and answer.nearest.tiles == "128x64" and answer.nearest.differences() == []
    assert (answer.nearest.schedule, answer.nearest.visit_all) == ("flash2", False)


def parse(text):
    from iosim.masks import parse_mask

    return parse_mask(text)


def test_dots_are_counted_in_whole_tiles():
    kernel, grid, arguments = triton_launches.attention(2048, 64, 4, 128, 64, False)
    assert counted(kernel, grid, arguments).flops == 4 * 4 * 2048 * 2048 * 64
    kernel, grid, arguments = triton_launches.matmul(70, 50, 40, 32, 16, 16)
    assert counted(kernel, grid, arguments).flops == 2 * (3 * 32) * (4 * 16) * (3 * 16)


def test_a_matrix_product_of_many_tiles():
    kernel, grid, arguments = triton_launches.matmul(2048, 1024, 512, 128, 64, 32)
    tensors = counted(kernel, grid, arguments).tensors
    assert tensors["A"]["reads"] == 2048 * 512 * (1024 // 64)
    assert tensors["B"]["reads"] == 512 * 1024 * (2048 // 128)
    assert (tensors["C"]["writes"], tensors["C"]["distinct_writes"]) == (2048 * 1024, 2048 * 1024)
    assert tensors["A"]["times_read"] == 16 and tensors["A"]["distinct_reads"] == 2048 * 512


def test_a_large_grid_is_fast():
    import time

    n = 1 << 30
    arguments = {**dict.fromkeys("XYZ", ("fp16", (n,))), "n": n - 5, "BLOCK": 1024}
    start = time.perf_counter()
    answer = counted("add", (n // 1024,), arguments)
    assert time.perf_counter() - start < 20
    assert [answer.tensors[name]["reads"] + answer.tensors[name]["writes"] for name in "XYZ"] == 3 * [n - 5]
    assert answer.tensors["X"]["masked_lanes"] == 5 and answer.programs == n // 1024


def test_sectors_of_rows_that_are_no_whole_sectors():
    """A row of 33 words of 4 bytes in rows of 40 starts at a sector and touches five."""
    answer = counted(*LAUNCHES["softmax"])
    assert answer.tensors["X"]["read_sector_bytes"] == 7 * 5 * 32 and answer.tensors["X"]["read_bytes"] == 7 * 33 * 4


# ---------------------------------------------------------------- mutants

MUTANTS = {
    "hoisted load": (
        "        v = tl.load(V + head + cols[:, None] * D + dims[None, :], mask=cols[:, None] < N, other=0.0)\n",
        "        v = tl.load(V + head + tl.arange(0, BN)[:, None] * D + dims[None, :], mask=tl.arange(0, BN)[:, None] < N, other=0.0)\n",
        {"V"}),
    "wrong mask": ("mask=cols[None, :] < N, other", "mask=cols[None, :] <= N, other", {"K"}),
    "no mask": ("rows[:, None] * D + dims[None, :], mask=rows[:, None] < N, other=0.0)", "rows[:, None] * D + dims[None, :])", {"Q"}),
    "doubled store": ("        m = new\n", "        m = new\n        tl.store(O + head + rows[:, None] * D + dims[None, :], o.to(tl.float16), mask=rows[:, None] < N)\n", {"O"}),
    "transposed stride": ("K + head + cols[None, :] * D + dims[:, None]", "K + head + cols[None, :] + dims[:, None] * D", {"K"}),
    "one tile too few": ("range(0, end, BN)", "range(0, end - BN, BN)", {"K", "V"}),
}  # fmt: skip


def mutant(name, folder):
    """The file of the kernels with a mistake."""
    old, new, _ = MUTANTS[name]
    text = FILE.read_text()
    assert text.count(old) == 1
    file = folder / "mutant.py"
    file.write_text(text.replace(old, new))
    return file


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_in_a_kernel_changes_its_answer(name, tmp_path):
    launch = triton_launches.attention(50, 16, 1, 32, 16, False)
    right, wrong = counted(*launch), counted(*launch, file=mutant(name, tmp_path))
    assert {n for n in "QKVO" if right.tensors[n] != wrong.tensors[n]} == MUTANTS[name][2]
    if name == "no mask":
        assert wrong.tensors["Q"]["outside_words"] == 14 * 16
        assert "Q: 224 words of its reads lie outside of its shape (1, 50, 16)" in wrong.warnings[0]
    if name == "hoisted load":
        assert wrong.tensors["V"]["distinct_reads"] == 16 * 16


def test_the_difference_to_the_nearest_schedule_is_said(tmp_path):
    launch = triton_launches.attention(256, 64, 2, 64, 32, False)
    file, problem = mutant("doubled store", tmp_path), iosim.Attention(N=256, d=64, heads=2)
    found = counted(*launch, file=file, problem=problem).nearest
    assert (found.schedule, found.tiles, found.equal) == ("flash2", "64x32", False)
    more = 8 * 256 * 64 * 2
    assert found.distance_words == more
    assert found.differences() == [
        f"O is written {9 * 256 * 64 * 2:,} words, {more:,} words more than in flash2 64x32 (9 times as many)"
    ]


# ---------------------------------------------------------------- what a program takes


def test_shared_memory_and_registers_are_those_of_the_compiler():
    kernel, grid, arguments = triton_launches.attention(4096, 128, 1, 128, 64, False)
    answer = counted(kernel, grid, arguments, resources=True, num_warps=8, num_stages=3)
    tile = 64 * 128 * 2
    assert answer.resources.smem_bytes >= 2 * 2 * tile, "K and V are in flight in two of three stages"
    assert answer.fits and 1 <= answer.blocks_per_sm <= 232_448 // (4 * tile)
    assert 32 <= answer.resources.registers <= 255
    less = counted(kernel, grid, arguments, resources=True, num_warps=8, num_stages=1)
    assert less.resources.smem_bytes < answer.resources.smem_bytes


def test_a_kernel_that_does_not_fit():
    kernel, grid, arguments = triton_launches.attention(4096, 256, 1, 128, 128, False)
    answer = counted(kernel, grid, arguments, resources=True, num_warps=8, num_stages=4)
    assert answer.resources.smem_bytes > 232_448 and answer.fits is False and answer.blocks_per_sm is None
    assert "It does not fit: H100 gives a program at most" in answer.sentence and answer.sentence in str(answer)


# ---------------------------------------------------------------- what cannot be known


def line_of(text):
    return 1 + [text in line for line in FILE.read_text().splitlines()].index(True)


def test_a_loaded_address_without_its_data_is_refused():
    kernel, grid, arguments = LAUNCHES["gather"]
    with pytest.raises(InputError) as refused:
        counted(kernel, grid, {**arguments, "TABLE": ("int32", (5,))})
    line = line_of("source = tl.load")
    assert f"triton_kernels.py, line {line} `source = tl.load(TABLE + row)`" in str(refused.value)
    assert "--arg TABLE=FILE.npy" in str(refused.value)
