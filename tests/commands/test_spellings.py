"""Names that people type: those of other programs are accepted or get the right hint, and help is found anywhere."""

import os
import shlex
import subprocess
import sys

import pytest
from paths import DOCS

OTHER = "for another GPU give a file: iosim hardware h100 --toml"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("--head_dim 8", "did you mean '--d'?"),
        ("--seq_len 8", "did you mean '--N'?"),
        ("--num_heads 8", "did you mean '--heads'?"),
        ("--nun_heads 8", "did you mean '--heads'?"),
        ("--kv_heads=8", "did you mean '--kv-heads'?"),
        ("--page_size 8", "did you mean '--page-size'?"),
        ("--tile_multple 8", "did you mean '--tile-multiple'?"),
        ("--block-m 8", "did you mean '--tiles'?"),
        ("--block_n 8", "did you mean '--tiles'?"),
        ("--bm 8", "did you mean '--tiles'?"),
        ("--bn 8", "did you mean '--tiles'?"),
        ("--BLOCK_M 128", "did you mean '--tiles'? as --tiles 128x64 (query rows first)"),
        ("--block-q 8", "did you mean '--tiles'?"),
        ("--br 8", "did you mean '--tiles'?"),
        ("--Bc 8", "did you mean '--tiles'?"),
        ("--tile-size 8", "did you mean '--tiles'?"),
        ("--seqlen 8", "did you mean '--N'?"),
        ("--seq-len 8", "did you mean '--N'?"),
        ("--maxSeqLen 8", "did you mean '--N'?"),
        ("--ctx 8", "did you mean '--N'?"),
        ("-N 8", "did you mean '--N'?"),
        ("--seqlen-k 8", "did you mean '--Nk'?"),
        ("--head-dim 8", "did you mean '--d'?"),
        ("--hdim 8", "did you mean '--d'?"),
        ("--head-dim-v 8", "did you mean '--dv'?"),
        ("--num-heads 8", "did you mean '--heads'?"),
        ("--num_attention_heads 8", "did you mean '--heads'?"),
        ("--hq 8", "did you mean '--heads'?"),
        ("--num-key-value-heads 8", "did you mean '--kv-heads'?"),
        ("--hkv 8", "did you mean '--kv-heads'?"),
        ("--is-causal", "did you mean '--causal'?"),
        ("--window 8", "a window of 8 keys, the query's own among them, is --mask 'causal&window:7'"),
        ("--sliding-window=128", "is --mask 'causal&window:127'"),
        ("--M 16KB-64KB", "did you mean '16KB:64KB:x2'?"),
        ("--tp 8", "give --heads and --kv-heads of one GPU"),
        ("--softmax-scale 8", "scaling moves no words"),
        ("--kv 8", "did you mean '--kv-heads' or '--kv-dtype' or '--kv-scales'?"),
        ("--at-most 1MB", "an option of iosim tune"),
        ("--bf16", "a type is given as --dtype bf16"),
        ("--FP8", "a type is given as --dtype fp8"),
        ("--dtype fp61", "did you mean 'fp16'?"),
        ("--dtype bf61", "did you mean 'bf16'?"),
        ("--dtype int4", "a word has at least one byte"),
        ("--schedule fa2", "did you mean 'flash2'"),
        ("--schedule FlashAttention-2", "did you mean 'flash2'"),
        ("--schedule fa", "did you mean 'flash1'"),
        ("--schedule flash_decoding", "did you mean 'split-kv'"),
        ("--hardware 3090", "did you mean 'rtx-3090'?"),
        ("--hardware 4090", "did you mean 'rtx-4090'?"),
        ("--hardware 4070", "did you mean 'rtx-4070s'?"),
        ("--hardware a100", "did you mean 'a100-40gb' or 'a100-80gb'?"),
        ("--hardware A100-SXM4-80GB", "did you mean 'a100-80gb'?"),
        ("--hardware h100-sxm", "did you mean 'h100'?"),
        ("--hardware h100sxm", "did you mean 'h100'?"),
        ("--hardware 'RTX 4090'", "did you mean 'rtx-4090'?"),
        ("--hardware RTX4090", "did you mean 'rtx-4090'?"),
        ("--hardware 'geforce rtx 3090'", "did you mean 'rtx-3090'?"),
        ("--hardware 'NVIDIA RTX A6000'", "did you mean 'a6000'?"),
        ("--hardware mi300", "did you mean 'mi300x'?"),
        ("--hardware 3080", OTHER),
        ("--hardware 'RTX 6000 Ada'", OTHER),
        ("--hardware mi250x", OTHER),
    ],
)
def test_a_name_of_another_program_gets_the_name_here(typed, hint, iosim):
    done = iosim(
        "count",
        "--N",
        64,
        "--d",
        8,
        *([] if "--hardware" in typed or "--M" in typed else ["--M", "1KB"]),
        *shlex.split(typed),
    )
    assert done.exit_code == 2 and not done.stdout
    assert hint in done.stderr


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


def test_advice_that_names_an_option_is_for_commands_that_have_it(iosim):
    assert "--backward is an option of iosim bounds" in iosim("memory", "--d", 8, "--bwd").stderr
    assert "51200el" not in iosim("memory", "--d", 8, "--M-elements", 8).stderr


def test_a_gpu_under_another_name_needs_no_memory(iosim):
    (line,) = iosim("tune", *PROBLEM, "--gpu", "h100").stderr.splitlines()
    assert line.startswith("Error: option: found '--gpu'; did you mean '--hardware'?")


@pytest.mark.parametrize("typed", ["--sram 1KB", "--smem 1KB", "--shared-mem 1KB", "--sram_size 1KB"])
def test_the_memory_has_other_names(typed, iosim):
    done = iosim("count", "--N", 64, "--d", 8, *typed.split())
    assert done.exit_code == 2 and "did you mean '--M'?" in done.stderr and "--M: found" not in done.stderr


@pytest.mark.parametrize(
    ("typed", "line", "flag"),
    [
        ("--block-m 64", ("tune",), "iosim count --tiles 128x64 counts given ones"),
        ("--num-heads 2", ("hardware",), "--heads is an option of iosim count, "),
    ],
)
def test_another_name_of_an_option_of_another_command(typed, line, flag, iosim):
    assert flag in iosim(*line, *typed.split()).stderr


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


def test_a_line_without_a_command(iosim):
    done = iosim("--N", 64)
    assert done.exit_code == 2 and "command: found '--N'; allowed: batch, bounds, " in done.stderr
    assert "as in iosim count --N 8192 --d 128 --M 100KB" in done.stderr
    assert "did you mean '--help'?" in iosim("--halp").stderr


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
