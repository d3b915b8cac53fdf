"""Every wing can be deleted: all else imports, the command line answers, and the tests of the other wings pass.

A wing is deleted in a copy, with the wings that need it, its tests and its page.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

from iosim.wings import wings

IMPORT_ALL = """
import importlib.util, json, pkgutil, iosim
bad = {}
for module in pkgutil.walk_packages(iosim.__path__, "iosim."):
    spec = importlib.util.find_spec(module.name)
    if module.name.endswith("__main__") or "Only type checkers load this file" in open(spec.origin).read():
        continue
    try:
        importlib.import_module(module.name)
    except iosim.IosimError as error:  # a package of an extra is missing
        assert error.exit_code == 3, error
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] == "iosim":
            bad[module.name] = error.name
print(json.dumps([iosim.__file__, bad]))
"""
SHORT = ("batches", "sweeps")
FOLDERS = [folder if folder in SHORT else pytest.param(folder, marks=pytest.mark.long) for folder in wings()]


def gone_with(folder):
    """A wing and those that need it."""
    gone = {folder}
    while more := {name for name, wing in wings().items() if {*wing.needs} & gone} - gone:
        gone |= more
    return gone


def words_of(gone):
    """The words of the command line that some wings bring: commands, points of a sweep, and pictures."""
    found = [wings()[folder] for folder in gone]
    commands = {name for wing in found for group in wing.commands.values() for name in group}
    return commands.union(*(wing.points for wing in found), *(wing.pictures for wing in found))


@pytest.fixture
def without(tmp_path):
    """A copy of the project without some wings, and a runner of Python in it."""

    def make(gone):
        for name in ("iosim", "tests", "configs", "docs", "examples", "validation"):
            keep = shutil.ignore_patterns("__pycache__", "*.pyc", "generated.csv", "random-*.csv")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=keep)
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml"):
            shutil.copy(ROOT / name, tmp_path)
        for folder in gone:
            shutil.rmtree(tmp_path / "iosim" / folder)
            shutil.rmtree(tmp_path / "tests" / folder, ignore_errors=True)
            (tmp_path / "docs" / wings()[folder].page).unlink(missing_ok=True)

        def run(*args, timeout=600):
            env = {**os.environ, "PYTHONPATH": str(tmp_path), "IOSIM_GONE": ",".join(sorted(words_of(gone)))}
            command = [sys.executable, *args]
            return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=timeout)

        return run

    return make


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_wing_can_be_deleted(folder, without):
    gone = gone_with(folder)
    run = without(gone)
    done = run("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    file, bad = json.loads(done.stdout)
    assert not file.startswith(str(ROOT / "iosim")) and bad == {}
    shown = run("-m", "iosim", "--help")
    commands = {name for one in gone for group in wings()[one].commands.values() for name in group}
    listed = set(re.findall(r"^  ([a-z]+)  ", shown.stdout, re.M))
    assert shown.returncode == 0 and "count" in listed and not listed & commands
    for line in (
        "count --N 8192 --d 128 --M 100KB",
        "tune --N 8192 --d 128 --hardware h100",
        "bounds --N 64 --d 8 --M 1KB",
    ):
        done = run("-m", "iosim", *line.split())
        assert done.returncode == 0, done.stderr
    assert "90,177,536" in run("-m", "iosim", "count", "--N", "8192", "--d", "128", "--M", "100KB").stdout


@pytest.mark.long
@pytest.mark.parametrize("folder", [*wings()])
def test_the_tests_of_the_others_stand_without_a_wing(folder, without):
    """Each file of the other wings' tests can be collected, and what answers.txt and errors.txt say is still said."""
    gone = gone_with(folder)
    run = without(gone)
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *others(gone))
    assert done.returncode == 0, done.stdout[-3000:]
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/house/test_answers.py")
    assert said.returncode == 0, said.stdout[-3000:]


def others(gone):
    """The folders of tests of the other wings."""
    return [f"tests/{folder}" for folder in wings() if folder not in gone and (ROOT / "tests" / folder).exists()]
