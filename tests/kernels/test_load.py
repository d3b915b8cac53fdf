"""Files of kernels are read as they are: with launches in them, questions about the GPU, and missing packages."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from paths import ROOT

pytestmark = pytest.mark.needs("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def {name}(X, BLOCK: tl.constexpr):
    tl.store(X + tl.arange(0, BLOCK), 0.0)
"""


def functions(path, text):
    from iosim.kernels.read.kernel_file import functions_of

    path.write_text(text)
    found, failed, _ = functions_of(str(path))
    return list(found), [line.removeprefix(f"{path}, ") for line in failed]


def test_launches_do_nothing_and_what_fails_is_left_out(tmp_path):
    text = KERNEL.format(name="one") + "\none[(1,)](x := 1)\n1 // 0\nimport sys\nsys.exit(0)\n"
    names, failed = functions(tmp_path / "script.py", text + KERNEL.format(name="two"))
    assert names == ["one", "two"]
    assert failed == [
        "line 10 `1 // 0`: ZeroDivisionError: integer division or modulo by zero",
        "line 12 `sys.exit(0)`: SystemExit: 0",
    ]


def test_a_file_without_an_end_is_ended(tmp_path, iosim):
    path = tmp_path / "long.py"
    path.write_text(KERNEL.format(name="one") + "\nwhile True: pass\n")
    found = iosim("explain", path, "--kernel", "one", "--grid", "1", "--timeout", "1")
    assert found.exit_code == 2 and "no end after 1 s, line 9 `while True: pass`" in found.stderr


HELPERS = """
import nothing_of_this_name
raise RuntimeError("this package is not made to be imported")
"""
OWN = """
from package.sizes import *
from .more import helper as half, missing_there
from .more import helper as half
from . import more
import triton, triton.language as tl, other_missing
LIST = [triton.Config({{"BLOCK": 32 * WIDTH}})]
other_missing.start(LIST)
SCALE: tl.constexpr = MOST * 2

@other_missing.registered("a name")
@triton.autotune(configs=LIST, key=[])
@triton.heuristics({{"EVEN": lambda args: args["BLOCK"] % more.unit() == 0}})
@triton.jit
def {name}(X, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.store(X + tl.arange(0, BLOCK) + half(BLOCK) + more.twice(BLOCK), SCALE)
"""
MORE = """
import triton, triton.language as tl
raise RuntimeError("all else is run")

def unit():
    return STEP

STEP = 16

@triton.jit
def helper(n):
    return n // 2

@triton.jit
def twice(n):
    return helper(n) * 2
"""


def test_a_package_is_imported_though_parts_of_it_fail(tmp_path, ask):
    """Its modules are found from the folder above it, and nothing of it stays behind."""
    inner = tmp_path / "package" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text(HELPERS)
    sizes = "import triton.language as tl\nMOST, WIDTH = tl.constexpr(4), 2\nBAD = 1 // 0\n"
    (tmp_path / "package" / "sizes.py").write_text(sizes)
    (inner / "__init__.py").write_text(HELPERS + "from .kernels import one\n")
    (inner / "more.py").write_text(MORE)
    (inner / "kernels.py").write_text(OWN.format(name="one"))
    line = ["--kernel", "one", "--grid", "1", "--arg", "X=fp32[4096]", "--no-resources"]
    answer = ask("explain", inner / "kernels.py", *line)
    assert answer["constants"] == {"BLOCK": 64, "EVEN": True} and answer["writes"] == 64
    assert answer["stand_ins"] == ["nothing_of_this_name", "other_missing"]
    assert "package" not in sys.modules


def test_a_kernel_that_is_made_inside_a_function_is_named(tmp_path, iosim):
    path = tmp_path / "inside.py"
    path.write_text("def make():" + KERNEL.format(name="one").replace("\n", "\n    ") + "\n    return one\n")
    found = iosim("explain", path, "--kernel", "one", "--grid", "1")
    assert found.exit_code == 2 and "made inside of a function needs a script that launches it" in found.stderr


def test_what_a_file_prints_does_not_mix_with_the_answer(tmp_path, capsys):
    functions(tmp_path / "loud.py", "print('hello')\n" + KERNEL.format(name="one"))
    assert capsys.readouterr().out == ""


def test_a_file_can_ask_for_the_gpu(tmp_path):
    text = (
        "from triton.runtime import driver\n"
        "target = driver.active.get_current_target()\n"
        "if target.backend == 'cuda' and target.arch >= 90:\n"
        "    several = driver.active.utils.get_device_properties(0)['multiprocessor_count']\n"
        "    assert several > 100\n"
    ) + KERNEL.format(name="one").replace("\n", "\n    ")
    names, failed = functions(tmp_path / "asks.py", text)
    assert (names, failed) == (["one"], [])


def test_future_statements_count_for_the_whole_file(tmp_path):
    text = "from __future__ import annotations\ndef f(x: nothing.of_this): pass\n" + KERNEL.format(name="one")
    assert functions(tmp_path / "future.py", text) == (["one"], [])


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_a_file_that_imports_torch_is_read_without_it_by_the_installed_program(tmp_path):
    """The program that pip writes lies in no package, as a file of the user: that is not what imports torch."""
    (tmp_path / "own.py").write_text("import torch\n" + KERNEL.format(name="one"))
    program = tmp_path / "iosim"
    program.write_text("from iosim.__main__ import main\nmain()\n")
    line = [
        "explain",
        "own.py",
        "--kernel",
        "one",
        "--grid",
        "1",
        "--arg",
        "X=fp16[64]",
        "--const",
        "BLOCK=64",
        "--no-resources",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program, *line], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "stand-ins took their place: torch" in done.stderr, done.stderr


def test_installed_packages_get_no_stand_ins(tmp_path, monkeypatch):
    """A package that can do without another one is left to do so."""
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "installed_one.py").write_text(
        "try:\n    import of_nobody\n    found = True\nexcept ImportError:\n    found = False\n"
    )
    monkeypatch.syspath_prepend(str(site))
    mine = tmp_path / "mine"
    mine.mkdir()
    text = "import of_nobody_else\nimport installed_one\nassert not installed_one.found\n" + KERNEL.format(name="one")
    assert functions(mine / "uses.py", text) == (["one"], [])
    sys.modules.pop("installed_one", None)


def test_versions_are_not_compared_by_a_stand_in(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda *_: None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "packaging"]:
        monkeypatch.delitem(sys.modules, name)
    names, failed = functions(tmp_path / "versions.py", "from packaging import version\n" + KERNEL.format(name="one"))
    assert "No module named 'packaging'" in failed[0] and names == ["one"]


def test_text_that_is_not_read_in_its_order_is_told():
    from iosim.kernels.read.ttir import Attributes

    lines = "  %c-7_i32 = arith.constant -7 : i32\n  %0 = tt.get_program_id x : i32\n"
    found = Attributes(lines)
    assert found.take("arith.constant").strip() == "%c-7_i32 = arith.constant -7 : i32"
    assert [line.strip() for line in found.left()] == ["%0 = tt.get_program_id x : i32"]
