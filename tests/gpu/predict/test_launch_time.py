"""Time by hand on a made-up GPU, and against an H200."""

import json
from dataclasses import replace
from statistics import median

import pytest
from paths import DATA

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.errors import InputError
from iosim.gpu.predict.block_work import BlockWork, LoopKey, Occupancy, StepKey, StepWork, WorkCounter
from iosim.gpu.predict.blocks import touches_of
from iosim.gpu.predict.dram import dram_bytes
from iosim.gpu.predict.launch_time import (
    BlockTimer,
    Memory,
    Rates,
    StepRates,
    cycle_seconds,
    fullest,
    late_share,
    time_of_launches,
)
from iosim.masks import parse_mask
from iosim.occupancy import blocks_on
from iosim.schedules import find
from iosim.steps.softmax import Cost


def block_seconds(work, together, dtype, occupancy, rates, memory):
    return BlockTimer(rates, occupancy, memory, dtype).seconds(work, together)


def blocks_seconds(blocks, instances, dtype, occupancy, rates, memory):
    return BlockTimer(rates, occupancy, memory, dtype).launch_seconds(blocks, instances)


def table(**rates):
    """Rates of steps as in a hardware file."""
    return {StepKey.parse(name): StepRates(*each) for name, each in rates.items()}


TOY = Rates(
    sms=2,
    dram_bytes_per_second=100.0,
    l2_bytes_per_second=200.0,
    tensor_flops_per_second={"fp16": 1000.0},
    simt_operations_per_second=50.0,
    exponentials_per_second=10.0,
    launch_seconds=0.5,
    latency_seconds=0.25,
    l2_latency_seconds=0.25,
    shared_memory_per_sm_bytes=10_000,
)
ENDS_BYTES = {"first_bytes": 30, "store_bytes": 25, "last_bytes": 20}
WORK = BlockWork(flops=100, operations=10, exponentials=4, loads=3, load_bytes=40, **ENDS_BYTES)


AHEAD, SLOW = Occupancy(1, loads_ahead=True), Memory(0.25)
ENDS = 0.25 + (30 + 20) / 100  # the first load, then 30 and 20 bytes at half of the L2's rate: one of 2 multiprocessors


def test_arithmetic_adds_up():
    """On the whole GPU 100/1000 + 10/50 + 4/10 = 0.7 s; one of two multiprocessors takes twice that."""
    assert block_seconds(WORK, 1, "fp16", AHEAD, TOY, SLOW) == pytest.approx(1.4 + ENDS)
    assert block_seconds(WORK, 3, "fp16", AHEAD, TOY, SLOW) == pytest.approx(4.2 + ENDS)


def test_the_products_of_two_warpgroups_run_beside_each_others_rest():
    """Products of 0.6 s as the rest: each warpgroup has 0.3 s of both, and finds half of the other's before it."""
    occupancy = Occupancy(1, True, asynchronous=True)
    rates = replace(TOY, wgmma_flops_per_second=100 / 0.6)
    assert block_seconds(WORK, 1, "fp16", occupancy, rates, SLOW) == pytest.approx(2 * (0.3 * 1.5 * 2) + ENDS)


STEPS = table(tensor_scores=(0.5, 20.0, 0.1, 400.0), tensor_normalise=(0.0, 5.0, 0.0, 100.0),
              tensor_hide=(0.0, 5.0, 0.0, 100.0))  # fmt: skip
STEPWISE = replace(TOY, steps=STEPS)


LOOPED = ("scores", "accumulate", "online_softmax", "softmax_rows", "exponentials")


def cost(name):
    return Cost(looped=name.startswith(LOOPED), timed_as="normalise" if name == "drop" else "")


def work_of(unit="tensor", **amounts):
    """Steps that are waited for, once each."""
    return BlockWork(steps={StepKey.parse(f"{unit}_{name}"): StepWork(cost(name), amount, amount, 1)
                            for name, amount in amounts.items()})  # fmt: skip


def test_a_generated_kernel_is_the_sum_of_its_steps():
    """Two products of 80 in all by one warp: 2 x 0.5 + 80 / 20 = 5 s; what has no rate of its own is as slow as
    others: 10 / 5 = 2 s. 3 loads that take 0.25 s longer than from the L2. Of a multiprocessor's time, one of two,
    a quarter of the 0.1 s that 4 warps take: 2 x 0.1 / 4 + 2 x 80 / 400 + 2 x 10 / 100 = 0.65 s, which many blocks come
    down to."""
    work, occupancy = replace(work_of(scores=80, hide=10), waits=3), Occupancy(1000, warps=1)
    work.steps[StepKey("tensor", "scores")].times = 2
    assert block_seconds(work, 1, "fp16", occupancy, STEPWISE, Memory(0.5)) == pytest.approx(7.75)
    assert block_seconds(work, 1, "fp16", occupancy, STEPWISE, SLOW) == pytest.approx(7.0)
    assert block_seconds(work, 1000, "fp16", occupancy, STEPWISE, SLOW) / 1000 == pytest.approx(0.65, rel=0.01)
    busy = block_seconds(work, 1000, "fp16", occupancy, STEPWISE, Memory(0.25, dram_seconds=0.6))
    assert busy / 1000 == pytest.approx(2 * 0.6, rel=0.01), "the DRAM is what all wait for"


def test_a_copy_that_lands_while_steps_run_is_not_waited_for():
    """80 bytes of two copies by a warp, one of which is waited for: 40 / 20 = 2 s. Both take the L2's time of the
    multiprocessor: 2 x 80 / 400 = 0.4 s for each of many blocks."""
    rates = replace(TOY, steps=table(tensor_load=(0.0, 20.0, 0.0, 400.0)))
    work = BlockWork(steps={StepKey("tensor", "load"): StepWork(cost("load"), 80, 40, 1)})
    alone, full = (block_seconds(work, count, "fp16", Occupancy(count, warps=1), rates, SLOW) for count in (1, 1000))
    assert alone == pytest.approx(2.0) and full / 1000 == pytest.approx(0.4, rel=0.01)


def test_warps_of_a_block_queue_for_their_multiprocessor():
    """A warp takes 1000 / warps s by itself, of which it keeps the multiprocessor, one of two, busy for 2 x 1000 / 50
    / warps. The second of two finds it so for 20 of 500 s; where steps are short, all of its 40 s is what twelve take."""
    slow = replace(TOY, steps=table(tensor_hide=(0.0, 1.0, 0.0, 50.0)))
    work = work_of(hide=1000)
    assert block_seconds(work, 1, "fp16", Occupancy(1, warps=1), slow, SLOW) == pytest.approx(1000)
    assert block_seconds(work, 1, "fp16", Occupancy(1, warps=2), slow, SLOW) == pytest.approx(500 + 20 * 20 / 500)
    short = replace(TOY, steps=table(tensor_hide=(0.0, 50.0, 0.0, 50.0)))
    assert block_seconds(work, 1, "fp16", Occupancy(1, warps=12), short, SLOW) == pytest.approx(40)


@pytest.mark.parametrize("step, looped", [("scores", True), ("scores_output", True), ("softmax_rows_ragged", True),
                                          ("hide", False), ("normalise", False), ("load", False)])  # fmt: skip
def test_products_and_steps_on_rows_take_longer_among_others(step, looped):
    """Half as long again on tensor cores, in generated kernels; what is waited for does not."""
    rates = replace(
        STEPWISE, loop_ratios={LoopKey("tensor"): 1.5}, steps=table(**{f"simt_{step}": (0.0, 5.0, 0.0, 1e9)})
    )
    steps, waits = 10 / 5, 2 * 0.25 + 0.25
    for tensor_cores, generated in ((True, True), (False, True), (True, False)):
        ratio = 1.5 if tensor_cores and generated and looped else 1.0
        occupancy = Occupancy(1, warps=1, tensor_cores=tensor_cores, generated=generated)
        work = replace(work_of(occupancy.unit, **{step: 10}), waits=2, stalls=1)
        assert block_seconds(work, 1, "fp16", occupancy, rates, Memory(0.5)) == pytest.approx(ratio * steps + waits)


def test_the_first_time_of_each_step_takes_longer():
    """Three steps in one block and two in another: their instructions come at once, 0.5 s for each. `scores_output` is
    part of one; only generated kernels, and only those of the kind that was measured."""
    blocks = [work_of(scores=1, scores_output=1, hide=1, hide_ragged=1), work_of(scores=1, scores_unsized=1, hide=1)]
    rates = replace(STEPWISE, first_seconds={"tensor": 0.5})
    for occupancy, extra in ((Occupancy(1), 1.5), (Occupancy(1, generated=False), 0.0),
                             (Occupancy(1, tensor_cores=False), 0.0)):  # fmt: skip
        assert BlockTimer(rates, occupancy, SLOW).first_times_seconds(blocks) == extra
    steps = {**STEPS, **table(tensor_scores_output=(0.0, 1.0, 0.0, 1.0))}
    found = [time_of_launches([blocks], 1, "fp16", [(0, 0)], [Occupancy(1)], replace(each, steps=steps)).seconds
             for each in (STEPWISE, rates)]  # fmt: skip
    assert found[1] - found[0] == pytest.approx(1.5)


@pytest.mark.parametrize("ratios, ratio", [({}, 1.0), ({"simt": 1.25}, 1.25), ({"simt": 1.25, "simt_unsized": 1.5}, 1.5),
                                           ({"tensor_unsized": 1.5}, 1.0)])  # fmt: skip
def test_loops_of_sizes_that_the_compiler_does_not_know_take_longer(ratios, ratio):
    """As others do where that was not measured; at the rate of the step."""
    occupancy = Occupancy(1, warps=1, tensor_cores=False)
    rates = replace(STEPWISE, loop_ratios={LoopKey.parse(name): each for name, each in ratios.items()})
    for step in ("scores", "scores_output", "online_softmax", "online_softmax_ragged", "exponentials_ragged"):
        known = replace(rates, steps=table(**{f"simt_{step}": (0.0, 5.0, 0.0, 1e9)}))
        found = block_seconds(work_of("simt", **{f"{step}_unsized": 10}), 1, "fp32", occupancy, known, Memory(0.0))
        assert found == pytest.approx(ratio * 10 / 5), step


def test_while_a_warp_asks_for_copies_others_of_its_part_wait():
    """A load of 80 bytes, 10 for each of 8 warps at 5 bytes a second, of which half keeps other warps waiting: all
    warps of one block need 4 s of the parts, four of them at once; and of three blocks at least 12."""
    rates = replace(TOY, steps=table(tensor_load=(0.0, 5.0, 0.0, 1e9)))
    asking, occupancy = replace(rates, asking_ratio=0.5), Occupancy(3, warps=8)
    work = work_of(load=80)
    assert block_seconds(work, 3, "fp16", occupancy, rates, Memory(0.0)) == pytest.approx(2.0)
    one, three = (block_seconds(work, n, "fp16", occupancy, asking, Memory(0.0)) for n in (1, 3))
    assert one == pytest.approx(cycle_seconds(2.0, [0.25], 8)) and three == pytest.approx(cycle_seconds(one, [2.0], 3))
    theirs = replace(occupancy, generated=False)
    assert block_seconds(work, 3, "fp16", theirs, asking, Memory(0.0)) == pytest.approx(2.0), "not measured"


@pytest.mark.parametrize("warps, most", [(1, 4.0), (3, 4 / 3), (4, 1.0), (5, 8 / 5), (12, 1.0), (18, 20 / 18)])
def test_the_fullest_part_of_a_multiprocessor(warps, most):
    """Of 18 warps two of the four parts have five."""
    assert fullest(warps) == pytest.approx(most)


@pytest.mark.parametrize(
    "warps, blocks, turns", [(1, 4, 1), (1, 5, 2), (1, 8, 2), (2, 4, 2), (3, 4, 3), (4, 3, 3), (8, 3, 3)]
)
def test_blocks_of_few_warps_queue_for_their_part(warps, blocks, turns):
    """Each of its warps takes 1 s of a part's units: four blocks of one warp do not meet, the fifth meets one of them.
    Of so many that meet each waits for what all of them want of the fullest part."""
    rates = replace(TOY, steps=table(tensor_hide=(0.0, 1.0, 0.0, 4 * TOY.sms)))
    work = work_of(hide=warps)
    found = block_seconds(work, blocks, "fp16", Occupancy(blocks, warps=warps), rates, SLOW)
    chain = cycle_seconds(1.0, [0.25], warps)
    fullest_part = -(-blocks * warps // 4)
    assert found == pytest.approx(cycle_seconds(chain, [fullest_part / turns], turns))
    if blocks * warps <= 4:
        assert found == pytest.approx(1.0)


def test_the_first_loads_of_all_blocks_come_together():
    """Blocks of 30 and 10 bytes first, 20 and 40 last, on 2 multiprocessors: one of each kind runs at the same time, or
    two with two on each. A quarter of 40 B from DRAM is quicker than 40 B from the L2, all of it is not."""
    blocks = [BlockWork(first_bytes=30, last_bytes=20), BlockWork(first_bytes=10, last_bytes=40)]
    one, two = Occupancy(1), Occupancy(2)
    assert BlockTimer(TOY, one, SLOW).ends_seconds(blocks, 3, 0.25) == pytest.approx(40 / 200 + 60 / 200)
    assert BlockTimer(TOY, one, SLOW).ends_seconds(blocks, 3, 1.0) == pytest.approx(40 / 100 + 60 / 200)
    assert BlockTimer(TOY, two, SLOW).ends_seconds(blocks, 3, 1.0) == pytest.approx(2 * (40 / 100 + 60 / 200))
    assert BlockTimer(TOY, two, SLOW).ends_seconds(blocks[:1], 1, 1.0) == pytest.approx(30 / 100 + 20 / 200), (
        "there is but one"
    )


@pytest.mark.parametrize("ahead", [False, True])
def test_a_launch_of_a_generated_kernel(ahead):
    """Two blocks on two multiprocessors; 20 of 80 bytes come from DRAM, so a wait takes a quarter of the way from 0.25
    s to that of a tile, 1.25 s, or of a line if it loads ahead. 5 + 2 x 0.25 s, then what all load and store at first
    and last."""
    work = replace(work_of(scores=80), load_bytes=40, waits=2, first_bytes=30, last_bytes=20)
    rates = replace(STEPWISE, tile_latency_seconds=1.25, latency_seconds=0.75)
    found = time_of_launches([[work]], 2, "fp16", [(20, 30)], [Occupancy(1, ahead, warps=1)], rates)
    if ahead:
        assert found.block_seconds == pytest.approx(0.25 + 0.125 + 50 / 100)
    else:
        assert found.block_seconds == pytest.approx(0.5 + 4 + 2 * 0.25 + 60 / 200 + 40 / 200)
    assert found.dram_seconds == pytest.approx(50 / 100) and found.bound_by == "blocks"
    line = time_of_launches(
        [[work]], 2, "fp16", [(20, 30)], [Occupancy(1, warps=1)], replace(rates, tile_latency_seconds=0.0)
    )
    assert line.block_seconds == pytest.approx(0.5 + 4 + 2 * 0.125 + 60 / 200 + 40 / 200), "as a line"


def test_a_step_takes_the_rates_of_the_step_it_is_timed_as():
    """A step that was not measured beside tensor cores is as fast as without. One that was not measured at all is an
    error that names it, whatever else is known."""
    normalise, denormalise = (1.0, 5.0, 0.5, 100.0), (0.0, 12.0, 0.0, 300.0)
    rates = replace(TOY, steps=table(tensor_normalise=normalise, simt_denormalise=denormalise))
    assert rates.of_step(StepKey("tensor", "drop"), "normalise") == normalise
    assert rates.of_step(StepKey("tensor", "rescale"), "denormalise") == denormalise
    assert rates.of_step(StepKey("tensor", "normalise", sized=False)) == normalise
    both = replace(rates, steps=table(tensor_denormalise=normalise, simt_denormalise=denormalise))
    assert both.of_step(StepKey("tensor", "denormalise")) == normalise
    assert both.of_step(StepKey("simt", "denormalise")) == denormalise
    for key, timed_as in ((StepKey("tensor", "hide"), ""), (StepKey("simt", "normalise"), ""),
                          (StepKey("tensor", "squash"), "drop"), (StepKey("tensor", "normalise", output=True), "")):  # fmt: skip
        missing = str(key._replace(step=timed_as or key.step))
        with pytest.raises(
            InputError, match=rf"no {missing} in .measured.steps.*iosim calibrate.*mark {key.step} with"
        ):
            rates.of_step(key, timed_as)


def test_steps_on_ragged_tiles_are_as_measured():
    """Else as those on whole tiles; a step that is timed as another one, as that one on ragged tiles."""
    load, normalise, ragged, other = ((float(n),) * 4 for n in (1, 2, 3, 4))
    rates = replace(TOY, steps=table(tensor_load=load, tensor_normalise=normalise))
    on_ragged = {step: StepKey("tensor", step, ragged=True) for step in ("load", "normalise", "drop", "hide")}
    assert rates.of_step(on_ragged["load"]) == load and rates.of_step(on_ragged["normalise"]) == normalise
    rates = replace(rates, steps={**rates.steps, **table(tensor_load_ragged=other, tensor_normalise_ragged=ragged)})
    assert rates.of_step(on_ragged["load"]) == other and rates.of_step(StepKey("tensor", "load")) == load
    assert rates.of_step(on_ragged["drop"], "normalise") == ragged
    assert rates.of_step(StepKey("tensor", "drop"), "normalise") == normalise
    rates = replace(rates, steps=table(simt_hide_ragged=ragged, simt_hide=other, tensor_hide=load))
    assert rates.of_step(on_ragged["hide"]) == load, "the unit comes before the raggedness"


def test_a_network_of_queues_by_hand():
    """One queue of 1 s and a delay of 2 s: alone 3 s; the second finds it busy a third of the time: 2 + 4/3."""
    assert cycle_seconds(3.0, [1.0], 1) == 3.0 and cycle_seconds(3.0, [1.0], 2) == pytest.approx(2 + 4 / 3)
    assert cycle_seconds(2.0, [1.0, 1.0], 4) == pytest.approx(5.0), "n + 1 for two equal queues without a delay"
    assert cycle_seconds(9.0, [1.0, 0.5], 1000) / 1000 == pytest.approx(1.0, rel=0.01), "the fuller queue"


def test_waves():
    """10 blocks on 2 multiprocessors with 3 places each: 6 together, then 4, of which one has 3 again."""
    occupancy = Occupancy(3, loads_ahead=True)
    assert blocks_seconds([WORK], 10, "fp16", occupancy, TOY, SLOW) == pytest.approx(2 * (4.2 + ENDS))
    assert blocks_seconds([WORK], 2, "fp16", occupancy, TOY, SLOW) == pytest.approx(1.4 + ENDS), "one a multiprocessor"
    assert blocks_seconds([WORK], 12, "fp16", occupancy, TOY, SLOW) == pytest.approx(2 * (4.2 + ENDS)), "no third wave"


def test_blocks_go_on_faster_when_others_have_ended():
    """One multiprocessor, all of whose time two copies want: of 40 and of 120 bytes, at 40 bytes a second. Both take
    half of it until the short one ends at 2 s (a little later by the queue); the other has 80 bytes left."""
    rates = replace(TOY, sms=1, steps=table(tensor_load=(0.0, 40.0, 0.0, 40.0)))
    blocks, occupancy = [work_of(load=40), work_of(load=120)], Occupancy(2, warps=4)
    alone = [block_seconds(work, 1, "fp16", occupancy, rates, SLOW) for work in blocks]
    both = [block_seconds(work, 2, "fp16", occupancy, rates, SLOW) for work in blocks]
    left = 1 - both[0] / both[1]
    assert blocks_seconds(blocks, 1, "fp16", occupancy, rates, SLOW) == pytest.approx(both[0] + left * alone[1])
    assert both[1] > both[0] + left * alone[1], "less than among others"


def test_blocks_of_a_head_wait_for_a_tile_together():
    """A tenth of the bytes comes from DRAM. Of 4 blocks on as many multiprocessors each waits for it four times as
    often as it asks; of 40 all the time. Those that share a multiprocessor are at different tiles, and others than
    generated kernels wait for their own."""
    four = replace(TOY, sms=4)
    assert late_share(0.1, 4, 1, Occupancy(1), four) == pytest.approx(0.4)
    assert late_share(0.1, 40, 1, Occupancy(1), replace(TOY, sms=40)) == 1.0
    assert late_share(0.1, 40, 1, Occupancy(1), four) == pytest.approx(0.4), "10 waves of four"
    assert late_share(0.1, 4, 8, Occupancy(4), four) == pytest.approx(0.1), "one on each, among four heads"
    assert late_share(0.1, 8, 8, Occupancy(4), four) == pytest.approx(0.2)
    assert late_share(0.1, 1, 8, Occupancy(4), four) == pytest.approx(0.1), "nobody asks for the same"
    assert late_share(0.1, 4, 1, Occupancy(1, loads_ahead=True), four) == pytest.approx(0.1)
    assert late_share(0.1, 4, 1, Occupancy(1, generated=False), four) == pytest.approx(0.1)


def test_the_largest_part_wins_and_launches_add():
    occupancies = [Occupancy(1, loads_ahead=True)]
    slow = time_of_launches([[WORK]], 4, "fp16", [(700, 300)], occupancies, TOY)
    assert slow.dram_seconds == 10.0 and slow.l2_seconds == pytest.approx(4 * (40 + 25) / 200)
    assert slow.block_seconds == pytest.approx(2 * (1.4 + ENDS)) and slow.bound_by == "DRAM"
    assert slow.seconds == pytest.approx(10.0 + 0.5)
    quick = time_of_launches([[WORK]], 4, "fp16", [(10, 0)], occupancies, TOY)
    assert quick.seconds == pytest.approx(2 * (1.4 + ENDS) + 0.5) and quick.bound_by == "blocks"
    narrow = replace(TOY, l2_bytes_per_second=10.0)
    assert time_of_launches([[WORK]], 4, "fp16", [(0, 10)], occupancies, narrow).bound_by == "L2"


def test_blocks_on_a_multiprocessor():
    assert blocks_on(10_000, 1000, 128) == 10_000 // 2024
    assert blocks_on(10_000, 0, 1024) == 2, "threads"
    assert blocks_on(10**6, 0, 32) == 32, "the scheduler"
    assert blocks_on(10**6, 0, 128, registers=255) == 2
    assert blocks_on(10**6, 0, 96, registers=97) == 5, "4 warps of 104 x 32 in each quarter: 16; not 6 of 9984 in all"
    assert blocks_on(10**6, 0, 128, registers=97) == 4 and blocks_on(10**6, 0, 96, registers=96) == 6
    assert blocks_on(10_000, 9_999, 128) == 1, "a block that fits runs, whatever the reserve"


H200 = Rates(  # not measured together: the reference's copy bandwidth, the rest from clocks of 1.83 GHz and widths
    sms=132,
    dram_bytes_per_second=4.278e12,
    l2_bytes_per_second=5.5e12,
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
        schedule, counter = find("block-sparse-q" if k["causal"] else "flash2"), WorkCounter()
        found = touches_of(schedule, p, Tiling(*k["tiles"]), counter)
        dram = dram_bytes(found, p, [264], 62_914_560 // 2)
        time = time_of_launches(counter.blocks, p.instances, "fp16", [*dram.by_launch], [Occupancy(2, True)], H200)
        errors.append(time.seconds / (k["metrics"]["gpu__time_duration.sum"] * 1e-9) - 1)
    return errors


def test_time_of_an_h200():
    """Nine of PyTorch's flash kernels with constants that were not measured on that GPU: median 9 %, worst 17 %
    (the short ones, which are too fast: ramp-up is not modelled)."""
    errors = [abs(e) for e in h200_errors()]
    assert len(errors) == 9 and median(errors) <= 0.10 and max(errors) <= 0.20, h200_errors()
