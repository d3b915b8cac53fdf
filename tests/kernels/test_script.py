"""Scripts that launch kernels: the launches are caught, and nothing runs."""

import importlib.util
import json
import re

import pytest
from paths import DATA, TESTS

from iosim.errors import InputError
from iosim.hardware import load
from iosim.kernels.read.arguments import tensor

pytestmark = pytest.mark.needs("triton")
FILE = TESTS / "helpers" / "triton_kernels.py"
HEADER = f"import sys\nsys.path.insert(0, {str(FILE.parent)!r})\nfrom triton_kernels import *\n"

WITHOUT_TORCH = """
import iosim, numpy as np
X = iosim.tensor("fp32", (6, 40))
for _ in range(3):
    gather[(5,)](X, X, np.array([2, -1, 0, 5, 2], "int32"), 5, 40, BLOCK=64)
tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](X, X, 240)
if __name__ == "__main__":
    add[(1,)](X, X, X, 99, BLOCK=128, num_warps=2)
print("a line of the script")
add[(1,)](X, X)
raise SystemExit(0)
"""

TUNED = (
    "note: bench.py, line 9: tuned: BLOCK=256, 2 warps, the first that compiles of 2 configurations of "
    "@triton.autotune (--tune ranks them all)"
)

WITH_TORCH = """
import torch
x = torch.randn(2, 512, 64, device="cuda", dtype=torch.float16)
assert x.is_cuda and x.device.type == "cuda" and torch.cuda.get_device_properties(x.device).multi_processor_count == 132
o = torch.empty_like(x)
attention[lambda meta: (triton.cdiv(512, meta["BM"]), 2)](
    x, x, x, o, 0.125, 512, D=64, BM=64, BN=32, CAUSAL=True, num_warps=8)
table = torch.arange(5, device="cuda", dtype=torch.int32) % 3
table[1] = -1
assert table.max().item() == 2
X = torch.zeros(6, 40, device="cuda")
gather[(5,)](X, torch.empty(5, 40, device="cuda"), table, 5, 40, BLOCK=64)
half = torch.zeros(80, device="cuda")[40:].view(1, 40)[:, ::2]
add[(1,)](half, half, half, 20, BLOCK=32)
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        return v * 2
    @staticmethod
    def backward(ctx, g):
        made = torch.empty(g.numel(), device=g.device)
        add[(1,)](g, g, made, g.numel(), BLOCK=64)
        return made
v = torch.ones(40, device="cuda", requires_grad=True)
Doubled.apply(v).sum().backward()
torch.testing.assert_close(v.grad, v)
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "bench.py"
        path.write_text(HEADER + text)
        return path

    return write


def test_launches_are_answered_for_in_order(iosim, script):
    path = script(WITHOUT_TORCH)
    found = iosim("explain", "--script", path, "--no-resources")
    assert "a line of the script" in found.stderr and "a line of the script" not in found.stdout
    assert TUNED in found.stderr
    found = iosim("explain", "--script", path, "--no-resources", "--tune", "--json")
    assert len(json.loads(iosim("explain", "--script", path, "--kernel", "add", "--json").stdout)["refused"]) == 1
    answers, refused = (json.loads(found.stdout)[key] for key in ("answers", "refused"))
    assert found.exit_code == 1 and [(r["kernel"], r["place"]) for r in refused] == [
        ("add", "bench.py, line 13 `add[(1,)](X, X)`")]  # fmt: skip
    assert [(a["kernel"], a["launches"], a["place"]) for a in answers] == [
        ("gather", 3, "bench.py, line 8"), ("tuned", 1, "bench.py, line 9"), ("tuned", 1, "bench.py, line 9"),
        ("add", 1, "bench.py, line 11")]  # fmt: skip
    assert answers[0]["tensors"]["X"]["reads"] == 160 and answers[0]["tensors"]["TABLE"]["reads"] == 5
    assert sorted(a["constants"]["BLOCK"] for a in answers[1:3]) == [256, 1024] and answers[3]["num_warps"] == 2


@pytest.mark.parametrize("text, message", [
    ("x = 1\n", "the script saw a GPU of sm_90; --target names another"),
    ("x = undefined\nadd[(1,)]()\n", "ended early, line 4 `x = undefined`: NameError"),
    ("add[1.5](1, 1, 1, 1, 1)\n", "line 4"),
    ("import json\njson.loads('[')\n", 'line 5 `json.loads(\'[\')`: JSONDecodeError: '
     "Expecting value: line 1 column 2 (char 1) (decoder.py, line "),
    ("import no_such.package as a\na.f(1, b=2)\n", "; not installed, so stand-ins took their place: no_such"),
    ("import no_such.package as a\nx = {a.KEY: f'{a.F}'}\nassert a.KEY in x\n", "took their place: no_such"),
])  # fmt: skip
def test_a_script_without_an_answer(iosim, script, text, message):
    found = iosim("explain", "--script", script(text))
    assert found.exit_code == 2 and message in found.stderr and "Traceback" not in found.stderr, found.stderr


def test_a_script_stands_alone(iosim, script):
    assert "--script alone" in iosim("explain", FILE, "--script", script("")).stderr
    assert "a Python file that launches kernels" in iosim("explain", "--script", "nothing.py").stderr


@pytest.mark.needs("torch")
def test_tensors_of_pytorch_take_no_memory_and_integers_keep_their_values(ask, script):
    answers = ask("explain", "--script", script(WITH_TORCH), "--no-resources")["answers"]
    assert [a["kernel"] for a in answers] == ["attention", "gather", "add", "add"]
    assert answers[0]["tensors"]["K"]["reads"] == 2 * 64 * sum(64 * (i + 1) for i in range(8))
    assert answers[1]["tensors"]["X"]["reads"] == 4 * 40
    assert answers[1]["tensors"]["X"]["distinct_reads"] == 3 * 40  # rows 0, 2, 0, 1
    assert answers[2]["tensors"]["X"]["outside_words"] == 0  # a view of every second word reaches over 39
    assert answers[3]["place"] == "bench.py, line 25" and answers[3]["reads"] == 80


AGAIN = """
import torch
x, rows = torch.zeros(6, 40, device="cuda"), torch.arange(5, device="cuda", dtype=torch.int32)
n = 5
for turn in range(60):
    if turn == 10:
        rows[1] = 4
    if turn == 30:
        n = 3
    gather[lambda meta: (n,)](x, torch.empty(5, 40, device="cuda"), rows, 5, 40, BLOCK=64)
"""


@pytest.mark.needs("torch")
def test_launches_that_are_made_again_are_equal_only_if_all_that_they_read_is(ask, script):
    """Integers that are written in place, and a variable that the function of the grid reads."""
    answers = ask("explain", "--script", script(AGAIN), "--no-resources")["answers"]
    assert [a["launches"] for a in answers] == [10, 20, 30]
    assert [a["tensors"]["X"]["distinct_reads"] for a in answers] == [5 * 40, 4 * 40, 3 * 40]


CHANGED = """
import torch
x, rows = torch.zeros(6, 40, device="cuda"), torch.zeros(5, device="cuda", dtype=torch.int32)
part, whole = rows[1:], rows.view(5)
add[(1,)](rows, rows, rows, 5, BLOCK=8)
def look(table=rows):
    gather[(5,)](x, torch.empty(5, 40, device="cuda"), table, 5, 40, BLOCK=64)
look()
part.fill_(1)
look()
rows.copy_(torch.tensor([0, 1, 1, 3, 2]))
assert rows[3] == 3
look()
rows.zero_()
look()
other = torch.zeros_like(rows)
add[(1,)](rows, rows, other, 5, BLOCK=8)
rows.fill_(2)
rows.copy_(other)
look()
look(whole)
"""


@pytest.mark.needs("torch")
def test_integers_that_a_kernel_has_changed_can_be_filled_again(iosim, script):
    """A part alone does not do: what else the kernel wrote is not known."""
    found = iosim("explain", "--script", script(CHANGED), "--no-resources", "--json")
    answers = [a for a in json.loads(found.stdout)["answers"] if a["kernel"] == "gather"]
    assert [(a["place"], a["tensors"]["X"]["distinct_reads"]) for a in answers] == [
        ("bench.py, line 10", 4 * 40), ("bench.py, line 10", 40)]  # fmt: skip
    (refused,) = json.loads(found.stdout)["refused"]  # four equal launches
    assert "fill TABLE in the script before the launch (copy_), if a kernel has changed it" in refused["why"]


VIEWS = """
import torch
x = torch.zeros(1500, device="cuda")
add[(4,)](x, x[250:], torch.empty(1000, device="cuda"), 1000, BLOCK=256)
add[(4,)](torch.zeros(1500, device="cuda"), x[250:], torch.empty(1000, device="cuda"), 1000, BLOCK=256)
"""


@pytest.mark.needs("torch")
def test_hbm_moves_words_of_two_views_of_one_memory_once(iosim, script):
    """The launches differ in nothing but that. X is words 0 to 999, and Y 250 to 1249: 750 are in both."""
    found = iosim("explain", "--script", script(VIEWS), "--hardware", "h100", "--json")
    both = json.loads(found.stdout)["answers"]
    assert [a["tensors"]["Y"]["distinct_reads"] for a in both] == [1000, 1000]
    one, two = (a["at_least_seconds"] * load("h100").hbm_bytes_per_second for a in both)
    assert (one, two) == (pytest.approx(4 * (1250 + 1000)), pytest.approx(4 * 3000))
    notes = [line for line in found.stderr.splitlines() if "views" in line]
    assert notes == ["note: Y: 750 words of its reads are those of another argument, as both are views of one memory: "
                     "the least time has them once"]  # fmt: skip


def test_lanes_that_ask_for_the_same_word_share_a_sector(iosim, script):
    """Sixteen rows of 64 lanes: each row asks for one word of X, two sectors in all, and for a row of Y."""
    text = """
import iosim
@triton.jit
def scaled(X, Y, Z, R: tl.constexpr, C: tl.constexpr):
    rows, cols = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    tl.store(Z + rows * C + cols, tl.load(X + rows + cols * 0) * tl.load(Y + rows * C + cols))
scaled[(1,)](iosim.tensor("fp32", (16,)), iosim.tensor("fp16", (16, 64)), iosim.tensor("fp16", (16, 64)), R=16, C=64)
"""
    first, compiled = (iosim("explain", "--script", script(text), *more).stdout.splitlines()[0]
                       for more in (["--no-resources"], []))  # fmt: skip
    assert first == "scaled reads 6 KiB (X: 4 KiB, each word 64 times; 64 B of sectors), and writes 2 KiB."
    assert "each word 64 times; 512 B of sectors" in compiled, compiled


def test_notes_on_several_kernels_name_theirs(iosim, script):
    add = "import iosim\nx = iosim.tensor('fp32', (40,))\nadd[(1,)](x, x, x, 41, BLOCK=64)\n"
    softmax = "softmax[(1,)](x, x, 1, 41, 41, BLOCK=64)\n"
    for text, name in ((add, ""), (add + add, ""), (add + softmax, "add: ")):
        told = iosim("explain", "--script", script(text), "--no-resources").stderr
        assert f"note: {name}X: 1 word of its reads lies outside" in told, told
    assert "note: softmax: Y: 1 word of its writes lies outside" in told


LAUNCH = """
file = "kernels.py"
kernel = "add"
grid = "cdiv(n, BLOCK)"
arg = { X = "fp32[n]", Y = "fp32[n]", Z = "fp32[n]", n = 100 }
const = { BLOCK = 64 }
"""


def test_a_launch_as_a_file(ask, tmp_path):
    (tmp_path / "kernels.py").write_text(FILE.read_text())
    (tmp_path / "launch.toml").write_text(LAUNCH)
    line = ["explain", tmp_path / "launch.toml", "--no-resources"]
    assert ask(*line)["reads"] == 200
    assert ask(*line, "--arg", "n=70", "--const", "BLOCK=16")["grid"] == [5, 1, 1]
    tables = "\n".join("[[launch]]" + LAUNCH.replace("100", n) for n in ("10", "20"))
    (tmp_path / "launch.toml").write_text(tables)
    assert [a["writes"] for a in ask(*line)["answers"]] == [10, 20]


@pytest.mark.parametrize("text, message", [
    ("grid = 3", 'no file'), ("fil = 'x.py'", "did you mean 'file'?"), ("file = ", "a TOML file with a launch"),
    ("launch = 3", "tables [[launch]]"), ("file = 'x.py'\narg = 3", "a table of names and values"),
    ("file = 'x.py'\ngrid = '1'", "x.py'; allowed: a Python file with kernels"),
])  # fmt: skip
def test_faults_of_a_launch_file(iosim, tmp_path, text, message):
    (tmp_path / "launch.toml").write_text(text)
    found = iosim("explain", tmp_path / "launch.toml")
    assert found.exit_code == 2 and message in found.stderr and "Traceback" not in found.stderr, found.stderr


NEEDED = "Error: PyTorch is needed for this script: pip install torch (the CPU build is enough)\n"
X = 'torch.empty(32, 64, dtype=torch.float16, device="cuda")'


@pytest.fixture
def torchless():
    """PyTorch is not installed."""
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is installed")


@pytest.mark.usefixtures("torchless")
@pytest.mark.parametrize("text", [
    f"x = {X}\nadd[(1,)](x, x, x, 20, BLOCK=32)\n",
    f"import iosim\nx = iosim.tensor('fp16', {X}.shape)\nadd[(1,)](x, x, x, 20, BLOCK=32)\n",
])  # fmt: skip
def test_launches_that_need_pytorch_without_it(iosim, script, text):
    found = iosim("explain", "--script", script("import torch\n" + text))
    assert (found.exit_code, found.stderr) == (3, NEEDED)
    found = iosim("explain", "--script", DATA / "inductor" / "output_code_2_11.txt")
    assert (found.exit_code, found.stderr) == (3, NEEDED)


@pytest.mark.usefixtures("torchless")
def test_a_script_that_imports_pytorch_in_passing(iosim, script):
    text = "import torch, iosim\nx = iosim.tensor('fp16', (20,))\nadd[(1,)](x, x, x, 20, BLOCK=32)\n"
    found = iosim("explain", "--script", script(text), "--no-resources", "--json")
    assert found.exit_code == 0 and json.loads(found.stdout)["reads"] == 40
    assert "note: not installed, so stand-ins took their place: torch" in found.stderr


def test_the_sizes_of_a_tensor_are_one_tuple_of_whole_numbers():
    with pytest.raises(InputError, match=re.escape('as in iosim.tensor("fp16", (32, 8192, 128))')):
        tensor("fp16", 32, 8192, 128)
    for shape in ((0,), (4, -1), (2.5,)):
        with pytest.raises(InputError, match="sizes that are whole numbers from 1"):
            tensor("fp16", shape)
