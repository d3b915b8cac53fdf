"""Replays what was measured on GPUs against today's model: a change that breaks an old measurement shows here."""

import csv
import json
import sys
from pathlib import Path
from statistics import median

import pytest

from iosim.gpu.jobs import TORCH, problem_of, runner, tiling_of
from iosim.gpu.profile import explain
from iosim.gpu.verify import verify
from iosim.hardware import read as read_hardware

ROOT = Path(__file__).parent.parent
VALIDATION = ROOT / "validation"
sys.path.insert(0, str(VALIDATION))
FOLDERS = sorted(path.parent for path in VALIDATION.glob("*/generated.csv"))
SMALL_TRACE = 20_000  # pairs of tiles and heads: DRAM and time of larger ones are compared with rows.csv only

needs_measurements = pytest.mark.skipif(not FOLDERS, reason="no measurement of a GPU is in validation/")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)  # masks from files are named from there


def evidence(folder, part):
    import measure

    return measure.evidence(folder, part)


def own(folder):
    return [e for part in ("generated", "tuned") for e in evidence(folder, part) if e.job["run"] not in TORCH]


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_words_and_bytes_agree(folder):
    rows = [verify(e, None) for e in own(folder)]
    assert len(rows) >= 60
    bad = [
        f"{r['schedule']} N={r['N']} d={r['d']} {r['dtype']} {r['mask']}: {r['faults']}" for r in rows if not r["ok"]
    ]
    assert not bad, "\n".join(bad)
    assert all(row["device_words"] == row["words"] for row in rows)


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_predictions_are_those_that_were_written_down(folder):
    """rows.csv beside the measurements holds what the model predicted when they were compared."""
    with open(folder / "rows.csv", newline="") as file:
        written = list(csv.DictReader(file))
    hardware = read_hardware(folder / "hardware.toml")
    compared = 0
    for e, old in zip(own(folder), written, strict=True):
        p, t = problem_of(e.job), tiling_of(e.job)
        if -(-p.N // t.rows_q) * -(-p.Nk // t.rows_k) * p.instances > SMALL_TRACE:
            continue
        new = verify(e, hardware)
        for name in ("dram_read_predicted", "dram_write_predicted"):
            assert str(new[name]) == old[name], (name, e.job)
        assert new["seconds_predicted"] == pytest.approx(float(old["seconds_predicted"]))
        compared += 1
    assert compared >= 10


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_errors_of_dram_and_time_are_as_claimed(folder):
    with open(folder / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    claims = json.loads((folder / "claims.json").read_text())
    for name in ("dram_ratio", "time_ratio"):
        errors = [abs(float(row[name]) - 1) for row in rows if row[name]]
        assert median(errors) <= claims[name]["median"] and max(errors) <= claims[name]["worst"], name


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
@pytest.mark.parametrize("run", ["torch-flash", "torch-cudnn"])
def test_kernels_of_pytorch_are_explained(folder, run):
    found = [e for e in evidence(folder, "torch") if e.job["run"] == run and e.kernels]
    if not found:
        pytest.skip(f"{run} was not measured in {folder.name}")
    off = []
    for e in found:
        _, explanations = explain(e.kernels, problem_of(e.job))
        if not explanations[0].explains:
            off.append((e.job["N"], e.job["d"], e.job["mask"], explanations[0].read_ratio))
    assert not off, off


# ---------------------------------------------------------------- the list itself needs no GPU


def jobs():
    import shapes

    return shapes.generated()


def test_the_shapes_cover_what_is_claimed():
    found = jobs()
    problems = [problem_of(job) for job in found]
    assert len(found) >= 60 and len({json.dumps(job, sort_keys=True) for job in found}) == len(found)
    assert {job["run"] for job in found} == {"standard", "standard-tiled", "flash1", "flash2", "block-sparse",
                                             "block-sparse-q"}  # fmt: skip
    assert {p.N for p in problems} >= {1, 16384} and {p.d for p in problems} >= {16, 256}
    assert {p.dtype for p in problems} == {"fp16", "bf16", "fp32"} and {p.heads for p in problems} >= {1, 264}
    masks = {job["mask"].split(":")[0] for job in found}
    assert masks >= {"dense", "causal", "window", "file"}
    assert any(p.N % tiling_of(job).rows_q for p, job in zip(problems, found, strict=True)), "ragged"


def test_every_shape_fits_a_block_of_an_h200():
    for job in jobs():
        assert max(launch["smem_bytes"] for launch in runner(job).launches) <= 232_448, job


def test_twenty_shapes_of_each_kernel_of_pytorch():
    import shapes

    names = [job["run"] for job in shapes.torch()]
    assert names.count("torch-flash") >= 20 and names.count("torch-cudnn") >= 20
