"""The wheel and the sdist: what is in them, and that each answers the README's first command in an environment of its own."""

import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

import iosim

README = (ROOT / "README.md").read_text()
LARGEST_SDIST = 8_000_000
pytestmark = [pytest.mark.needs("build"), pytest.mark.early]


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The wheel and the sdist, built as a release is: the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "-o", folder, ROOT)
    return {kind: next(folder.glob(f"iosim-{iosim.__version__}*{kind}")) for kind in (".whl", ".tar.gz")}


def test_the_version_stands_in_one_place():
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text and not re.search(r"^version = ", text, re.M)
    assert (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1].split()[0] == iosim.__version__


def test_what_is_in_them(files):
    """The sdist has no raw counters and is small; the wheel has the types, the CUDA files and the presets."""
    assert files[".tar.gz"].stat().st_size < LARGEST_SDIST
    with tarfile.open(files[".tar.gz"]) as sdist:
        unpacked = sum(member.size for member in sdist.getmembers())
        names = [Path(*Path(member.name).parts[1:]).as_posix() for member in sdist.getmembers()]
    assert unpacked < LARGEST_SDIST and {"README.md", "CHANGELOG.md", "LICENSE", "docs/python.md"} <= {*names}
    assert {f.relative_to(ROOT).as_posix() for f in (ROOT / "iosim").rglob("*.py")} <= {*names}
    with zipfile.ZipFile(files[".whl"]) as wheel:
        inside = wheel.namelist()
        (about,) = (wheel.read(name).decode() for name in inside if name.endswith(".dist-info/METADATA"))
    shipped = {"iosim/py.typed", "iosim/gpu/cuda/tiles.cuh", "iosim/configs/hardware/h100.toml"}
    assert shipped <= {*inside} and not any(name.startswith("tests") for name in inside)
    assert f"Version: {iosim.__version__}" in about and "Python :: 3.14" in about and "License-Expression: MIT" in about


@pytest.mark.needs("twine")
def test_an_index_accepts_them(files):
    assert run(sys.executable, "-m", "twine", "check", "--strict", *files.values()).count("PASSED") == 2


def test_workflows_and_the_citation_are_of_this_version():
    """Tests run on each Python that the package names, a release is built as here, and no password is named."""
    workflows = {path.stem: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert re.search(r"python: \[(.*)\]", workflows["tests"])[1] == ", ".join(f'"{version}"' for version in named)
    assert all(f".[{extra}" in workflows[file] for file, extra in (("tests", "test"), ("docs", "docs")))
    assert "id-token: write" in workflows["release"] and "pypi-publish" in workflows["release"]
    assert not any(re.search("secrets|password:", text) for text in workflows.values())
    release = workflows["release"]
    assert re.search(r"python: \[(.*)\]", release)[1] == f'"{named[0]}", "{named[-1]}"'
    line, said = re.search(r"run: iosim (.*) \| grep \"(.*)\"", release).groups()
    assert f"$ iosim {line}\n{said}" in README and "twine check --strict" in release
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == iosim.__version__ and "license: MIT" in citation


def test_the_recipe_for_conda_needs_what_the_package_needs():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    needs = re.findall(r"^    - (.+)$", recipe.partition("  run:\n")[2].partition("\ntest:")[0], re.M)
    assert sorted(need.replace(" ", "") for need in needs) == sorted(
        [*project["dependencies"], f"python{project['requires-python']}"]
    )
    assert f'version = "{iosim.__version__}"' in recipe and project["scripts"]["iosim"] in recipe
    assert f"summary: {project['description']}\n" in recipe


@pytest.mark.needs("yaml")
def test_forms_and_hooks_are_what_github_and_pre_commit_read():
    """Each field of a form has an id and a label, and a commit is checked by the commands of the lint in CI."""
    import yaml

    forms = [yaml.safe_load(form.read_text()) for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")]
    assert len(forms) == 2 and all(form["name"] and form["description"] for form in forms)
    assert all(field["id"] and field["attributes"]["label"] for form in forms for field in form["body"])
    lint = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["lint"]["steps"]
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    runs = {step["run"].removesuffix(" .").replace("format --check", "format") for step in lint if "run" in step}
    assert {hook["entry"] for hook in repo["hooks"]} == {run for run in runs if not run.startswith("pip")}
    watched = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert {one["package-ecosystem"] for one in watched} == {"github-actions", "pip"}


@pytest.mark.parametrize("kind", [".whl", ".tar.gz"])
def test_each_answers_in_an_empty_environment(files, kind, tmp_path):
    """The README's first command prints there what the README says, and --version the version."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    pip = (sys.executable, "-m", "pip", "--python", tmp_path / "venv" / "bin" / "python")
    run(*pip, "install", "-q", "--no-compile", files[kind], env=env)
    program = tmp_path / "venv" / "bin" / "iosim"
    assert run(program, "--version", env=env, cwd=tmp_path).split()[-1] == iosim.__version__
    command, said = re.search(r"```console\n\$ iosim (.*?)\n(.*?)(?=\$ |```)", README, re.S).groups()
    assert run(program, *shlex.split(command), env=env, cwd=tmp_path) == said
