"""Names that people type: those of other programs are accepted or get the right hint, and help is found anywhere."""

import os
import subprocess
import sys

import pytest
from paths import DOCS

PROBLEM = ("--N", 64, "--d", 8)


@pytest.mark.parametrize(
    ("command", "typed", "advice"),
    [
        ("count", "--backward", "--schedule flash2-bwd"),
        ("tune", "--bwd", "--schedule flash2-bwd"),
        ("bounds", "--bwd", "--backward"),
    ],
)
def test_a_backward_pass_is_found_by_following_the_advice(command, typed, advice, iosim):
    line = (command, *PROBLEM, "--M", "4KB")
    assert advice in iosim(*line, typed).stderr
    assert iosim(*line, *advice.split()).exit_code == 0


TYPES = {"fp16": ("float16", "FP16", "half", "torch.float16"), "bf16": ("bfloat16",), "fp32": ("float32", "float"),
         "fp64": ("float64", "double"), "fp8": ("float8_e4m3fn", "e5m2"), "int8": ("int8", "uint8")}  # fmt: skip


@pytest.mark.parametrize(("name", "typed"), [(name, typed) for name in TYPES for typed in TYPES[name]])
def test_types_have_other_names(name, typed, ask):
    """The answer has the type's name here. One byte a word is one byte, whatever the type is called."""
    import iosim as package

    sizes = ("count", "--N", 64, "--d", 8, "--M", "64KB")
    found, said = ask(*sizes, "--dtype", typed), ask(*sizes, "--dtype", name)
    assert found["results"] == said["results"] and found["problem"]["dtype"] == name
    assert package.count(64, 8, "64KB", dtype=typed).to_dict()["results"] == said["results"]
    assert package.Attention(64, 8, kv_dtype=typed).cache_dtype == name


def test_int8_has_a_byte_and_is_not_checked(ask, iosim):
    sizes = ("--N", 64, "--d", 8, "--tiles", "16x16", "--schedule", "flash2")
    (one,), (two,) = (ask("count", *sizes, "--dtype", dtype)["results"] for dtype in ("int8", "fp16"))
    assert 2 * one["read_bytes"] == two["read_bytes"]
    done = iosim("verify", "--cpu", *sizes, "--kv-dtype", "int8")
    assert done.exit_code == 2 and "--kv-dtype: found 'int8'; allowed: fp64, fp32, fp16, bf16, fp8;" in done.stderr


def test_types_of_a_sweep_have_one_name(iosim):
    done = iosim(
        "sweep", "--N", 64, "--d", 8, "--M", "64KB", "--schedule", "flash2", "--dtype", "float16,int8", "--csv"
    )
    head, *lines = (line.split(",") for line in done.stdout.splitlines())
    assert [line[head.index("dtype")] for line in lines] == ["fp16", "int8"] * (len(lines) // 2) and lines


LINE = ("--N", 64, "--d", 8)


@pytest.mark.parametrize("asked", [("help", "count"), ("count", "help"), ("count", "-h")])
def test_help_is_found(asked, iosim):
    done = iosim(*asked)
    assert done.exit_code == 0 and done.stdout == iosim("count", "--help").stdout
    assert iosim("help").stdout == iosim("--help").stdout
    assert "did you mean 'count'?" in iosim("help", "cuont").stderr


@pytest.mark.parametrize(
    "line",
    [(*LINE, "count", "--M", "1KB"), ("--M=1KB", "count", *LINE), ("--load", "x.py", "--M", "1KB", "count", *LINE)],
)
def test_options_may_stand_before_the_command(line, iosim, tmp_path):
    (tmp_path / "x.py").write_text("")
    line = [str(tmp_path / word) if word == "x.py" else word for word in line]
    assert iosim(*line).stdout == iosim("count", *LINE, "--M", "1KB").stdout != ""


@pytest.mark.parametrize(
    ("words", "completed"),
    [("iosim cou", "count"), ("iosim count --sched", "--schedule"), ("iosim tune --hardw", "--hardware")],
)
def test_the_shell_completes_as_docs_say(words, completed):
    """docs/commands.md has the line for each shell; click answers it with the names that begin so."""
    program = "from iosim.commands.cli import main; main(prog_name='iosim')"
    asked = {"_IOSIM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **asked})
    assert f"plain,{completed}\n" in done.stdout
    page = (DOCS / "commands.md").read_text()
    assert all(f"_IOSIM_COMPLETE={shell}_source iosim" in page for shell in ("bash", "zsh", "fish"))
