"""The page that counts in a browser: its Python without NumPy here, and the built page in Chromium where Pyodide is.

PYODIDE names a folder of the npm package `pyodide`; else node_modules/pyodide is taken (.github/playground.py).
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from browsed import CHROMIUM, browse
from paths import DOCS, ROOT

sys.path.append(str(DOCS / "playground"))
import ask as page

PYODIDE = Path(os.environ.get("PYODIDE") or ROOT / "node_modules" / "pyodide")
FIRST = {"N": "8192", "d": "128", "M": "100KB"}
WITHOUT_NUMPY = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "pandas", "rich"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
sys.path.append(sys.argv[1])
import ask, json
for question in map(json.dumps, json.loads(sys.argv[2])):
    answer = json.loads(ask.answer(question))
    print(json.dumps([answer, {} if answer["fault"] else json.loads(ask.curve(question))]))
"""
QUESTIONS = [
    FIRST,
    {"N": "4096", "d": "64", "heads": "32", "kv-heads": "8", "hardware": "h100", "mask": "causal"},
    {"N": "4000", "d": "64", "M": "100KB", "mask": "causal&window:100", "schedule": "flash1,flash2"},
]
IN_NEED = {**FIRST, "mask": "causal", "schedule": "small-cache"}


@pytest.fixture(scope="module")
def answers():
    """(answer, curve) of each question, in a Python that finds no NumPy."""
    code = ["-c", WITHOUT_NUMPY, str(DOCS / "playground"), json.dumps([*QUESTIONS, IN_NEED])]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_count_and_its_curve_need_no_numpy(answers, iosim):
    *told, (in_need, _) = answers
    assert in_need["fault"] and page.NO_NUMPY in in_need["beside"] and "rows" not in in_need
    for question, (found, curve) in zip(QUESTIONS, told, strict=True):
        command, *line = shlex.split(found["line"])
        said = iosim(*line)
        assert command == "iosim" and found["text"] == said.stdout and found["beside"] == said.stderr, question
        assert curve["svg"].startswith("<svg") and all(f">{name}<" in curve["svg"] for name in ("floor", "flash2"))
        assert ("only tiles in multiples of 16" in curve["note"]) is ("window" in question.get("mask", ""))
        words = found["head"].index("total words")
        assert [row[words] for row in found["rows"]] and all(row[words] in said.stdout for row in found["rows"])


def test_the_curve_has_the_counts_at_40_sizes_and_the_floor_below_them():
    import iosim

    report = iosim.count(8192, 128, "100KB")
    data, note = page.lines_of(FIRST, report.M_bytes)
    assert [line.label for line in data] == page.USUAL.split(",") and note == ""
    flash2 = data[-1]
    assert len(flash2.x) == len(page.PLACES) == 40 and flash2.y[flash2.x.index(102400)] == 90177536
    for M in flash2.x[::13]:
        assert flash2.y[flash2.x.index(M)] == iosim.tune(8192, 128, M, schedules="flash2").winner.total
    (floor,) = page.floor_of(report.problem, flash2.x)
    assert floor.y[floor.x.index(102400)] == next(bound.words for bound in report.bounds if bound.name == "floor")
    assert all(words >= floor.y[floor.x.index(M)] for line in data for M, words in zip(line.x, line.y, strict=True))


def test_faults_are_said():
    wrong = json.loads(page.answer(json.dumps({**FIRST, "M": "10XB"})))
    assert wrong["fault"] and wrong["beside"].startswith("Error: --M: found '10XB'") and "rows" not in wrong


def test_every_field_of_the_form_is_asked_and_listed():
    form = (DOCS / "playground.md").read_text()
    assert re.findall(r'<(?:input|select) name="([\w-]+)"', form) == [*page.FIELDS]
    offered = json.loads(page.choices())
    assert "h100" in offered["hardware"] and {"flash2", "small-cache"} <= {*offered["schedules"]}
    assert not {"linear", "flash2-bwd"} & {*offered["schedules"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PYODIDE": str(PYODIDE)})
    return folder


IN_CHROMIUM = [
    pytest.mark.needs("mkdocs"),
    pytest.mark.early,
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]


def marked(test):
    for mark in IN_CHROMIUM:
        test = mark(test)
    return test


DONE = 'document.body.dataset.playground === "done"'
SEEN = """{ sentence: find("sentence").textContent, line: find("line").textContent, table: find("table").innerText,
  curve: find("curve").innerHTML, state: find("state").textContent, beside: find("beside").textContent, text: find("text").textContent, hash: window.location.hash,
  wide: document.documentElement.scrollWidth, fields: [...find("ask").elements].map(one => [one.name, one.value]),
  small: [...document.querySelectorAll("#curve text")].map(one => one.getBoundingClientRect().height) }"""


@marked
@pytest.mark.skipif(not (PYODIDE / "pyodide.mjs").is_file(), reason="no Pyodide: npm install --no-save pyodide")
@pytest.mark.parametrize("width", [1200, 390])
def test_the_built_page_counts(site, width, tmp_path, iosim):
    """The question of the address is answered as on a command line, and on a phone nothing is wider than the screen."""
    asked = "#N=4096&d=64&heads=8&M=64KB&mask=causal%26window:512&schedule=flash1,flash2"
    found, told = browse(site, f"/playground/{asked}", SEEN, tmp_path, ready=DONE, width=width)
    line = "count --N 4096 --d 64 --heads 8 --M 64KB --mask causal&window:512 --schedule flash1,flash2"
    said = iosim(*line.split())
    assert told == [] and found["line"], found["state"]
    assert shlex.split(found["line"]) == ["iosim", *line.split()] and found["hash"] == asked
    assert found["text"] == said.stdout and found["sentence"] == said.stdout.partition("\n")[0]
    assert (
        found["beside"] == said.stderr.strip()
        and found["state"] == ""
        and "flash2" in found["table"]
        and ">floor<" in found["curve"]
    )
    assert {("N", "4096"), ("mask", "causal&window:512"), ("kv-heads", "")} <= {*map(tuple, found["fields"])}
    assert found["wide"] <= width and min(found["small"]) > 10


@marked
def test_a_site_without_pyodide_says_so(site, tmp_path):
    import shutil

    copy = tmp_path / "site"
    shutil.copytree(site, copy, ignore=shutil.ignore_patterns("pyodide"))
    found, _ = browse(copy, "/playground/", 'find("state").textContent', tmp_path / "profile", ready=DONE)
    assert found.startswith("This copy of the site has no Pyodide") and "on your machine" in found
