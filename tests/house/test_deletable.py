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
NO_ROOMS = ("house", "replay", "helpers", "data")
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


def meeting(gone):
    """A pattern of texts that meet some wings: their commands at the start of a text, their functions, pictures, points
    of a sweep and modules, and the helpers that import these."""
    found = [wings()[folder] for folder in gone]

    def any_of(words):
        return f"(?:{'|'.join(words) or '(?!)'})"

    commands = any_of(name for wing in found for group in wing.commands.values() for name in group)
    parts = [
        rf"""["']{commands}\b""",
        rf"\.{any_of(name for wing in found for name in wing.names)}\(",
        rf"picture\W+{any_of(name for wing in found for name in wing.pictures)}\b",
        rf"what\W+{any_of(name for wing in found for name in wing.points)}\b",
        rf"iosim\.{any_of(gone)}\b",
    ]
    direct = re.compile("|".join(parts))
    helpers = [file.stem for file in (ROOT / "tests" / "helpers").glob("*.py") if direct.search(file.read_text())]
    return re.compile("|".join([*parts, rf"from {any_of(helpers)} import"]))


def short_tests(folder, gone):
    """The files of tests that meet a wing that is gone, and of the others every seventh, another one for each wing: the
    runs without each of the seven wings have all files."""
    rooms = [
        path for path in sorted((ROOT / "tests").iterdir()) if path.is_dir() and path.name not in (*gone, *NO_ROOMS)
    ]
    files = [file for room in rooms for file in sorted(room.rglob("test_*.py"))]
    meets, own = meeting(gone), [*wings()].index(folder)
    return [file for k, file in enumerate(files) if k % len(wings()) == own or meets.search(file.read_text())]


@pytest.mark.long
@pytest.mark.parametrize("folder", [*wings()])
def test_the_tests_of_the_others_pass_without_a_wing(folder, without):
    """The short ones; and what answers.txt and errors.txt say is still said."""
    gone = gone_with(folder)
    run = without(gone)
    files = [str(file.relative_to(ROOT)) for file in short_tests(folder, gone)]
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/house/test_answers.py", *files, timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:]
