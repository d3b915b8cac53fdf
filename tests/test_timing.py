"""Time by hand on a made-up GPU, and against an H200."""

import json
from collections import Counter
from dataclasses import replace
from statistics import median

import pytest
from conftest import DATA

from iosim.experiment import parse_mask
from iosim.l2 import dram_bytes, trace
from iosim.problem import Attention
from iosim.schedules import find
from iosim.tiling import Tiling
from iosim.timing import (
    Memory,
    Occupancy,
    Rates,
    Work,
    Works,
    block_seconds,
    blocks_on,
    blocks_seconds,
    cycle_seconds,
    makespan,
    predict,
)

TOY = Rates(
    sms=2,
    dram_bytes_per_second=100.0,
    l2_bytes_per_second=200.0,
    l2_effective_bytes=1000,
    tensor_flops_per_second={"fp16": 1000.0},
    simt_operations_per_second=50.0,
    exponentials_per_second=10.0,
    launch_seconds=0.5,
    latency_seconds=0.25,
    l2_latency_seconds=0.25,
    shared_memory_per_sm_bytes=10_000,
)
WORK = Work(flops=100, operations=10, exponentials=4, loads=3, load_bytes=40, store_bytes=20)


AHEAD, SLOW = Occupancy(1, loads_ahead=True), Memory(0.25)


def test_arithmetic_adds_up():
    """On the whole GPU 100/1000 + 10/50 + 4/10 = 0.7 s; one of two multiprocessors takes twice that."""
    assert block_seconds(WORK, 1, "fp16", AHEAD, TOY, SLOW) == pytest.approx(1.4 + 0.25)
    assert block_seconds(WORK, 3, "fp16", AHEAD, TOY, SLOW) == pytest.approx(4.2 + 0.25)


def test_products_without_tensor_cores():
    """100 flops are 50 multiply-adds of 50 a second: 1 s instead of 0.1."""
    for sit, dtype in ((Occupancy(1, True, tensor_cores=False), "fp16"), (AHEAD, "fp32")):
        assert block_seconds(WORK, 1, dtype, sit, TOY, SLOW) == pytest.approx(2 * 1.6 + 0.25)


def test_the_products_of_two_warpgroups_run_beside_each_others_rest():
    """Products of 0.6 s as the rest: each warpgroup has 0.3 s of both, and finds half of the other's before it."""
    sit = Occupancy(1, True, asynchronous=True)
    rates = replace(TOY, wgmma_flops_per_second=100 / 0.6)
    assert block_seconds(WORK, 1, "fp16", sit, rates, SLOW) == pytest.approx(2 * (0.3 * 1.5 * 2) + 0.25)


STEPS = {"tensor_scores": (0.5, 20.0, 0.1, 400.0), "tensor_normalise": (0.0, 5.0, 0.0, 100.0)}
STEPWISE = replace(TOY, steps=STEPS)


def test_a_generated_kernel_is_the_sum_of_its_steps():
    """Two products of 40 by 4 warps: 2 x 0.5 + 80 / 4 / 20 = 2 s; what has no rate of its own is as slow as
    `normalise`: 10 / 4 / 5 = 0.5 s. 3 loads that take 0.25 s longer than from the L2. Of a multiprocessor's time, one
    of two: 2 x 0.1 + 2 x 80 / 400 + 2 x 10 / 100 = 0.8 s, which many blocks come down to."""
    work, sit = Work(loads=3, steps=Counter({"scores": 80, "hide": 10}), times={"scores": 2, "hide": 1}), Occupancy(100)
    assert block_seconds(work, 1, "fp16", sit, STEPWISE, Memory(0.5)) == pytest.approx(3.25)
    assert block_seconds(work, 1, "fp16", sit, STEPWISE, SLOW) == pytest.approx(2.5)
    assert block_seconds(work, 1000, "fp16", sit, STEPWISE, SLOW) / 1000 == pytest.approx(0.8, rel=0.01)
    busy = block_seconds(work, 1000, "fp16", sit, STEPWISE, Memory(0.25, dram_seconds=0.6))
    assert busy / 1000 == pytest.approx(2 * 0.6, rel=0.01), "the DRAM is what all wait for"


def test_warps_that_do_not_divide_evenly_wait_for_the_fuller_part():
    """5 warps on 4 parts: the work of 8."""
    work = Work(steps=Counter(hide=1000), times={"hide": 1})
    slow = replace(TOY, steps={"tensor_normalise": (0.0, 5.0, 0.0, 20.0)})
    assert block_seconds(work, 1, "fp16", Occupancy(1, warps=5), slow, SLOW) == pytest.approx(1000 * 2 / 20 * 8 / 5)


def test_words_that_are_loaded_one_by_one_wait_for_the_l2_each_time():
    """A vector of 16 words is one request; 640 words of 2 warps are 10, one after the other."""
    for loads, words, waits in ((1, 16, 1), (1, 640, 10)):
        work = Work(scalar_loads=loads, scalar_words=words)
        found = block_seconds(work, 1, "fp16", Occupancy(1, warps=2), STEPWISE, SLOW)
        assert found == pytest.approx(0.25 * waits)


def test_a_network_of_queues_by_hand():
    """One queue of 1 s and a delay of 2 s: alone 3 s; the second finds it busy a third of the time: 2 + 4/3."""
    assert cycle_seconds(3.0, [1.0], 1) == 3.0 and cycle_seconds(3.0, [1.0], 2) == pytest.approx(2 + 4 / 3)
    assert cycle_seconds(2.0, [1.0, 1.0], 4) == pytest.approx(5.0), "n + 1 for two equal queues without a delay"
    assert cycle_seconds(9.0, [1.0, 0.5], 1000) / 1000 == pytest.approx(1.0, rel=0.01), "the fuller queue"


def test_waves():
    """10 blocks on 2 multiprocessors with 3 places each: 6 together, then 4, which are 2 a multiprocessor."""
    sit = Occupancy(3, loads_ahead=True)
    assert blocks_seconds([WORK], 10, "fp16", sit, TOY, SLOW) == pytest.approx((4.2 + 0.25) + (2.8 + 0.25))
    assert blocks_seconds([WORK], 2, "fp16", sit, TOY, SLOW) == pytest.approx(1.4 + 0.25), "one a multiprocessor"
    assert blocks_seconds([WORK], 12, "fp16", sit, TOY, SLOW) == pytest.approx(2 * (4.2 + 0.25)), "no third wave"


def test_copies_of_rows_that_start_anywhere_go_word_by_word():
    p, works = Attention(20, 16, dtype="fp16", acc_dtype="fp32"), Works()
    trace(find("standard-tiled"), p, Tiling(16, 16), works)
    scores, _, output = (launch[0] for launch in works.blocks)
    assert scores.steps["store_scalar"] == 2 * 16 * 20 and "store" not in scores.steps, "rows of 20 scores: 40 B"
    assert output.steps["load_scalar"] == 2 * 16 * 20 and output.steps["load"] == 2 * 20 * 16
    assert output.times["load_scalar"] == 2


def test_tiles_in_which_nothing_is_hidden_cost_nothing_to_mask():
    p, works = Attention(64, 16, mask=parse_mask("causal")), Works()
    trace(find("block-sparse-q"), p, Tiling(16, 16), works)
    assert [w.times["hide"] for w in works.blocks[0]] == [1] * 4, "the diagonal"


@pytest.mark.parametrize(
    "costs, instances, places, ends",
    [
        ([1.0], 5, 2, 3.0),
        ([1.0] * 4, 2, 8, 1.0),
        ([1.0] * 4, 2, 7, 2.0),
        ([1.0, 2.0, 3.0], 1, 2, 4.0),  # 1 and 2 start; 3 follows the 1
        ([3.0, 1.0], 2, 2, 5.0 - 1.0),  # 3 | 1, then 3 after the 1: 4; the last 1 after the 3: 4
        ([], 3, 2, 0.0),
    ],
)
def test_makespan(costs, instances, places, ends):
    assert makespan(costs, instances, places) == ends


def test_the_largest_part_wins_and_launches_add():
    sit = [Occupancy(1, loads_ahead=True)]
    slow = predict([[WORK]], 4, "fp16", [1000], sit, TOY)
    assert slow.dram_seconds == 10.0 and slow.l2_seconds == pytest.approx(4 * 60 / 200)
    assert slow.block_seconds == pytest.approx(2 * 1.65) and slow.bound_by == "DRAM"
    assert slow.seconds == pytest.approx(10.0 + 0.5)
    quick = predict([[WORK]], 4, "fp16", [10], sit, TOY)
    assert quick.seconds == pytest.approx(2 * 1.65 + 0.5) and quick.bound_by == "blocks"
    narrow = replace(TOY, l2_bytes_per_second=10.0)
    assert predict([[WORK]], 4, "fp16", [10], sit, narrow).bound_by == "L2"


def test_launches_follow_each_other():
    sits = [Occupancy(1, loads_ahead=True)] * 2
    one, two = (predict([[WORK]] * n, 2, "fp16", [300] * n, sits[:n], TOY) for n in (1, 2))
    assert two.seconds == pytest.approx(2 * one.seconds) and two.launch_seconds == 1.0


def test_blocks_on_a_multiprocessor():
    assert blocks_on(10_000, 1000, 128) == 10_000 // 2024
    assert blocks_on(10_000, 0, 1024) == 2, "threads"
    assert blocks_on(10**6, 0, 32) == 32, "the scheduler"
    assert blocks_on(10**6, 0, 128, registers=255) == 2
    assert blocks_on(10_000, 9_999, 128) == 1, "a block that fits runs, whatever the reserve"


def test_work_of_a_block():
    """flash2, N = Nk = 32, tiles of 16, d = 8, fp16: by hand."""
    p, works = Attention(32, 8, dtype="fp16", acc_dtype="fp32"), Works()
    trace(find("flash2"), p, Tiling(16, 16), works)
    ((first, second),) = works.blocks
    assert first == second
    assert first.flops == 2 * 2 * (2 * 16 * 16 * 8), "two key tiles, two products each"
    assert first.exponentials == 2 * 16 * 16
    assert first.load_bytes == 2 * (16 * 8 + 2 * 32 * 8) and first.loads == 1 + 2 * 2
    assert first.store_bytes == 2 * 16 * 8
    assert first.steps["scores"] == first.steps["accumulate"] == first.flops // 2
    assert (first.steps["load"], first.steps["store"], first.steps["normalise"]) == (
        2 * (16 * 8 + 2 * 32 * 8),
        256,
        128,
    )
    per_tile = 16 * 16 + 4 * 16 * 16 + 16 * 8  # scaling, online softmax on the scores, rescaling O
    assert first.operations == 2 * per_tile + (16 * 8 + 16 + 16) + 16 * 8  # zeros and -inf; normalise


def test_causal_blocks_differ():
    p, works = Attention(64, 8, mask=parse_mask("causal")), Works()
    trace(find("block-sparse-q"), p, Tiling(16, 16), works)
    assert [w.flops // works.blocks[0][0].flops for w in works.blocks[0]] == [1, 2, 3, 4]


H200 = Rates(  # not measured together: the reference's copy bandwidth, the rest from clocks of 1.83 GHz and widths
    sms=132,
    dram_bytes_per_second=4.278e12,
    l2_bytes_per_second=5.5e12,
    l2_effective_bytes=62_914_560 // 2,
    tensor_flops_per_second={"fp16": 660e12},
    simt_operations_per_second=132 * 128 * 1.83e9,
    exponentials_per_second=132 * 16 * 1.83e9,
    launch_seconds=2e-6,
    latency_seconds=0.7e-6,
    shared_memory_per_sm_bytes=233_472,
)


def h200_errors():
    errors = []
    for k in json.loads((DATA / "h200_sdpa.json").read_text())["kernels"]:
        p = Attention(k["N"], k["d"], heads=k["heads"], batch=k["batch"], acc_dtype="fp32", lse=True,
                      mask=parse_mask("causal" if k["causal"] else "dense"))  # fmt: skip
        schedule, works = find("block-sparse-q" if k["causal"] else "flash2"), Works()
        found = trace(schedule, p, Tiling(*k["tiles"]), works)
        dram = dram_bytes(found, p, [264], H200.l2_effective_bytes)
        time = predict(works.blocks, p.instances, "fp16", [dram.total_bytes], [Occupancy(2, True)], H200)
        errors.append(time.seconds / (k["metrics"]["gpu__time_duration.sum"] * 1e-9) - 1)
    return errors


def test_time_of_an_h200():
    """Nine of PyTorch's flash kernels with constants that were not measured on that GPU: median 9 %, worst 17 %
    (the short ones, which are too fast: ramp-up is not modelled)."""
    errors = [abs(e) for e in h200_errors()]
    assert len(errors) == 9 and median(errors) <= 0.10 and max(errors) <= 0.20, h200_errors()
