"""Processes give the bytes of one process; one that is killed loses nothing; and none outlives its parent."""

import os
import pickle
import signal
import subprocess
import sys

import pytest
from paths import ROOT
from sweeps_run import LARGE, gathered, run, until

from iosim.counting.sweep_axes import build
from iosim.errors import CheckError, InputError, MissingError
from iosim.sweeps.executors import make, processes, results
from iosim.sweeps.inputs import this_maker
from iosim.sweeps.parts import Work, make_pieces

SMALL = {"N": "64:1024:+64", "d": "8:32:+8", "M": "1KB:129KB:+1KB"}


class Ends:
    """A task whose process is killed at a part: once, or always."""

    def __init__(self, part, once=None):
        self.part, self.once = part, once

    def __call__(self, work, part):
        if part == self.part and not (self.once and self.once.exists()):
            if self.once:
                self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield part


def threads(work, part):
    """How many threads NumPy has, and whether pandas was imported for lines."""
    yield len([*make_pieces(work, part)]) > 0, "pandas" in sys.modules, os.environ["OMP_NUM_THREADS"]


def fails(work, part):
    raise InputError("-o", "disk", "one with room")
    yield


def runs_out(work, part):
    raise MemoryError
    yield


@pytest.fixture
def work():
    return Work(build(SMALL, "flash1,flash2"), "csv", 1)


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_two_processes_write_the_bytes_of_one(kind, iosim, tmp_path):
    for name, more in (("one", ()), ("two", ("--jobs", 2))):
        assert iosim(*LARGE[:-2], *more, "-o", tmp_path / f"{name}.{kind}").exit_code == 0
    assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()


def test_two_processes_write_the_parts_of_one(iosim, tmp_path):
    assert iosim(*LARGE, "--jobs", 2, "-o", f"{tmp_path}/sweep/").exit_code == 0
    assert gathered(iosim, tmp_path / "sweep", tmp_path) == iosim(*LARGE[:-2], "-o", "-").stdout.encode()


def test_a_killed_process_loses_nothing(work, tmp_path):
    assert list(results(processes(2), Ends(1, tmp_path / "killed"), work, range(6))) == [0, 1, 2, 3, 4, 5]
    assert (tmp_path / "killed").exists()


@pytest.mark.long
def test_what_ends_a_run_of_processes(work):
    for task, error, said in (
        (Ends(0), CheckError, "died 3 times"),
        (fails, InputError, "one with room"),
        (runs_out, CheckError, "memory ran out in processes of --jobs 2"),
    ):
        with pytest.raises(error, match=said):
            list(results(processes(2), task, work, range(6), ordered=False))


@pytest.mark.long
def test_processes_import_no_pandas_and_have_one_thread(work, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert list(results(processes(1), threads, work, range(2))) == [(True, False, "1")] * 2
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.long
def test_no_process_outlives_its_parent(tmp_path):
    parent = run(*LARGE[:3], "--d", "8:128:+8", "--M", "1KB:129KB:+1KB", "--jobs", 2, "-o", f"{tmp_path}/sweep/")
    until(lambda: [*tmp_path.glob("sweep/part-*")] or parent.poll() is not None)
    text = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent.pid)], capture_output=True, text=True).stdout
    parent.kill()
    parent.wait()
    assert len(text.split()) >= 2
    until(lambda: not [pid for pid in text.split() if os.path.exists(f"/proc/{pid}")])


@pytest.mark.long
def test_schedules_of_files_are_known_in_processes(tmp_path):
    text = (ROOT / "docs" / "adding-a-schedule.md").read_text()
    code = next(part.partition("```")[0] for part in text.split("```python\n")[1:] if "register" in part)
    (tmp_path / "own.py").write_text(code)
    line = ("--load", tmp_path / "own.py", "sweep", "--N", "512:4096:+8", "--d", 64, "--tiles", "16x16")
    for jobs in (1, 2):
        done = run(*line, "--schedule", "wasteful,flash2", "--jobs", jobs, "-o", tmp_path / f"{jobs}.csv")
        said = done.communicate(timeout=120)[1]
        assert done.returncode == 0, said
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()
    assert "wasteful" in (tmp_path / "2.csv").read_text()


@pytest.mark.parametrize("other, said", [
    ({"version": "0.0.7"}, r"process \d+ of .* has iosim .*, and this is iosim 0.0.7"),
    ({"sources": "0"}, r"process \d+ of .* has other files of iosim"),
])  # fmt: skip
def test_a_process_with_another_iosim_makes_no_part(other, said, work):
    assert make(this_maker(), pickle.dumps((make_pieces, work)), 0)
    with pytest.raises(MissingError, match=said):
        make(this_maker()._replace(**other), b"never read", 0)


def test_without_dask_the_message_says_what_to_install(iosim, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "iosim.sweeps.dask_workers", raising=False)
    for option in ("--dask", "--scheduler"):
        result = iosim(*LARGE[:-2], option, "local", "-o", "-")
        assert result.exit_code == 3 and "iosim[dist]" in result.stderr and "--jobs" in result.stderr


def test_no_number_of_processes_for_a_scheduler_that_runs(iosim):
    result = iosim(*LARGE[:-2], "--dask", "tcp://a:1", "--jobs", 2, "-o", "-")
    assert result.exit_code == 2 and "--dask local" in result.stderr
