"""Words whose addresses are data, and words that atomic operations add: what is counted, and what is left open."""

import json

import numpy as np
import pytest
from paths import ROOT

from iosim import Attention, floor

pytestmark = pytest.mark.needs("triton")
KERNELS = """
import triton
import triton.language as tl

@triton.jit
def embed(IDS, W, O, D, GUARD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.load(IDS + row)
    at = tl.arange(0, BLOCK)
    on = at < D
    if GUARD:
        on = on & (index >= 0)
    tl.store(O + row * D + at, tl.load(W + index * D + at, mask=on), mask=at < D)

@triton.jit
def rows_of(IDS, W, O, D: tl.constexpr, B: tl.constexpr):
    rows, at = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    found = tl.load(W + tl.load(IDS + rows)[:, None] * D + at[None])
    tl.store(O + rows[:, None] * D + at[None], found)

@triton.jit
def codebook(X, C, O, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = (tl.load(X + at, mask=at < n) * 255.0).to(tl.int32)
    tl.store(O + at, tl.load(C + code, mask=at < n), mask=at < n)

@triton.jit
def experts(X, E, W, O, D: tl.constexpr, BM: tl.constexpr):
    expert = tl.load(E + tl.program_id(0)).to(tl.int64)
    rows, cols = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    sums, weights = tl.zeros((BM, D), tl.float32), W + expert * D * D
    for k in range(0, D, 16):
        inner = k + tl.arange(0, 16)
        sums += tl.dot(tl.load(X + rows[:, None] * D + inner[None, :]), tl.load(weights + inner[:, None] * D + cols[None, :]))
    tl.store(O + rows[:, None] * D + cols[None, :], sums.to(tl.float16))

@triton.jit
def rows(P, SIZES, O, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = tl.load(P + row).to(tl.pointer_type(tl.float16))
    size = tl.load(SIZES + row)
    for k in range(0, size, BLOCK):
        at = k + tl.arange(0, BLOCK)
        tl.store(O + row * 100 + at, tl.load(start + at, mask=at < size), mask=at < size)

@triton.jit
def split(Q, K, V, O, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows, dims = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    keys = tl.program_id(1) * BN + tl.arange(0, BN)
    s = tl.dot(tl.load(Q + rows[:, None] * D + dims[None, :]), tl.load(K + keys[None, :] * D + dims[:, None])) * scale
    o = tl.dot(tl.exp(s).to(tl.float16), tl.load(V + keys[:, None] * D + dims[None, :]))
    tl.atomic_add(O + rows[:, None] * D + dims[None, :], o)
"""


@pytest.fixture
def explain(iosim, tmp_path):
    """(the answer as JSON, the notes) of a kernel's launch."""
    (tmp_path / "kernels.py").write_text(KERNELS)

    def run(kernel, grid, *options):
        line = ["explain", tmp_path / "kernels.py", "--kernel", kernel, "--grid", grid, "--json", *options]
        found = iosim(*line)
        return (json.loads(found.stdout) if found.stdout else None), found.stderr

    return run


EMBED = ("--no-resources", "--arg=W=fp32[1000,60]", "--arg=O=fp32[100,60]", "--arg=D=60", "--const=BLOCK=64")


def test_an_embedding_reads_so_many_words_wherever_they_are(explain, tmp_path):
    answer, told = explain("embed", "100", *EMBED, "--arg", "IDS=int64[100]", "--const", "GUARD=False")
    words = answer["tensors"]["W"]
    assert (words["reads"], words["read_bytes"], words["masked_lanes"]) == (6000, 24000, 400)
    assert [words[key] for key in ("distinct_reads", "times_read", "read_sector_bytes")] == [None] * 3
    assert "W: the addresses of 6,000 words of its reads follow from data" in told and "--arg IDS=FILE.npy" in told
    np.save(tmp_path / "ids.npy", np.arange(100) % 7)
    answer, told = explain("embed", "100", *EMBED, "--arg", f"IDS={tmp_path / 'ids.npy'}", "--const", "GUARD=False")
    assert answer["tensors"]["W"]["reads"] == 6000 and answer["tensors"]["W"]["distinct_reads"] == 7 * 60
    assert "W:" not in told


def test_a_row_that_lies_outside_is_a_note(explain, tmp_path):
    """A request has other rows, so the shape suits the kernel."""
    np.save(tmp_path / "ids.npy", np.array([*range(31), 1000], np.int64))
    options = ("--no-resources", "--arg=W=fp32[1000,64]", "--arg=O=fp32[32,64]", "--const=D=64", "--const=B=16")
    answer, told = explain("rows_of", "2", *options, "--arg", f"IDS={tmp_path / 'ids.npy'}")
    assert answer["tensors"]["W"]["reads"] == 32 * 64 and answer["tensors"]["W"]["outside_words"] == 64
    assert "W: 64 words of its reads lie outside of its shape (1000, 64)" in told


def test_a_mask_that_is_data_is_refused(explain):
    answer, told = explain("embed", "100", *EMBED, "--arg", "IDS=int64[100]", "--const", "GUARD=True")
    assert answer is None and "what is loaded from IDS decides an address, a mask or a loop" in told


def test_a_codebook_of_floating_point_numbers(explain):
    options = ("--no-resources", "--arg", "n=1000", "--const", "BLOCK=128")
    answer, told = explain(
        "codebook", "8", *options, *(f"--arg={t}" for t in ("X=fp32[1000]", "C=fp32[256]", "O=fp32[1000]"))
    )
    assert answer["tensors"]["C"]["reads"] == 1000 and "FILE.npy" not in told


def test_weights_of_experts(explain):
    tensors = ("X=fp16[160,64]", "E=int32[10]", "W=fp16[8,64,64]", "O=fp16[160,64]")
    answer, _ = explain("experts", "10", "--const", "D=64", "--const", "BM=16", *(f"--arg={t}" for t in tensors))
    assert answer["tensors"]["W"]["reads"] == 10 * 64 * 64 and answer["tensors"]["W"]["distinct_reads"] is None
    assert answer["fits"]


SIZES = np.array([100, 7, 64, 100], np.int32)
ROWS = ("--no-resources", "--arg=O=fp16[400]", "--const=BLOCK=32")


def test_pointers_that_a_kernel_loads_lead_to_tensors_of_their_own(explain, tmp_path):
    """Two rows begin at the same address, and a third one 50 words later: the first 100 words and 14 more."""
    np.save(tmp_path / "sizes.npy", SIZES)
    np.save(tmp_path / "p.npy", np.array([1 << 40, 1 << 40, (1 << 40) + 100, 1 << 41]))
    sizes, p = f"--arg=SIZES={tmp_path / 'sizes.npy'}", f"--arg=P={tmp_path / 'p.npy'}"
    answer, told = explain("rows", "4", *ROWS, sizes, p)
    row = answer["tensors"]["*P"]
    assert (row["reads"], row["read_bytes"], row["distinct_reads"], row["outside_words"]) == (271, 542, 214, 0)
    assert answer["tensors"]["P"]["reads"] == 4 and answer["tensors"]["O"]["writes"] == 271 and "*P" not in told
    answer, told = explain("rows", "4", *ROWS, sizes, "--arg=P=int64[4]")
    row = answer["tensors"]["*P"]
    assert (row["reads"], row["read_bytes"], row["distinct_reads"]) == (271, 542, None)
    assert "*P: the addresses of 271 words of its reads follow from data" in told and "--arg P=FILE.npy" in told
    for trace in (p, "--arg=P=int64[4]"):
        _, told = explain("rows", "4", *ROWS, sizes, trace, "--trace", tmp_path / "events.csv")
        assert "an address that is loaded" in told or "what is loaded from P" in told


POINTED = """
import torch

parts = [torch.randn(n, device="cuda", dtype=torch.float16) for n in (100, 100, 100)]
parts.append(parts[0][50:])
starts = torch.tensor([part.data_ptr() for part in parts], device="cuda")
assert len(set(starts.tolist())) == 4 and starts[0] + 100 == starts[3] and starts[1] % 16 == 0
sizes = torch.tensor([100, 7, 64, 50], dtype=torch.int32, device="cuda")
rows[(4,)](starts, sizes, torch.empty(400, device="cuda", dtype=torch.float16), BLOCK=32)
"""


@pytest.mark.needs("torch")
def test_tensors_of_a_script_have_addresses(ask, tmp_path):
    (tmp_path / "bench.py").write_text(KERNELS + POINTED)
    answer = ask("explain", "--script", tmp_path / "bench.py", "--no-resources")
    row = answer["tensors"]["*P"]
    assert (row["reads"], row["distinct_reads"]) == (221, 171), "the last row is half of the first"


def test_atomic_words_count_once_against_the_floor(explain):
    """docs/floors-backward.md, section 12: reads, writes and adds together are at least the floor."""
    N, D, BM, BN = 512, 64, 64, 64
    tensors = [
        *(f"--arg={t}=fp16[{N},{D}]" for t in "QKV"),
        f"--arg=O=fp32[{N},{D}]",
        "--arg=scale=1.0",
        f"--arg=N={N}",
    ]
    consts = [f"--const={name}={value}" for name, value in {"D": D, "BM": BM, "BN": BN}.items()]
    answer, _ = explain("split", f"{N // BM}, {N // BN}", *tensors, *consts, "--as", "attention", "--N", N, "--d", D,
                        "--no-resources")  # fmt: skip
    assert answer["atomics"] == N * D * N // BN
    moved = answer["reads"] + answer["writes"] + answer["atomics"]
    assert answer["floor"]["ratio"] == moved / answer["floor"]["words"] > 1
    assert answer["floor"]["words"] == floor(Attention(N, D), f"{answer['floor']['M_words']}el").words
    assert answer["nearest"]["schedule"] and (ROOT / "docs" / "floors-backward.md").exists()
