"""Late and false workers of Dask: none of them makes a row of a sweep, and the message says which one and why."""

import csv
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


EDITS = {
    "has iosim 0.0.7, and this is iosim": (
        "iosim/version.py",
        f'__version__ = "{__version__}"',
        '__version__ = "0.0.7"',
    ),
    "has other files of iosim": ("iosim/counting/sweep.py", "M_bytes // problem.word_bytes", "M_bytes // 3"),
    "has other files": ("configs/hardware/h100.toml", "\n", "\n# edited\n"),
}


@pytest.mark.parametrize("said", EDITS)
def test_a_late_worker_with_another_iosim(said, copy, tmp_path):
    """All rows that were taken are those of this iosim."""
    place, own = copy
    file, old, new = EDITS[said]
    text = (place / file).read_text()
    assert old in text
    (place / file).write_text(text.replace(old, new))
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path)):
        first = begun(tmp_path / "sweep", "--dask", address, *LARGER)
        with ended(worker(address, tmp_path, cwd=place, env=own)):
            told = first.communicate(timeout=120)[1]
    assert first.returncode == 3 and said in told and "Error: process " in told, told
    for part in (tmp_path / "sweep").glob("part-*"):
        for row in csv.DictReader(part.open()):
            assert int(row["M_words"]) == int(row["M_bytes"]) // 2


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
        first = begun(tmp_path / "sweep", "--dask", address, *LARGER, program=("-c", soon))
        with ended(worker(address, tmp_path, "--preload", tmp_path / "other.py")):
            said = first.communicate(timeout=120)[1]
    assert first.returncode == 2 and "all workers share" in said and "is not there, though its worker wrote it" in said


def test_a_worker_whose_modules_differ(tmp_path):
    """A mask's Python file travels, and was run by the worker before. The module that it imports changed since."""
    (tmp_path / "beside.py").write_text("FAR = 5\n")
    (tmp_path / "mine.py").write_text("import beside\n\ndef near(b, h, q, k):\n    return q - k < beside.FAR\n")
    line = ("sweep", "--N", "64:256:+64", "--d", 8, "--tiles", "32x32", "--mask", f"py:{tmp_path}/mine.py:near")
    with scheduler(tmp_path) as (address, _), ended(worker(address, tmp_path)):
        first = run(*line, "--dask", address, "-o", tmp_path / "x.csv")
        said = first.communicate(timeout=120)[1]
        assert first.returncode == 0, said
        (tmp_path / "beside.py").write_text("FAR = 6\n")
        first = run(*line, "--dask", address, "-o", tmp_path / "y.csv")
        said = first.communicate(timeout=120)[1]
    assert first.returncode == 3 and "beside.py was edited after a process imported it" in said, said


def test_a_file_that_is_edited_after_a_kill(copy, tmp_path):
    """It is named, and put back the line continues."""
    place, own = copy
    line = (*LONG, *SMALLEST, "--dask", "local", "--jobs", 2)

    def swept(folder, *more):
        command = [sys.executable, "-m", "iosim", *map(str, line), *more, "-o", f"{tmp_path}/{folder}/"]
        return subprocess.Popen(command, cwd=place, env=own, stderr=subprocess.PIPE, text=True)

    first = swept("sweep")
    until(lambda: first.poll() is not None or len([*tmp_path.glob("sweep/part-*")]) > 1)
    first.kill()
    first.communicate(timeout=60)
    count = place / "iosim" / "counting" / "count.py"
    before = count.read_text()
    count.write_text(before + "# edited\n")
    again = swept("sweep", "--resume")
    said = again.communicate(timeout=120)[1]
    assert again.returncode == 2 and "these differ: the files of iosim\n" in said, said
    count.write_text(before)
    for one in (swept("sweep", "--resume"), swept("whole")):
        said = one.communicate(timeout=300)[1]
        assert one.returncode == 0, said
    parts = [{f.name: f.read_bytes() for f in (tmp_path / name).glob("part-*")} for name in ("sweep", "whole")]
    assert parts[0] == parts[1] and len(parts[0]) > 2
