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
    from iosim.kernels.read.user_code import functions_of_file

    path.write_text(text)
    found, failed = functions_of_file(str(path))
    return list(found), failed


def test_statements_that_fail_are_left_out(tmp_path):
    """A launch needs a GPU. The kernels before and after it are there."""
    text = KERNEL.format(name="one") + "\nprint('hello')\none[(1,)](x := 1 // 0)\n" + KERNEL.format(name="two")
    names, failed = functions(tmp_path / "script.py", text)
    assert names == ["one", "two"]
    assert failed == ["line 10 `one[(1,)](x := 1 // 0)`: ZeroDivisionError: integer division or modulo by zero"]


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
