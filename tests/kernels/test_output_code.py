"""Files that PyTorch wrote with TORCH_COMPILE_DEBUG=1, of two releases: 2.11 on an H200, 2.13 for an H100. Both are of
one block: RMSNorm, a product, causal attention, a product, and GELU, of 2 sequences of 512 rows of 256 words."""

import json
import re

import pytest
from paths import TESTS

pytestmark = [pytest.mark.needs("triton"), pytest.mark.needs("torch")]
CODE = TESTS / "data" / "inductor"
ROWS, WIDTH = 2 * 512, 256


@pytest.mark.parametrize("release", ["2_11", "2_13"])
def test_its_kernels_have_the_words_that_a_reader_of_their_code_counts(iosim, release):
    found = iosim("explain", "--script", CODE / f"output_code_{release}.txt", "--json")
    assert found.exit_code == 0
    norm, last = json.loads(found.stdout)["answers"]
    weights = ROWS // norm["constants"]["XBLOCK"] * WIDTH  # each program reads the norm's weights
    rows = {name: (row["reads"], row["writes"]) for name, row in norm["tensors"].items()}
    assert rows == {"in_ptr0": (ROWS * WIDTH, 0), "in_ptr1": (weights, 0), "out_ptr1": (0, ROWS * WIDTH)}
    rows = {name: (row["reads"], row["writes"]) for name, row in last["tensors"].items()}
    assert rows == {"in_out_ptr0": (ROWS * WIDTH,) * 2, "in_ptr0": (ROWS * WIDTH, 0)}
    assert last["programs"] == -(-ROWS * WIDTH // last["constants"]["XBLOCK"]) and last["fits"]
    note = r"note: 2 matmuls \(lines \d+ to \d+\) and 1 attention \(line \d+\) of PyTorch are not counted\n"
    assert re.search(note, found.stderr)


def test_all_of_its_configurations_are_ranked(iosim):
    command = ("explain", "--script", CODE / "output_code_2_11.txt", "--kernel", "triton_poi_fused_add_gelu_view_1")
    answers = json.loads(iosim(*command, "--tune", "--json").stdout)["answers"]
    assert sorted(answer["constants"]["XBLOCK"] for answer in answers) == [512, 1024]
    assert len({answer["total_bytes"] for answer in answers}) == 1


FLEX = """
import torch, triton, triton.language as tl
from torch._dynamo.testing import rand_strided
from torch._inductor.async_compile import AsyncCompile
@triton.jit
def triton_tem_fused_flex_attention_0(COUNTS, K, O):
    for block in range(tl.load(COUNTS + tl.program_id(0))):
        tl.store(O + tl.arange(0, 16), tl.load(K + block * 16 + tl.arange(0, 16)))
@triton.jit
def triton_poi_fused_1(O):
    tl.store(O + tl.arange(0, 2), 0.0)
counts = rand_strided((4,), (1,), device="cuda:0", dtype=torch.int32)
keys = rand_strided((64,), (1,), device="cuda:0", dtype=torch.float32)
triton_tem_fused_flex_attention_0[(4,)](counts, keys, keys)
triton_poi_fused_1[(1,)](keys)
"""


def test_lists_of_key_blocks_are_not_what_the_file_makes_in_their_place(iosim, tmp_path):
    """The zeros that PyTorch makes there would have the kernel of FlexAttention read nothing."""
    (tmp_path / "output_code.py").write_text(FLEX)
    found = iosim("explain", "--script", tmp_path / "output_code.py", "--no-resources")
    first, _, second = found.stdout.splitlines()[:3]
    assert found.exit_code == 1 and second == "triton_poi_fused_1 writes 8 B."
    assert first.startswith(
        "No answer for triton_tem_fused_flex_attention_0: FlexAttention's kernel follows lists of key"
    )
    assert "what is loaded from COUNTS decides" in found.stderr


def test_a_script_with_torch_compile_runs_as_it_is_and_a_note_says_what_to_do(iosim, tmp_path):
    script = tmp_path / "model.py"
    script.write_text("import torch\ntorch.compile(torch.nn.Linear(8, 8))(torch.ones(4, 8, device='cuda'))\n")
    found = iosim("explain", "--script", script)
    assert found.exit_code == 2 and "TORCH_COMPILE_DEBUG=1" in found.stderr and "output_code.py" in found.stderr
