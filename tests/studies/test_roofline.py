"""`iosim roofline`: operations by kind against formulas by hand and against what NumPy does; times, ridges, refusals."""

import csv
import json
import random
from typing import ClassVar

import numpy as np
import pytest
from paths import DATA, ROOT, VALIDATION

from iosim import SCHEDULES, Attention, Machine, Tiling, hardware
from iosim.core.folded import Folded
from iosim.core.problem import as_moved, skips_tiles
from iosim.core.unrolled import Unrolled
from iosim.core.watchers import Watcher
from iosim.counting.count import measure
from iosim.gpu.jobs import ScheduleJob, runner
from iosim.gpu.ncu.counters import ProfiledKernel
from iosim.gpu.predict.blocks import touches_of
from iosim.gpu.predict.on_request import COMPARED, Effort
from iosim.gpu.verdict import Evidence, verify
from iosim.masks import parse_mask
from iosim.schedules import CORE
from iosim.steps import backward, passes_and_linear, softmax
from iosim.studies.ideal_roofline import LaunchWork, WorkByKind, work_by_kind
from iosim.studies.roofline import roofline

COUNTED = {np.exp: "exp", np.log: "exp"}
OTHER = {np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.greater}


class Counting(np.ndarray):
    """Counts the operations that NumPy carries out on it: of a reduction every element that goes in."""

    tally: ClassVar[dict] = {"exp": 0, "other": 0}

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        plain = [x.view(np.ndarray) if isinstance(x, Counting) else x for x in inputs]
        if out is not None:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counting) else x for x in out)
        result = getattr(ufunc, method)(*plain, **kwargs)
        kind = COUNTED.get(ufunc, "other" if ufunc in OTHER else None)
        if kind:
            Counting.tally[kind] += np.size(plain[0]) if method == "reduce" else np.size(result)
        return result.view(Counting) if isinstance(result, np.ndarray) else result


STEPS = [
    (softmax.scores, [(5, 7), (5, 3), (7, 3)]),
    (softmax.softmax_rows, [(5, 7)]),
    (softmax.online_softmax, [(5, 7), (5,), (5,), (5, 3)]),
    (softmax.normalise, [(5, 3), (5,)]),
    (softmax.denormalise, [(5, 3), (5,)]),
    (softmax.log_sum_exp, [(5,), (5,)]),
    (softmax.merge, [(5,), (5,), (5, 3), (5, 3), (5,)]),
    (softmax.drop, [(5, 7), (5, 7)]),
    (softmax.zeros, [(5, 3)]),
    (softmax.minus_infinity, [(5,)]),
    (softmax.keep, [(5, 7)]),
    (passes_and_linear.scale, [(5, 7), ()]),
    (passes_and_linear.add_maximum, [(5,), (5, 7)]),
    (passes_and_linear.exponentials, [(5, 7), (5,)]),
    (passes_and_linear.add_sum, [(5,), (5, 7)]),
    (passes_and_linear.add_maximum_and_sum, [(5,), (5,), (5, 7)]),
    (passes_and_linear.features, [(5, 3)]),
    (passes_and_linear.add_keys, [(3,), (7, 3)]),
    (backward.probabilities, [(5, 7), (5,), (5,)]),
    (backward.probabilities_from_lse, [(5, 7), (5,)]),
    (backward.row_dots, [(5,), (5, 3), (5, 3)]),
    (backward.add_row_dots, [(5,), (5, 3), (5, 3)]),
    (backward.score_gradients, [(5, 7), (5, 7), (5,)]),
    (backward.score_gradients_of_rows, [(5, 7), (5, 7)]),
]


@pytest.mark.parametrize("step, shapes", STEPS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_step_does_what_it_says(step, shapes):
    rng = np.random.default_rng(1)
    Counting.tally = {"exp": 0, "other": 0}
    step(*(rng.uniform(1, 2, size=shape).view(Counting) for shape in shapes))
    exps, other = (sum(int(np.prod(term)) for term in terms(*shapes)) for terms in step.work)
    assert Counting.tally == {"exp": exps, "other": other}


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n in CORE])
@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_work_agrees_with_what_is_counted_elsewhere(name, mask):
    """Bytes and matrix FLOPs as in a count; folded as unrolled, ragged tiles and grouped heads included."""
    schedule, rng = SCHEDULES[name], random.Random(name)
    for _ in range(5):
        p = Attention(
            rng.randint(1, 40), rng.randint(1, 9), Nk=rng.randint(1, 40), heads=4, kv_heads=2, batch=3,
            acc_dtype="fp32", lse=True, mask=parse_mask(mask), elementwise=rng.randint(0, 2),
        )  # fmt: skip
        tiling = Tiling(rng.randint(1, 20), rng.randint(1, 20))
        work = work_by_kind(schedule, p, tiling)
        whole, counts = sum(work.launches[1:], work.launches[0]), measure(schedule, p, tiling)
        assert (whole.read_bytes, whole.write_bytes) == (counts["read_bytes"], counts["write_bytes"])
        assert whole.matrix_flops == counts["flops"] and not work.unmarked
        assert [launch.total_bytes for launch in work.launches] != [] and len(work.launches) == len(counts["steps"])
        unrolled = WorkByKind()
        Machine(p, unrolled).run(schedule, tiling)
        if mask == "dense" or skips_tiles(schedule, p):
            assert unrolled.launches == work.launches
        assert all(0 <= launch.floor_bytes <= launch.total_bytes for launch in work.launches)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_step_of_every_schedule_says_what_it_does(name):
    schedule = SCHEDULES[name]
    p = schedule.about(Attention(12, 4))
    work = WorkByKind()
    Machine(p, work).run(schedule, Tiling(5, 4))
    assert work.unmarked == set() and sum(launch.floor_bytes for launch in work.launches) > 0


@pytest.mark.parametrize("N, Nk, d, rows_q, rows_k", [(64, 64, 8, 16, 16), (50, 33, 7, 16, 10), (1, 100, 4, 1, 30)])
def test_operations_by_hand(N, Nk, d, rows_q, rows_k):
    """FlashAttention-2 with Tc key tiles: an exponential a score, one a row and key tile; a scale, a maximum, a
    difference and a sum a score; four a row and tile, and all of O rescaled with each tile and once at the end."""
    p, tiling = Attention(N, d, Nk=Nk, heads=2), Tiling(rows_q, rows_k)
    tiles = -(-Nk // rows_k)
    (q_outer,) = work_by_kind(SCHEDULES["flash2"], p, tiling).launches
    assert q_outer.matrix_flops == 2 * 4 * N * Nk * d
    assert q_outer.exps == 2 * (N * Nk + N * tiles)
    assert q_outer.other_ops == 2 * (4 * N * Nk + tiles * (4 * N + N * d) + N * d)
    (k_outer,) = work_by_kind(SCHEDULES["flash1"], p, tiling).launches
    assert k_outer.exps == q_outer.exps
    assert k_outer.other_ops == 2 * (4 * N * Nk + tiles * (4 * N + 3 * N * d))  # O times l before, over l after
    three = work_by_kind(SCHEDULES["standard"], p, tiling).launches
    assert [x.exps for x in three] == [0, 2 * N * Nk, 0]
    assert [x.other_ops for x in three] == [2 * N * Nk, 2 * 4 * N * Nk, 0]
    assert [x.matrix_flops for x in three] == [4 * N * Nk * d, 0, 4 * N * Nk * d]


def results(found, **labels):
    return [r for r in found["results"] if all(r[k] == v for k, v in labels.items())]


@pytest.mark.parametrize("N, d, expected", [(1024, 64, 56.9), (8192, 128, 124.1)])
def test_scores_alone_are_bound_by_memory(ask, N, d, expected):
    """Q K^T: d / (1 + 2 d / N) FLOP/B in fp16, below the A100's ridge: not "compute-bound"."""
    got = ask("roofline", "--N", N, "--d", d, "--hardware", "A100-80GB", "--schedule", "standard")
    (first,) = results(got, launch="1")
    assert first["intensity"] == d / (1 + 2 * d / N) == pytest.approx(expected, abs=0.05)
    assert first["sm_traffic_binds"] == "memory" and first["intensity"] < first["ridge"] == 312e12 / 2.039e12


def test_softmax_has_its_own_ridge(ask):
    """Five operations on four bytes in fp16, against fp32 CUDA cores: 19.5 / 2.039, not the tensor cores' 153."""
    got = ask("roofline", "--N", 1024, "--d", 64, "--hardware", "A100-80GB", "--schedule", "standard")
    (second,) = results(got, launch="2")
    assert second["intensity"] == 5 / 4 and second["ridge"] == 19.5e12 / 2.039e12
    assert second["matrix_flops"] == 0 and second["exps"] == 1024**2


def test_times_are_those_of_the_slowest_resource(ask):
    got = ask("roofline", "--N", 2048, "--d", 64, "--heads", 8, "--hardware", "H100")
    chip = hardware.load("H100")
    assert len(got["results"]) > 8
    for r in got["results"]:
        moved = r["read_bytes"] + r["write_bytes"]
        assert r["memory_seconds"] == moved / chip.hbm_bytes_per_second
        assert r["matrix_seconds"] == r["matrix_flops"] / chip.flops_per_second["fp16"]
        assert r["exp_seconds"] == r["exps"] / (132 * 16 * 1.83e9)
        assert r["other_seconds"] == r["other_ops"] / chip.flops_per_second["fp32"]
        times = {k: r[f"{k}_seconds"] for k in ("memory", "matrix", "exp", "other")}
        assert times[r["sm_traffic_binds"]] == max(times.values()) and r["ideal_l2_seconds"] <= r["sm_traffic_seconds"]
        if r["launch"] != "all":
            assert r["sm_traffic_seconds"] == max(times.values())
    for name in {r["schedule"] for r in got["results"]}:
        parts = [r["sm_traffic_seconds"] for r in results(got, schedule=name, tiling="ideal") if r["launch"] != "all"]
        if parts:
            assert results(got, schedule=name, launch="all")[0]["sm_traffic_seconds"] == pytest.approx(sum(parts))


def test_narrow_key_tiles_pay_for_rescaling(ask):
    """Bc does not change the words of Q outer, but O is rescaled with every key tile: 4 N Nk + N Tc (d + 4) + N d."""
    base = ["--N", 4096, "--d", 128, "--hardware", "H100", "--schedule", "flash2"]
    narrow, wide = (ask("roofline", *base, "--tiles", t)["results"][0] for t in ("128x1", "128x128"))
    assert narrow["read_bytes"] == wide["read_bytes"] and narrow["sm_traffic_binds"] == "other"
    assert narrow["other_ops"] == 4 * 4096**2 + 4096**2 * 132 + 4096 * 128 > 10 * wide["other_ops"]


@pytest.mark.parametrize("name", hardware.names())
def test_decode_is_bound_by_memory_and_prefill_less(ask, name):
    """One query over T = 8192 keys reads 2 T d words a head, 128 MiB for 32 heads of d = 128, whatever the schedule."""
    base = ["--N", 8192, "--d", 128, "--heads", 32, "--hardware", name, "--schedule", "flash2", "--tiles", "128x64"]
    prefill, decode = ask("roofline", *base, "--decode")["results"]
    assert (prefill["phase"], decode["phase"]) == ("prefill", "decode")
    assert decode["sm_traffic_binds"] == decode["ideal_l2_binds"] == "memory" and prefill["ideal_l2_binds"] != "memory"
    assert decode["read_bytes"] - 32 * 128 * 2 == 128 * 2**20 and decode["intensity"] < 1 < prefill["intensity"]
    one = ask("roofline", "--N", 1, "--Nk", 8192, *base[2:])["results"]
    assert one == [decode]


def test_grouped_heads_share_keys_in_an_ideal_l2(ask):
    """32 query heads on 8 KV heads: each streams K and V again, but an ideal L2 fetches 32 MiB and not 128."""
    base = ["--N", 1, "--Nk", 8192, "--d", 128, "--heads", 32, "--kv-heads", 8, "--hardware", "H200"]
    (row,) = ask("roofline", *base, "--schedule", "flash2", "--tiles", "64x64")["results"]
    vectors = 2 * 32 * 128 * 2
    assert row["floor_bytes"] == 32 * 2**20 + vectors
    assert row["read_bytes"] + row["write_bytes"] == 128 * 2**20 + vectors
    (packed,) = ask("roofline", *base, "--gqa", "pack", "--schedule", "flash2", "--tiles", "64x64")["results"]
    assert packed["floor_bytes"] == packed["read_bytes"] + packed["write_bytes"] == 32 * 2**20 + vectors


def test_no_measured_kernel_is_faster_than_the_peaks_allow():
    """PyTorch's FlashAttention-2 forward on an H200: 2.8 to 7.1 times what peaks and an ideal L2 allow."""
    kernels = json.loads((DATA / "h200_sdpa.json").read_text())["kernels"]
    flash = [k for k in kernels if k["backend"] == "FLASH_ATTENTION" and k["pass"] == "forward"]
    assert len(flash) > 5
    ratios = []
    for k in flash:
        sizes = {"Nk": k["Nk"], "heads": k["heads"], "kv_heads": k["kv_heads"], "batch": k["batch"]}
        tiles, mask = "{}x{}".format(*k["tiles"]), "causal" if k["causal"] else "dense"
        found = roofline(k["N"], k["d"], "H200", schedules="flash2", tiles=tiles, acc_dtype="fp32", mask=mask, **sizes)
        ratios.append(k["metrics"]["gpu__time_duration.sum"] * 1e-9 / found.rows[0].ideal_l2_seconds)
    assert min(ratios) > 2.7 and max(ratios) < 7.2


def test_launches_add_up():
    assert LaunchWork(1, 2, 3, 4, 5, 6) + LaunchWork(10, 20, 30, 40, 50, 60) == LaunchWork(11, 22, 33, 44, 55, 66)


def test_steps_that_nobody_marked_are_named():
    def unheard_of(o):
        o[...] = 0

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.store(chip.compute("O", (i, p.dv), unheard_of), "O", i)

    work = WorkByKind()
    Machine(Attention(8, 2), work).run(text, Tiling(3, 3))
    assert work.unmarked == {"unheard_of"} and work.launches[0].write_bytes == 32


# ---------------------------------------------------------------- the predicted time


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


def test_a_roofline_has_the_footprint_and_traffic_of_a_count(ask, iosim):
    """Also FlashAttention-3's tile, which fits with registers only."""
    shape = ("--N", 512, "--d", 128, "--acc-dtype", "fp32", "--hardware", "h100", "--registers", "64K", "--stages", 2)
    names = (
        "smem_peak_bytes",
        "register_peak_bytes",
        "sram_peak_bytes",
        "limit",
        "fits",
        "read_bytes",
        "write_bytes",
        "ratio_to_floor",
    )
    for tiles in ("128x176", "best", "512x512"):
        line = (*shape, "--schedule", "flash2,flash1", "--tiles", tiles)
        counted, found = ask("count", *line)["results"], ask("roofline", *line, "--predict", "generated")
        rows = [row for row in found["results"] if row["launch"] == "all"]
        assert [[row[name] for name in ("Br", "Bc", *names)] for row in rows] == [
            [row[name] for name in ("Br", "Bc", *names)] for row in counted
        ]
        assert all("leave out --registers and --stages" in one["why"] for one in found["not_predicted"])
        assert len(found["not_predicted"]) == 2 and found["problem"]["stages"] == 2
        out = iosim("roofline", *line).stdout
        assert "262,144 B (256 KiB) of registers for tiles, 2 stages in flight" in out and "register bytes" in out
    assert (rows[0]["fits"], rows[0]["limit"]) == (False, "shared memory")
    plain = roofline(512, 128, "h100", tiles=(128, 176), schedules="flash2", acc_dtype="fp32")
    assert [plain.rows[0].smem_peak_bytes, plain.rows[0].fits] == [plain.rows[0].sram_peak_bytes, False]
    refused = iosim("roofline", *shape[:-4], "--registers", "1M")
    assert refused.exit_code == 2 and "the registers of an SM of H100" in refused.stderr
