"""A sweep has rows of one iosim and of one content of each file: those of its start."""

import os
import pickle
import runpy
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from paths import ROOT
from spread import spread
from sweeps_run import LONG, SMALLEST, gathered, until

from iosim import __version__
from iosim.counting import sweep as counted
from iosim.counting.sweep_axes import Asking, build
from iosim.errors import InputError, MissingError
from iosim.hardware import toml_of
from iosim.schedules import SCHEDULES
from iosim.sweeps import folder, identity
from iosim.sweeps.executors import Processes, Serial, made_by, results
from iosim.sweeps.folder import read_manifest, write_manifest
from iosim.sweeps.identity import CARRIED, check_maker, inputs_of
from iosim.sweeps.parts import Job, Work
from iosim.sweeps.place import place_of

ROOFLINE = ("sweep", "--what", "roofline", "--N", "64:1024:+64", "--d", 8, "--schedule", "flash1", "--part-rows", 4)
OWN = """
import iosim
from iosim.steps.softmax import zeros
{import_here}

def text(chip, p, t):
    {import_inside}
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        for _ in range({times}):
            chip.free(chip.load("Q", i))
        chip.store(chip.compute("O", (i, p.dv), zeros), "O", i)

iosim.register(iosim.Schedule(name="again", text=text, summary="loads Q several times", source="here", outer="queries"))
"""
IMPORTS = {  # (the edited file, the import at the top, the import inside the function, the number of loads)
    "a module": ("helper.py", "import helper", "pass", "helper.TIMES"),
    "a module that is imported inside a function": ("helper.py", "", "from helper import TIMES", "TIMES"),
    "a module of a package": ("kit/loads.py", "from kit import loads", "pass", "loads.TIMES"),
    "a module that a module imports": ("kit/loads.py", "import kit", "pass", "kit.TIMES"),
    "a module by its name": ("helper.py", "h = __import__('importlib').import_module('helper')", "pass", "h.TIMES"),
}


@pytest.fixture(params=IMPORTS)
def own(request, tmp_path, monkeypatch):
    """(a file that registers a schedule, the file of a module that it imports)."""
    name, here, inside, times = IMPORTS[request.param]
    folder = tmp_path / "modules"
    (folder / "kit").mkdir(parents=True)
    (folder / "kit" / "__init__.py").write_text("from .loads import TIMES\n")
    for file in ("helper.py", "kit/loads.py"):
        (folder / file).write_text("TIMES = 2\n")
    (tmp_path / "own.py").write_text(OWN.format(import_here=here, import_inside=inside, times=times))
    monkeypatch.syspath_prepend(folder)
    before = {*sys.modules}
    yield tmp_path / "own.py", folder / name
    for module in {*sys.modules} - before:
        if module.startswith(("helper", "kit")):
            del sys.modules[module]
    SCHEDULES.pop("again", None)
    CARRIED.sources.clear()


@pytest.fixture
def gpu(tmp_path):
    """A hardware file."""
    file = tmp_path / "my.toml"
    file.write_text(toml_of("h100"))
    return file


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def first_part_only(folder):
    """A folder as a run leaves it that is killed after its first part."""
    manifest, journal = read_manifest(place_of(str(folder))), next(iter(folder.glob("_parts.jsonl")))
    lines = journal.read_text().splitlines(True)
    assert len(lines) > 1
    journal.write_text(lines[0])
    write_manifest(place_of(str(folder)), {**manifest, "complete": False, "files": []})


def test_an_edited_hardware_file_is_another_argument(iosim, gpu, tmp_path):
    line = (*ROOFLINE, "--hardware", gpu, "-o", f"{tmp_path}/sweep/")
    assert iosim(*line).exit_code == 0
    first_part_only(tmp_path / "sweep")
    before = gpu.read_text()
    edit(gpu, "hbm_bytes_per_second", "# edited\nhbm_bytes_per_second")
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and f"these differ: hardware {gpu}\n" in result.stderr
    gpu.write_text(before)
    assert iosim(*line, "--resume").exit_code == 0


@pytest.mark.parametrize("executor", [Serial, pytest.param(lambda: Processes(2), marks=pytest.mark.long)])
def test_hardware_files_travel_with_the_work(executor, gpu):
    """The file is gone when parts are made."""
    plan = build({"N": "64:640:+64", "d": 8, "hardware": str(gpu)}, "flash1", asking=Asking({}, M_of_each=True))
    work = Work(plan, "csv", 2, inputs_of(plan), "roofline")
    whole = list(results(Serial(), Job(Text(), work), range(len(work))))
    gpu.unlink()
    assert list(results(executor(), Job(Text(), work), range(len(work)))) == whole


class Text:
    """The rows of a part."""

    def __call__(self, work, part):
        for k in work.chunks_of(part):
            yield work.chunks[k].to_frame().to_csv()


# ---------------------------------------------------------------- files of --load


@pytest.mark.parametrize("which", [0, 1])
def test_an_edited_file_of_load_is_another_argument(which, own, iosim, tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "CHUNK_ROWS", 20)
    line = ("--load", own[0], "sweep", "--N", "64:384:+8", "--d", 8, "--tiles", "16x16", "--schedule", "again")
    line = (*line, *SMALLEST, "-o", f"{tmp_path}/sweep/")
    assert iosim(*line).exit_code == 0
    first_part_only(tmp_path / "sweep")
    edited, name = own[which], own[1].relative_to(tmp_path / "modules") if which else own[0]
    before = edited.read_text()
    edited.write_text(before + "# edited\n")
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and f"these differ: load {name}\n" in result.stderr
    edited.write_text(before)
    assert iosim(*line, "--resume").exit_code == 0


def travelling(own, monkeypatch):
    """(work with a file of --load, its rows). Afterwards another file has the name of its module."""
    runpy.run_path(str(own[0]))
    plan = build({"N": "64:640:+64", "d": 8}, "again", "16x16")
    work = Work(plan, "csv", 1, inputs_of(plan, {str(own[0]): ("helper",)}))
    whole = list(results(Serial(), Job(Text(), work), range(len(work))))
    own[1].write_text("TIMES = 13\n")  # of another size, so that what was compiled is not taken for it
    for name in ("helper", "kit", "kit.loads"):
        sys.modules.pop(name, None)
    monkeypatch.setattr(identity, "RAN", set())
    return work, whole


def test_modules_travel_with_the_work(own, monkeypatch):
    work, whole = travelling(own, monkeypatch)
    SCHEDULES.pop("again")
    again = pickle.loads(pickle.dumps(Job(Text(), work)))
    again.prepare()
    assert list(results(Serial(), again, range(len(work)))) == whole


SHORT_WAY = "a module of a package"


@pytest.mark.parametrize("own", spread(IMPORTS, lambda name: name == SHORT_WAY), indirect=True)
def test_modules_travel_to_processes(own, monkeypatch):
    work, whole = travelling(own, monkeypatch)
    assert list(results(Processes(2), Job(Text(), work), range(len(work)))) == whole


# ---------------------------------------------------------------- files of masks


@pytest.fixture
def mask(tmp_path):
    """(a mask of a file, its file, the file of a module that it imports)."""
    (tmp_path / "beside.py").write_text("FAR = 5\n")
    (tmp_path / "mine.py").write_text("import beside\n\ndef near(b, h, q, k):\n    return q - k < beside.FAR\n")
    return f"py:{tmp_path}/mine.py:near", tmp_path / "mine.py", tmp_path / "beside.py"


@pytest.mark.parametrize("which, named", [(1, "mask"), (2, "mask beside.py")])
def test_an_edited_file_of_a_mask_is_another_argument(which, named, mask, iosim, tmp_path):
    line = ("sweep", "--N", 64, "--d", 8, "--tiles", "32x32", "--mask", mask[0], "-o", f"{tmp_path}/sweep/")
    assert iosim(*line).exit_code == 0 and iosim(*line, "--resume").exit_code == 0
    mask[which].write_text(mask[which].read_text().replace("5", "6") + "# edited\n")
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and f"these differ: {named}\n" in result.stderr


def test_a_matrix_is_known_by_its_numbers(iosim, tmp_path):
    """As they were when it was read, and wherever it lies."""
    file = tmp_path / "mask.txt"
    line = ("sweep", "--N", 64, "--d", 8, "--tiles", "32x32", "--mask", f"file:{file}", "-o", f"{tmp_path}/sweep/")
    file.write_text("10\n11\n")
    assert iosim(*line).exit_code == 0
    file.write_text("1 0\n1 1")
    assert iosim(*line, "--resume").exit_code == 0, "the same numbers"
    file.write_text("11\n11\n")
    assert "these differ: mask\n" in iosim(*line, "--resume").stderr


@pytest.mark.parametrize("executor", [Serial, pytest.param(lambda: Processes(2), marks=pytest.mark.long)])
def test_a_module_of_a_mask_is_that_of_the_start(executor, mask):
    """The mask travels, and the module that it imports is compared."""
    plan = build({"N": "64:640:+64", "d": 8, "mask": mask[0]}, "flash1", "16x16")
    work = Work(plan, "csv", 1, inputs_of(plan))
    whole = list(results(Serial(), Job(Text(), work), range(len(work))))
    assert list(results(executor(), Job(Text(), work), range(len(work)))) == whole
    Job(Text(), work).prepare()
    mask[2].write_text("FAR = 6\n")
    with pytest.raises(MissingError, match="was edited after a process imported it for a mask: start it again"):
        Job(Text(), replace(work, inputs=inputs_of(plan))).prepare()
    with pytest.raises(InputError, match="the file as it was when the sweep began, on every machine"):
        Job(Text(), work).prepare() if executor is Serial else list(results(executor(), Job(Text(), work), range(2)))


# ---------------------------------------------------------------- files of iosim


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A file of iosim."""
    file = tmp_path / "count.py"
    file.write_text("a = 1")
    monkeypatch.setattr(identity, "package_files", lambda: {"count.py": file})
    monkeypatch.setattr(identity, "_IMPORTED", time.time_ns() + 10**9)
    for known in (identity.this_maker, identity.is_as_imported):
        known.cache_clear()
    yield file
    for known in (identity.this_maker, identity.is_as_imported):
        known.cache_clear()


def test_iosim_that_is_edited_while_it_runs_makes_no_more_rows(package):
    work = Work(build({"N": "64:640:+64", "d": 8}, "flash1", "16x16"), "csv", 1)
    found = results(Serial(), Job(Text(), work), [0, 0, 0])
    next(found)
    os.utime(package, (1, 1))
    next(found)
    package.write_text("a = 2")
    with pytest.raises(MissingError, match="files of iosim changed while this process ran"):
        next(found)


def test_edited_iosim_does_not_continue_a_sweep(package, iosim, tmp_path, monkeypatch):
    line = ("sweep", "--N", 64, "--d", 8, "--tiles", "16x16", "-o", f"{tmp_path}/sweep/")
    assert iosim(*line).exit_code == 0
    package.write_text("a = 2")
    identity.this_maker.cache_clear()
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and "these differ: the files of iosim\n" in result.stderr
    monkeypatch.setattr(identity, "__version__", "9.9")
    monkeypatch.setattr(folder, "__version__", "9.9")
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and f"these differ: iosim {__version__} (now 9.9)" in result.stderr


def test_iosim_that_was_edited_after_its_import_makes_no_part(package, monkeypatch):
    """Its first hash is that of other files than those it imported."""
    work = Work(build({"N": "64:640:+64", "d": 8}, "flash1", "16x16"), "csv", 1)
    for imported, sources in ((package.stat().st_ctime_ns + 1, identity.this_maker().sources), (0, identity.EDITED)):
        identity.is_as_imported.cache_clear()
        monkeypatch.setattr(identity, "_IMPORTED", imported)
        assert made_by("worker tcp://a:1", Job(Text(), work), 0).maker.sources == sources
    with pytest.raises(MissingError, match="files of iosim changed while worker tcp://a:1 ran: .* start it again"):
        check_maker("worker tcp://a:1", identity.maker_of_process())


def test_every_file_that_decides_rows_is_hashed():
    names = identity.package_files()
    assert {"counting/sweep.py", "configs/hardware/h100.toml", "__init__.py", "steps/softmax.cuh"} <= {*names}
    assert not [name for name in names if "__pycache__" in name]


@contextmanager
def copied(tmp_path):
    """A folder with an iosim of its own, and the environment of processes that use it."""
    for name in ("iosim", "configs"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name)
    yield tmp_path / "copy", {**os.environ, "PYTHONPATH": str(tmp_path / "copy")}


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_edit_in_the_middle_of_a_run(jobs, iosim, tmp_path):
    """Put back, the same line continues, and no row is lost or foreign."""
    with copied(tmp_path) as (place, paths):
        line = [sys.executable, "-m", "iosim", *map(str, LONG), *map(str, SMALLEST), "--jobs", str(jobs), "--quiet"]
        line += ["--resume", "-o", f"{tmp_path}/sweep/"]
        first = subprocess.Popen(line, cwd=place, env=paths, stderr=subprocess.PIPE, text=True)
        until(lambda: first.poll() is not None or len(list(tmp_path.glob("sweep/part-*.csv"))) > 1)
        assert first.poll() is None
        file = place / "iosim" / "counting" / "sweep.py"
        before = file.read_text()
        file.write_text(before + "# edited\n")
        said = first.communicate(timeout=60)[1]
        assert first.returncode == 3 and "files of iosim changed while" in said, said
        second = subprocess.run(line, cwd=place, env=paths, capture_output=True, text=True)
        assert second.returncode == 2 and "these differ: the files of iosim" in second.stderr
        file.write_text(before)
        assert subprocess.run(line, cwd=place, env=paths).returncode == 0
    assert gathered(iosim, tmp_path / "sweep", tmp_path) == iosim(*LONG, "-o", "-").stdout.encode()
