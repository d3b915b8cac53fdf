"""On a terminal nothing is wider than it, no number is cut, and NO_COLOR leaves no colour; a pipe is left alone."""

import os
import pty
import random
import re
import subprocess
import sys
import termios

import pytest
from paths import ROOT

from iosim.tables import table
from iosim.terminal import end_of_table, fit

BASE = ["--N", "8192", "--d", "128", "--M", "100KB"]
LINES = {
    "count": BASE,
    "count --detail": [*BASE, "--detail"],
    "bounds": BASE,
    "tune": BASE,
    "tune --curve": ["--N", "64", "--d", "16", "--curve"],
    "training": BASE,
    "roofline": ["--N", "512", "--d", "64", "--hardware", "h100"],
    "crossover": ["--N", "8192", "--d", "64"],
    "cache": ["--N", "256", "--d", "16", "--M", "4KB", "--tiles", "16x16"],
    "check": ["--N", "12", "--d", "4"],
    "hardware": [],
    "hardware h100": [],
    "mask causal": ["--N", "64", "--tiles", "8x8"],
    "schedules": [],
    "schedules flash2-bwd": [],
}


def on_terminal(args, columns, **more):
    """What a terminal of so many columns is sent."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")}
    env = {**env, "TERM": "xterm-256color", **more}
    command = [sys.executable, "-m", "iosim", *args]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=env, cwd=ROOT) as process:
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            found += part
    os.close(ours)
    assert process.returncode == 0, found
    return found.decode().replace("\r\n", "\n")


def bare(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("line", LINES)
def test_80_columns_are_enough(line, iosim):
    text = on_terminal([*line.split(), *LINES[line]], 80, NO_COLOR="1")
    assert max(map(len, bare(text).splitlines())) <= 80
    codes = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", text) for code in codes.split(";")}
    assert codes <= {"0", "1", "3"}, "bold or italic, no colour"
    piped = iosim(*line.split(), *LINES[line])
    whole = set(re.findall(r"(?<![\w.-])\d{4,}(?:\.\d+)?(?![\w.-])", bare(text)))
    assert whole <= set(re.findall(r"\d+(?:\.\d+)?", piped.stdout)), "no number that a pipe does not have"


def test_a_wide_terminal_has_a_rich_table():
    text = on_terminal(["count", *BASE], 140)
    assert "┏" in text and "│ flash2 " in bare(text)
    assert "┏" not in on_terminal(["count", *BASE], 80)


def random_rows(rng):
    names = [f"{'name' * rng.randint(1, 3)}{k}" for k in range(rng.randint(1, 14))]
    kinds = [rng.choice("nntw") for _ in names]
    made = {
        "n": lambda: rng.randint(0, 10 ** rng.randint(1, 20)),
        "t": lambda: "".join(rng.choices("abcdef", k=rng.randint(1, 18))),
        "w": lambda: " ".join("".join(rng.choices("ghijkl", k=rng.randint(1, 9))) for _ in range(rng.randint(1, 20))),
    }
    return [{name: made[kind]() for name, kind in zip(names, kinds, strict=True)} for _ in range(rng.randint(1, 6))]


@pytest.mark.parametrize("seed", range(60))
def test_every_cell_is_there_once_and_whole(seed):
    rng = random.Random(seed)
    rows, width = random_rows(rng), rng.choice([60, 80, 100])
    text = fit(f"before\n\n{table(rows)}\n\nafter", width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width and lines[0] == "before" and lines[-1] == "after"
    words = text.split()
    for row in rows:
        for name, value in row.items():
            assert name in words
            assert all(part in words for part in str(value).split()), (name, value)


def test_what_fits_stays_as_it_is():
    text = "a line\n\n" + table([{"a": 1, "b": "two"}, {"a": 10, "b": "three"}]) + "\nunder it, without a gap\n"
    assert fit(text, 80) == text
    assert end_of_table(text.split("\n"), 2) == 6


def test_a_line_under_a_table_is_not_cut_into_columns():
    rows = [{"name": "x" * 30, "size": 10**20, "text": "y" * 30, "other": "z" * 10}]
    below = "this line follows at once and belongs to no column at all, whatever lies above it: 123456789"
    out = fit(table(rows) + "\n" + below, 60)
    assert " ".join(out.split()).endswith(" ".join(below.split()))
