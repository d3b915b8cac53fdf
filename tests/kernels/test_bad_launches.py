"""Bad input to `iosim explain` is one message that quotes a line of the user, and exit code 2."""

import pytest
from paths import TESTS

pytestmark = pytest.mark.needs("triton")
FILE = TESTS / "helpers" / "triton_kernels.py"
LINES = FILE.read_text().splitlines()


def quoted(text, file=FILE):
    """The place of the first line of a file that begins so, as a message shows it."""
    lines = file.read_text().splitlines()
    number = next(k for k, line in enumerate(lines) if line.strip().startswith(text))
    return f"{file}, line {number + 1} `{lines[number].strip()}`"


DEFINED = quoted("def add(")
LOADED = quoted("tl.store(Z + at, tl.load(X + at")
USUAL = {**{f"arg {name}": "fp32[n]" for name in "XYZ"}, "arg n": "100", "const BLOCK": "64", "grid": "cdiv(n, BLOCK)"}


def line_of(changes, file=FILE, kernel="add"):
    """A command line for the usual launch of `add`, with changes; None takes an option away."""
    line = ["explain", file, "--kernel", kernel, "--no-resources"]
    for option, value in {**USUAL, **changes}.items():
        if value is not None:
            word, _, name = option.partition(" ")
            line += [f"--{word}", f"{name}={value}" if name else value]
    return line


@pytest.mark.parametrize("changes, parts", [
    ({"arg Y": None}, (f"Error: {DEFINED}: kernel add: found 'no value for Y'", "--arg Y=...")),
    ({"const BLOCK": None}, (f"Error: {DEFINED}: kernel add: found 'no value for BLOCK'", "; --const BLOCK=...")),
    ({"const BLOCK": "fp32[3]"}, (f"Error: {DEFINED}: found 'BLOCK is fp32[3]'; allowed: a constant",)),
    ({"grid": "X"}, ("Error: --grid: found '(fp32[100],)'; allowed: a tuple of one to three whole numbers", DEFINED)),
    ({"arg X": "7"}, (f"Error: {LOADED}: found \"Unsupported ptr type", "; here X is 7, Y is fp32[100], Z is fp32[100]")),
    ({"arg X": "fp32[64]"}, (f"Error: argument X ({LOADED})", "1 of 2 requests of its reads have no word inside of X")),
    ({"arg Z": "fp32[32]"}, (f"Error: argument Z ({LOADED})", "requests of its writes have no word", "which is fp32[32]")),
    ({"arg X": f"fp32[{2**30},{2**30}]"}, ("Error: a tensor: found 'fp32[", f"allowed: at most {2**56} bytes; try")),
    ({"warps": "3"}, ("Error: num_warps (--warps): found 3; allowed: 1, 2, 4, 8, 16, 32",)),
])  # fmt: skip
def test_one_message_with_the_line(iosim, changes, parts):
    found = iosim(*line_of(changes))
    assert found.exit_code == 2 and found.stdout == "", found.stderr
    assert found.stderr.count("\n") == 1 and all(part in found.stderr for part in parts), found.stderr


def test_a_kernel_that_is_not_there(iosim):
    found = iosim(*line_of({}, kernel="Add"))
    names = "add, softmax, matmul, attention, attend, gather, tiles, histogram, extremes, layers, turns, either, tuned, paged"
    assert found.exit_code == 2
    assert found.stderr == f"Error: --kernel: found 'Add'; did you mean 'add'? ({DEFINED}); allowed: {names}\n"


COMPILED = {
    "no such name": ("tl.load(X + at, mask=on)", "tl.load(X + at, mask=onn)", "NameError: onn is not defined"),
    "in a function that it calls": ("tl.load(X + at, mask=on)", "half(X, at, on)", "incompatible dimensions"),
    "inside of Triton": ("tl.load(X + at, mask=on)", "tl.sum(X)", "'pointer_type' object has no attribute 'numel'"),
}
HALF = """
@triton.jit
def half(X, at, on):
    found = tl.load(X + tl.arange(0, 32), mask=on)
    return found
"""


@pytest.mark.parametrize("name", COMPILED)
def test_code_that_does_not_compile(iosim, tmp_path, name):
    old, new, what = COMPILED[name]
    file = tmp_path / "kernels.py"
    file.write_text(FILE.read_text().replace(old, new, 1) + "\n" + HALF)
    found = iosim(*line_of({}, file))
    assert found.exit_code == 2 and found.stdout == ""
    where = "found = tl.load" if new.startswith("half") else f"tl.store(Z + at, {new}"
    assert found.stderr.startswith(f"Error: {quoted(where, file)}: found") and what in found.stderr, found.stderr


def test_a_function_that_is_not_inlined(iosim, tmp_path):
    file = tmp_path / "kernels.py"
    helper = "@triton.jit(noinline=True)\ndef start(n):\n    return n // 3\n"
    file.write_text(FILE.read_text().replace("on = at < n\n", "on = at < start(n)\n", 1) + "\n\n" + helper)
    found = iosim(*line_of({}, file))
    assert found.exit_code == 2
    assert found.stderr.startswith(f"Error: {quoted('def add(', file)}: kernel add: found '2 functions'")


def test_a_file_that_is_not_python(iosim, tmp_path):
    file = tmp_path / "kernels.py"
    long = "x = [" + "1, " * 60
    file.write_text(f"import triton\n{long}\n")
    found = iosim(*line_of({}, file))
    assert found.exit_code == 2 and f"line 2 `{long.strip()}`: '[' was never closed" in found.stderr


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
@gluon.jit
def copied(X, BLOCK: gl.constexpr):
    pass
"""
BLOCKS = """
import triton, triton.language as tl
@triton.jit
def copied(X, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(X, (64,), (1,), (0,), (BLOCK,), (0,))
    tl.store(p, tl.load(p))
"""


def test_kernels_of_gluon_and_block_pointers(iosim, tmp_path):
    import triton

    line = ("--kernel", "copied", "--grid", "1", "--arg", "X=fp32[64]", "--const", "BLOCK=64", "--no-resources")
    (tmp_path / "gluon.py").write_text(GLUON)
    found = iosim("explain", tmp_path / "gluon.py", *line)
    assert found.exit_code == 2 and "kernel copied: found 'a kernel of Gluon'; allowed: a kernel of" in found.stderr
    (tmp_path / "blocks.py").write_text(BLOCKS)
    found = iosim("explain", tmp_path / "blocks.py", *line)
    removed = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)
    assert found.exit_code == 2 * removed and ("pip install 'triton<3.9' has them" in found.stderr) == removed


def test_a_target_of_amd_has_words_only(iosim):
    found = iosim(*[part for part in line_of({}) if part != "--no-resources"], "--target", "gfx942")
    assert (
        found.exit_code == 0 and "200 words read and 100 written" in found.stdout and "registers a" not in found.stdout
    )
    assert "gfx942: words only" in found.stderr


def test_a_tile_over_the_edge_is_a_note(iosim):
    """Every request has a word inside: a mask may be missing, so there is an answer."""
    found = iosim(*line_of({"arg X": "fp32[70]"}))
    assert found.exit_code == 0 and "100       0" in found.stdout
    assert f"X: 30 words of its reads lie outside of its shape (70,) with strides (1,): a mask or a stride is wrong, or the shape is ({LOADED})" in found.stderr  # fmt: skip


def test_offsets_that_wrap_around_are_told(iosim, tmp_path):
    """Row 40,000 of 65,536 words begins at word 2,621,440,000, which 32 bits do not hold."""
    file = tmp_path / "kernels.py"
    text = FILE.read_text().replace("tl.program_id(0) * BLOCK +", "tl.program_id(0) * BLOCK * 65536 +", 1)
    file.write_text(text.replace("on = at < n\n", "on = at != n\n", 1))
    found = iosim(*line_of({**{f"arg {name}": "fp32[40001, 65536]" for name in "XYZ"}, "const BLOCK": "64", "grid": "626"},
                           file))  # fmt: skip
    assert "offsets beyond 2^31 wrap around in 32 bits: compute them in tl.int64" in found.stderr, found.stderr


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import iosim
from triton_kernels import add
X = iosim.tensor("fp32", (64,))
add[(1,)](X, X, X, 64, {call})
"""


@pytest.mark.parametrize("call, parts", [
    ("64, 5", ("found 'no such parameter'", "argument 6: ")),
    ("BLOCK=64, BLOK=3", ("found 'no such parameter'", "argument BLOK: ", "did you mean 'BLOCK'?")),
    ("BLOCK=64, num_warps=5", ("num_warps (--warps): found 5",)),
    ("BLOCK=48", ("arange's range must be a power of 2", "here BLOCK is 48")),
])  # fmt: skip
def test_faults_of_a_launch_in_a_script(iosim, tmp_path, call, parts):
    file = tmp_path / "bench.py"
    file.write_text(SCRIPT.format(folder=str(FILE.parent), call=call))
    found = iosim("explain", "--script", file)
    where = f"bench.py, line 7 `add[(1,)](X, X, X, 64, {call})`: "
    assert found.exit_code == 2 and all(part in found.stderr for part in (where, *parts)), found.stderr


def test_a_grid_that_fails_is_quoted(iosim, tmp_path):
    file = tmp_path / "bench.py"
    text = SCRIPT.format(folder=str(FILE.parent), call="64").replace("(1,)]", 'lambda meta: meta["BLOK"]]')
    file.write_text(text)
    found = iosim("explain", "--script", file)
    line = '`add[lambda meta: meta["BLOK"]](X, X, X, 64, 64)`'
    assert found.exit_code == 2 and f"line 7 {line}: grid ({file}, line 7 {line}): found \"KeyError: 'BLOK'\"" in found.stderr  # fmt: skip
