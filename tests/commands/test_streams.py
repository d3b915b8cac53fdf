"""Streams that are closed or full, and signals: one message, no lost file, nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from wings_here import skip_if_gone

IOSIM = [sys.executable, "-m", "iosim"]
SIZES = ("--N", 64, "--d", 8)
LINES = {
    "--help": ("--help",),
    "count --help": ("count", "--help"),
    "--version": ("--version",),
    "count": ("count", *SIZES, "--M", "1KB"),
    "trace": ("trace", "--N", 8, "--d", 4, "--tiles", "4x4"),
}
full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


def shell(args, redirect, cwd):
    skip_if_gone(args)
    line = " ".join(map(str, [*IOSIM, *args, redirect]))
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=60, cwd=cwd, env={**os.environ, "PYTHONPATH": path}
    )


@pytest.mark.parametrize(
    "args", [LINES["trace"], (*LINES["trace"], "--json"), ("verify", "--cpu", *SIZES, "--csv")], ids=str
)
def test_rows_go_to_stdout_while_a_terminal_shows_progress(args, tmp_path):
    """stderr is a terminal, and stdout is not. The bytes are those without a terminal."""
    skip_if_gone(args)
    keeper, terminal = os.openpty()
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    line = [*IOSIM, *map(str, args)]
    outputs = []
    for stderr in (terminal, subprocess.DEVNULL):
        done = subprocess.run(
            line, stdout=subprocess.PIPE, stderr=stderr, timeout=60, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
            check=True,
        )  # fmt: skip
        outputs.append(done.stdout)
    os.close(terminal)
    os.close(keeper)
    assert outputs[0] == outputs[1] and outputs[0].count(b"\n") > 3


@pytest.mark.parametrize("form", [(), ("--format", "jsonl")], ids=["csv", "json lines"])
def test_a_reader_that_has_enough_is_no_failure(form, tmp_path):
    """As with `| head -n 1`."""
    args = ("trace", "--N", 256, "--d", 4, "--schedule", "flash2", "--tiles", "1x1", *form)
    skip_if_gone(args)
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    line, env = [*IOSIM, *map(str, args)], {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=env) as run:
        assert run.stdout.readline()
        run.stdout.close()
        assert run.wait(60) == 0 and b"rror" not in run.stderr.read()


@full
@pytest.mark.parametrize("args", LINES.values(), ids=LINES)
@pytest.mark.parametrize("redirect, found", [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_a_stdout_that_takes_nothing_is_one_message(args, redirect, found, tmp_path):
    done = shell(args, redirect, tmp_path)
    assert (
        done.returncode == 2
        and done.stderr == f"Error: stdout: found {found!r}; allowed: a place with room for the answer\n"
    )


@full
@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-", "2>/dev/full >/dev/full"])
def test_a_stderr_that_takes_nothing_leaves_the_exit_code(redirect, tmp_path):
    done = shell(("count", "--N", "x"), redirect, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    noted = shell((*LINES["count"], "--splits", 8), redirect.partition(" ")[0], tmp_path)
    assert noted.returncode == 0 and "flash2" in noted.stdout, "a note is lost, and the answer is not"


WRITTEN = {
    "x.csv": ("sweep", *SIZES, "--M", "1KB"),
    "x.json": ("count", *SIZES, "--M", "1KB"),
    "y.json": LINES["trace"],
    "x.html": ("report", *SIZES, "--M", "1KB"),
    "x.txt": ("bounds", "--N", 8, "--d", 2, "--M", "1KB"),
}


@pytest.mark.parametrize(
    "name, closed", [*((name, ">&-") for name in WRITTEN), ("x.json", ">&- 2>&-"), ("y.json", "<&- >&-")]
)
def test_a_file_is_written_with_stdout_closed(name, closed, tmp_path, iosim):
    """The file does not take the place of stdout, and holds what it always holds."""
    done = shell(WRITTEN[name], f"-o {name} {closed}", tmp_path)
    assert done.returncode == 0 and not done.stdout and not done.stderr
    assert iosim(*WRITTEN[name], "-o", tmp_path / f"expected-{name}").exit_code == 0
    found, expected = ((tmp_path / start).read_text() for start in (name, f"expected-{name}"))
    assert without_line(found) == without_line(expected) and len(found) > 20


def without_line(text):
    """A text without the command line that is noted in it."""
    return re.sub(r'"argv": \[.*?\]|<footer>.*?</footer>', "", text, flags=re.S)


# ---------------------------------------------------------------- signals


SLOW = """
import time
import iosim

def text(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q):
        time.sleep(0.05)
        q = chip.load("Q", i)
        for j in chip.tiles(p.Nk, p.Nk):  # the events of an innermost loop come all at once
            chip.free(chip.load("K", j))
        chip.store(q, "O", i)

iosim.register(iosim.Schedule("slow", text, "takes its time"))
"""


def started(folder):
    """A run that has begun to write its file x.csv."""
    skip_if_gone(["trace"])
    (folder.parent / "slow.py").write_text(SLOW)
    args = (
        "trace",
        "--load",
        folder.parent / "slow.py",
        "--N",
        1000,
        "--d",
        1,
        "--tiles",
        "1x1",
        "--schedule",
        "slow",
        "-o",
        "x.csv",
    )
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    run = subprocess.Popen([*IOSIM, *map(str, args)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    for _ in range(1000):
        if any(f".{run.pid}" in file.name for file in folder.iterdir()):
            return run
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)
    raise AssertionError("no file was begun")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_leaves_no_part_of_a_file(number, folder):
    """Neither that of this run, nor the older file, nor the part of another run at the same time."""
    (folder / "x.csv").write_text("old")
    (folder / "x.csv.1.part").write_text("of another run")
    run = started(folder)
    run.send_signal(number)
    out, err = run.communicate(timeout=30)
    assert run.returncode == 128 + number and "Traceback" not in err and not out
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        "x.csv": "old",
        "x.csv.1.part": "of another run",
    }


PRESSED_IN_AN_IMPORT = """
import os, signal, sys

class Press:
    def find_spec(self, name, path, target=None):
        if name == os.environ["PRESSED_AT"]:
            exec("os.kill(os.getpid(), signal.SIGINT)\\nfor k in range(100): pass", globals())

sys.meta_path.insert(0, Press())
"""


@pytest.mark.parametrize("module", ["click", "iosim.sweeps.command_sweep", "numpy"])
def test_ctrl_c_in_code_that_was_made_from_a_text_ends_with_130(module, tmp_path):
    """As dataclasses and NumPy make theirs. Python would end by the signal, because the interrupt left such code."""
    skip_if_gone(["sweep"])
    (tmp_path / "sitecustomize.py").write_text(PRESSED_IN_AN_IMPORT)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    line = [*IOSIM, "sweep", "--N", "64:128:+64", "--d", "8", "--M", "1KB"]
    environment = {**os.environ, "PYTHONPATH": path, "PRESSED_AT": module}
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Aborted!\n")


def test_two_runs_that_write_one_file_do_not_meet(folder):
    one, other = started(folder), started(folder)
    one.send_signal(signal.SIGTERM)
    one.communicate(timeout=30)
    (left,) = folder.iterdir()
    assert re.fullmatch(rf"_x\.csv\.{other.pid}-[0-9a-f]{{8}}\.part", left.name)
    other.send_signal(signal.SIGHUP)
    other.communicate(timeout=30)
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------- large numbers, deep files


LARGE = ("--N", "1073741824,64", "--d", 1024, "--heads", 1024, "--M", "1KB", "--schedule", "standard")


@pytest.mark.needs("pyarrow")
def test_counts_above_int64_are_decimals_in_parquet_and_a_note_says_so(tmp_path, iosim):
    from pyarrow import parquet

    result = iosim("sweep", *LARGE, "-o", tmp_path / "x.parquet")
    assert result.exit_code == 0 and result.stderr.startswith("note: ") and "decimals" in result.stderr
    assert int(parquet.read_table(tmp_path / "x.parquet")["total"][0].as_py()) == 4722370986469272584192
    assert "decimals" in json.loads((tmp_path / "x.parquet.meta.json").read_text())["conventions"]
    small = iosim(
        "sweep", *SIZES, "--hardware", "h100,t4", "--schedule", "flash2", "--paper-model", "-o", tmp_path / "y.parquet"
    )
    assert small.exit_code == 0 and not small.stderr
    assert parquet.read_table(tmp_path / "y.parquet")["hardware"].to_pylist() == ["h100", "t4"]
    big = ("--N", 2**48, "--d", 2**48, "--tiles", f"{2**48}x{2**48}")
    result = iosim("trace", *big, "-o", tmp_path / "z.parquet")
    assert result.exit_code == 2 and "2^63" in result.stderr and not (tmp_path / "z.parquet").exists()


def test_toml_that_is_nested_too_deep_is_one_message(tmp_path, iosim):
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * 5000 + "]" * 5000)
    for args in (("sweep", file), ("count", *SIZES, "--hardware", file)):
        result = iosim(*args)
        assert result.exit_code == 2 and "too deep" in result.stderr and result.stderr.count("\n") == 1, result.output
