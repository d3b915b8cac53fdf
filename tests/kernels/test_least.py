"""The least time of a launch: what it reads from shared memory, what binds, and what stands beside it."""

import csv

import numpy as np
import pytest
from paths import ROOT, TESTS

from iosim.core.problem import Attention
from iosim.core.tiling import parse_tiles
from iosim.hardware import load
from iosim.kernels.least import turns
from iosim.schedules import SCHEDULES
from iosim.timing.bound import time_at_least

KERNELS = str(TESTS / "helpers" / "triton_kernels.py")
SEEN = list(csv.DictReader((ROOT / "tests" / "data" / "shared_reads.csv").open()))
TABLE = {row["tiles"]: row for row in SEEN if row["d"] == "128" and row["run"] == "1"}


def attend(tiles, gpu="h200", heads=32, N=4096, d=128):
    from iosim.kernels.explain import explain
    from iosim.kernels.read.arguments import tensor
    from iosim.kernels.read.kernel_file import kernel_of

    t = parse_tiles(tiles)
    tensors = dict.fromkeys("QKVO", tensor("fp16", (heads, N, d)))
    sizes = {"scale": 0.1, "n": N, "D": d, "BR": t.rows_q, "BC": t.rows_k}
    grid = (N // t.rows_q, heads)
    return explain(kernel_of(KERNELS, "attend"), grid, hardware=gpu, resources=False, **tensors, **sizes)


@pytest.mark.needs("triton")
@pytest.mark.parametrize("tiles", TABLE)
def test_shared_memory_reads_are_those_of_the_rule_and_no_kernel_was_faster(tiles):
    """The ten kernels that a counter of an H200 saw (tests/timing/test_products.py compares the rule with it)."""
    row = TABLE[tiles]
    assert (row["gpu"], row["N"], row["heads"]) == ("h200", "4096", "32")
    found = attend(tiles)
    bound = time_at_least(SCHEDULES["flash2"], Attention(4096, 128, heads=32), parse_tiles(tiles), load("h200"))
    assert found.bound.work.smem_read_bytes == bound.work.smem_read_bytes
    assert found.at_least_seconds == pytest.approx(bound.seconds) and found.bound.binds == bound.binds
    assert found.at_least_seconds * 1e6 < float(row["microseconds"])


@pytest.mark.needs("triton")
def test_mma_sync_reads_the_second_factor_for_each_warp_and_the_first_once():
    found = attend("64x32", "a100-80gb", heads=2, N=256).bound.work
    warps, turn = 2, 2 * 32 * 128  # of 32 rows each: K and V
    assert found.smem_read_bytes == 2 * 2 * 4 * (64 * 128 + 8 * warps * turn)
    assert found.smem_write_bytes == 2 * 2 * 4 * (64 * 128 + 8 * turn)


def test_multiprocessors_are_not_always_busy():
    assert turns(np.full(132, 7), 132) == 1 and turns(np.full(133, 7), 132) == pytest.approx(264 / 133)
    assert turns(np.array([1, 1, 10]), 2) == pytest.approx(20 / 12) and turns(np.array([4, 6]), 132) == 132 * 6 / 10
    assert turns(np.zeros(3, int), 2) == 1
