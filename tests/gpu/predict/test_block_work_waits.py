"""What the blocks of a launch wait for, by hand: predict/block_work.py."""

from dataclasses import replace

import pytest
from test_block_work import blocks_of, work_of

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.gpu.predict.block_work import UNDER_WAY, Occupancy, WorkCounter
from iosim.gpu.predict.blocks import touches_of
from iosim.steps.softmax import zeros


def test_copies_are_waited_for_where_their_block_is_met():
    """flash2: Q and K before the first scores, then K of every tile; V lands meanwhile, but a warp asks for it. There is
    nothing that goes through registers."""
    p = Attention(32, 16, dtype="fp16", acc_dtype="fp32")
    ((first, _),) = work_of("flash2", p, Tiling(16, 16), Occupancy(1, warps=1))
    tile = 16 * 16 * 2
    assert first.steps["load"] == first.chain["load"] == 5 * tile
    assert first.times["load"] == first.waits == 2 and first.loads == 5 and first.stalls == 0


def test_loads_through_registers_are_waited_for_together():
    """flash1: O, which is converted, l and m of each of 2 x 2 tiles follow one another, after the copy of Q: it has
    landed when they have."""
    p = Attention(32, 16, dtype="fp16", acc_dtype="fp32")
    ((work,),) = work_of("flash1", p, Tiling(16, 16), Occupancy(1, warps=1))
    assert work.loads == 2 * 2 + 4 * 4 and work.waits == work.stalls == 4 and work.times["load"] == 0
    assert work.steps["load_O"] == 4 * 16 * 16 * 2 and work.times["load_O"] == 4 and work.times["load_l"] == 8


def in_turn(*steps, warps=4):
    """The work of a text with one block: "Q" and "Q2" are loaded asynchronously, "O" and "l" through registers, the
    words of "P" one by one; "+Q" is a step on that block."""

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            blocks = {}
            for step in steps:
                if step[0] == "+":
                    chip.update(blocks[step[1:]], zeros)
                else:
                    blocks[step] = chip.load(step[0], i)

    counter = WorkCounter([Occupancy(1, warps=warps)])
    touches_of(text, Attention(16, 16, Nk=19, dtype="fp16", acc_dtype="fp32"), Tiling(16, 16), counter)
    return blocks_of(counter)[0][0]


@pytest.mark.parametrize(
    "steps, waits, stalls, asked",
    [
        (("O", "l"), 1, 1, 0),
        (("O", "+O", "l"), 2, 2, 0),  # a step between them
        (("Q", "+Q"), 1, 0, 1),
        (("Q", "Q2", "+Q", "+Q2"), 1, 0, 1),  # both have landed
        (("Q", "+Q", "Q2", "+Q2"), 2, 0, 2),
        (("Q", "O", "+Q"), 1, 1, 0),  # Q was asked for before O: it has landed
        (("O", "Q", "+Q"), 2, 1, 1),  # after it: it has not
        (("Q", "O", "+O", "+Q"), 2, 1, 1),  # a step that does not meet it
        (("O", "Q", "l", "+Q"), 2, 2, 0),
    ],
)
def test_what_is_waited_for(steps, waits, stalls, asked):
    work = in_turn(*steps)
    assert (work.waits, work.stalls, work.times.get("load", 0)) == (waits, stalls, asked)


@pytest.mark.parametrize("warps", [1, 4])
def test_words_that_are_loaded_one_by_one_are_waited_for_as_requests(warps):
    """16 rows of 19 words, 32 in each request of a warp, some of which are under way together. With what else goes
    through registers they are waited for once, whichever comes first."""
    requests = 16 * 19 / 32 / warps
    for steps in (("P", "+P"), ("l", "P", "+P"), ("P", "l", "+P")):
        work = in_turn(*steps, warps=warps)
        assert work.stalls == 1 and work.waits == pytest.approx(1 + requests / UNDER_WAY), steps
    work = in_turn("P", "+P", "P2", "+P2", warps=warps)
    assert work.stalls == 2 and work.waits == pytest.approx(2 * (1 + requests / UNDER_WAY))


def test_a_ragged_tile_that_goes_through_registers_is_waited_for_in_each_turn():
    """flash1 with 40 queries of 32 words: O of the first 32 rows lands at once; of the others, in room for 32, 128
    pieces of 16 bytes take a warp 4 turns, two warps 2. Then 32 rows twice: nothing is ragged."""
    waits = []
    for N, warps in ((40, 1), (40, 2), (64, 1)):
        p = Attention(N, 32, Nk=32, dtype="fp16", acc_dtype="fp32")
        ((work,),) = work_of("flash1", p, Tiling(32, 32), Occupancy(1, warps=warps))
        assert work.waits == work.stalls
        waits.append(work.waits)
    assert waits == [1 + 4, 1 + 2, 1 + 1]


def test_what_is_loaded_before_the_first_step_and_stored_after_the_last():
    """Filling is no step on what is loaded. flash2 ends with O (and what follows a step more); flash1 with O, l and m
    of the last tile."""
    p = Attention(32, 16, dtype="fp16", acc_dtype="fp32")
    tile = 16 * 16 * 2
    ((first, last),) = work_of("flash2", p, Tiling(16, 16), Occupancy(1))
    assert first.first_bytes == last.first_bytes == 3 * tile, "Q, K and V; O, l and m are only filled"
    assert first.last_bytes == last.last_bytes == first.store_bytes == tile
    ((work, _),) = work_of("flash2", replace(p, lse=True), Tiling(16, 16), Occupancy(1))
    assert work.store_bytes == tile + 16 * 4 and work.last_bytes == 16 * 4, "the LSE, after another step"
    ((work,),) = work_of("flash1", p, Tiling(16, 16), Occupancy(1))
    assert work.first_bytes == 4 * tile + 2 * 16 * 4 and work.last_bytes == tile + 2 * 16 * 4
    assert work.store_bytes == 4 * work.last_bytes
