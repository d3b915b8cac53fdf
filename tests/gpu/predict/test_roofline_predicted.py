"""The predicted times of generated kernels that `iosim roofline --predict generated` adds."""

import csv

import pytest
from paths import ROOT, VALIDATION

from iosim import SCHEDULES, Attention, Tiling, hardware
from iosim.core.folded import Folded
from iosim.core.problem import as_moved
from iosim.core.unrolled import Unrolled
from iosim.core.watchers import Watcher
from iosim.gpu.jobs import ScheduleJob, runner
from iosim.gpu.ncu.counters import ProfiledKernel
from iosim.gpu.predict.blocks import touches_of
from iosim.gpu.predict.on_request import COMPARED, Effort
from iosim.gpu.verdict import Evidence, verify
from iosim.masks import parse_mask

roofline = pytest.importorskip("iosim.studies.roofline").roofline


def judged(name, problem, tiling, hardware):
    """The row of `iosim verify`, of kernels of which the profiler says nothing but that they ran."""
    job = ScheduleJob(name, problem, tiling)
    return verify(Evidence(job, {}, [ProfiledKernel("k") for _ in runner(job).launches]), hardware)


def asked(name, problem, tiling, hardware):
    """The row of all launches in a roofline."""
    sizes = {
        key: getattr(problem, key)
        for key in ("Nk", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "lse", "visit_all")
    }
    tiles, mask = f"{tiling.rows_q}x{tiling.rows_k}", str(problem.mask)
    found = roofline(
        problem.N, problem.d, hardware, schedules=[name], tiles=tiles, mask=mask, predict="generated", **sizes
    )
    assert found.not_predicted == []
    return found.rows[-1]


JOBS = [
    ("flash2", Attention(512, 64, heads=8), Tiling(64, 64)),
    ("flash2", Attention(300, 128, Nk=500, heads=4, kv_heads=2, batch=2, acc_dtype="fp32", lse=True), Tiling(128, 64)),
    ("flash2", Attention(256, 64, heads=4), Tiling(50, 6)),
    ("flash1", Attention(333, 32, heads=4, dtype="bf16", acc_dtype="fp32", mask=parse_mask("causal")), Tiling(48, 40)),
    ("flash2", Attention(400, 32, heads=4, mask=parse_mask("window:99"), visit_all=True), Tiling(48, 32)),
    ("standard-tiled", Attention(256, 64, heads=8, dtype="fp32"), Tiling(64, 32)),
    ("block-sparse-q", Attention(512, 64, heads=4, mask=parse_mask("causal")), Tiling(64, 64)),
]


@pytest.mark.parametrize("gpu", ["h100", "h200"])
@pytest.mark.parametrize("name, problem, tiling", JOBS)
def test_the_predicted_time_is_that_of_verify(name, problem, tiling, gpu):
    rates = hardware.read_hardware(hardware.configs_folder() / "measured" / f"{gpu}.toml")
    row, verdict = asked(name, problem, tiling, gpu), judged(name, problem, tiling, rates)
    assert row.predicted_seconds == verdict["seconds_predicted"] > row.ideal_l2_seconds
    assert row.predicted_binds == verdict["bound_by"]
    assert row.predicted_dram_read_bytes == verdict["dram_read_predicted"] > 0
    assert row.predicted_dram_write_bytes == verdict["dram_write_predicted"] > 0


KEPT_SHAPES = [
    ("h100", ("flash2", "16x64", "242", "80", "bf16", "dense")), ("h100", ("flash1", "16x16", "33", "16", "bf16", "causal")),
    ("h200", ("flash2", "16x64", "242", "80", "bf16", "dense")), ("h200", ("flash1", "16x16", "33", "16", "bf16", "causal")),
]  # fmt: skip


@pytest.mark.parametrize("gpu, shape", KEPT_SHAPES, ids=str)
def test_the_predicted_time_is_that_of_kept_measurements(gpu, shape):
    (folder,) = VALIDATION.glob(f"{gpu}-*")
    names = ("schedule", "tiles", "N", "d", "dtype", "mask")
    with open(folder / "rows.csv", newline="") as file:
        kept = next(row for row in csv.DictReader(file) if tuple(row[name] for name in names) == shape)
    sizes = {name: int(kept[name]) for name in ("Nk", "batch", "heads")}
    types = {name: kept[name] for name in ("dtype", "acc_dtype", "mask")}
    found = roofline(
        int(kept["N"]),
        int(kept["d"]),
        gpu,
        schedules=[kept["schedule"]],
        tiles=kept["tiles"],
        visit_all=True,
        predict="generated",
        **sizes,
        **types,
    )
    assert found.rows[-1].predicted_seconds == pytest.approx(float(kept["seconds_predicted"]), rel=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_predicted_unless_it_is_ideal(name):
    p, ideal = SCHEDULES[name].about(Attention(64, 32, heads=2)), "ideal" in SCHEDULES[name].rules
    sizes = {"Nk": p.Nk, "heads": p.heads, "mask": str(p.mask), "top_k": p.top_k, "key_block": p.key_block}
    found = roofline(p.N, p.d, "h100", schedules=[name], tiles=None if ideal else "16x16", predict="generated", **sizes)
    row = found.rows[-1]
    known = name in COMPARED and not ideal
    assert (row.predicted_seconds is not None) == (not found.not_predicted) == known
    assert not known or row.predicted_dram_read_bytes > 0


def test_predictions_are_of_schedules_that_were_compared_with_measurements():
    """Those of which a kept row of a GPU has a measured and a predicted time; one row alone proves nothing."""
    for folder in VALIDATION.glob("h[12]00-*"):
        with open(folder / "rows.csv", newline="") as file:
            names = [
                row["schedule"] for row in csv.DictReader(file) if row["time_ratio"] and "tuned" not in row["schedule"]
            ]
        assert {name for name in names if names.count(name) > 1} == set(COMPARED)


def test_a_long_prediction_says_how_long_it_takes(iosim, monkeypatch):
    """Nothing is refused for its length, and a short one says nothing."""
    monkeypatch.setattr("iosim.progress.QUIET_SECONDS_OF_LINES", 0.0)
    line = (
        "roofline",
        "--N",
        256,
        "--d",
        64,
        "--hardware",
        "h100",
        "--schedule",
        "flash2",
        "--tiles",
        "64x64",
        *PREDICT,
    )
    assert "predicting" not in iosim(*line).stderr
    monkeypatch.setattr("iosim.gpu.predict.on_request.seconds_to_predict", lambda *_: 9.2)
    done = iosim(*line)
    assert done.exit_code == 0 and "predicting flash2 64x64: about 9 s\n" in done.stderr
    assert "us predicted" in done.stdout and "predicting" not in done.stdout


PREDICT = ("--predict", "generated")
PREDICTED = ["predicted_seconds", "predicted_binds", "predicted_dram_read_bytes", "predicted_dram_write_bytes"]


def test_without_measured_rates_nothing_is_predicted(ask, iosim, monkeypatch, tmp_path):
    """Neither for a preset nor for a file without [measured]; a file with it has its own rates."""
    shape = ["--N", 512, "--d", 64, "--schedule", "flash2", "--tiles", "64x64", *PREDICT]
    text = (hardware.configs_folder() / "measured" / "h200.toml").read_text()
    (tmp_path / "own.toml").write_text(text.replace("profiled_launch_seconds =", "profiled_launch_seconds = 1 #"))
    own = ask("roofline", *shape, "--hardware", tmp_path / "own.toml")["results"][0]["predicted_seconds"]
    assert own > ask("roofline", *shape, "--hardware", "H200")["results"][0]["predicted_seconds"]
    (tmp_path / "h100.toml").write_text(text.partition("[measured]")[0])

    def never(*_):
        raise AssertionError("nothing is walked")

    monkeypatch.setattr("iosim.gpu.predict.generated.predict_generated", never)
    for name in ("a100-80gb", tmp_path / "h100.toml"):
        got = ask("roofline", *shape, "--hardware", name)
        assert [got["results"][0][key] for key in PREDICTED] == [None] * 4 and got["hardware"]["measured_on"] is None
    said = "no rates were measured for A100-80GB: run iosim calibrate there and give its file"
    assert said in iosim("roofline", *shape, "--hardware", "a100-80gb").stdout


def test_the_peak_of_a_calibrated_gpu_is_that_of_wgmma():
    """Kernels of others reach it: the ideal roofline knows no lower one. The prediction of generated kernels, which use
    mma.sync, is that of the preset with the same measured rates."""
    file = hardware.configs_folder() / "measured" / "h200.toml"
    wgmma = hardware.read_hardware(file).measured["wgmma_flops_per_second"]
    shape = {"N": 512, "d": 64, "schedules": "flash2", "tiles": "64x64", "predict": "generated"}
    (row,), (preset,) = (roofline(hardware=name, **shape).rows for name in (str(file), "h200"))
    assert row.matrix_seconds == row.work.matrix_flops / wgmma
    assert row.ridge == wgmma / hardware.read_hardware(file).hbm_bytes_per_second
    assert row.predicted_seconds == preset.predicted_seconds is not None


@pytest.mark.long
def test_the_example_of_the_docs():
    """flash2's tiles of least traffic move less than 128x128, and take far longer."""
    text = (ROOT / "docs" / "roofline.md").read_text()
    for tiles in ("432x6", "128x128"):
        (row,) = roofline(
            8192, 128, "h100", schedules=["flash2"], tiles=tiles, heads=32, paper_model=True, predict="generated"
        ).rows
        milliseconds = (
            f"{1e3 * seconds:.1f}" for seconds in (row.ideal_l2_seconds, row.sm_traffic_seconds, row.predicted_seconds)
        )
        shown = [tiles, f"{row.work.total_bytes / 1e9:.2f}", *milliseconds]
        assert "| " + " | ".join(shown) + " |" in text, shown


# ---------------------------------------------------------------- how long a prediction takes


class Events(Watcher):
    """How many loads, stores and steps there are."""

    def __init__(self):
        self.count = 0

    def load(self, *_):
        self.count += 1

    store = step = load


@pytest.mark.parametrize("name, problem, tiling", JOBS)
def test_the_effort_of_a_prediction_is_known_before(name, problem, tiling):
    """Events exactly, touched cells about: against a run over every tile."""
    schedule, effort, every = SCHEDULES[name], Effort(), Events()
    seen = as_moved(schedule, problem)
    Folded(seen, effort).run(schedule, tiling)
    Unrolled(seen, every).run(schedule, tiling)
    assert effort.events == every.count
    touched = [len(launch.touches) for launch in touches_of(schedule, seen, tiling).launches]
    assert effort.touches() == pytest.approx(touched, rel=0.3)
