"""Launches that compute attention with a state, taken together: `explain --as gdn`."""

import json

import pytest
from paths import ROOT

from iosim.kernels.of_state import tensor_of

pytestmark = pytest.mark.needs("triton")
FUSED = """
import triton, triton.language as tl
@triton.jit
def linear(q, k, v, o, T, D: tl.constexpr, BT: tl.constexpr, TWICE: tl.constexpr):
    at = tl.program_id(0) * T * D + tl.arange(0, BT)[:, None] * D + tl.arange(0, D)[None, :]
    late = tl.arange(0, BT)[:, None] >= tl.arange(0, BT)[None, :]
    state = tl.zeros((D, D), tl.float32)
    for c in range(0, T, BT):
        x, y, z = tl.load(q + at), tl.load(k + at), tl.load(v + at)
        out = tl.dot(x, state.to(tl.float16)) + tl.dot(tl.where(late, tl.dot(x, tl.trans(y)), 0).to(tl.float16), z)
        tl.store(o + at, out.to(tl.float16))
        if TWICE:
            y = tl.load(k + at)
        state += tl.dot(tl.trans(y), z)
        at += BT * D
"""
SIZES = "--arg H=4 --arg T=256 --const D=32 --const BT=32 --as linear --N 256 --d 32 --heads 4 --grid H"


@pytest.fixture
def asked(iosim, tmp_path):
    (tmp_path / "kernels.py").write_text(FUSED)
    tensors = [part for name in "qkvo" for part in ("--arg", f"{name}=fp16[H,T,D]")]

    def ask(*more):
        line = ["explain", tmp_path / "kernels.py", *tensors, *SIZES.split(), "--no-resources", *more]
        return iosim(*line)

    return ask


def test_a_kernel_that_keeps_the_state(asked):
    found = asked("--const", "TWICE=0").stdout
    assert found.startswith("1 launch reads 96 words and writes 32 a token and value head; no exact algorithm moves")
    assert "The words are those of state-fused" in found.splitlines()[0]


def test_what_makes_the_difference(asked):
    found = json.loads(asked("--const", "TWICE=1", "--json").stdout)["pass"]
    assert found["reads"] - 3 * 4 * 256 * 32 == found["nearest"]["distance_words"] == 4 * 256 * 32
    assert found["nearest"]["schedule"] == "state-fused" and found["compulsory_words"] == 4 * 4 * 256 * 32
    assert [line.split(",")[0] for line in found["nearest"]["differences"]] == ["K is read 65"]


def test_other_names_are_given_and_other_rules_refused(iosim, asked):
    assert asked("--const", "TWICE=0", "--as", "linear:Z=q").exit_code == 2
    found = asked("--const", "TWICE=0", "--as", "gated")
    assert found.exit_code == 2 and "gdn" in found.stderr


@pytest.mark.parametrize(
    "name, beside, delta, tensor",
    [
        ("v", "k v w v_new h ht g", True, "U"),
        ("v", "q k v h o", False, "V"),
        ("v_new", "k v w v_new h", True, "Unew"),
        ("v", "q k v h g o", True, "Unew"),
        ("o", "s o", True, "g"),
        ("s", "s o cu_seqlens", True, "g"),
        ("o", "q k v h o", True, "O"),
        ("scale", "q k", False, "scale"),
    ],
)
def test_tensors_have_the_names_of_kernels(name, beside, delta, tensor):
    assert tensor_of(name, beside.split(), delta) == tensor


PUBLISHED = """
import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
q, k, v = (torch.empty(1, 8192, 1, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
g, beta = (torch.empty(1, 8192, 1, dtype=t, device="cuda") for t in (torch.float32, torch.bfloat16))
chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)
"""


@pytest.mark.needs("torch")
@pytest.mark.needs("fla")
def test_the_forward_pass_of_flash_linear_attention(iosim, tmp_path):
    """Each word is one of `state-saved`, but for sums of gates, and for A, of which only tiles on and below the
    diagonal are written."""
    (tmp_path / "gdn.py").write_text(PUBLISHED)
    found = iosim(
        "explain", "--script", tmp_path / "gdn.py", *["--as", "gdn", "--N", "8192", "--d", "128", "--no-resources"]
    )
    first = found.stdout.splitlines()[0]
    assert first.startswith("5 launches read 2,250.0625 words and write 811 a token and value head")
    assert first.endswith("Nearest is state-saved with chunks of 64 tokens and 4 blocks of columns.")
    assert first in (ROOT / "docs" / "explain.md").read_text()
    gap = [line.split(" words")[0].strip() for line in found.stdout.splitlines() if " than in state-saved" in line]
    assert gap == ["g is read 66,048", "A is written 327,680"]
