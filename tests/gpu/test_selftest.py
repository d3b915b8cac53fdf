"""The self-test of validation, with g++ in the place of the GPU."""

import csv
import subprocess
import sys

import numpy as np
import on_cpu
import pytest
from gpu_here import has_gpu
from paths import ROOT

from iosim.gpu import device
from validation import selftest, speed
from validation.examples import FP16, FP32, Case

CASES = [
    Case("flash2", "16x16", {"N": 33, "d": 16, "heads": 2, **FP16}, "causal", scale=4.0),
    Case("standard-tiled", "8x8", {"N": 20, "d": 4, **FP32}),
    Case("flash2-bwd", "16x16", {"N": 20, "d": 8, **FP32}, "causal", depth=4),
]


def decoded(array, dtype):
    return on_cpu.decode(on_cpu.encode(np.asarray(array), dtype), dtype).astype(np.float32)


@pytest.fixture
def on_the_cpu(tmp_path, monkeypatch):
    """Kernels run on the CPU. `spoil` has changes of their counted words."""
    spoil = {}

    def run(program, inputs):
        library = on_cpu.build([program], tmp_path, program.name)
        outputs, counts, _ = on_cpu.run(library, 0, program, inputs)
        return outputs, {**counts, **spoil}

    monkeypatch.setattr(device, "cupy", lambda: np)
    monkeypatch.setattr(device, "rounded", decoded)
    monkeypatch.setattr(device, "name", lambda: "a CPU")
    monkeypatch.setattr(selftest, "run_on_device", run)
    return spoil


@pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
def test_cases_are_right_and_a_wrong_count_fails(on_the_cpu, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(selftest, "cases", lambda folder: CASES)
    assert selftest.main([str(tmp_path), "--no-speed"]) == 0
    with open(tmp_path / "selftest.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["case"] for row in rows] == [str(case) for case in CASES]
    assert all(row["ok"] == "True" and row["words"] == row["simulated_words"] for row in rows)
    on_the_cpu["Q"] = (1, 0)
    assert selftest.main([str(tmp_path), "--no-speed", "--only", "flash2 "]) == 1
    assert "FAIL flash2 16x16" in capsys.readouterr().out


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
@pytest.mark.parametrize("script", [selftest, speed], ids=["selftest", "speed"])
def test_without_a_gpu_the_scripts_say_so(script, tmp_path):
    done = subprocess.run(
        [sys.executable, script.__file__], cwd=ROOT, env={"PYTHONPATH": ".", "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 3 and "this works without: verify" in done.stderr
