"""Turns of a loop over single rows that are taken together give what the single turns give."""

from itertools import product

import numpy as np
import pytest
from spread import spread

from iosim import SCHEDULES, Attention, Capacity, Flops, Numeric, Tiling, Traffic
from iosim.core.loop_paths import run_together
from iosim.core.problem import DENSE
from iosim.core.row_blocks import RowBlocks, Rows
from iosim.masks import parse_mask

MASKS = ["dense", "causal&window:3"]
SIZES = {"N": 11, "d": 3, "Nk": 9}


def runs(schedule, p, tiling, inputs):
    """(machine, watchers) of the run with single turns, and of the run with turns taken together."""
    single = Traffic(), Capacity(), Flops()
    machine = Numeric(p, inputs, *single).run(schedule, tiling)
    together = run_together(lambda: RowBlocks(p, inputs, Traffic(), Capacity(), Flops()), schedule, tiling)
    return (machine, single), (together, together.watchers)


def every_second(case):
    """Each schedule under one mask, and half of them under each mask."""
    name, mask = case
    return list(SCHEDULES).index(name) % 2 == MASKS.index(mask)


@pytest.mark.parametrize("name, mask", spread(product(SCHEDULES, MASKS), every_second, "-".join))
def test_every_schedule_gives_the_same(name, mask):
    schedule, tiling = SCHEDULES[name], Tiling(1, 1)
    p = schedule.about(Attention(**SIZES, mask=parse_mask(mask)))
    visible = None if p.mask is DENSE else p.mask.bind(p, tiling, True).visible(0, p.N, 0, p.Nk)
    inputs = schedule.example(np.random.default_rng(3), p, visible)
    (machine, single), (together, watchers) = runs(schedule, p, tiling, inputs)
    for tensor in schedule.answer(inputs, p, visible):
        np.testing.assert_allclose(together.array(tensor), machine.array(tensor), atol=1e-13)
    for one, other in zip(single[:1] + single[2:], watchers[:1] + watchers[2:], strict=True):
        assert vars(one) == vars(other)
    assert single[1].peak_words == watchers[1].peak_words


def copies(chip, p, t):
    for i in chip.tiles(p.N, 1):
        chip.store(chip.load("Q", i), "O", i)


def next_row(chip, p, t):
    """Each turn but the first reads what the turn before it wrote."""
    before = None
    for i in chip.tiles(p.N, 1):
        q = chip.load("Q", i if before is None else before)
        o = (
            chip.compute("O", (i, p.d), add_one, q)
            if before is None
            else chip.compute("O", (i, p.d), add_one, chip.load("O", before))
        )
        chip.store(o, "O", i)
        before = i


def running_sum(chip, p, t):
    total = chip.compute("O", (1, p.d), nothing)
    for i in chip.tiles(p.N, 1):
        chip.update(total, add, chip.load("Q", i))
    chip.free(total)


def add_one(o, q):
    o[...] = q + 1


def nothing(o):
    o[...] = 0


def add(o, q):
    o += q.sum(axis=0)


def test_independent_turns_are_taken_together_and_dependent_ones_are_not():
    p, inputs = Attention(20, 4), {"Q": np.arange(80.0).reshape(20, 4)}
    for text, blocks in ((copies, 2), (next_row, 20), (running_sum, 20)):
        machine = run_together(lambda: RowBlocks(p, inputs, Traffic()), text, Tiling(1, 1))
        (traffic,) = machine.watchers
        single = Traffic()
        exact = Numeric(p, inputs, single).run(text, Tiling(1, 1))
        assert traffic.tensors == single.tensors
        assert machine.singly == (set() if blocks == 2 else {(0,)}), text
        if text is not running_sum:
            assert (machine.array("O") == exact.array("O")).all()


def test_a_block_of_rows_takes_the_room_of_one():
    p, room = Attention(50, 4), Capacity()
    RowBlocks(p, {"Q": np.zeros((50, 4))}, room).run(copies, Tiling(1, 1))
    assert room.peak_words == 4 and Rows(50, 25, 0, 0).extent == 1
