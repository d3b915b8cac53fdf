"""A call of many kernels, pass by pass: PyTorch's attention without a fused kernel, and calls that are none."""

from dataclasses import replace

import pytest
from paths import DATA, VALIDATION

from iosim.core.problem import Attention
from iosim.gpu.ncu import counters
from iosim.gpu.profile.explain import explained
from iosim.gpu.profile.passes import explain_passes, sectors_beyond

P = Attention(512, 256, heads=8, dtype="fp16", acc_dtype="fp32")
MATH = counters.read_profile(DATA / "ncu_math.csv").jobs[0]
NAMES = ["S = Q K^T", "P = softmax(S)", "O = P V"]
S, O, SQUARE = 4 * 8 * 512 * 512, 4 * 8 * 512 * 256, 8 * 512 * 512  # bytes of S, P and O in fp32; scores


def kernel(read_bytes, write_bytes, grid=(1,)):
    metrics = {counters.LOADS: read_bytes, counters.FROM_L2: read_bytes, counters.STORES: write_bytes}
    return counters.ProfiledKernel("k", grid, (128,), metrics)


def names(kernels, p=P):
    return [one.part.name for one in explain_passes(kernels, p)]


def test_pytorch_by_hand():
    """H200, N = 512, d = 256: S of 8 x 4 tiles of 64 x 128 for each of 8 heads, each loading 64 rows of Q and 128 of K;
    O of 8 x 4 tiles of 64 x 64, each loading 64 rows of P and 64 columns of V."""
    found = explain_passes(MATH, P)
    assert [one.part.name for one in found] == NAMES and len(MATH) == 14
    scores, softmax, output = found
    assert scores.tiles == "64x128" and scores.read_bytes == 8 * 32 * (64 + 128) * 256 * 4 == scores.kernel.load_bytes
    assert softmax.tiles == "" and softmax.read_bytes == softmax.write_bytes == S == softmax.kernel.store_bytes
    assert output.tiles == "64x64" and output.read_bytes == 8 * 32 * (64 * 512 + 512 * 64) * 4
    assert output.read_bytes == output.kernel.load_bytes and output.write_bytes == O == output.kernel.store_bytes


def test_a_conversion_that_moves_as_much_is_no_product():
    """P to fp16 loads as much as one tile of 512 x 256 of O would, and writes as much as O. Its grid has other blocks."""
    copies = [k for k in MATH if (k.load_bytes, k.store_bytes) == (2 * S, S // 2)]
    assert len(copies) == 1 and 2 * S == 8 * (512 * 512 + 512 * 256 * 2) * 4, "what one 512 x 256 tile of O would load"
    assert copies[0] not in [one.kernel for one in explain_passes(MATH, P)]


def test_what_is_no_call_of_passes():
    """All three, in this order: fewer may be by chance."""
    scores, softmax, output = (one.kernel for one in explain_passes(MATH, P))
    assert names([scores, softmax, output]) == NAMES
    for fewer in ([output, softmax, scores], [scores], [], [scores, scores], [scores, softmax], [softmax, output]):
        assert names(fewer) == []
    assert names([scores, softmax, replace(output, grid=(7, 4, 8))]) == []


def test_a_kernel_that_moves_as_much_is_not_the_softmax():
    """S scaled in place, before or after; where none is called softmax it may be any."""
    scores, softmax, output = (one.kernel for one in explain_passes(MATH, P))
    scale = replace(softmax, name="vectorized_elementwise_kernel<MulFunctor>")
    for call in ([scores, scale, softmax, output], [scores, softmax, scale, output]):
        assert explain_passes(call, P)[1].kernel is softmax
    assert explain_passes([scores, scale, output], P)[1].kernel is scale


def test_two_calls():
    """A profile without markers, of somebody who warmed up: passes of both, and the rest of both together."""
    assert names([*MATH, *MATH]) == NAMES + NAMES
    rows = explained(None, [*MATH, *MATH], P)
    assert [row["pass"] for row in rows] == [*NAMES, *NAMES, "22 other kernels"]
    assert {row["kernel"] for row in rows} == {"call"}


@pytest.mark.parametrize("metric", [counters.LOADS, counters.STORES])
def test_both_reads_and_writes_must_be_close(metric):
    scores, softmax, output = (one.kernel for one in explain_passes(MATH, P))
    for off, explains in ((0.0004, True), (-0.0004, True), (0.0006, False), (-0.0006, False)):
        moved = replace(scores, metrics={**scores.metrics, metric: scores.metrics[metric] * (1 + off)})
        assert names([moved, softmax, output]) == (NAMES if explains else []), off


MATH_COMMAND = ("profile", "torch-math", "--N", 512, "--d", 256, "--heads", 8, "--from-ncu", DATA / "ncu_math.csv")


SERVING = VALIDATION / "h200-2026-11-22" / "serving.csv"


@pytest.mark.skipif(not SERVING.exists(), reason="the counters of a GPU are not here")
@pytest.mark.parametrize("N, d, heads", [(700, 64, 12), (300, 64, 8), (1500, 128, 8)])
def test_rows_that_are_no_whole_sectors(N, d, heads):
    """Rows of 700, 300 and 1500 floats: every second one starts in the middle of a sector. To the byte, on an H200."""
    profile = counters.read_profile(SERVING)
    sizes = [note["job"] for note in profile.notes if "job" in note]
    number = next(n for n, job in enumerate(sizes) if (job["run"], job["N"]) == ("torch-math", N))
    found = explain_passes(profile.jobs[number], Attention(N, d, heads=heads, dtype="fp16", acc_dtype="fp32"))
    assert [one.part.name for one in found] == NAMES
    for one in found:
        assert (one.kernel.load_bytes, one.kernel.store_bytes) == (one.read_bytes, one.write_bytes)
        assert one.tiles in one.kernel.name
    assert found[0].tiles and found[0].write_bytes > 4 * heads * N * N, "more than the words"


@pytest.mark.parametrize("row_words, piece", [(700, 128), (300, 32), (13, 64), (512, 128), (8, 32), (1, 128)])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_sectors_by_brute_force(row_words, piece, dtype):
    """Every piece of every row, at its address."""
    p = Attention(21, 8, heads=3, dtype=dtype)
    touched = 0
    for row in range(21 * 3):
        start, end = (x * row_words * p.word_bytes for x in (row, row + 1))
        for at in range(start, end, piece):
            touched += len({byte // 32 for byte in range(at, min(at + piece, end))}) * 32
    assert sectors_beyond(p, row_words, piece) == touched - 21 * 3 * row_words * p.word_bytes


@pytest.mark.parametrize("wrong", [{"d": 128}, {"heads": 4}, {"N": 256}, {"batch": 2}])
def test_another_problem_is_not_explained(iosim, wrong):
    """Nor by a schedule that reads and even writes as much as one of the products: that is the least part of the call."""
    sizes = {"N": 512, "d": 256, "heads": 8} | wrong
    given = [part for name, size in sizes.items() for part in (f"--{name}", size)]
    done = iosim("profile", "torch-math", *given, "--from-ncu", DATA / "ncu_math.csv", "--csv")
    assert done.exit_code == 0 and "nothing explains torch-math" in done.stderr
    assert ",True," not in done.stdout and ",pass," not in done.stdout


def test_each_pass_loads_its_compulsory_bytes(ask):
    """All that it reads, once: Q and K; S; P and V. What is written stays in the L2."""
    rows = ask(*MATH_COMMAND)["explanations"]
    Q = K = V = O
    assert [row["dram_compulsory_bytes"] for row in rows] == [Q + K, S, S + V, None]
    assert all(1 <= row["dram_ratio"] <= 1.02 for row in rows[:3]) and rows[3]["dram_ratio"] is None
