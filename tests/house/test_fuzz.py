"""Random command lines of every command, made from its own options, get an answer, or one message and 2 or 3. None gets a traceback or leaves a file."""

import os
import random
import sys
import time
from itertools import pairwise

import pytest
from click.testing import CliRunner
from paths import TESTS

from iosim.commands.cli import main
from iosim.commands.listed import all_commands

COMMANDS = all_commands()

pytestmark = pytest.mark.early

AMOUNTS = [(16, 0.35), pytest.param(150, 5, marks=pytest.mark.long)]  # lines and CPU seconds, whichever comes first
HUGE = ["16777216", str(2**30), str(2**48)]
COUNTS = ["1", "2", "7", "8", "16", "31", "40"]
GPU = {"verify", "profile"}
EXTRAS = GPU | {"plot", "explain"}  # they need a GPU or a package that may be missing
ANSWERS = {name: {0, 2, 3} if name in EXTRAS else {0, 1, 2} for name in COMMANDS}  # 1: a check that failed
ANSWERS["explain"] |= {1}  # --fail-outside
ANSWERS["sweep"] = {0, 2, 3}  # 3: without Dask

BAD_NUMBERS = ["0", "-1", "NaN", "inf", "-inf", "1e9", "9" * 29, "9" * 400, "abc", "", " ", "1.5", "1_0", "0x10", "٣x", "½",
               "10:20", "1:10:x1", "1:10:+0", "1:10:x", "20:10:x2", "1,,2", "\t", "-", "--", "None", "1;2"]  # fmt: skip
AXES = ["8:64:x2", "8:64:+8", "8,16", "16,16,32", "1:3:+1"]
BAD_SIZES = [*BAD_NUMBERS, "100XB", "KB", "1.3K", "1el2", "1.5el", "-1KB", "1 K B", "0KB", "0el", "9999999999G"]
SIZES = ["100KB", "64KiB", "51200el", "1M", "1.5MB", "2048", "1", "7el", "16k", "1G"]
MASKS = ["dense", "causal", "window:4", "global:2", "strided:3", "causal&window:8", "~causal", "(causal|global:1)",
         "causal:b", "window:1b", "global:2b|causal", " causal ", "sink:3&causal", "chunk:5|dilated:2:3", "documents:60,4",
         "documents:64"]  # fmt: skip
BAD_MASKS = ["", " ", "casual", "window", "window:", "window:-1", "window:x", "window:1.5", "strided:0", "global:1e9",
             "causal&", "&causal", "causal causal", "(causal", "causal)", "~", "()", "((((", "(" * 60 + "causal" + ")" * 60,
             "dense:2", "causal:3", "file:", "file:/no/such/file.npy", "file:/", "py:", "py:/no/such.py:f", "py:x.py", "py:/:f(", "window:" + "9" * 40, "a" * 3000,
             "~" * 1500 + "causal|", "window:1bb", "dense|", "causal,dense", "\0",
             "documents:1,,2", "documents:", "dilated:3", "dilated:1b:2", "chunk:0", "sink:-1", "documents:" + "1," * 900]  # fmt: skip
SCHEDULES = ["standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q"]
BAD_SCHEDULES = ["flahs2", "", "FLASH2", "flash3", "*", "flash1,flash2x", "paper", "\0"]
TILES = ["paper", "best", "64x32", "1x1", "16X8", "4x4", "100x7"]
BAD_TILES = ["0x4", "4x0", "x", "4x", "x4", "4x4x4", "bets", "", "-1x4", "4*4", "1.5x2", "9" * 30 + "x1", "64", "NaNx1"]
DTYPES, BAD_DTYPES = ["fp16", "bf16", "fp32", "fp8", "fp64", "int8"], ["fp61", "FP 16", "", "int4", "floaty", "0"]
HARDWARE, BAD_HARDWARE = (
    ["a100-80gb", "h100", "t4"],
    ["a1000", "", "../a100", "/etc/passwd", "H 100", "\0", "..", "a100.toml", "%s"],
)
BAD_PATHS = [
    "/no/such/folder/out.csv",
    "/",
    "/proc/none/out.json",
    "",
    "no/such/out.parquet",
    "x" * 300,
    "a\0b",
    "/dev/null/x",
]

AXIS = ["4,8", "4:16:x2", "3:9:+3", "8,"]
MORE_MASKS = [
    *MASKS,
    "strided:3&~strided:6",
    "global:2&window:1",
    "~global:3|strided:4",
    "file:nothing.npy",
    "strided:64",
]
POOLS = {
    "--N": (COUNTS + AXIS[:2], BAD_NUMBERS + HUGE),
    "--Nk": (COUNTS, BAD_NUMBERS + HUGE + AXIS),
    "--d": (["1", "4", "8"], BAD_NUMBERS + AXIS + ["1024"]),
    "--dv": (["1", "4", "8"], BAD_NUMBERS + AXIS),
    "--batch": (["1", "2"], [*BAD_NUMBERS, "65536"]),
    "--heads": (["1", "2", "4", "6"], [*BAD_NUMBERS, "65536"]),
    "--kv-heads": (["1", "2"], [*BAD_NUMBERS, "4"]),
    "--key-heads": (["0", "1", "2"], [*BAD_NUMBERS, "4"]),
    "--dtype": (DTYPES, BAD_DTYPES),
    "--acc-dtype": (DTYPES, BAD_DTYPES),
    "--kv-dtype": (DTYPES, BAD_DTYPES),
    "--scale-dtype": (["fp16", "fp32"], ["int4", ""]),
    "--kv-scales": (["none", "tensor", "1", "4"], ["", "rows", "0", "-1"]),
    "--mask": (MORE_MASKS, BAD_MASKS),
    "--M": (
        ["100", "1KB", "4KB", "500el", "16KB:64KB:x2", "1KB,4KB", "1MB"],
        BAD_SIZES + ["1", "3", "1073741824G"],
    ),
    "--hardware": ([*HARDWARE, "h100,t4"], [*BAD_HARDWARE, "h100,", "h100;t4"]),
    "--tiles": (
        ["4x4", "8x2", "1x1", "paper", "best", "16x16", "4x4/depth=2", "4x4/rows_o=2/cols_o=3"],
        BAD_TILES,
    ),
    "--backward-tiles": (["4x4", "paper", "best"], BAD_TILES),
    "--tile-multiple": (["1", "2", "16"], BAD_NUMBERS),
    "--over": (["M", "N"], ["", "d", "M,N"]),
    "--by": (["schedule", "traffic"], ["", "nothing,", "speed"]),
    "--least-blocks": (["1", "4"], BAD_NUMBERS),
    "--claim": (["1000s", "2 B/s", "1FLOP/s"], ["", "fast", "0us", "-1s", "3TB"]),
    "--at-most": (["64MiB", "1000", "8el"], BAD_SIZES),
    "--x-floor": (["1.2", "1", "7/5", "1e3"], ["0.9", "x", "nan", "-1", "1/0"]),
    "--combination": (["standard", "flash1", "flash2"], BAD_SCHEDULES),
    "--unfused": (["scale", "mask-add,dropout"], ["", ",", "scal"]),
    "--elementwise": (["0", "1"], [*BAD_NUMBERS, "10001"]),
    "--jobs": (["1"], [*BAD_NUMBERS, "1025"]),
    "--what": (["count", "tune", "cache", "check", "roofline", "links"], ["", "counts", "count,tune"]),
    "--dask": (["tcp://"], ["", "nowhere"]),
    "--part-rows": (["1", "100000"], BAD_NUMBERS),
    "--gather": ([], ["", "nowhere", "/dev/null"]),
    "--requests": (
        ["1:40", "2 * 1:30, 9:9", "3:8,1:100"],
        ["", ",", "1", "9:3", "0:1", "x:y", "1:2:3", "2*", "/no/such.csv", "\0.csv", "99999999999:1", "*1:2"],
    ),
    "--ranks": (["1", "2", "4", "8"], [*BAD_NUMBERS, "7", "1024"]),
    "--pass": (["forward", "backward", "step"], ["", "both", "forwards"]),
    "--nodes": (["2x2", "1x4"], ["", "4", "x", "2x", "0x2", "2x2x2", "1000000x1000000"]),
    "--link": (["450GB", "1.5TB/s"], ["", "0", "fast", "-1", "nan"]),
    "--network": (["50GB"], ["", "0", "slow"]),
    "--memory": (["1MB", "80GB"], BAD_SIZES),
    "--way": (["repeat", "pack", "split,paged", "decode"], ["", "packs", "cascade", ","]),
    "--chunk": (["1", "4,16"], BAD_NUMBERS),
    "--model": ([str(TESTS / "data"), str(TESTS / "data" / "config.json")], [*BAD_PATHS, __file__]),
    "--layers": (["1", "80"], BAD_NUMBERS),
    "--splits": (["1", "3", "100"], BAD_NUMBERS),
    "--page-size": (["1", "3", "100"], BAD_NUMBERS),
    "--top-k": (["1", "2", "16"], BAD_NUMBERS),
    "--key-block": (["1", "4", "64"], BAD_NUMBERS),
    "--registers": (["0", "64K", "256KB", "100"], [*BAD_SIZES, "64KB2"]),
    "--stages": (["1", "2", "3"], [*BAD_NUMBERS, "65"]),
    "--gqa": (["repeat", "pack"], ["", "PACK", "packed"]),
    "--seed": (["0", "3"], BAD_NUMBERS),
    "--dropout": (["0", "0.5"], [*BAD_NUMBERS, "1", "2"]),
    "--granularity": (["line", "word", "tile"], ["", "byte"]),
    "--line": (["2", "64"], BAD_SIZES),
    "--policy": (["lru", "belady", "both"], ["", "LRU", "opt"]),
    "--tensors": (["Q", "Q,K,V,O"], ["", "Z", ",", "Q,,K"]),
    "--picture": (["traffic", "mask", "race"], ["", "masks", "timeline"]),
    "--format": (["csv", "jsonl", "parquet", "perfetto"], ["", "xlsx"]),
    "--where": (["N=64", "schedule=flash1"], ["", "N", "=", "nothing=1"]),
    "--columns": (["N,total", "schedule"], ["", "M", "totl", ","]),
    "--budget": (["1MB", "12GB"], BAD_SIZES),
    "--from-ncu": ([], ["/no/such.csv", "", "/", __file__]),
    "--keep": (["kept.csv"], ["/no/such/kept.csv"]),
    "-o": (["-"], BAD_PATHS),
    "-x": (["M_bytes"], ["", "nothing"]),
    "-y": (["total"], ["", "nothing"]),
    "--kernel": (["add", "attention"], ["", "ad", "\0"]),
    "--grid": (
        ["cdiv(n, BLOCK)", "2", "n, 2"],
        ["", "x", "1.5", "()", "n(", "1, 2, 3, 4", "2 ** 9 ** 9", "9" * 40, "n" * 99],
    ),
    "--arg": (
        ["n=100", "X=fp32[n]", "Y=fp32[n]", "Z=fp32[n]"],
        ["", "=", "n", "n=", "X=fp32[", "X=fp32[0]", "X=no.npy", "n=n", "n=1<<99", "n='a'*9"],
    ),
    "--const": (
        ["BLOCK=64"],
        ["", "BLOCK", "BLOCK=0", "BLOCK=()", "BLOCK=1/0", "__import__=1", "BLOCK=__import__('os')"],
    ),
    "--trace": (["trace.csv", "trace.json"], BAD_PATHS),
    "--script": ([], ["", "/no/such.py", "/", "\0"]),
    "--check": ([], ["", "/no/such.json", "/", "\0", str(TESTS.parent / "README.md")]),
    "--inductor": ([], ["", "/no/such", "/dev/null", "\0", str(TESTS / "masks")]),
    "--warps": (["4", "8"], BAD_NUMBERS),
    "--timeout": (["60", "0.5"], ["", "0", "-1", "x", "nan"]),
    "--target": (["sm_90", "sm_80"], ["", "sm_1", "90", "sm_9000"]),
    "--as": (["attention", "gdn"], ["", "softmax", "attention:", "attention:Q"]),
}
ARGUMENTS = {
    "schedules": (SCHEDULES, BAD_SCHEDULES),
    "hardware": (HARDWARE, BAD_HARDWARE),
    "mask": (MORE_MASKS, BAD_MASKS),
    "explain": ([str(TESTS / "helpers" / "triton_kernels.py")], ["", "/no/such.py", "/", "\0"]),
    "profile": (["torch-flash", "torch-math"], ["", "torch", "\0"]),
}
OTHER = ([], ["", "0", "x", "\0", "9" * 40, "/no/such/file"])
EVERY = [*SCHEDULES, "flash1,flash2", "flash2,split-kv", "memory-efficient", "split-kv", "paged", "flash1-bwd", "flash2-bwd-second-pass", "small-cache",
         "softmax-2pass", "attention-3pass", "matmul-tiled-b", "linear", "state-fused", "local-gather", "selected", "paged-split"]  # fmt: skip
PICTURES = ["picture.svg", "picture.png", "picture.pdf"]
OFTEN = {
    "explain": {"--kernel": 0.9, "--grid": 0.9, "--const": 0.9, "--N": 0.05, "--d": 0.05, "--M": 0},
    "roofline": {"--hardware": 0.9, "--M": 0.1},
    "batch": {"--requests": 0.95},
    "plot": {"-o": 0.95},
}
USUAL = {"--N": 0.97, "--d": 0.95, "--M": 0.7, "--tiles": 0.6, "-o": 0.1, "--hardware": 0.1}


def line(rng, name):
    """A command line with some options of the command, each with a good value or, at times, a bad one."""
    bad = rng.choice([0, 0, 0.05, 0.3])
    args = []
    for parameter in main.get_command(None, name).params:
        option = (
            next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])
            if parameter.param_type_name == "option"
            else None
        )
        if option is None:
            if rng.random() < {"explain": 0.97, "plot": 0.1, "sweep": 0.1}.get(name, 0.4):
                args.append(pick(rng, bad, ARGUMENTS.get(name, OTHER)))
        elif parameter.is_flag:
            args += [option] if rng.random() < 0.12 else []
        elif option == "--schedule":
            for _ in range(rng.choice([0, 1, 1, 2])):
                args += [option, pick(rng, bad, (EVERY, BAD_SCHEDULES))]
        elif rng.random() < 0.02:  # twice
            args += [part for _ in range(2) for part in (option, pick(rng, bad, POOLS.get(option, OTHER)))]
        elif rng.random() < {**USUAL, **OFTEN.get(name, {})}.get(option, 0.12):
            pool = (PICTURES, BAD_PATHS) if (name, option) == ("plot", "-o") else POOLS.get(option, OTHER)
            args += [option, pick(rng, bad, pool)]
    return [name, *args]


def pick(rng, bad, pool):
    good, wrong = pool
    return rng.choice(wrong if not good or rng.random() < bad else good)


def run(args):
    return CliRunner().invoke(main, args, prog_name="iosim")


def judged(args, result):
    """What is wrong with an answer; an empty string if nothing is."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{type(result.exception).__name__}: {str(result.exception)[:150]}"
    if result.exit_code not in (0, 2):
        return f"exit code {result.exit_code}: {result.stderr[:150]}"
    if "Traceback" in result.output:
        return "a traceback"
    if result.exit_code == 0:
        quiet = all(line.startswith("note: ") for line in result.stderr.splitlines())
        return "" if result.stdout.strip() and quiet else f"0, but stderr says {result.stderr[:150]!r}"
    messages = [text for text in result.stderr.splitlines() if text.startswith("Error: ")]
    if result.stdout:
        return f"2, but stdout says {result.stdout[:80]!r}"
    if len(messages) != 1 or len(messages[0]) <= len("Error: ") + 5:
        return f"not one message: {result.stderr[:200]!r}"
    return "" if len(result.stderr) < 4000 else "a message without an end"


def judge(args, result):
    allowed = ANSWERS[args[0]]
    if result.exit_code == 3 and 3 in allowed:
        ok = "Error: " in result.stderr and not result.stdout and "Traceback" not in result.stderr
        return "" if ok else f"3, but {result.output[:200]!r}"
    if result.exit_code == 1 and 1 in allowed and isinstance(result.exception, SystemExit):
        quiet = all(line.startswith("note: ") for line in result.stderr.splitlines())
        return "" if args[0] == "verify" and quiet else "only a check can fail"
    written = [after for option, after in pairwise(args) if option == "-o"]
    if result.exit_code == 0 and args[0] == "plot" and written and written[-1] != "-":  # the picture is in the file
        return "" if not result.stdout and any(map(os.path.exists, PICTURES)) else f"0, but {result.output[:150]!r}"
    return judged(args, result)


def faults(name, seed, lines, seconds, folder):
    rng, found, codes = random.Random(f"{name} {seed}"), [], []
    start = time.process_time()
    for _ in range(lines):
        args = line(rng, name)
        before = time.process_time()
        result = run(args)
        fault, took = judge(args, result), time.process_time() - before
        codes.append(result.exit_code)
        left = [path.name for path in folder.iterdir() if path.name not in PICTURES or result.exit_code]
        for path in folder.iterdir():
            path.unlink()
        fault = fault or (f"left behind: {left}" if left else "") or (f"{took:.1f} s" if took > 10 else "")
        if fault:
            found.append(f"{args}: {fault}")
        if time.process_time() - start > seconds:
            break
    return found, codes


@pytest.fixture(scope="module", autouse=True)
def parts(tmp_path_factory):
    """A folder of parts, for --gather."""
    folder = str(tmp_path_factory.mktemp("parts") / "sweep")
    result = run(["sweep", "--N", "8,16", "--d", "4", "--M", "4KB", "-o", f"{folder}/"])
    assert result.exit_code == 0, result.output
    POOLS["--gather"][0].append(folder)


@pytest.mark.parametrize("lines, seconds", AMOUNTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_random_lines_of_every_command(name, lines, seconds, tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr(sys, "argv", ["iosim"])
    found, codes = faults(name, 0, lines, seconds, tmp_path)
    assert not found, f"{len(found)} of {len(codes)}:\n" + "\n".join(found)
    few = len(codes) < 40  # in the short run, or on a slow machine
    assert few or ((2 in codes or name in GPU) and (name in EXTRAS or 0 in codes)), "good lines and bad ones"


def test_every_option_has_values():
    """A new option without values in POOLS is tried with nonsense only."""
    for name in COMMANDS:
        for parameter in main.get_command(None, name).params:
            if parameter.param_type_name == "option" and not parameter.is_flag:
                assert {*parameter.opts} & {*POOLS, "--schedule"}, (name, parameter.opts)


SIZES = ["--N", "64", "--d", "8"]
GOOD = {
    **{name: [*SIZES, "--M", "1KB"] for name in ("count", "tune", "bounds", "report")}, "cache": [*SIZES, "--M", "1KB", "--tiles", "4x4"],
    "sweep": [*SIZES, "--M", "1KB", "--dry-run"], "trace": ["--N", "8", "--d", "4", "--tiles", "4x4"], "verify": ["--cpu", "--N", "8", "--d", "4"],
    "roofline": [*SIZES, "--hardware", "t4"], "plot": ["--picture", "mask", "--mask", "causal", "--N", "8"],
}  # fmt: skip


@pytest.mark.parametrize("values", [1, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", GOOD)
def test_one_bad_value_is_one_fault(name, values, tmp_path, monkeypatch):
    """A fault that the command finds, and that is found again when all options are read, is told once, by its name."""
    monkeypatch.chdir(tmp_path)
    found = []
    for option in (
        max(p.opts, key=len)
        for p in main.get_command(None, name).params
        if p.param_type_name == "option" and not p.is_flag
    ):
        for value in POOLS.get(option, (EVERY, BAD_SCHEDULES))[1][:values]:
            if (name, option, value) == ("trace", "--Nk", HUGE[0]):  # it is good: 42 million events
                continue
            line = list(GOOD[name])
            goal = name == "tune" and option in ("--at-most", "--x-floor", "--over")
            for other in (option, *(["--M"] if goal or option == "--hardware" else [])):
                if other in line:
                    del line[line.index(other) : line.index(other) + 2]
            line += ["--curve"] if option == "--over" else []
            result = run([name, *line, option, value])
            named = any(text in result.stderr for text in (option, f"{value}: found", "events of this run: found"))
            if result.exit_code == 2 and not (result.stderr.count("\n") == 1 and named and not result.stdout):
                found.append((option, value, result.stderr))
    assert not found, found


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_cannot_be_written_leaves_nothing(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(["count", "--N", "8", "--d", "4", "--M", "1KB", "--json", "-o", path])
    assert result.exit_code == 2 and "-o" in result.stderr and not result.stdout, result.output
    assert list(tmp_path.iterdir()) == []
