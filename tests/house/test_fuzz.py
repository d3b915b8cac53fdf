"""Random command lines get an answer and exit code 0, or one message and 2. None gets a traceback or leaves a file."""

import random
import sys
import time

import pytest
from click.testing import CliRunner

from iosim.commands.cli import main

SEED, LINES, PARTS = 20240917, 1500, 10
LONG = [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))]

BAD_NUMBERS = ["0", "-1", "NaN", "inf", "-inf", "1e9", "9" * 29, "9" * 400, "abc", "", " ", "1.5", "1_0", "0x10", "٣x", "½",
               "10:20", "1:10:x1", "1:10:+0", "1:10:x", "20:10:x2", "1,,2", "\t", "-", "--", "None", "1;2"]  # fmt: skip
AXES = ["8:64:x2", "8:64:+8", "8,16", "16,16,32", "1:3:+1"]
BAD_SIZES = [*BAD_NUMBERS, "100TB", "KB", "1.3K", "1el2", "1.5el", "-1KB", "1 K B", "0KB", "0el", "9999999999G"]
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
MISSPELT = ["--n", "--K", "--hed", "--Mm", "--jsn", "-x", "--schedules", "--help-me", "---", "--tile=4x4"]


class Line:
    """A random line. `bad` is the probability of a bad value, low enough that good lines are common as well."""

    def __init__(self, rng):
        self.rng, self.bad, self.args = rng, rng.choice([0, 0, 0.08, 0.3]), []

    def one(self, good, bad):
        return self.rng.choice(bad if bad and self.rng.random() < self.bad else good)

    def add(self, option, good, bad, chance=1.0):
        if self.rng.random() < chance:
            self.args += [option, self.one(good, bad)]

    def flags(self, *options, chance=0.15):
        self.args += [option for option in options if self.rng.random() < chance]

    def problem(self, N, d, chance=0.3, axes=False):
        axis = AXES if axes else []
        self.add("--N", N + axis, BAD_NUMBERS, 0.97)
        self.add("--d", d + axis, BAD_NUMBERS, 0.97)
        self.add("--Nk", N, BAD_NUMBERS, chance)
        self.add("--batch", ["1", "2", "3"] + axis[:1], BAD_NUMBERS, chance / 2)
        if self.rng.random() < chance:
            self.args += ["--heads", self.one(["1", "4", "6"], BAD_NUMBERS)]
            self.add("--kv-heads", ["1", "2"], [*BAD_NUMBERS, "5", "4", "7"], 0.6)
        self.add("--dtype", DTYPES, BAD_DTYPES, chance)
        self.add("--acc-dtype", DTYPES, BAD_DTYPES, chance)

    def memory(self, chance=0.9, axes=False):
        self.add("--M", SIZES + (["16KB:64KB:x2", "2K,4K"] if axes else []), BAD_SIZES, chance)
        self.add("--M", ["51200el", "1el"], BAD_NUMBERS, self.bad / 2)
        self.add("--hardware", HARDWARE, BAD_HARDWARE, self.bad / 2)

    def variants(self, **kwargs):
        self.flags("--count-init", "--lse", "--keep-p")
        self.add("--elementwise", ["0", "1", "3"], [*BAD_NUMBERS, "10001"], 0.1)

    def out(self):
        self.flags("--json", chance=0.25)
        self.flags("--csv", chance=0.15)
        self.add("-o", ["-"], BAD_PATHS, 0.3)

    def schedules(self):
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            self.add("--schedule", SCHEDULES, BAD_SCHEDULES)


def count(line):
    line.problem(["1", "7", "64", "96", "1000", " 33 "], ["1", "16", "64", "5"])
    line.memory()
    line.add("--mask", MASKS, BAD_MASKS, 0.35)
    line.add("--tiles", TILES, BAD_TILES, 0.4)
    line.add("--tile-multiple", ["1", "4"], BAD_NUMBERS, 0.15)
    line.schedules()
    line.variants()
    line.flags("--detail")


def sweep(line):
    line.problem(["8", "64", "96"], ["4", "16"], axes=True)
    line.memory(axes=True)
    line.add("--mask", MASKS, BAD_MASKS, 0.3)
    line.add("--tiles", TILES, BAD_TILES, 0.4)
    line.add("--tile-multiple", ["1", "4"], BAD_NUMBERS, 0.15)
    line.schedules()
    line.variants()
    line.add("--format", ["csv", "jsonl", "parquet"], ["cvs", "", "xlsx"], 0.2)
    line.args += ["--dry-run"]
    if line.rng.random() < line.bad / 2:
        line.args.append(line.rng.choice(["/no/such.toml", "/", "", "\0", __file__]))


def bounds(line):
    line.problem(["1", "64", "1000"], ["1", "64"])
    line.memory(0.7)
    line.add("--mask", MASKS, BAD_MASKS, 0.2)


def mask(line):
    where = line.one([["argument"], ["option"]], [["both"], []])
    if "option" in where or "both" in where:
        line.add("--mask", MASKS, BAD_MASKS)
    if "argument" in where or "both" in where:
        line.args.append(line.one(MASKS, BAD_MASKS))
    line.add("--N", ["1", "64", "100"], BAD_NUMBERS, 0.97)
    line.add("--Nk", ["1", "64", "70"], BAD_NUMBERS, 0.3)
    line.add("--tiles", ["8x8", "64x64", "1x7"], [*BAD_TILES, "best"], 0.6)


def hardware(line):
    if line.rng.random() < 0.6:
        line.args.append(line.one(HARDWARE, BAD_HARDWARE))


def schedules(line):
    if line.rng.random() < line.bad:
        line.args.append(line.rng.choice(["flash2", "", "0"]))


def check(line):
    line.problem(["1", "6", "9"], ["1", "3"])
    line.add("--mask", ["dense", "causal", "window:2", "~window:1"], BAD_MASKS, 0.4)
    line.add("--tiles", ["2x3", "4x4", "16x16"], [*BAD_TILES, "best"], 0.9)
    line.add("--seed", ["0", "3"], BAD_NUMBERS, 0.2)
    line.schedules()
    line.variants()


COMMANDS = {count: 6, sweep: 4, bounds: 2, mask: 3, hardware: 1, schedules: 1, check: 2}


def make(rng):
    line = Line(rng)
    command = rng.choices(list(COMMANDS), COMMANDS.values())[0]
    command(line)
    line.out()
    if rng.random() < line.bad / 3:
        line.args.insert(rng.randrange(len(line.args) + 1), rng.choice(MISSPELT))
    name = command.__name__
    if rng.random() < line.bad / 6:
        name = rng.choice([name[:-1], name.upper(), "", "cuont", "0"])
    return [name, *line.args]


def lines():
    rng = random.Random(SEED)
    return [make(rng) for _ in range(LINES)]


ALL = lines()


def run(args):
    return CliRunner().invoke(main, args, prog_name="iosim")


def judge(args, result):
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


@pytest.mark.parametrize("part", LONG)
def test_random_lines(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["iosim"])
    faults = []
    for args in ALL[part::PARTS]:
        start = time.process_time()
        fault = judge(args, run(args))
        seconds = time.process_time() - start
        if not fault and seconds > 10:
            fault = f"{seconds:.1f} s"
        left = [path.name for path in tmp_path.iterdir()]
        if left:
            fault = fault or f"left behind: {left}"
            for path in tmp_path.iterdir():
                path.unlink()
        if fault:
            faults.append(f"{args}: {fault}")
    assert not faults, f"{len(faults)} of {len(ALL[part::PARTS])}:\n" + "\n".join(faults)


def test_the_lines_are_both_good_and_bad(tmp_path, monkeypatch):
    """If all lines were good, or all bad, the tests above would prove nothing."""
    monkeypatch.chdir(tmp_path)
    codes = [(args[0], run(args).exit_code) for args in ALL[:150]]
    good = sum(code == 0 for _, code in codes)
    assert 0.25 * len(codes) < good < 0.85 * len(codes)
    assert len(ALL) == LINES and {f.__name__ for f in COMMANDS} <= {args[0] for args in ALL}
    assert {name for name, code in codes if code == 0} >= {f.__name__ for f in COMMANDS}


@pytest.mark.parametrize("value", BAD_NUMBERS[:12])
@pytest.mark.parametrize("command", ["count", "sweep", "bounds", "check"])
@pytest.mark.parametrize("option", ["--N", "--d"])
def test_each_bad_number_is_refused_by_name(command, option, value):
    other = {"--N": "--d", "--d": "--N"}[option]
    args = [command, option, value, other, "8", *(["--M", "1KB"] if command != "check" else [])]
    args += ["--dry-run"] if command == "sweep" else []
    result = run(args)
    assert result.exit_code == 2 and option in result.stderr and not result.stdout, (args, result.output)


def test_kv_heads_must_divide_heads():
    for command in ("count", "bounds", "check", "sweep"):
        memory = ["--M", "1KB"] if command != "check" else []
        dry = ["--dry-run"] if command == "sweep" else []
        args = [command, "--N", "8", "--d", "4", "--heads", "6", "--kv-heads", "4", *memory, *dry]
        result = run(args)
        assert result.exit_code == 2 and "--kv-heads" in result.stderr, (args, result.output)


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_cannot_be_written_leaves_nothing(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(["count", "--N", "8", "--d", "4", "--M", "1KB", "--json", "-o", path])
    assert result.exit_code == 2 and "-o" in result.stderr and not result.stdout, result.output
    assert list(tmp_path.iterdir()) == []
