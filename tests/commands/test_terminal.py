"""On a terminal nothing is wider than it, no number is cut, and NO_COLOR leaves no colour; a pipe is left alone."""

import os
import pty
import random
import re
import sys
import termios
import traceback
from contextlib import suppress

import pytest
from paths import ROOT
from wings_here import skip_if_gone

from iosim.__main__ import main
from iosim.counting.count import count
from iosim.grid import ByteCell, Grid, foldable, folded, layout, shown, wrapped
from iosim.units import binary, format_bytes
from iosim.verdict import about

BASE = ["--N", "8192", "--d", "128", "--M", "100KB"]
LINES = {
    "count": BASE,
    "count --detail": [*BASE, "--detail"],
    "bounds": BASE,
    "tune": BASE,
    "tune --curve": ["--N", "64", "--d", "16", "--curve"],
    "count --pass step": BASE,
    "roofline": ["--N", "512", "--d", "64", "--hardware", "h100"],
    "cache": ["--N", "256", "--d", "16", "--M", "4KB", "--tiles", "16x16"],
    "verify --cpu": ["--N", "12", "--d", "4"],
    "hardware": [],
    "hardware h100": [],
    "memory": ["--N", "8192", "--d", "128"],
    "plot --picture mask": ["--mask", "causal", "--N", "64", "--tiles", "8x8"],
    "schedules": [],
    "schedules flash2-bwd": [],
}


def forked(args, terminal, env):
    """The number of a copy of this process, which runs a command line. What is imported here is not imported again."""
    if number := os.fork():
        return number
    code = 1
    try:
        for stream in range(3):
            os.dup2(terminal, stream)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(ROOT)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        sys.__stdout__, sys.argv = sys.stdout, ["iosim", *args]
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def started(args, terminal, env):
    """The number of a new process, which runs a command line."""
    command = [sys.executable, "-m", "iosim", *args]
    streams = [(os.POSIX_SPAWN_DUP2, terminal, stream) for stream in range(3)]
    return os.posix_spawn(sys.executable, command, {**env, "PYTHONPATH": str(ROOT)}, file_actions=streams)


def on_terminal(args, columns, code=0, process=forked, **more):
    """What a terminal of so many columns is sent."""
    skip_if_gone(args)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")}
    env = {**env, "TERM": "xterm-256color", **more}
    number = process(args, theirs, env)
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
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == code, found
    return found.decode().replace("\r\n", "\n")


def test_a_new_process_sends_what_a_copy_of_this_one_does():
    assert on_terminal(["count", *BASE], 80, process=started) == on_terminal(["count", *BASE], 80)


def bare(text):
    """The text without codes; of a line that is written again, what is written last."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)


@pytest.mark.parametrize("line", LINES)
def test_80_columns_are_enough(line, iosim):
    text = on_terminal([*line.split(), *LINES[line]], 80, NO_COLOR="1")
    assert max(map(len, bare(text).splitlines())) <= 80
    codes = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", text) for code in codes.split(";")}
    assert codes <= {"0", "1", "2", "3"}, "bold, dim or italic, no colour"
    piped = iosim(*line.split(), *LINES[line])
    assert "\x1b" not in piped.output
    number = r"(?<![\w.,-])\d[\d,]{3,}(?:\.\d+)?(?![\w.-]| [KMGTP]iB)"
    assert {*re.findall(number, bare(text))} <= {*re.findall(number, piped.stdout)}, "no number that a pipe lacks"


@pytest.mark.parametrize("line", ["count", "verify --cpu"])
def test_a_dumb_terminal_gets_no_escape_sequence(line):
    """count highlights rows elsewhere, and check has a line that moves."""
    text = on_terminal([*line.split(), *LINES[line]], 80, TERM="dumb")
    assert "flash2" in text and "\x1b" not in text


def test_a_page_is_not_poured_over_a_terminal(iosim):
    """It is refused with the name of a file to write. A pipe gets the page, and so does a terminal with `-o -`."""
    line = ["report", "--N", "64", "--d", "8", "--M", "4KB"]
    refused = " ".join(bare(on_terminal(line, 80, code=2)).split())
    assert refused == (
        "Error: -o: found 'nothing, and stdout is a terminal'; allowed: a file, as -o report.html; a pipe gets the page, and "
        "--open shows it in a browser"
    )
    assert iosim(*line).stdout.startswith("<!doctype html>")
    assert "<!doctype html>" in on_terminal([*line, "-o", "-"], 80)


def table_of(text):
    """The first table of a terminal: the words of its head, and its rows as lists of words."""
    lines = bare(text).splitlines()
    rule = next(k for k, line in enumerate(lines) if line and set(line) == {"─"})
    below = range(rule + 1, lines.index("", rule))
    end = next((k for k in below if lines[k].startswith(("not shown", "Its class"))), below.stop)
    return lines[rule - 1], [line.split() for line in lines[rule + 1 : end]]


def test_a_terminal_shows_what_it_has_room_for():
    """Bytes and the ratio to standard are there from 140 columns on; a narrower terminal says that they are not."""
    for width in (140, 200):
        text = on_terminal(["count", *BASE], width)
        head, rows = table_of(text)
        assert all(name in head for name in ("SRAM bytes", "reads", "writes", "bytes")) and "not shown" not in text
        assert rows[-1][:2] == ["flash2", "196x1"] and "89,128,960" in rows[-1] and "MiB" in rows[-1]
    text = on_terminal(["count", *BASE], 80)
    head, rows = table_of(text)
    assert head.split() == ["schedule", "tiles", "fits", "SRAM", "bytes", "reads", "writes", "total", "words", "floor"]
    assert rows[-1] == ["flash2", "196x1", "yes", "102,040", "89,128,960", "1,048,576", "90,177,536", "1.064"]
    said = " ".join(bare(text).split())
    assert "not shown: bytes, x standard (a wider terminal shows them, --csv has all)" in said


LARGE = {"heads": 64, "batch": 32, "hardware": "h100"}
ADDS = ("R + W + A", "adds")
WIDE = {
    "reads and writes": ({"heads": 32, "mask": "causal", "M": "64KB"}, ["bytes", "x standard", "writes"]),
    "a million tokens": (
        {"N": 2**20, **LARGE},
        ["SRAM bytes", "blocks", "bytes", "reads", "total words", "writes", "x standard"],
    ),
    "adds": (
        {"N": 2**20, **LARGE, "schedules": ["flash2-bwd-second-pass", "flash2-bwd"]},
        [*ADDS, "SRAM bytes", "blocks", "bytes", "reads", "total words", "writes", "x floor with adds", "x standard"],
    ),
    "registers": (
        {"N": 2**20, **LARGE, "register_bytes": 262144, "schedules": ["flash2", "flash2-bwd"]},
        [*ADDS, "blocks", "bytes", "reads", "total words", "writes", "x floor with adds", "x standard"],
    ),
    "long tiles and names": (
        {"N": 2**30, **LARGE, "register_bytes": 262144, "tiles": "128x128", "schedules": ["flash2-bwd-second-pass"]},
        ["binds", "blocks", "bytes", "reads", "total words", "writes", "x full card", "x standard"],
    ),
}


@pytest.mark.parametrize("case", WIDE)
def test_the_ratio_to_the_floor_is_never_left_out_at_80_columns(case):
    """First go what can be computed from the rest, then writes and reads, the SRAM, and at last the sum. On a GPU the
    least time and what binds stay beside the ratio, if the places of tiles leave room."""
    options, left_out = WIDE[case]
    found = layout(count(**{"N": 8192, "d": 128, **options}).table().grid(), 80)
    assert {"schedule", "tiles", "fits", "x floor"} <= found.widths.keys()
    assert ("us at least" in found.widths) == ("hardware" in options)
    assert sorted(found.left_out) == sorted(left_out)
    assert sum(found.widths.values()) + found.gap * (len(found.widths) - 1) <= 80


def test_the_winner_and_what_does_not_fit_stand_out():
    lines = on_terminal(["count", *BASE], 140).splitlines()
    winner = next(line for line in lines[1:] if bare(line).startswith("flash2 "))
    beaten = next(line for line in lines if bare(line).startswith("standard-tiled "))
    unfit = next(line for line in lines if bare(line).startswith("standard  "))
    assert "\x1b[1;32m" in winner and "\x1b[1;31mNO" in unfit and "\x1b" not in beaten


def test_notes_are_broken_between_words():
    line = ["count", "--N", "64", "--d", "8", "--M", "4KB", "--mask", "causal", "--visit-all"]
    text = bare(on_terminal(line, 60))
    note = text[text.index("note: standard, ") :]
    assert text.startswith("flash2 ") and max(map(len, note.splitlines())) <= 60
    assert "without --visit-all flash1 and flash2 skip hidden tiles" in " ".join(note.split())


FAULTY = {
    "a list of names": ["count", "--N", "64", "--d", "8", "--M", "4KB", "--schedule", "fa2"],
    "several faults": ["count", "--d", "8", "--nun", "3"],
    "an option before the command": ["--halp"],
}


@pytest.mark.parametrize("line", FAULTY.values(), ids=FAULTY)
def test_errors_are_broken_between_words_on_a_terminal_alone(line, iosim):
    piped = iosim(*line).stderr
    text = bare(on_terminal(line, 60, code=2))
    assert max(map(len, piped.splitlines())) > 60 >= max(map(len, text.splitlines()))
    assert text.split() == piped.split(), "the same words"
    depth = [len(part) - len(part.lstrip()) for part in text.splitlines()]
    assert depth[0] == 0 and all(depth[1:]), "later lines are indented"


def test_a_long_line_breaks_at_spaces_only():
    assert wrapped("give --tile-multiple 16 or else", 20) == ["give --tile-multiple", "  16 or else"]
    assert wrapped("a line", 20) == ["a line"] and wrapped("", 20) == [""]


def test_brackets_are_no_markup():
    text = bare(on_terminal(["bounds", *BASE], 200))
    assert "for all M in [d, Nd]" in text


@pytest.mark.parametrize("backward", [False, True])
def test_bounds_say_for_what_they_hold_where_there_is_no_room_for_the_column(backward):
    text = bare(on_terminal(["bounds", *BASE, *["--backward"] * backward], 80))
    what = "exact gradients" if backward else "exact attention"
    said = " ".join(text.split())
    assert "not shown: valid" in said and f"; floor holds for {what} by standard products; forms" in said
    assert "form " in text and said.endswith("docs/floors.md")


def test_what_explains_a_kernel_fits_a_terminal():
    line = [
        "profile",
        "--from-ncu",
        str(ROOT / "tests/data/ncu_flash.csv"),
        "--N",
        "4096",
        "--d",
        "128",
        "--heads",
        "32",
    ]
    text = re.sub("note: .*\n", "", bare(on_terminal(line, 80)))
    assert max(map(len, text.splitlines())) <= 80 and "loaded/predicted" in text and "not shown: " in text


def test_verdicts_fit_a_terminal():
    """A narrow one leaves out rates and bytes, and keeps the ratios and whether all agree."""
    kept = str(ROOT / "tests/data/ncu_generated.csv")
    line = [
        "verify",
        "--from-ncu",
        kept,
        *["--N", "2048", "--d", "64", "--heads", "132", "--tiles", "64x64", "--dtype", "fp32"],
    ]
    text = bare(on_terminal([*line, "--schedule", "flash1,flash2"], 80, NO_COLOR="1")).partition("times are")[0]
    assert max(map(len, text.splitlines())) <= 80 and "1.00000" in text and "2 of 2 agree" in text
    assert "not shown: " in text and "TFLOP/s, TB/s, error, allowed" in " ".join(text.split())


def layouts(seed):
    """A random table with random spare columns, a width, and its layout."""
    rng = random.Random(seed)
    rows = random_rows(rng, between=" ")
    names = list(rows[0])
    spare = tuple(rng.sample(names[1:], rng.randint(0, len(names) - 1)))
    grid = Grid(rows, spare, tall=rng.random() < 0.5)
    width = rng.choice([60, 80, 100, 140])
    return grid, width, layout(grid, width)


@pytest.mark.parametrize("seed", range(60))
def test_a_table_fits_and_leaves_out_no_more_than_it_must(seed):
    grid, width, found = layouts(seed)
    names = list(grid.rows[0])
    assert [n for n in names if n in found.widths or n in found.left_out] == names
    assert not set(found.widths) & set(found.left_out) and names[0] in found.widths
    assert sum(found.widths.values()) + found.gap * (len(found.widths) - 1) <= width
    order = [*grid.spare, *(n for n in reversed(names[1:]) if n not in grid.spare)]
    assert set(order[: len(found.left_out)]) == set(found.left_out), "the least important ones"
    if found.left_out:
        back = order[len(found.left_out) - 1]
        heads = {n: n.split() if grid.tall else [n] for n in [*found.widths, back]}
        least = {n: foldable([*words, *(shown(row[n]) for row in grid.rows)]) for n, words in heads.items()}
        assert sum(least.values()) + len(least) - 1 > width, "one more does not fit"
    elif found.gap == 1:
        least = [foldable([*(n.split() if grid.tall else [n]), *(shown(r[n]) for r in grid.rows)]) for n in names]
        assert sum(least) + 2 * (len(least) - 1) > width, "columns stand apart where they can"


@pytest.mark.parametrize("seed", range(60))
def test_no_number_of_a_column_that_is_shown_is_cut(seed):
    grid, _, found = layouts(seed)
    for row in grid.rows:
        for name, width in found.widths.items():
            lines = folded(shown(row[name]), width).split("\n")
            assert max(map(len, lines)) <= width and "".join("".join(lines).split()) == "".join(
                shown(row[name]).split()
            )
            if isinstance(row[name], int):
                assert lines == [f"{row[name]:,}"]


def test_how_cells_are_shown():
    cells = [
        None,
        8192,
        1048576,
        10**20,
        True,
        "21474836.5",
        "1.064",
        "196x1",
        ByteCell(180355072),
        ByteCell(7, " twice"),
    ]
    assert [shown(cell) for cell in cells] == [
        "-", "8,192", "1,048,576", "100,000,000,000,000,000,000", "True", "21,474,836.5", "1.064", "196x1", "172 MiB",
        "7 B twice",
    ]  # fmt: skip


def test_sizes_have_at_most_four_digits():
    """From 1,000 units on a size is a whole number, in the next unit if it is rounded up to that."""
    sizes = (5, 1023, 1024, 1536, 1_033_605, 2**20 - 600, 2**20 - 500, 2**20 - 1, 1_592_520_029_920)
    shown = ["5 B", "1,023 B", "1 KiB", "1.50 KiB", "1,009 KiB", "1,023 KiB", "1.00 MiB", "1.00 MiB", "1.45 TiB"]
    assert [binary(size) for size in sizes] == shown == [about(size) for size in sizes]
    assert format_bytes(sizes[-1]) == "1,592,520,029,920 B (1.45 TiB)"


@pytest.mark.parametrize("name", ["count", "count --detail", "tune", "count --pass step"])
def test_sizes_are_binary_in_a_pipe_too(name, iosim):
    """Only bandwidths are decimal."""
    text = iosim(*name.split(), *LINES[name.split(" ")[0]]).stdout
    assert re.search(r"\d [KMG]iB\b", text) and re.findall(r"\d [kKMGT]B\b(?!/s)", text) == []


def test_a_pipe_has_every_column_and_digit(iosim):
    """However wide: the same text as without a terminal, for each command with tables."""
    text = iosim("count", *BASE).stdout
    for words in ("SRAM bytes", "reads", "writes", "x standard", "89,128,960", "172 MiB"):
        assert words in text
    assert "not shown" not in text and "89128960" not in text


def random_rows(rng, between=""):
    names = [f"{between.join(['name'] * rng.randint(1, 3))}{k}" for k in range(rng.randint(1, 14))]
    kinds = [rng.choice("nntw") for _ in names]
    made = {
        "n": lambda: rng.randint(0, 10 ** rng.randint(1, 20)),
        "t": lambda: "".join(rng.choices("abcdef", k=rng.randint(1, 18))),
        "w": lambda: " ".join("".join(rng.choices("ghijkl", k=rng.randint(1, 9))) for _ in range(rng.randint(1, 20))),
    }
    return [{name: made[kind]() for name, kind in zip(names, kinds, strict=True)} for _ in range(rng.randint(1, 6))]


def test_a_line_of_a_cell_does_not_break_within_a_number():
    """The commas of 1,030 are no place for a break, and those of a list are."""
    assert folded("from 18,124; 1,030 to 16,383; 1 more", 10).split("\n") == [
        "from", "18,124;", "1,030 to", "16,383; 1", "more"
    ]  # fmt: skip
    assert folded("small-cache,small-cache-q", 14).split("\n") == ["small-cache,", "small-cache-q"]


def test_a_line_of_text_does_not_break_between_a_size_and_its_unit():
    assert wrapped("none below 262,660 B (256.50 KiB)", 19) == ["none below", "  262,660 B", "  (256.50 KiB)"]
    assert wrapped("no more than 3 Bytes here", 15) == ["no more than 3", "  Bytes here"]


def test_a_phone_shows_more_than_names():
    """At 40 columns texts and headings break at spaces before a column of numbers is left out, and sizes keep units."""
    rows = [{"schedule": "usp", "split": "heads 4 x ring 2", "words a GPU": 159_383_552, "x floor": "1.086"}]
    found = layout(Grid(rows, ()), 40)
    assert found.left_out == () and sum(found.widths.values()) + 3 * found.gap <= 40
    assert folded("424,779 B (414.82 KiB)", 12).split("\n") == ["424,779 B", "(414.82 KiB)"]


@pytest.mark.parametrize("line, where", [
    (["bounds"], "--csv"), (["tune"], "iosim bounds --csv"), (["count", "--detail"], "iosim bounds --csv"),
], ids=str)  # fmt: skip
def test_what_is_not_shown_of_bounds_is_in_the_csv_that_has_them(line, where):
    text = " ".join(bare(on_terminal([*line, "--N", "8192", "--d", "128", "--M", "100KB"], 80)).split())
    assert f"not shown: valid (a wider terminal shows them, {where} has all)" in text
