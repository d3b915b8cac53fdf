"""The scripts of examples/: each runs as it is, and prints what is said of it here."""

import os
import subprocess
import sys

import pytest
from paths import ROOT

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
}


def test_all_examples_are_here():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_says(name, tmp_path):
    file = ROOT / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, cwd=tmp_path, env=ENV)
    assert done.returncode == 0, done.stderr
    assert EXAMPLES[name] in done.stdout
    assert file.read_text().startswith('"""')
