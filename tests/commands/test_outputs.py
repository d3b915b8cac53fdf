"""Where answers go: what a name stands for decides how it is written, and in which form."""

import csv
import json
import os
import shlex
import subprocess
import sys
import threading

import pytest
from questions import has_rows, questions
from wings_here import skip_if_gone

from iosim.files import passes_through
from iosim.tables import finite
from iosim.wings import offered

COUNT = ("count", "--N", 64, "--d", 8, "--M", "4KB")
SWEEP = ("sweep", "--N", 64, "--d", 8, "--M", "4KB")


def read_fifo(path, work):
    """What `work()` writes into a FIFO, and its result."""
    os.mkfifo(path)
    found = []

    def reader():
        with open(path, encoding="utf-8") as file:
            found.append(file.read())

    thread = threading.Thread(target=reader, daemon=True)
    thread.start()
    result = work()
    thread.join(10)
    return found[0], result


@pytest.mark.parametrize("args", [COUNT, (*COUNT, "--json"), SWEEP, ("trace", "--N", 8, "--d", 4, "--tiles", "4x4")])
def test_a_fifo_is_written_to_and_stays(args, tmp_path, iosim):
    path = tmp_path / "pipe"
    text, result = read_fifo(path, lambda: iosim(*args, "-o", path))
    assert result.exit_code == 0, result.output
    assert "schedule" in text or "event" in text
    assert path.is_fifo() and [file.name for file in tmp_path.iterdir()] == ["pipe"], "no file beside it"


@pytest.mark.parametrize("args", [COUNT, SWEEP])
def test_a_link_stays_and_what_it_points_to_is_replaced(args, tmp_path, iosim):
    target, link = tmp_path / "folder" / "real.csv", tmp_path / "link.csv"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    assert iosim(*args, "-o", link).exit_code == 0
    assert link.is_symlink() and target.read_text().startswith("N,Nk,d") and not target.is_symlink()


def test_streams_pass_through(tmp_path):
    (tmp_path / "file").touch()
    assert all(map(passes_through, ("/dev/null", "/dev/stdout", "/dev/fd/3", "/proc/self/fd/1", str(tmp_path))))
    assert not passes_through(str(tmp_path / "file")) and not passes_through(str(tmp_path / "none"))


@pytest.mark.parametrize("args", [COUNT, SWEEP])
@pytest.mark.parametrize("place", [".", "none/x.csv", "file/x.csv"])
def test_what_cannot_be_written_is_refused(args, place, tmp_path, iosim):
    (tmp_path / "file").write_text("old")
    result = iosim(*args, "-o", tmp_path / place)
    assert result.exit_code == 2 and result.stderr.startswith("Error: -o") and not result.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "old"


LINES = [(*name.split(), *shlex.split(made[0])) for name, (made, _) in questions().items() if not has_rows(name)]
"""A line of each question."""


NEEDS = {"explain": "triton"}


def marked(line):
    """A line, with the package that it needs."""
    marks = [pytest.mark.needs(NEEDS[line[0]])] if line[0] in NEEDS else []
    return pytest.param(line, id=" ".join(line)[:60], marks=marks)


@pytest.mark.parametrize("args", [marked(line) for line in LINES])
def test_the_name_chooses_the_form(args, tmp_path, iosim):
    def written(name, *more):
        result = iosim(*args, *more, "-o", tmp_path / name)
        assert result.exit_code == 0 and not result.stdout, result.output
        return (tmp_path / name).read_text()

    assert json.loads(written("x.json"))["schema"] == 1
    table = written("x.CSV")
    assert table == written("y.txt", "--csv") and len(list(csv.reader(table.splitlines()))) > 1
    text = written("x.txt")
    assert not text.startswith("{") and text != table
    assert written("z.csv", "--json").startswith("{"), "what is asked for wins"


def test_a_dry_run_leaves_a_table_as_it_is(tmp_path, iosim):
    line = ("sweep", *COUNT[1:], "-o", tmp_path / "x.csv")
    assert iosim(*line).exit_code == 0
    kept = (tmp_path / "x.csv").read_text()
    done = iosim(*line, "--dry-run")
    assert done.exit_code == 2 and "does not exist yet" in done.stderr and (tmp_path / "x.csv").read_text() == kept


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("args", [COUNT, (*COUNT, "--json"), SWEEP, ("schedules",)])
def test_a_full_disk_is_one_message(args):
    skip_if_gone(args)
    line = [sys.executable, "-m", "iosim", *map(str, args)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.startswith("Error: stdout: found 'No space left on device'")
    assert done.stderr.count("\n") == 1


WRONG = """
import iosim


def spoilt(x, *more):
    x[...] = float("nan")


def text(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i)
        chip.update(q, spoilt)
        chip.store(q, "O", i)


iosim.register(iosim.Schedule("nan", text, "no numbers"))
"""


def test_an_answer_that_is_no_number_is_null_in_json(tmp_path):
    """In a process of its own, whose schedules nobody else sees."""
    skip_if_gone(["verify"])
    (tmp_path / "nan.py").write_text(WRONG)
    args = (
        "--load",
        tmp_path / "nan.py",
        "verify",
        "--cpu",
        "--N",
        8,
        "--d",
        4,
        "--tiles",
        "4x4",
        "--schedule",
        "nan",
        "--json",
    )
    line = [sys.executable, "-m", "iosim", *map(str, args)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    (row,) = json.loads(done.stdout)["checks"]
    assert done.returncode == 1 and row["error_fp64"] is None and row["ok"] is False


def test_what_is_not_finite_becomes_none():
    nested = {"a": [1.5, float("inf"), (float("nan"), 2)], "b": {"c": -float("inf"), "d": "inf", "e": 7}}
    assert finite(nested) == {"a": [1.5, None, [None, 2]], "b": {"c": None, "d": "inf", "e": 7}}


WRITERS = {args[0]: args for args in LINES} | {
    "sweep": SWEEP, "trace": ("trace", "--N", 8, "--d", 4, "--tiles", "4x4"), "report": ("report", *COUNT[1:]),
    "plot": ("plot", "--N", 64, "--d", 8),
}  # fmt: skip


@pytest.mark.parametrize("name, args", WRITERS.items(), ids=WRITERS)
def test_a_form_that_a_command_cannot_write_is_refused_before_the_work(name, args, tmp_path, iosim, monkeypatch):
    """An ending that stands for another form, with what is allowed and who can write it."""
    from iosim.files import forms_of

    if offered("missing_of_gpu"):  # on a machine without a GPU another line says so first
        monkeypatch.setattr("iosim.gpu.device.cupy", lambda: None)
    forms = forms_of(name)
    known = {ending for endings in forms.values() for ending in endings}
    for ending in {"parquet", "xlsx", "html", "PDF", "png", "jsonl", "gz", "csv", "json", "tsv"}:
        if ending.lower() in known:
            continue
        result = iosim(*args, "-o", tmp_path / f"x.{ending}")
        assert result.exit_code == 2 and result.stderr.startswith("Error: -o: found '"), (ending, result.output)
        assert all(f".{endings[0]}" in result.stderr for endings in forms.values())
        assert ending not in ("parquet", "html", "png") or " can write ." in result.stderr
        assert result.stderr.count("\n") == 1 and not result.stdout and list(tmp_path.iterdir()) == []


def test_names_without_an_ending_and_forms_that_are_asked_for_stay(tmp_path, iosim):
    for name in ("answer", "answer.2024", "v1.5", ".hidden", "x.log", "folder.d/answer"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        assert iosim(*COUNT, "-o", tmp_path / name).exit_code == 0, name
        assert (tmp_path / name).read_text().startswith("flash2 ")
    assert iosim(*COUNT, "--csv", "-o", tmp_path / "x.parquet").exit_code == 0
    assert iosim(*SWEEP, "--format", "csv", "-o", tmp_path / "x.xlsx").exit_code == 0
    assert iosim(*SWEEP, "-o", tmp_path / "x.txt").exit_code == 0
    assert iosim(*SWEEP, "-o", "/dev/null").exit_code == 0
    refused = iosim(*SWEEP, "-o", tmp_path / "y.xlsx")
    assert "a spreadsheet opens .csv" in refused.stderr
