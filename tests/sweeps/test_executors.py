"""Processes give the bytes of one process; one that is killed loses nothing; and none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from threading import Thread
from types import SimpleNamespace

import pytest
from paths import ROOT
from sweeps_run import LARGE, gathered, run

from iosim.counting import sweep
from iosim.counting.sweep_axes import build
from iosim.errors import CheckError, InputError, MissingError
from iosim.files import room_beside
from iosim.sweeps.executors import Made, Maker, Processes, Serial, results, this_maker
from iosim.sweeps.parts import Job, PutLines, Work, make_lines, make_pieces
from iosim.sweeps.run import write_file

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


class Loaded:
    """A task that makes the lines of a part, and says whether pandas was imported, and how many threads NumPy has."""

    def __call__(self, work, part):
        assert sum(len(lines) for lines in make_lines(work, part)) > 1
        yield "pandas" in sys.modules, os.environ["OMP_NUM_THREADS"]


class Fails:
    def __call__(self, work, part):
        raise InputError("-o", "disk", "one with room")
        yield


@pytest.fixture
def work():
    return Work(build(SMALL, "flash1,flash2"), "csv", 1)


@pytest.mark.long
def test_two_processes_write_a_file_of_the_bytes_of_one(iosim, tmp_path):
    whole = iosim(*LARGE[:-2], "-o", "-").stdout.encode()
    assert iosim(*LARGE[:-2], "--jobs", 2, "-o", tmp_path / "two.csv").exit_code == 0
    assert (tmp_path / "two.csv").read_bytes() == whole


class Here(Serial):
    """This process, which makes parts as others do: the lines of each go through a file."""

    is_of_this_machine = True


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("what", ["count", "roofline"])
def test_lines_go_through_files_beside_the_output(what, kind, tmp_path, monkeypatch):
    """They give the same bytes and the same progress, each is removed when it is taken, and none stays."""
    monkeypatch.setattr(sweep, "CHUNK_ROWS", 8)
    sizes = {"N": "64:256:+64", "d": 8, **({"M": "1KB:9KB:+1KB"} if what == "count" else {"hardware": "h100"})}
    work, found = Work(build(sizes, "flash1,flash2"), kind, 1, what=what), []
    for executor in (Serial(), Here()):
        steps, beside = [], set()

        def advance(more, steps=steps, beside=beside):
            steps.append(more)
            beside |= {len([*folder.iterdir()]) for folder in tmp_path.glob("out.d")}

        rows = write_file(work, str(tmp_path / "out"), executor, advance)
        assert beside == ({0} if executor.is_of_this_machine else set())  # each is gone when it is taken
        assert sum(steps) == work.steps and [file.name for file in tmp_path.iterdir()] == ["out"]
        found.append((rows, (tmp_path / "out").read_bytes()))
    assert len(work) > 2 and found[0] == found[1]


def test_a_room_is_gone_while_others_write_to_it(tmp_path):
    def write():
        with suppress(FileNotFoundError):
            for k in range(50_000):
                open(f"{room}/{k}", "w").close()

    with room_beside(str(tmp_path / "out")) as room:
        other = Thread(target=write)
        other.start()
        while len(os.listdir(room)) < 10:
            pass
    other.join()
    assert not [*tmp_path.iterdir()]


def test_lines_that_cannot_be_put_are_one_message(work, tmp_path):
    with pytest.raises(InputError, match=r"^-o: found '/.*'; allowed: a file .* can be written; No such file"):
        list(PutLines(f"{tmp_path}/gone")(work, 0))


def test_two_processes_write_the_bytes_of_one(iosim, tmp_path):
    whole = iosim(*LARGE[:-2], "-o", "-").stdout.encode()
    assert iosim(*LARGE, "--jobs", 2, "-o", f"{tmp_path}/sweep/").exit_code == 0
    assert gathered(iosim, tmp_path / "sweep", tmp_path) == whole


def test_a_killed_process_loses_nothing(work, tmp_path):
    tasks = Ends(1, tmp_path / "killed")
    found = list(results(Processes(2), Job(tasks, work), range(6), ordered=True))
    assert found == [0, 1, 2, 3, 4, 5] and (tmp_path / "killed").exists()


@pytest.mark.long
def test_processes_that_always_die_end_the_run(work):
    with pytest.raises(CheckError, match="died 3 times"):
        list(results(Processes(2), Job(Ends(0), work), range(6), ordered=True))


@pytest.mark.long
def test_processes_import_no_pandas_and_have_one_thread(work, monkeypatch):
    """A variable of the environment wins."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert list(results(Processes(1), Job(Loaded(), work), range(2))) == [(False, "1")] * 2
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert list(results(Processes(1), Job(Loaded(), work), range(1))) == [(False, "2")]


@pytest.mark.long
def test_an_error_in_a_process_is_the_error_of_the_run(work):
    with pytest.raises(InputError, match="one with room"):
        list(results(Processes(2), Job(Fails(), work), range(6), ordered=False))


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("jobs", [2, 4])
def test_processes_write_other_forms(kind, jobs, iosim, tmp_path):
    for name, more in (("one", ()), ("more", ("--jobs", jobs))):
        assert iosim(*LARGE[:-2], *more, "-o", tmp_path / f"{name}.{kind}").exit_code == 0
    assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"more.{kind}").read_bytes()


def children(pid):
    """The processes that a process began."""
    text = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(line) for line in text.split()]


@pytest.mark.long
def test_no_process_outlives_its_parent(tmp_path):
    line = (
        "sweep",
        "--N",
        "64:65536:+64",
        "--d",
        "8:128:+8",
        "--M",
        "1KB:129KB:+1KB",
        "--jobs",
        2,
        "-o",
        f"{tmp_path}/sweep/",
    )
    parent = run(*line)
    until = time.monotonic() + 60
    while not list(tmp_path.glob("sweep/*.csv")) and time.monotonic() < until:
        time.sleep(0.05)
    found = children(parent.pid)
    assert len(found) >= 2
    parent.kill()
    parent.wait()
    until = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in found) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in found if os.path.exists(f"/proc/{pid}")]


@pytest.mark.long
def test_schedules_of_files_are_known_in_processes(iosim, tmp_path):
    file = tmp_path / "own.py"
    text = (ROOT / "docs" / "adding-a-schedule.md").read_text()
    code = next(part.partition("```")[0] for part in text.split("```python\n")[1:] if "register" in part)
    file.write_text(code)
    name = "wasteful"
    line = (
        "--load",
        file,
        "sweep",
        "--N",
        "512:4096:+8",
        "--d",
        64,
        "--tiles",
        "16x16",
        "--schedule",
        f"{name},flash2",
    )
    for jobs, out in ((1, "one.csv"), (2, "two.csv")):
        done = subprocess.run(
            [sys.executable, "-m", "iosim", *map(str, line), "--jobs", str(jobs), "-o", tmp_path / out],
            cwd=ROOT, capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert name in (tmp_path / "two.csv").read_text()


def test_one_process_needs_no_other(work):
    assert len(list(results(Serial(), Job(make_pieces, work), range(2)))) == 2


class Others(Serial):
    """An executor whose parts another iosim makes."""

    def __init__(self, maker):
        self.maker = maker

    def submit(self, part):
        return SimpleNamespace(result=lambda: Made([part], "worker tcp://a:1", self.maker))


@pytest.mark.parametrize("maker, said", [
    (Maker("0.0.7", this_maker().sources), "worker tcp://a:1 has iosim 0.0.7, and this is iosim"),
    (this_maker()._replace(sources="0"), "worker tcp://a:1 has other files of iosim"),
])  # fmt: skip
def test_rows_of_another_iosim_are_not_taken(maker, said, work):
    assert list(results(Others(this_maker()), Job(make_pieces, work), range(3))) == [0, 1, 2]
    with pytest.raises(MissingError, match=said):
        list(results(Others(maker), Job(make_pieces, work), range(3)))


def test_without_dask_the_message_says_what_to_install(iosim, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "iosim.sweeps.scheduler", raising=False)
    result = iosim(*LARGE[:-2], "--scheduler", "local", "-o", "-")
    assert result.exit_code == 3 and "iosim[dist]" in result.stderr and "--jobs" in result.stderr
