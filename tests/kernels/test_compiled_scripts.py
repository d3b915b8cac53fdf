"""Scripts that call torch.compile: Inductor compiles for a GPU that is not there, and the launches are those of a GPU."""

import re

import pytest
from paths import TESTS

pytestmark = [pytest.mark.needs("torch"), pytest.mark.needs("triton")]
HELPERS = TESTS / "helpers"
MIB = 2**20

ODD = """
import torch
from torch.nn import functional as F

HALF = {"device": "cuda", "dtype": torch.float16}

@torch.compile
def masked(q, m):
    return F.scaled_dot_product_attention(q, q, q, attn_mask=m)

@torch.compile(dynamic=True)
def dynamic(q):
    return q * 2

@torch.compile
def mixed(q, w):
    with torch.autocast("cuda", dtype=torch.float16):
        return q @ w

@torch.compile
def in_two_graphs(q):
    q = q * 2
    print("a line of the script")
    return q + 1

@torch.compile(mode="max-autotune")
def shared_heads(q, k):
    return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)

@torch.compile
def dropped(x):
    return F.dropout(x, 0.1)

masked(torch.randn(1, 8, 256, 64, **HALF), torch.ones(256, 256, dtype=torch.bool, device="cuda"))
dynamic(torch.randn(7, **HALF))
mixed(torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda"))
in_two_graphs(torch.randn(1024, **HALF))
assert shared_heads(torch.randn(1, 8, 256, 64, **HALF), torch.randn(1, 2, 256, 64, **HALF)).shape == (1, 8, 256, 64)
x = torch.randn(512, 512, **HALF, requires_grad=True)
dropped(x).sum().backward()
assert x.grad.shape == x.shape
"""


def explained(ask, path):
    """The parsed JSON of a script's step."""
    return ask("explain", "--script", path, "--no-resources")


def test_a_forward_chain_has_its_kernels_and_products(ask):
    """The norm reads its weight for each of 4096 rows; SwiGLU reads two tensors and writes one."""
    found = explained(ask, HELPERS / "compiled_swiglu.py")
    norm, *products, out = found["launches"]
    silu = products.pop(2)
    assert [row["kind"] for row in found["launches"]] == [
        "kernel",
        "product",
        "product",
        "kernel",
        "product",
        "product",
    ]
    assert norm["total_bytes"] == 24 * MIB and norm["once_bytes"] == 16 * MIB + 2048
    assert silu["total_bytes"] == silu["once_bytes"] == 96 * MIB
    assert [row["flops"] for row in (*products, out)] == [2 * 4096 * 1024 * 4096] * 3 + [2 * 4096 * 1024 * 1024]
    (graph,) = found["graphs"]
    assert (graph["name"], graph["runs"], graph["launches"]) == ("0_inference", 1, 6)
    assert "compiled_swiglu.py, line" in graph["place"]


def test_a_training_step_has_both_passes(ask):
    found = explained(ask, HELPERS / "compiled_block.py")
    assert [(g["name"], g["runs"]) for g in found["graphs"]] == [("0_forward", 2), ("0_backward", 2)]
    kinds = [(row["graph"], row["kind"]) for row in found["launches"]]
    assert [
        kinds.count((f"0_{graph}", kind)) for graph in ("forward", "backward") for kind in ("product", "attention")
    ] == [4, 1, 8, 1]
    attention, backward = (row for row in found["launches"] if row["kind"] == "attention")
    words, rows = 2 * 8 * 1024 * 64, 2 * 8 * 1024
    assert attention["launch"] == "aten._scaled_dot_product_flash_attention 2x8x1024x64 causal"
    assert attention["once_bytes"] == 4 * words * 2 + 4 * rows and backward["once_bytes"] == 8 * words * 2 + 4 * rows
    products = [row for row in found["launches"] if row["kind"] == "product"]
    forward = sum(row["flops"] for row in products if row["graph"] == "0_forward")
    assert forward == 2 * 2048 * 512 * (1536 + 512 + 2048 + 2048)
    assert sum(row["flops"] for row in products) == 3 * forward
    assert not found["uncounted"] and found["once_bytes"] < found["total_bytes"] < found["published_bytes"]


def test_what_is_not_known_has_a_reason_and_the_script_goes_on(tmp_path, iosim):
    script = tmp_path / "odd.py"
    script.write_text(ODD)
    answer = iosim("explain", "--script", script, "--no-resources")
    assert answer.exit_code == 1, "a launch without an answer"
    notes = [line for line in answer.stderr.splitlines() if line.startswith("note: odd.py")]
    reasons = ("attention with a mask", "dynamic=True", "torch.autocast")
    assert len(notes) == 3 and all(reason in note for reason, note in zip(reasons, notes, strict=True))
    for shown in ("0_inference", "flash_attention 1x8x256x64", "native_dropout_backward"):
        assert shown in answer.stdout
    assert answer.stdout.count("inference: 1 Triton kernel") == 2, "a graph before the break and one after it"


def test_another_release_has_one_message(tmp_path, iosim, monkeypatch):
    import torch

    script = tmp_path / "own.py"
    script.write_text("import torch\ntorch.compile(lambda x: x + 1)(torch.ones(3, device='cuda'))\n")
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    answer = iosim("explain", "--script", script)
    assert answer.exit_code == 3 and "PyTorch 2.13, and this is 2.99.0" in answer.stderr
    assert "--inductor" in answer.stderr


HEADS = """
import torch
from torch import nn

HALF = {"device": "cuda", "dtype": torch.bfloat16}
layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True).to(**HALF)
torch.compile(layer)(torch.randn(2, 128, 256, **HALF)).sum().backward()

@torch.compile
def counted(n):
    return torch.arange(n, device="cuda").float().cumsum(0)

assert counted(1024).is_cuda
"""


def test_attention_inside_of_other_functions_is_that_of_a_gpu(tmp_path, iosim):
    """That of a CPU, with dropout, would be two products and a softmax. A graph may have no input."""
    script = tmp_path / "heads.py"
    script.write_text(HEADS)
    answer = iosim("explain", "--script", script, "--no-resources")
    assert answer.exit_code == 0, answer.stderr
    assert "flash_attention 2x4x128x64" in answer.stdout and "flash_attention_backward 2x4x128x64" in answer.stdout
    assert "bmm" not in answer.stdout and "1_inference: 1 Triton kernel" in answer.stdout


ALONE = """
import torch
from torch.nn import functional as F

q = torch.randn(1, 8, 4096, 64, device="cuda", dtype=torch.float16)
torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q))(q)
"""


def test_attention_asks_for_what_pytorchs_kernel_loads(tmp_path, iosim, ask):
    """torch-flash loads 1,090,519,040 bytes for 32 such heads on an H100, and stores O and a log-sum-exp a row."""
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    (row,) = explained(ask, script)["launches"]
    assert row["read_bytes"] == 1_090_519_040 // 4 and row["write_bytes"] == 8 * 4096 * (64 * 2 + 4)
    text = iosim("explain", "--script", script, "--no-resources").stdout
    assert text.startswith("A step makes 1 launch and asks for 276,955,136 B")
    assert "with the best tiles it would be 80.12 MiB" in text
    before = iosim("explain", "--script", script, "--no-resources", "--target", "sm_75").stdout
    assert "memory-efficient 64x64, as PyTorch" in before, "FlashAttention needs sm_80"


BOTH = ALONE.replace("float16)", "float16, requires_grad=True)").replace("(q)", "(q).sum().backward()")


def test_tiles_that_ask_for_more_are_not_called_best(tmp_path, iosim):
    """In the 99 KiB of a GPU of sm_86 a backward pass of 16 rows asks for more than PyTorch's, which uses registers."""
    script = tmp_path / "both.py"
    script.write_text(BOTH)
    text = iosim("explain", "--script", script, "--no-resources", "--hardware", "rtx-3090").stdout
    assert "attention: flash2-bwd 64x128, as PyTorch\n" in text
    own, best = map(
        float, re.search(r"asks for ([\d.]+) MiB; with the best tiles it would be ([\d.]+) MiB", text).groups()
    )
    assert best < own


ROWS = """
import torch
from torch.nn import functional as F

@torch.compile
def doubled(ids, table):
    return F.embedding(ids, table) * 2

doubled(torch.full((256,), 5, device="cuda"), torch.randn(1000, 1000, device="cuda", dtype=torch.float16))
"""


def test_integers_that_a_script_makes_are_known(tmp_path, ask):
    """256 times the same row of 1000 words is one row once. The kernel loads the row's number for each word."""
    script = tmp_path / "rows.py"
    script.write_text(ROWS)
    (row,) = explained(ask, script)["launches"]
    ids, rows = 256 * 8, 256 * 1000 * 2
    assert (row["read_bytes"], row["write_bytes"]) == (1000 * ids + rows, rows)
    assert row["once_bytes"] == ids + 1000 * 2 + rows
