"""Wings of other packages, by the entry point group `iosim.wings`: that of examples/own_wing, installed and asked."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tomllib

import pytest
from paths import ROOT
from wings_here import skip_if_gone

import iosim
from iosim.wings import wings

OWN = ROOT / "examples" / "own_wing"
SIZES = ("--N", "1024", "--d", "64", "--M", "64KB")


def written(folder):
    """What pip leaves: the package, and its entry points in a file of their own."""
    project = tomllib.loads((OWN / "pyproject.toml").read_text())["project"]
    shutil.copytree(OWN / "iosim_energy", folder / "iosim_energy")
    info = folder / "iosim_energy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n{name} = {at}\n"
        for group, at_all in project["entry-points"].items()
        for name, at in at_all.items()
    ]
    (info / "entry_points.txt").write_text("".join(lines))


def by_pip(folder):
    source = folder.with_name("source")
    shutil.copytree(OWN, source)
    line = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*line, "--target", folder, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(
    params=[written, pytest.param(by_pip, marks=[pytest.mark.needs("hatchling"), pytest.mark.needs("pip")])]
)
def python(request, tmp_path):
    """Runs Python in a process in which the package is installed."""
    folder = tmp_path / "installed"
    folder.mkdir()
    request.param(folder)
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}

    def run(*args, code=0):
        done = subprocess.run([sys.executable, *map(str, args)], capture_output=True, text=True, env=env, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    run.folder = folder
    return run


def test_its_command_and_its_function_answer_as_those_of_iosim(python):
    total = iosim.count(1024, 64, "64KB")["flash2"].total_bytes
    rows = json.loads(python("-m", "iosim", "energy", *SIZES, "--picojoules", 40, "--json").stdout)["results"]
    assert {"schedule": "flash2", "bytes": total, "millijoules": total * 40 / 1e9} in rows
    assert f"flash2 spends {total * 30 / 1e9:.3f} mJ" in python("-m", "iosim", "energy", *SIZES).stdout
    assert "  energy " in python("-m", "iosim", "--help").stdout
    said = python("-m", "iosim", "energy", "--N", 0, "--d", 64, code=2).stderr
    assert said.startswith("Error: --N: found '0'; allowed: ")
    said = python("-m", "iosim", "energy", *SIZES, "--picojoules", "x", code=2).stderr
    assert said.startswith("Error: --picojoules: found 'x'; allowed: ")
    code = (
        "import iosim; print(iosim.energy(1024, 64, '64KB')[-1]['bytes'], 'energy' in dir(iosim), hasattr(iosim, 'x'))"
    )
    assert python("-c", code).stdout == f"{total} True False\n"


def test_a_sweep_asks_it_at_each_point_and_its_option_is_an_axis(python):
    line = ("sweep", "--what", "energy", *SIZES, "--picojoules", "20,40", "--schedule", "flash2")
    skip_if_gone(("sweep",))
    rows = [*csv.DictReader(python("-m", "iosim", *line).stdout.splitlines())]
    low, high = (float(row["millijoules"]) for row in rows)
    assert [row["picojoules"] for row in rows] == ["20", "40"] and high == 2 * low > 0


COUNT = """
import sys
from iosim.__main__ import main
sys.argv = ["iosim", "count", "--N", "1024", "--d", "64", "--M", "64KB"]
try:
    main()
except SystemExit as done:
    assert not done.code
print("importlib.metadata" in sys.modules, "iosim_energy" in sys.modules)
"""


def test_a_count_looks_for_no_other_package(python):
    """A word of iosim's own is known without reading entry points, which takes as long as half a count."""
    assert python("-c", COUNT).stdout.endswith("\nFalse False\n")


@pytest.mark.parametrize("at", ["iosim_energy.energy:PICOJOULES", "iosim_energy.nowhere:WING"])
def test_what_is_no_wing_is_named_and_a_count_goes_on(python, at):
    (info,) = python.folder.glob("*.dist-info")
    (info / "entry_points.txt").write_text(f"[iosim.wings]\nenergy = {at}\n")
    said = python("-m", "iosim", "energy", *SIZES, code=2).stderr
    assert said.startswith(f"Error: iosim.wings: found '{at}'; allowed: a Wing, as package.manifest:WING")
    python("-m", "iosim", "count", *SIZES)


def test_a_word_of_iosim_stays_its_own(python):
    """Of the house and of its wings, in lists and in Python."""
    names = ["tune", *(name for wing in wings().values() for name in wing.names)]
    manifest = python.folder / "iosim_energy" / "manifest.py"
    text = manifest.read_text().replace('{"energy": "Milli', '{"count": "mine", "energy": "Milli')
    brought = "".join(f"{name!r}: 'energy', " for name in names)
    manifest.write_text(text.replace("names={", "names={" + brought))
    listed = python("-m", "iosim", "--help").stdout
    assert listed.count("\n  count ") == 1 and "mine" not in listed
    found = python("-c", f"import iosim; print(*(getattr(iosim, name).__module__ for name in {names}))").stdout.split()
    assert len(found) == len(names) and all(module.startswith("iosim.") for module in found)
