"""Late and false workers of Dask: none of them makes a row of a sweep, and the message says which one and why."""

import csv
import json
import os
import shutil
import subprocess
import sys

import pytest
from paths import ROOT
from sweeps_run import LONG, SMALLEST, begun, ended, run, scheduler, until, worker

from iosim import __version__

pytestmark = pytest.mark.needs("distributed")
LARGER = ("--d", "8:8192:+8", "--columns", "N,M_bytes,M_words")  # a sweep of minutes


@pytest.fixture
def copy(tmp_path):
    """(an iosim of its own, the environment of processes that use it)."""
    for name in ("iosim", "configs"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name)
    return tmp_path / "copy", {**os.environ, "PYTHONPATH": str(tmp_path / "copy")}


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


EDITS = {
    "has iosim 0.0.7, and this is iosim": (
        "iosim/__init__.py",
        f'__version__ = "{__version__}"',
        '__version__ = "0.0.7"',
    ),
    "has other files of iosim": ("iosim/counting/sweep.py", "M_bytes // problem.word_bytes", "M_bytes // 3"),
    "has other files": ("configs/hardware/h100.toml", "\n", "\n# edited\n"),
}


@pytest.mark.parametrize("said", EDITS)
def test_a_late_worker_with_another_iosim(said, copy, tmp_path):
    """All rows that were taken are those of this iosim, and the same line continues."""
    place, own = copy
    file, old, new = EDITS[said]
    edit(place / file, old, new)
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path)):
        first = begun(tmp_path / "sweep", "--scheduler", address, *LARGER)
        with ended(worker(address, tmp_path, cwd=place, env=own)):
            told = first.communicate(timeout=120)[1]
    assert first.returncode == 3 and said in told and "worker tcp://127.0.0.1" in told, told
    for line in (tmp_path / "sweep" / "_parts.jsonl").read_text().splitlines():
        for row in csv.DictReader((tmp_path / "sweep" / json.loads(line)["file"]).open()):
            assert int(row["M_words"]) == int(row["M_bytes"]) // 2


def test_a_worker_that_imported_iosim_before_an_edit(copy, tmp_path):
    """The command line has the new files, and the worker a mixture: its files are new, and what it runs is not."""
    place, own = copy
    (tmp_path / "before.py").write_text(
        "import iosim.sweeps.scheduler, iosim.counting.sweep, pathlib\npathlib.Path(__file__ + '.done').touch()"
    )
    with scheduler(tmp_path) as (address, _):
        only = worker(address, tmp_path, "--preload", tmp_path / "before.py", cwd=place, env=own)
        with ended(only):
            until((tmp_path / "before.py.done").exists)
            edit(place / "iosim" / "counting" / "sweep.py", "M_bytes // problem.word_bytes", "M_bytes // 3")
            line = [
                sys.executable,
                "-m",
                "iosim",
                "sweep",
                "--N",
                "64",
                "--d",
                "8",
                "--M",
                "4KB",
                "--scheduler",
                address,
            ]
            done = subprocess.run(line, cwd=place, env=own, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3 and "files of iosim changed while worker tcp://" in done.stderr and not done.stdout
    assert "start it again" in done.stderr


def test_a_late_worker_with_another_disk(tmp_path):
    """Its parts are not where they are looked for."""
    text = """
import os
if not hasattr(os, "real"):  # Dask runs the file twice
    os.real = os.replace
    os.replace = lambda part, to: os.real(part, os.path.dirname(__file__) + "/elsewhere")
"""
    (tmp_path / "other.py").write_text(text)
    soon = "from iosim.sweeps import folder; folder.SECONDS_TO_APPEAR = 2; from iosim.__main__ import main; main()"
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path)):
        first = begun(tmp_path / "sweep", "--scheduler", address, *LARGER, program=("-c", soon))
        with ended(worker(address, tmp_path, "--preload", tmp_path / "other.py")):
            said = first.communicate(timeout=120)[1]
    assert first.returncode == 2 and "all workers share" in said and "is not there, though its worker wrote it" in said


def test_a_worker_whose_modules_differ(tmp_path):
    """A mask's Python file travels, and was run by the worker before. The module that it imports changed since."""
    (tmp_path / "beside.py").write_text("FAR = 5\n")
    (tmp_path / "mine.py").write_text("import beside\n\ndef near(b, h, q, k):\n    return q - k < beside.FAR\n")
    line = ("sweep", "--N", "64:256:+64", "--d", 8, "--tiles", "32x32", "--mask", f"py:{tmp_path}/mine.py:near")
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path)):
        first = run(*line, "--scheduler", address, "-o", tmp_path / "x.csv")
        said = first.communicate(timeout=120)[1]
        assert first.returncode == 0, said
        (tmp_path / "beside.py").write_text("FAR = 6\n")
        first = run(*line, "--scheduler", address, "-o", tmp_path / "y.csv")
        said = first.communicate(timeout=120)[1]
    assert first.returncode == 3 and "beside.py was edited after a process imported it for a mask" in said, said


MODES = {"one process": (), "--jobs": ("--jobs", 2), "local": ("--scheduler", "local", "--jobs", 2)}


@pytest.mark.parametrize("mode", MODES)
def test_files_that_are_edited_after_a_kill(mode, copy, tmp_path):
    """A hardware file, a module of --load and a file of iosim: each is named, and put back the line continues."""
    place, own = copy
    from test_edited_files import OWN

    (tmp_path / "modules").mkdir()
    own["PYTHONPATH"] += os.pathsep + str(tmp_path / "modules")
    (tmp_path / "modules" / "helper.py").write_text("TIMES = 2\n")
    text = OWN.format(import_here="import helper", import_inside="pass", times="helper.TIMES")
    (tmp_path / "own.py").write_text(text)
    shutil.copy(ROOT / "configs" / "hardware" / "h100.toml", tmp_path / "my.toml")
    line = ("--load", tmp_path / "own.py", *LONG[:-4], "--schedule", "again,flash2", "--tiles", "16x16,32x32")
    line = (*line, "--batch", "1:64:+1", "--hardware", tmp_path / "my.toml", *SMALLEST, *MODES[mode])

    def swept(folder, *more):
        command = [sys.executable, "-m", "iosim", *map(str, line), *more, "-o", f"{tmp_path}/{folder}/"]
        return subprocess.Popen(command, cwd=place, env=own, stderr=subprocess.PIPE, text=True)

    first, journal = swept("sweep"), tmp_path / "sweep" / "_parts.jsonl"
    until(lambda: first.poll() is not None or (journal.exists() and journal.read_text().count("\n") > 1))
    first.kill()
    first.communicate(timeout=60)
    count = place / "iosim" / "counting" / "count.py"
    files = {f"hardware {tmp_path}/my.toml": tmp_path / "my.toml", "load helper.py": tmp_path / "modules" / "helper.py",
             f"load {tmp_path}/own.py": tmp_path / "own.py", "the files of iosim": count}  # fmt: skip
    for named, file in files.items():
        before = file.read_text()
        file.write_text(before + "# edited\n")
        again = swept("sweep", "--resume")
        said = again.communicate(timeout=120)[1]
        assert again.returncode == 2 and f"these differ: {named}\n" in said, said
        file.write_text(before)
    again, whole = swept("sweep", "--resume"), swept("whole")
    for one in (again, whole):
        said = one.communicate(timeout=300)[1]
        assert one.returncode == 0, said
    parts = {
        folder: {file.name: file.read_bytes() for file in (tmp_path / folder).glob("part-*")}
        for folder in ("sweep", "whole")
    }
    assert parts["sweep"] == parts["whole"] and len(parts["whole"]) > 2
