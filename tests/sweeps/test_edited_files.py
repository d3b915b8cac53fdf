"""A sweep has rows of one iosim and of one content of each file: those of its start."""

import os
import runpy
import sys

import pytest
from paths import ROOT
from spread import spread
from sweeps_run import SMALLEST
from wings_here import skip_if_gone

from iosim import __version__
from iosim.commands import load
from iosim.counting import sweep as counted
from iosim.counting.sweep_axes import Asking, build
from iosim.errors import MissingError
from iosim.hardware import toml_of
from iosim.schedules import SCHEDULES
from iosim.sweeps import folder, inputs
from iosim.sweeps.executors import processes, results
from iosim.sweeps.inputs import inputs_of
from iosim.sweeps.parts import Work

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
    modules = tmp_path / "modules"
    (modules / "kit").mkdir(parents=True)
    (modules / "kit" / "__init__.py").write_text("from .loads import TIMES\n")
    for file in ("helper.py", "kit/loads.py"):
        (modules / file).write_text("TIMES = 2\n")
    (tmp_path / "own.py").write_text(OWN.format(import_here=here, import_inside=inside, times=times))
    monkeypatch.syspath_prepend(modules)
    monkeypatch.setattr(inputs, "KNOWN", {})
    before = {*sys.modules}
    yield tmp_path / "own.py", modules / name
    for module in {*sys.modules} - before:
        if module.startswith(("helper", "kit")):
            del sys.modules[module]
    SCHEDULES.pop("again", None)


@pytest.fixture
def gpu(tmp_path):
    """A hardware file."""
    file = tmp_path / "my.toml"
    file.write_text(toml_of("h100"))
    return file


def text(work, part):
    """The rows of a part."""
    for k in work.chunks_of(part):
        yield work.chunks[k].to_frame().to_csv()


def refused(iosim, line, file, said):
    """Resuming is refused while a file is edited."""
    assert iosim(*line).exit_code == 0
    before = file.read_text()
    file.write_text(before + "# edited\n")
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and f"these differ: {said}\n" in result.stderr, result.stderr
    file.write_text(before)
    assert iosim(*line, "--resume").exit_code == 0


def test_an_edited_hardware_file_is_another_argument(iosim, gpu, tmp_path):
    refused(iosim, (*ROOFLINE, "--hardware", gpu, "-o", f"{tmp_path}/sweep/"), gpu, f"hardware {gpu}")


@pytest.mark.parametrize("team", [None, pytest.param(processes(2), marks=pytest.mark.long)])
def test_hardware_files_travel_with_the_work(team, gpu):
    """The file is gone when parts are made."""
    skip_if_gone(ROOFLINE)
    plan = build({"N": "64:640:+64", "d": 8, "hardware": str(gpu)}, "flash1", asking=Asking({}, M_of_each=True))
    work = Work(plan, "csv", 2, inputs_of(plan), "roofline")
    whole = list(results(None, text, work, range(len(work))))
    gpu.unlink()
    assert list(results(team, text, work, range(len(work)))) == whole


# ---------------------------------------------------------------- files of --load


@pytest.mark.parametrize("which", [0, 1])
def test_an_edited_file_of_load_is_another_argument(which, own, iosim, tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "CHUNK_ROWS", 20)
    line = ("--load", own[0], "sweep", "--N", "64:384:+8", "--d", 8, "--tiles", "16x16", "--schedule", "again")
    name = own[1].relative_to(tmp_path / "modules") if which else own[0]
    refused(iosim, (*line, *SMALLEST, "-o", f"{tmp_path}/sweep/"), own[which], f"load {name}")


SHORT_WAY = "a module of a package"


@pytest.mark.parametrize("own", spread(IMPORTS, lambda name: name == SHORT_WAY), indirect=True)
def test_a_process_makes_rows_with_the_files_of_the_start_or_none(own):
    runpy.run_path(str(own[0]))
    plan = build({"N": "64:640:+64", "d": 8}, "again", "16x16")
    work = Work(plan, "csv", 1, inputs_of(plan, {str(own[0]): ("helper",)}))
    whole = list(results(None, text, work, range(len(work))))
    assert list(results(processes(2), text, work, range(len(work)))) == whole
    own[1].write_text("TIMES = 13\n")
    with pytest.raises(MissingError, match="is missing or differs"):
        list(results(processes(2), text, work, range(len(work))))


def test_a_file_is_run_once_and_not_after_an_edit(own, monkeypatch):
    monkeypatch.setattr(load, "LOADED", [])
    plan = build({"N": 64, "d": 8}, "flash2", "16x16")
    for _ in range(2):
        inputs_of(plan, {str(own[0]): ()}).prepare()
    assert [str(own[0])] == load.LOADED and "again" in SCHEDULES
    own[0].write_text(own[0].read_text() + "# edited\n")
    with pytest.raises(MissingError, match="own.py was edited after a process imported it: start that process again"):
        inputs_of(plan, {str(own[0]): ()}).prepare()


# ---------------------------------------------------------------- files of masks


@pytest.fixture
def mask(tmp_path, monkeypatch):
    """(a mask of a file, its file, the file of a module that it imports)."""
    monkeypatch.setattr(inputs, "KNOWN", {})
    (tmp_path / "beside.py").write_text("FAR = 5\n")
    (tmp_path / "mine.py").write_text("import beside\n\ndef near(b, h, q, k):\n    return q - k < beside.FAR\n")
    return f"py:{tmp_path}/mine.py:near", tmp_path / "mine.py", tmp_path / "beside.py"


@pytest.mark.parametrize("which, named", [(1, "mask"), (2, "mask beside.py")])
def test_an_edited_file_of_a_mask_is_another_argument(which, named, mask, iosim, tmp_path):
    line = ("sweep", "--N", 64, "--d", 8, "--tiles", "32x32", "--mask", mask[0], "-o", f"{tmp_path}/sweep/")
    refused(iosim, line, mask[which], named)


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


def test_a_module_of_a_mask_is_that_of_the_start(mask):
    """The mask travels, and the module that it imports is compared."""
    plan = build({"N": "64:640:+64", "d": 8, "mask": mask[0]}, "flash1", "16x16")
    work = Work(plan, "csv", 1, inputs_of(plan))
    whole = list(results(None, text, work, range(len(work))))
    assert list(results(processes(2), text, work, range(len(work)))) == whole
    mask[2].write_text("FAR = 6\n")
    with pytest.raises(MissingError, match="beside.py is missing or differs"):
        list(results(processes(2), text, work, range(2)))


# ---------------------------------------------------------------- files of iosim


def test_another_iosim_does_not_continue_a_sweep(iosim, tmp_path, monkeypatch):
    line, own = ("sweep", "--N", 64, "--d", 8, "--tiles", "16x16", "-o", f"{tmp_path}/sweep/"), inputs.this_maker()
    assert iosim(*line).exit_code == 0
    monkeypatch.setattr(folder, "this_maker", lambda: own._replace(sources="0"))
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and "these differ: the files of iosim\n" in result.stderr
    monkeypatch.setattr(folder, "this_maker", lambda: own._replace(version="9.9"))
    result = iosim(*line, "--resume")
    assert result.exit_code == 2 and f"these differ: iosim {__version__} (now 9.9)" in result.stderr


def test_every_file_that_decides_rows_is_hashed(tmp_path, monkeypatch):
    """A copy in another folder has the same hash, and each kind of file changes it."""
    import shutil

    from iosim import hardware

    for name in ("iosim", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    own = inputs.this_maker()
    monkeypatch.setattr(inputs, "PACKAGE", tmp_path / "iosim")
    monkeypatch.setattr(hardware, "configs_folder", lambda: tmp_path / "configs")
    assert inputs.this_maker.__wrapped__() == own
    for name in ("iosim/counting/sweep.py", "iosim/steps/softmax.cuh", "configs/hardware/h100.toml"):
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(before + "\n")
        assert inputs.this_maker.__wrapped__() != own, name
        (tmp_path / name).write_text(before)
    os.utime(tmp_path / name)
    assert inputs.this_maker.__wrapped__() == own
