"""Tuned kernels that ran on an H200: their words, and their times beside the least ones, cuDNN and FlashAttention-2."""

import csv

import pytest
from paths import VALIDATION

from iosim.core.problem import Attention
from iosim.counting.needed import problem_times
from iosim.gpu.moved import moved
from iosim.gpu.tuned.launch import tuned
from iosim.gpu.verdict import verify
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.timing.bound import time_at_least

RUNS = sorted(path.parent for path in VALIDATION.glob("*/tuned_time.csv"))
LATEST = VALIDATION / "h200-2026-11-29"
pytestmark = pytest.mark.skipif(LATEST not in RUNS, reason="not measured")


def rows(folder, name):
    with open(folder / name, newline="") as file:
        return list(csv.DictReader(file))


def problem_of(row, schedule, **more):
    """The problem of a row; with a tuned kernel that skips tiles it is causal."""
    mask = parse_mask("causal" if schedule == "block-sparse-q" else "dense")
    return Attention(int(row["N"]), int(row["d"]), heads=int(row["heads"]), mask=mask, **{"acc_dtype": "fp32", **more})


def test_words_that_the_kernels_counted_are_those_of_the_schedule():
    """Those of LSE among them, in 48 runs with plain and with large scores."""
    found = rows(LATEST, "tuned_output.csv")
    assert len(found) == 48 and {row["scale"] for row in found} == {"1.0", "12.0"}
    for row in found:
        more = {"dtype": row["dtype"], "kv_heads": int(row["kv_heads"]), "Nk": int(row["Nk"])}
        p = problem_of(row, row["schedule"], lse=row["schedule"] != "standard-tiled", **more)
        kernel = tuned(row["schedule"], p)
        words = sum(map(sum, moved(find(kernel.schedule), p, kernel.tiling).tensors.values()))
        assert row["words_equal"] == "True" and int(row["words"]) == words, row


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_no_time_is_below_the_least_one(folder):
    attention = [row for row in rows(folder, "tuned_time.csv") if row["ratio_to_torch_cudnn"]]
    assert len(attention) == 5
    for row in attention:
        p = problem_of(row, row["kernel"])
        flops = 4 * p.N**2 * p.d * p.heads / (2 if row["kernel"] == "block-sparse-q" else 1)
        least = time_at_least(find(row["kernel"]), p, tuned(row["kernel"], p).tiling, load("h200")).seconds
        assert 1 < flops / float(row["TFLOP_per_s"]) / 1e12 / least < 2.5
        needed = max(problem_times(p, load("h200")).values())
        others = [flops / float(row[f"torch_{name}_TFLOP_per_s"]) / 1e12 for name in ("flash", "cudnn")]
        assert min(others) > needed, "whatever their tiles are"


@pytest.mark.parametrize("part, exact", [("levels_dense", 1), ("levels_causal", 2)])
def test_their_loops_read_just_the_words_that_are_counted_from_shared_memory(part, exact):
    """Beside what the loop of flash2 reads are O, twice, and 80 B a block."""
    from validation.measure import evidence

    found = [verify(e, load("h200")) for e in evidence(LATEST, part)]
    assert len(found) == 2 and [row["faults"] for row in found if row["faults"]] == []
    assert all(row["device_words"] == row["words"] and row["hw_read_bytes"] == row["sm_read_bytes"] for row in found)
    assert all(row["time_ratio"] > 1 for row in found)
    rest = [4 * row["N"] * row["d"] * row["heads"] + 80 * -(-row["N"] // 128) * row["heads"] for row in found]
    assert sum(row["smem_rest_bytes"] == many for row, many in zip(found, rest, strict=True)) == exact


def test_tuned_kernels_beside_others():
    """The sentence of validation/README.md."""
    attention = [row for row in rows(LATEST, "tuned_time.csv") if row["ratio_to_torch_cudnn"]]
    sides = [sorted(round(float(row[f"ratio_to_torch_{name}"]), 2) for row in attention) for name in ("cudnn", "flash")]
    said = (
        "tuned kernels at {:.2f} to {:.2f} times the speed of cuDNN and {:.2f} to {:.2f} times that of FlashAttention-2"
    )
    page = " ".join((VALIDATION / "README.md").read_text().split())
    assert said.format(sides[0][0], sides[0][-1], sides[1][0], sides[1][-1]) in page
