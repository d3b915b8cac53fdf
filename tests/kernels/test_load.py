"""Files of kernels are read as they are: with launches in them, questions about the GPU, and missing packages."""

import sys

import pytest

pytestmark = pytest.mark.needs("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def {name}(X, BLOCK: tl.constexpr):
    tl.store(X + tl.arange(0, BLOCK), 0.0)
"""


def functions(path, text):
    from iosim.kernels.read.kernel_file import KernelFile, functions_of_run

    path.write_text(text)
    read = KernelFile(str(path))
    found, failed = [name for name in read.names if read.kernel(name) is not None], read.failed
    if not found:
        made, failed = functions_of_run(str(path))
        found = list(made)
    return found, failed


def test_only_what_a_kernel_names_is_run(tmp_path):
    """A launch, a loop without an end and an exit are no part of a kernel."""
    text = KERNEL.format(name="one") + "\none[(1,)](x := 1 // 0)\nwhile True: pass\nimport sys\nsys.exit(0)\n"
    names, failed = functions(tmp_path / "script.py", text + KERNEL.format(name="two"))
    assert (names, failed) == (["one", "two"], [])


HELPERS = """
import nothing_of_this_name
raise RuntimeError("this package is not made to be imported")
"""
OWN = """
from package.sizes import *
from .more import helper as half, missing
from . import more
import triton, triton.language as tl, other_missing
if triton.__version__ == "0": WIDTH = 1
elif len(triton.__version__) > 1: WIDTH = 2
LIST = []
LIST.append(triton.Config({{"BLOCK": 32 * WIDTH}}))
other_missing.start(LIST)
SCALE: tl.constexpr = MOST * 2

@other_missing.registered("a name")
@undefined_decorator
@triton.autotune(configs=LIST, key=[])
@triton.heuristics({{"EVEN": lambda args: args["BLOCK"] % more.unit() == 0}})
@triton.jit
def {name}(X, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.store(X + tl.arange(0, BLOCK) + half(BLOCK) + more.twice(BLOCK), SCALE)
"""


def test_a_package_is_read_without_running_it(tmp_path, ask, iosim):
    """Constants, functions, configurations and heuristics come from the files of the package, as far as they are
    named. A decorator that cannot be run is left out, and told."""
    inner = tmp_path / "package" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text(HELPERS)
    (tmp_path / "package" / "sizes.py").write_text(
        "import triton.language as tl\nMOST = tl.constexpr(4)\nBAD = 1 // 0\n"
    )
    (inner / "__init__.py").write_text("from .kernels import one\n" + HELPERS)
    (inner / "more.py").write_text(MORE)
    (inner / "kernels.py").write_text(OWN.format(name="one"))
    found = iosim("explain", inner / "kernels.py", "--kernel", "one", "--grid", "1", "--arg", "X=fp32[4096]",
                  "--no-resources", "--json")  # fmt: skip
    assert found.exit_code == 0, found.stderr
    import json

    answer = json.loads(found.stdout)
    assert answer["constants"] == {"BLOCK": 64, "EVEN": True} and answer["writes"] == 64
    assert "`@undefined_decorator` of one is left out: NameError" in found.stderr
    assert "package" not in sys.modules


MORE = """
import triton, triton.language as tl
raise RuntimeError("nobody runs this")

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


def test_a_kernel_that_is_made_inside_a_function_is_named(tmp_path, iosim):
    path = tmp_path / "inside.py"
    path.write_text("def make():" + KERNEL.format(name="one").replace("\n", "\n    ") + "\n    return one\n")
    found = iosim("explain", path, "--kernel", "one", "--grid", "1")
    assert found.exit_code == 2 and "line 6 makes it inside a function: give a script" in found.stderr


def test_a_kernel_that_the_text_does_not_show_is_found_by_running_the_file(tmp_path):
    """A statement that fails is left out."""
    text = (
        "import triton, triton.language as tl\nmake = [triton.jit]\nx = 1 // 0\n@make[0]"
        + KERNEL.format(name="one").split("@triton.jit")[1]
    )
    names, failed = functions(tmp_path / "made.py", text)
    assert names == ["one"] and failed == ["line 3 `x = 1 // 0`: ZeroDivisionError: integer division or modulo by zero"]


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


def test_text_that_is_not_read_in_its_order_is_told():
    from iosim.kernels.read.ttir import Attributes

    lines = "  %c-7_i32 = arith.constant -7 : i32\n  %0 = tt.get_program_id x : i32\n"
    found = Attributes(lines)
    assert found.take("arith.constant").strip() == "%c-7_i32 = arith.constant -7 : i32"
    assert [line.strip() for line in found.left()] == ["%0 = tt.get_program_id x : i32"]
