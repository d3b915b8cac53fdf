"""`iosim explain`: its answer, its errors, and what it says without Triton."""

import json

import numpy as np
import pytest
from paths import TESTS

FILE = TESTS / "helpers" / "triton_kernels.py"
TENSORS = [f"--arg={name}=fp16[H,N,D]" for name in "QKVO"]
LAUNCH = [FILE, "--kernel", "attention", "--grid", "cdiv(N, BM), H", *TENSORS, "--arg", "scale=D**-0.5", "--arg", "N=512",
          "--arg", "H=2", "--const", "D=64", "--const", "BM=64", "--const", "BN=32", "--const", "CAUSAL=True"]  # fmt: skip
WORDS = [*LAUNCH, "--no-resources"]
PROBLEM = ["--as", "attention", "--N", 512, "--d", 64, "--heads", 2, "--causal"]
ADD = [FILE, "--kernel", "add", "--grid", "cdiv(n, BLOCK)", "--arg", "n=100", "--const", "BLOCK=64",
       *[f"--arg={name}=fp32[n]" for name in "XYZ"], "--no-resources"]  # fmt: skip

needs_triton = pytest.mark.needs("triton")


def test_without_triton_it_says_what_to_install(iosim, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "triton" else found(name, *_))
    answer = iosim("explain", *LAUNCH)
    assert answer.exit_code == 3
    assert (
        answer.stderr
        == "Error: Triton is not installed: pip install 'iosim[triton]' (about 1 GB; no GPU and no PyTorch are needed)\n"
    )


@pytest.mark.parametrize("line, message", [
    ((FILE,), "--grid: found 'nothing'; allowed: the number of programs on each axis; as --grid \"cdiv(N, BM), H\""),
    (("--block-m", "64"), "a size in the kernel is one of its constants, as --const BLOCK_M=64"),
    (("absent.py", "--arg", "x=1"), "FILE: found 'absent.py'; allowed: a Python file with kernels; there is no such file"),
    ((FILE, "--grid"), "--grid: found 'no value'; allowed: a value after it; as in --grid 'cdiv(N, BM), H'"),
    ((FILE, "--grid", "1", "--arg"), "--arg: found 'no value'; allowed: a value after it; as in --arg 'Q=fp16[H,N,D]'"),
    ((FILE, "--grid", "1", "--arg", "N"), "--arg: found 'N'; allowed: NAME=VALUE"),
    ((FILE, "--grid", "1", "--heads", "2"), "--heads: found 'no --as'"),
    ((FILE, "--grid", "1", "--as", "attention"), "--N, --d: found 'nothing'; allowed: a value for each"),
    ((FILE, "--grid", "1", "--as", "attention", "--N", "64"), "--d: found 'nothing'"),
    ((FILE, "--grid", "1", "--as", "flash"), "--as: found 'flash'; allowed: attention"),
])  # fmt: skip
def test_faults_that_need_no_triton(iosim, line, message):
    answer = iosim("explain", *line)
    assert answer.exit_code == 2 and message in answer.stderr, answer.stderr


@needs_triton
def test_the_keys_of_the_answer(ask):
    answer = ask("explain", *LAUNCH, *PROBLEM, "--warps", 8, "--stages", 2)
    pairs = sum(min(512, (i + 1) * 64) for i in range(8)) * 64 * 2
    assert answer["tensors"]["Q"]["reads"] == answer["tensors"]["O"]["writes"] == 2 * 512 * 64
    assert answer["tensors"]["K"]["reads"] == answer["tensors"]["V"]["reads"] == pairs
    assert answer["reads"] == 2 * 512 * 64 + 2 * pairs and answer["total_bytes"] == 2 * answer["total"]
    assert (answer["nearest"]["schedule"], answer["nearest"]["tiles"]) == ("flash2", "64x32")
    assert answer["nearest"]["equal"] is True and answer["nearest"]["differences"] == []
    assert (
        answer["smem_bytes"] > 0 and answer["registers"] > 0 and answer["fits"] is True and answer["blocks_per_sm"] >= 1
    )
    unseen = 2 * 64  # the first query of a head sees one key, so its output is a row of V
    assert answer["floor"]["words"] == 2 * 4 * 512 * 64 - unseen and answer["floor"]["ratio"] > 1
    assert (answer["num_warps"], answer["num_stages"], answer["grid"]) == (8, 2, [8, 2, 1])


@needs_triton
def test_csv_has_a_row_for_each_argument(iosim):
    header, *rows = iosim("explain", *WORDS, "--csv").stdout.splitlines()
    assert header.startswith("kernel,D,BM,BN,CAUSAL,argument,reads,writes,atomics") and len(rows) == 4
    assert rows[0].startswith("attention,64,64,32,True,Q,65536,0,0")


@needs_triton
def test_a_table_as_a_file(ask, tmp_path):
    np.save(tmp_path / "table.npy", np.array([2, 2, 0, -1], "int32"))
    launch = [FILE, "--kernel", "gather", "--grid", 4, "--arg", f"TABLE={tmp_path / 'table.npy'}", "--arg", "X=fp32[3,40]",
              "--arg", "Y=fp32[4,40]", "--arg", "n=4", "--arg", "width=40", "--const", "BLOCK=64", "--no-resources"]  # fmt: skip
    tensors = ask("explain", *launch)["tensors"]
    assert (tensors["X"]["reads"], tensors["X"]["distinct_reads"], tensors["Y"]["writes"]) == (120, 80, 160)


@needs_triton
def test_a_table_that_is_drawn(ask):
    launch = [FILE, "--kernel", "gather", "--grid", 50, "--arg", "TABLE=int32[n]:random(0, 3, 7)", "--arg", "X=fp32[3,40]",
              "--arg", "Y=fp32[n,40]", "--arg", "n=50", "--arg", "width=40", "--const", "BLOCK=64", "--no-resources"]  # fmt: skip
    tensors = ask("explain", *launch)["tensors"]
    assert (tensors["X"]["reads"], tensors["X"]["distinct_reads"], tensors["X"]["outside_words"]) == (2000, 120, 0)


@needs_triton
def test_all_configurations_of_a_tuned_kernel(ask, iosim):
    launch = [FILE, "--kernel", "tuned", "--grid", "cdiv(n, BLOCK)", "--arg", "X=fp16[n]", "--arg", "Y=fp16[n]",
              "--arg", "n=1000", "--no-resources"]  # fmt: skip
    answers = ask("explain", *launch, "--tune")["answers"]
    assert sorted((a["BLOCK"], a["EVEN"], a["num_warps"], a["programs"], a["tensors"]["X"]["reads"]) for a in answers) == [
        (256, False, 2, 4, 1000), (1024, False, 4, 1, 1000)]  # fmt: skip
    one = ask("explain", *launch, "--const", "BLOCK=256")
    assert one["num_warps"] == 2 and one["constants"] == {"BLOCK": 256, "EVEN": False}
    first = iosim("explain", *launch)
    assert first.exit_code == 0 and "BLOCK=256" in first.stdout
    assert "the first that compiles of 2 configurations of @triton.autotune" in first.stderr


@needs_triton
@pytest.mark.parametrize("line, message", [
    ([FILE, "--grid", 1], "--kernel: found 'nothing'; allowed: add, softmax, matmul"),
    ([FILE, "--kernel", "add", "--grid", 1], "--const BLOCK=...; a tensor as X=fp16[8,4096,64], a number as N=4096"),
    ([*ADD, "--grid", "n / 2.5"], "grid: found '(40.0,)'; allowed: a tuple of one to three whole numbers"),
    ([*ADD, "--grid", "2, 70000"], "at most 65535 programs on this axis"),
    ([*ADD, "--grid", "cdiv(m, 2)"], "--grid: found 'm'; allowed: a name that is given"),
    ([*ADD, "--arg", "W=3"], "--arg W: found 'no such parameter'; allowed: X, Y, Z, n, BLOCK"),
    ([*ADD, "--grid", "2x4"], "; one to three of them, as --grid \"cdiv(N, BM), H\" or --grid 128; "),
    ([*ADD, "--arg", "X=float16"], "--arg X: found 'float16'; allowed: a tensor with its sizes, as X=fp16[8,4096,64]; "),
    ([*ADD, "--arg", "X=fp32[q]"], "--arg X: found 'q'; allowed: a name that is given; give its value, as --arg q=128; "),
    ([*ADD, "--arg", "X=fp17[n]"], "--arg X: found 'fp17'; did you mean 'fp16'? allowed: fp16, bf16"),
    ([*ADD, "--arg", "X=fp16[n, 0]"], "sizes that are whole numbers from 1; found 0"),
    ([*ADD, "--arg", "X=int32[n]:random(3, 3)"], "LOW below HIGH"),
    ([*ADD, "--arg", "X=fp32[n]:random(0, 3)"], "integers, for random(LOW, HIGH)"),
    ([*ADD, "--arg", "X=missing.npy"], "--arg X: found 'missing.npy'; allowed: a file of numpy.save"),
    ([*ADD, "--const", "n=3"], "--const n: found '3'; allowed: a name that --arg does not give"),
    ([*ADD, "--arg", "n=k", "--arg", "k=n"], "no circle of names"),
    ([*ADD, "--const", "BLOCK=1//0"], "integer division or modulo by zero"),
    ([*ADD, "--const", "BLOCK=48"], "triton_kernels.py, line 9 `at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`"),
    ([*ADD, "--target", "a100"], "--target: found 'a100'; did you mean 'sm_80'?"),
    ([*ADD, "--target", "hopper"], "--target: found 'hopper'; allowed: a compute capability such as sm_90"),
    ([*WORDS, "--as", "attention:Q=query", "--N", 512, "--d", 64], "--as attention: found 'Q=query'; allowed: Q, K, V, O or LSE = one of Q, K, V, O"),
])  # fmt: skip
def test_one_message_for_bad_input(iosim, line, message):
    answer = iosim("explain", *line)
    assert answer.exit_code == 2 and message in answer.stderr and answer.stdout == "", answer.stderr
    assert "Traceback" not in answer.stderr


@needs_triton
def test_all_arguments_that_cannot_be_read_are_named(iosim):
    """A name that several of them lack is told once."""
    line = [FILE, "--kernel", "add", "--grid", 1, "--const", "BLOCK=64", "--arg", "n=4"]
    faults = iosim("explain", *line, "--arg", "X=fp16", "--arg", "Y=fp16", "--arg", "Z=fp17[n]").stderr
    assert faults.startswith("Error: 3 faults\n  --arg X: found 'fp16'; ") and faults.count("\n") == 4
    assert "\n  --arg Y: found 'fp16'; " in faults and "\n  --arg Z: found 'fp17'; did you mean 'fp16'?" in faults
    lacking = iosim("explain", *line, *(part for name in "XYZ" for part in ("--arg", f"{name}=fp16[q]"))).stderr
    assert lacking.startswith("Error: --arg X: found 'q'; ") and lacking.count("\n") == 1


@needs_triton
def test_a_file_that_fails_is_quoted(iosim, tmp_path):
    (tmp_path / "bad.py").write_text("import triton\n\nx = undefined + 1\n")
    answer = iosim("explain", tmp_path / "bad.py", "--grid", 1)
    assert answer.exit_code == 2 and "line 3 `x = undefined + 1`: NameError" in answer.stderr
    (tmp_path / "worse.py").write_text("def f(:\n")
    answer = iosim("explain", tmp_path / "worse.py", "--grid", 1)
    assert answer.exit_code == 2 and "line 1 `def f(:`" in answer.stderr


@needs_triton
def test_roles_can_be_named(ask, tmp_path):
    text = (
        FILE.read_text()
        .replace("def attention(Q, K, V, O,", "def attention(first, K, V, O,")
        .replace("tl.load(Q + head", "tl.load(first + head")
    )
    (tmp_path / "named.py").write_text(text)
    line = [tmp_path / "named.py", *WORDS[1:], "--arg", "first=fp16[H,N,D]"]
    line.remove("--arg=Q=fp16[H,N,D]")
    found = ask("explain", *line, "--as", "attention:Q=first", *PROBLEM[2:])
    assert found["nearest"]["equal"] and json.dumps(found["nearest"]["tensors"]["Q"]) == '{"reads": 65536, "writes": 0}'
