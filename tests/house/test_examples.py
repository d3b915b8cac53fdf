"""The scripts of examples/: each runs as it is, and prints what is said of it here."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from paths import ROOT

EXAMPLE = ROOT / "examples"
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
EXAMPLES = {
    "first_count": "flash2 with tiles 196x1 moves 90,177,536 words\nthat is 1.064 times the floor\n",
    "tiles_for_a_gpu": "h100       64x128: 258.0 Mi words, shared binds\n",
    "sweep_to_csv": "65536     14172160   9437184\n",
    "keys_in_host_memory": "from the host 67,108,864 words, K and V once for each of 4 blocks: True\n"
    "between device memory and SRAM 8,996,782,080 words\nevery tile visited gives the same: True\n"
    "the output is attention: True\n",
    "replay_trace": "pack 4.062, FA2 4.486, FA3 4.182, cascade 4.131\n",
    "cache_of_a_gpu": "64KB: 18688 misses, 1.00 times the explicit SRAM\n",
    "design_a_chip": "need M = 474,496 B; below 263,178 B no schedule can\nMy chip: flash2 256x32 takes at least 5498 us; matrix binds\n",
    "serve_a_model": "32 * 1:4096, 2048:8192 paged              45.16 GiB, 2.51 times each word once\n",
    "distance_to_the_floor": "M =   131,072 B: flash2-pinned       71,278,592 words, 1.067 times the floor\n",
    "triton_kernel": "1: arange's arguments must be of type tl.constexpr\n"
    "2: 2 of 32 requests of its reads have no word inside of Q, which is fp16[8, 200, 64]\n"
    "3:\n   Q: 3,584 words of its reads lie outside of its shape\n"
    "   K: 3,584 words of its reads lie outside of its shape\n"
    "   V: 3,584 words of its reads lie outside of its shape\n"
    "   O: 3,584 words of its writes lie outside of its shape\n"
    "corrected: corrected moves 1.95 MiB; no exact algorithm of its class can move less than 800 KiB",
}


def test_all_examples_are_here():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES}


def test_the_list_names_every_example_and_only_those():
    named = set(re.findall(r"\]\(([^)]+)\)", (EXAMPLE / "README.md").read_text()))
    there = {path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob("*.*") if "__pycache__" not in path.parts}
    assert named == {path for path in there if not path.endswith(("README.md", "pyproject.toml", "__init__.py"))}


NEED_TRITON = {"triton_kernel"}
RUN = [pytest.param(name, marks=pytest.mark.needs("triton")) if name in NEED_TRITON else name for name in EXAMPLES]


@pytest.mark.parametrize("name", RUN)
def test_an_example_prints_what_it_says(name, tmp_path):
    file = ROOT / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, cwd=tmp_path, env=ENV)
    assert done.returncode == 0, done.stderr
    assert EXAMPLES[name] in done.stdout
    assert file.read_text().startswith('"""')


def test_the_package_brings_its_schedule_and_both_its_formulas_hold(tmp_path):
    """Its entry point, as pip would write it, is found; a run has the words and the room that were derived by hand."""
    project = tomllib.loads((EXAMPLE / "own_package" / "pyproject.toml").read_text())["project"]
    ((group, points),) = project["entry-points"].items()
    info = tmp_path / "whole_rows-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [tmp_path, EXAMPLE / "own_package", ROOT]))}

    def ask(line):
        return subprocess.run([sys.executable, "-m", "iosim", *line.split()], capture_output=True, text=True, env=env)

    checked = ask("verify --cpu --N 50 --Nk 70 --d 16 --dv 24 --tiles 7x70 --schedule whole-rows --json")
    row = next(row for row in json.loads(checked.stdout)["checks"] if row["check"] == "whole-rows")
    assert row["ok"] and row["words"] == row["formula_words"] and row["peak_words"] == row["footprint_words"]
    assert "whole-rows" in ask("schedules").stdout
    refused = ask("count --N 64 --d 8 --tiles 8x8 --schedule whole-rows --causal")
    assert refused.returncode == 2 and "it has no mask" in refused.stderr
