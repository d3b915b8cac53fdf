"""What is measured on a GPU belongs to the launch that it is written beside."""

import csv
import json
import sys
import time
from pathlib import Path

import pytest
from paths import TESTS

pytestmark = pytest.mark.needs("triton")
SCRIPTS = TESTS.parent / "validation" / "kernels"


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import on_gpu

    yield on_gpu
    for name in ("on_gpu", "listed"):
        sys.modules.pop(name, None)


def pretended_run(on_gpu, faulty=()):
    """A machine that launches kernels called k0, k1, ...: the registers of each are its number. Some end the process."""

    def run(command, limit):
        at = command.index("--worker")
        jobs, notes = json.loads(Path(command[at + 1]).read_text()), Path(command[at + 2])
        profiled = []
        for number, choice in jobs:
            if number in faulty:
                break
            failed = number % 5 == 4
            note = {
                "number": number,
                "choice": choice,
                "ran": not failed,
                "name": f"k{number}",
                "own_registers": number,
            }
            with notes.open("a") as file:
                file.write(json.dumps(note) + "\n")
            if not failed:
                profiled.append(number)
        if "--log-file" in command:
            with open(command[command.index("--log-file") + 1], "w", newline="") as file:
                writer = csv.writer(file, quoting=csv.QUOTE_ALL)
                writer.writerow(["ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"])
                for k, number in enumerate(profiled):
                    writer.writerow([k, 1, f"k{number}", on_gpu.METRICS["ncu_registers"], "register/thread", number])
        return "a fault"

    return run


@pytest.mark.parametrize("faulty", [(), (3, 70)])
def test_counters_stand_beside_the_launch_they_are_of(on_gpu, monkeypatch, tmp_path, capsys, faulty):
    monkeypatch.setattr(on_gpu, "run", pretended_run(on_gpu, faulty))
    jobs = [[n, 0] for n in range(150)]
    alone = on_gpu.measured(("", "launches.toml"), jobs, [], time.monotonic() + 60)
    ran = [job for job in jobs if alone[job[0], 0]["ran"]]
    assert len(ran) == 150 - 30 - len(faulty)
    found = on_gpu.measured(("", "launches.toml"), ran, ["ncu"], time.monotonic() + 60, tmp_path / "ncu.csv.gz")
    assert all(found[number, 0]["ncu_registers"] == number for number, _ in ran)
    assert "profiled" not in capsys.readouterr().err
