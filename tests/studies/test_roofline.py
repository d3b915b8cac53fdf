"""`iosim roofline`: operations by kind against formulas by hand and against what NumPy does; times, ridges, refusals."""

import json
import random
from typing import ClassVar

import numpy as np
import pytest
from paths import DATA

from iosim import SCHEDULES, Attention, Machine, Tiling, hardware
from iosim.core.problem import skips_tiles
from iosim.counting.count import measure
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
        counted, found = ask("count", *line)["results"], ask("roofline", *line)
        rows = [row for row in found["results"] if row["launch"] == "all"]
        assert [[row[name] for name in ("Br", "Bc", *names)] for row in rows] == [
            [row[name] for name in ("Br", "Bc", *names)] for row in counted
        ]
        assert found["problem"]["stages"] == 2
        out = iosim("roofline", *line).stdout
        assert "262,144 B (256 KiB) of registers for tiles, 2 stages in flight" in out and "register bytes" in out
    assert (rows[0]["fits"], rows[0]["limit"]) == (False, "shared memory")
    plain = roofline(512, 128, "h100", tiles=(128, 176), schedules="flash2", acc_dtype="fp32")
    assert [plain.rows[0].smem_peak_bytes, plain.rows[0].fits] == [plain.rows[0].sram_peak_bytes, False]
    refused = iosim("roofline", *shape[:-4], "--registers", "1M")
    assert refused.exit_code == 2 and "the registers of an SM of H100" in refused.stderr


@pytest.mark.parametrize("M", [200, 1535, 1536])
def test_it_is_said_where_tiles_of_multiples_fit(M):
    """The least tiles of 16 take 1536 bytes: three of 256 words."""
    line = {"N": 1024, "d": 64, "hardware": "t4", "M": M, "schedules": "small-cache,standard-square"}
    said = any("try --tile-multiple 16" in note for note in roofline(**line, paper_model=True).notes)
    assert said == bool(roofline(**line, paper_model=True, tile_multiple=16).rows) == (M >= 1536)
