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


def test_a_script_with_torch_compile_runs_as_it_is_and_a_note_says_what_to_do(iosim, tmp_path):
    script = tmp_path / "model.py"
    script.write_text("import torch\ntorch.compile(torch.nn.Linear(8, 8))(torch.ones(4, 8, device='cuda'))\n")
    found = iosim("explain", "--script", script)
    assert found.exit_code == 2 and "TORCH_COMPILE_DEBUG=1" in found.stderr and "output_code.py" in found.stderr
