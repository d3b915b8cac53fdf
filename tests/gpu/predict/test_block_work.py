"""What the blocks of a launch do, by hand: as the kernels cut their tiles."""

import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from paths import ROOT

from iosim.core.machine import Block
from iosim.core.problem import TENSORS, Attention
from iosim.core.shapes import Tile
from iosim.core.tiling import Tiling
from iosim.errors import InputError, ScheduleError
from iosim.gpu.calibrate import step_texts
from iosim.gpu.cuda.warp_split import KEYS_HELD, busiest_rows, busy_turns, padded, uneven
from iosim.gpu.predict.block_work import BlockWork, Occupancy, WorkCounter, alike, cost_of
from iosim.gpu.predict.blocks import touches_of
from iosim.gpu.predict.predict import predict
from iosim.hardware import read_hardware
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.steps import backward, passes_and_linear, softmax
from iosim.steps.softmax import Cost


class Named:
    """The work of a block, with its steps by the names of their keys, without the unit."""

    def __init__(self, work: BlockWork):
        units = {key.unit for key in work.steps}
        assert len(units) <= 1
        names = {str(key).split("_", 1)[1]: step for key, step in work.steps.items()}
        self.work = work
        self.steps = Counter({name: step.work for name, step in names.items()})
        self.chain = {name: step.chain for name, step in names.items()}
        self.times = {name: step.times for name, step in names.items()}

    def __getattr__(self, name):
        return getattr(self.work, name)

    def __eq__(self, other):
        return self.work == other.work


def blocks_of(work) -> list[list[Named]]:
    return [[Named(block) for block in launch] for launch in work.blocks]


MEASURED = list(ROOT.glob("validation/*/hardware.toml"))


def test_copies_of_rows_that_start_anywhere_go_word_by_word():
    p, counter = Attention(20, 16, dtype="fp16", acc_dtype="fp32"), WorkCounter()
    touches_of(find("standard-tiled"), p, Tiling(16, 16), counter)
    scores, _, output = (launch[0] for launch in blocks_of(counter))
    assert scores.steps["store_scalar"] == 2 * 16 * 20 and "store" not in scores.steps, "rows of 20 scores: 40 B"
    assert output.steps["load_scalar"] == 2 * 16 * 20 and output.steps["load"] == 2 * 16 * 16
    assert output.steps["load_ragged"] == 2 * 16 * 16, "4 rows of V, and the margin of 12"
    assert output.times["load_scalar"] == 2


def test_tiles_in_which_nothing_is_hidden_cost_nothing_to_mask():
    p, counter = Attention(64, 16, mask=parse_mask("causal")), WorkCounter()
    touches_of(find("block-sparse-q"), p, Tiling(16, 16), counter)
    assert [w.times["hide"] for w in blocks_of(counter)[0]] == [1] * 4, "the diagonal"


def test_work_of_a_block():
    """flash2, N = Nk = 32, tiles of 16, d = 8, fp16: by hand."""
    p, counter = Attention(32, 8, dtype="fp16", acc_dtype="fp32"), WorkCounter()
    touches_of(find("flash2"), p, Tiling(16, 16), counter)
    ((first, second),) = blocks_of(counter)
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
    p, counter = Attention(64, 8, mask=parse_mask("causal")), WorkCounter()
    touches_of(find("block-sparse-q"), p, Tiling(16, 16), counter)
    assert [w.flops // blocks_of(counter)[0][0].flops for w in blocks_of(counter)[0]] == [1, 2, 3, 4]


def work_of(name, p, tiling, *occupancies):
    work = WorkCounter(occupancies)
    touches_of(find(name), p, tiling, work)
    return blocks_of(work)


def test_tensor_cores_compute_ragged_tiles_whole():
    """20 queries and keys in tiles of 16: the second of both has 4, and is computed as 16 x 16 all the same."""
    p = Attention(20, 16, dtype="fp16", acc_dtype="fp32")
    ((first, second),) = work_of("flash2", p, Tiling(16, 16), Occupancy(1, warps=1))
    assert first.flops == second.flops == 2 * 2 * (2 * 16 * 16 * 16)
    assert second.exponentials == 4 * 20, "of what is there"
    ((ahead, last),) = work_of("flash2", p, Tiling(16, 16), Occupancy(1, loads_ahead=True))
    assert ahead.flops == last.flops == first.flops and last.exponentials == 16 * 32, "in registers, whole"


def test_a_product_is_one_step_and_the_words_of_its_output():
    """Scores of 64 x 32, three times, and an output of 64 x 64 that is read and written each time, once also for 48
    keys; 192 keys are three passes of 64. 16 columns at a time of scores have half as many products under way as 32."""
    p = Attention(64, 64, Nk=96, dtype="fp16", acc_dtype="fp32")
    ((work,),) = work_of("flash2", p, Tiling(64, 32), Occupancy(1))
    assert (work.times["scores"], work.times["accumulate"]) == (3, 3)
    assert work.chain["scores"] == work.steps["scores"] == 2 * 64 * 96 * 64
    assert (work.steps["scores_output"], work.steps["accumulate_output"]) == (3 * 64 * 32, 3 * 64 * 64)
    assert work.times["scores_output"] == work.times["accumulate_output"] == 0, "no step of its own"
    ((work,),) = work_of("flash2", p, Tiling(64, 48), Occupancy(1))
    assert (work.times["accumulate"], work.steps["accumulate_output"]) == (2, 2 * 64 * 64)
    assert work.chain["accumulate"] == work.steps["accumulate"]
    assert work.chain["scores"] == 2 * work.steps["scores"] == 2 * 2 * 64 * 96 * 64
    long = replace(p, Nk=192)
    ((work,),) = work_of("flash2", long, Tiling(64, 192), Occupancy(1))
    assert (work.times["accumulate"], work.steps["accumulate_output"]) == (1, 3 * 64 * 64)


def test_a_short_last_tile_takes_its_products_as_long_as_a_whole_one():
    """10 rows of 64 are one warp's of four, and its products are those of a whole tile; of steps on rows it has two
    turns of 8, as many as any warp of a whole tile has."""
    p = Attention(74, 64, Nk=64, dtype="fp16", acc_dtype="fp32")
    ((first, last),) = work_of("flash2", p, Tiling(64, 64), Occupancy(1))
    for product in ("scores_unsized", "accumulate_unsized"):
        assert first.steps[product] == first.chain[product] == last.steps[product] == last.chain[product]
    assert first.chain["online_softmax_unsized"] == first.steps["online_softmax_unsized"] == 64 * 64
    assert last.steps["online_softmax_ragged_unsized"] == 10 * 64
    assert last.chain["online_softmax_ragged_unsized"] == 64 * 64


def test_steps_on_pieces_go_over_all_of_a_row():
    """10 keys of 64, and all 64 queries: exponentials turn over all 64 columns of S in both tiles."""
    p = Attention(64, 64, Nk=74, dtype="fp16", acc_dtype="fp32")
    ((work,),) = work_of("attention-2pass", p, Tiling(64, 64), Occupancy(1))
    names = [name for name in work.steps if name.startswith("exponentials")]
    assert sorted(names) == ["exponentials_ragged_unsized", "exponentials_unsized"]
    assert all(work.steps[name] == work.chain[name] == 64 * 64 for name in names)


def test_fills_take_all_of_the_room_and_copies_what_the_busiest_warp_has():
    """10 rows of 64 are one warp's of four: it alone stores them, while all four fill O."""
    p = Attention(74, 64, Nk=64, dtype="fp16", acc_dtype="fp32")
    ((first, last),) = work_of("flash2", p, Tiling(64, 64), Occupancy(1))
    for work in (first, last):
        assert work.steps["zeros"] == work.chain["zeros"] == 64 * 64 + 64, "O and l"
        assert not any(name.startswith("zeros_") for name in work.steps)
    assert (first.steps["store"], first.chain["store"]) == (64 * 64 * 2, 64 * 64 * 2)
    assert (last.steps["store_ragged"], last.chain["store_ragged"]) == (10 * 64 * 2, 4 * 10 * 64 * 2)
    assert last.chain["rescale"] == pytest.approx(6.4 * last.steps["rescale"] / 1.6), "10 rows, all of one warp"
    simt = Occupancy(1, tensor_cores=False, warps=8)
    (one, other), *_ = work_of("flash2", replace(p, dtype="fp32"), Tiling(64, 64), simt)
    assert (other.steps["load_ragged"], other.chain["load_ragged"]) == (10 * 64 * 4, 8 * 8 * 64 * 4), "8 rows a team"


def test_the_kernel_holds_as_many_keys():
    """cuda/mma.cuh says the same: all up to the largest, else the largest that divides them."""
    text = (ROOT / "iosim/gpu/cuda/mma.cuh").read_text()
    choice = " : ".join(f"C % {n} == 0 ? {n}" for n in KEYS_HELD[:-1])
    assert f"PART = {choice} : {KEYS_HELD[-1]};" in text
    assert f"KEYS = C <= {KEYS_HELD[0]} ? C : PART;" in text


def test_lanes_that_only_wait():
    """A warp has 8 rows, which are 2 groups of 4; scores of 40 columns are 80 pieces for 32 lanes: 3 turns, not 2.5.
    Of O with 64 columns the 2 x 16 pieces of 4 words are one turn, of 40 columns 20 pieces are one, too."""
    p = Attention(16, 64, Nk=40, dtype="fp32")
    ((work,),) = work_of("flash2", p, Tiling(16, 40), Occupancy(1, tensor_cores=False, warps=2))
    assert work.steps["scores"] == 2 * (2 * 3 * 32 * 4) * 64 and work.steps["accumulate"] == 2 * 16 * 40 * 64
    ((work,),) = work_of("flash2", Attention(16, 40), Tiling(16, 16), Occupancy(1, tensor_cores=False, warps=2))
    assert work.steps["accumulate"] == 2 * (2 * 32 * 4 * 4) * 16
    one = Attention(1, 64, dtype="fp32")
    ((work,),) = work_of("flash2", one, Tiling(1, 1), Occupancy(1, tensor_cores=False, warps=1))
    assert work.steps["scores"] == 2 * (32 * 4) * 64, "a single word takes a warp as long as 32 groups"


def test_o_is_rescaled_where_a_maximum_may_grow():
    """The j-th tile of a row has its largest score at odds of 1 / j; a warp has 8 rows of 64 keys at a time."""
    p = Attention(64, 32, Nk=256, dtype="fp16", acc_dtype="fp32")
    ((work,),) = work_of("flash2", p, Tiling(64, 64), Occupancy(1))
    odds = [1 - (1 - 1 / j) ** 8 for j in (1, 2, 3, 4)]
    assert work.times["rescale"] == pytest.approx(sum(odds))
    assert work.steps["rescale"] == pytest.approx(64 * 32 * sum(odds))
    ((work,),) = work_of("flash1", Attention(32, 16), Tiling(16, 16), Occupancy(1))
    assert work.times["rescale"] == pytest.approx(2 * (1 + odds[1])), "each of two row tiles meets two key tiles"


def test_ragged_tiles_go_their_own_way():
    """20 queries and keys in tiles of 16, on tensor cores: the second of both has 4, whose margin is filled. A tile of
    all 20 has room for 32."""
    p = Attention(20, 16, dtype="fp16", acc_dtype="fp32")
    ((first, last),) = work_of("flash2", p, Tiling(16, 16), Occupancy(1, warps=1))
    assert first.steps["load"] == 3 * 16 * 16 * 2 and first.steps["load_ragged"] == 2 * 16 * 16 * 2
    assert first.times["online_softmax_unsized"] > 0 and first.times["online_softmax_ragged_unsized"] > 0
    assert "normalise_ragged" not in first.steps and "normalise" not in last.steps
    assert last.steps["store_ragged"] == 4 * 16 * 2 and "store" not in last.steps
    names = {"scores_unsized", "scores_output_unsized", "accumulate_unsized", "accumulate_output_unsized"}
    assert set(first.steps) >= names, "whole, products"
    ((work,),) = work_of("flash2", p, Tiling(64, 64), Occupancy(1))
    assert set(work.steps) >= {"load_ragged", "online_softmax_ragged", "store_ragged"} and not work.steps["load"]


@pytest.mark.parametrize("N, Nk, unsized", [(20, 64, True), (63, 64, True), (68, 64, False), (64, 64, False),
                                            (64, 20, True), (12, 12, False)])  # fmt: skip
def test_sizes_are_known_where_a_loop_is_written_twice_or_no_tile_is_smaller(N, Nk, unsized):
    """Four whole tiles before the smaller one; of one tile the size is known. Words and turns are as they were."""
    p = Attention(N, 16, Nk=Nk, dtype="fp32")
    (blocks,) = work_of("flash2", p, Tiling(16, 16), Occupancy(1, tensor_cores=False, warps=2))
    names = [name for work in blocks for name in work.steps if name.startswith(("scores", "accum", "online"))]
    assert names and all(name.endswith("_unsized") == unsized for name in names)
    assert not any(name.endswith("_unsized") for work in blocks for name in {*work.steps} - {*names})


def test_steps_on_rows_take_turns():
    """A warp of 16 rows has 8 at a time up to 64 keys of 4 bytes, then 4; where it was measured it took 2 turns. Four
    lanes with 8 words of 2 bytes each go over 32 where a row has 16."""
    for keys, dtype, turns, words in (
        (64, "fp32", 2, 64),
        (128, "fp32", 4, 128),
        (96, "fp16", 2, 96),
        (16, "fp16", 2, 32),
    ):
        p = Attention(64, 32, Nk=keys, dtype="fp16", acc_dtype=dtype)
        ((work,),) = work_of("flash2", p, Tiling(64, keys), Occupancy(1))
        assert work.times["online_softmax"] == turns / 2 and work.steps["online_softmax"] == 64 * words


def test_what_is_reduced_counts_and_not_the_result():
    """The maximum and sum of 64 x 32 scores; and words of 2 bytes are half as many pieces of 16."""
    p = Attention(64, 32, dtype="fp16", acc_dtype="fp32")
    ((work,),) = work_of("attention-2pass", p, Tiling(64, 32), Occupancy(1))
    assert work.steps["add_maximum_and_sum"] == work.steps["exponentials"] == 2 * 64 * 32
    narrow = Attention(64, 32, dtype="fp16", acc_dtype="fp16")
    ((half,),) = work_of("attention-2pass", narrow, Tiling(64, 32), Occupancy(1))
    assert half.steps["normalise"] == work.steps["normalise"] / 2 == 64 * 32
    assert half.steps["exponentials"] == work.steps["exponentials"]


def test_turns_in_which_some_lane_is_busy():
    """15 of 48 columns for each of 2 groups: pieces 0 to 14 and 48 to 62 lie in the first two of three warps' turns."""
    assert busy_turns(2, 48, 15, 32) == 2 and busy_turns(2, 48, 48, 32) == 3 and busy_turns(1, 64, 64, 256) == 1
    one = Attention(1, 64, Nk=64, dtype="fp32")
    ((work,),) = work_of("flash2", one, Tiling(1, 64), Occupancy(1, tensor_cores=False, warps=8))
    assert work.chain["scores"] == 4 * work.steps["scores"], "2 of 8 warps have 64 scores, the others wait"


def test_the_busiest_warp():
    """Teams of 8 rows (16 on tensor cores) on at most 8 warps, by hand: 96 rows are 12 teams, 2 turns for some warps."""
    p = Attention(96, 16, Nk=32, dtype="fp32")
    rows = {n: SimpleNamespace(shape=(Tile(136, n, 96 * i, i), 32)) for i, n in enumerate((96, 40))}
    assert uneven(rows[96], 8, False) == 2 / 1.5 and uneven(rows[40], 8, False) == 1 / (5 / 8)
    assert uneven(rows[96], 6, True) == uneven(rows[40], 6, True) == 1.0, "margins are computed, too"
    assert uneven(rows[96], 4, True) == 2 / 1.5
    assert padded(16, rows[40]) == (96, 40), "all the room of a ragged tile is computed on tensor cores"
    assert busiest_rows(rows[96], 8, False) == 16 and busiest_rows(rows[40], 8, False) == 8
    assert busiest_rows(rows[96], 4, True) == 32 and busiest_rows(rows[40], 4, True) == 16
    few = SimpleNamespace(shape=(Tile(138, 42, 96, 1), 32))
    assert busiest_rows(few, 2, True) == 16 + 10 and busiest_rows(few, 2, True, 8) == 16 + 16, "8 rows at a time"
    counter = WorkCounter([Occupancy(1, tensor_cores=False, warps=8)])
    touches_of(find("flash2"), p, Tiling(96, 32), counter)
    (block,) = blocks_of(counter)[0]
    assert block.chain["scores"] == block.steps["scores"] * 2 / 1.5
    assert block.chain["online_softmax"] == block.steps["online_softmax"] * 2 / 1.5


@pytest.mark.skipif(not MEASURED, reason="no measurement in validation/")
def test_hiding_takes_time_where_it_moves_no_word():
    """flash2-one-room walks every tile; with a mask it moves the same words, and is slower."""
    hardware, occupancy = read_hardware(max(MEASURED)), [Occupancy(4)]
    seconds, words = [], []
    for mask in ("dense", "causal"):
        p = Attention(256, 64, heads=132, dtype="fp16", acc_dtype="fp32", mask=parse_mask(mask))
        found = predict(find("flash2-one-room"), p, Tiling(64, 64), hardware, occupancy)
        seconds.append(found.time.block_seconds)
        words.append(found.tensors)
    assert words[0] == words[1] and seconds[0] < 0.95 * seconds[1]


# ---------------------------------------------------------------- marks of steps

STEPS = [
    step for module in (softmax, backward, passes_and_linear) for step in vars(module).values() if hasattr(step, "work")
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_every_step_of_iosim_says_how_a_kernel_runs_it(step):
    """A product is marked as one, and every step is timed as one that calibrate measures."""
    cost = cost_of(step)
    assert bool(cost.product) == hasattr(step, "flops")
    measured = cost.product or cost.timed_as or step.__name__
    assert measured in step_texts.MEASURED_STEPS and not step_texts.MEASURED_STEPS[measured].cost.timed_as
    assert set(cost.tensor_inputs) >= set(cost.reads_whole) or not cost.tensor_inputs


def text_with(step):
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            q = chip.load("Q", i)
            chip.update(q, step)
            chip.store(q, "O", i)

    return text


@pytest.mark.skipif(not MEASURED, reason="no measurement in validation/")
def test_a_step_without_a_mark_is_no_prediction_of_time():
    """It counts all the same; the error names the step and what to write. With a mark it is timed as that says."""

    def squash(q):
        q[...] = 0

    hardware, p, t = read_hardware(max(MEASURED)), Attention(64, 16, acc_dtype="fp32"), Tiling(16, 16)
    assert predict(text_with(squash), p, t).tensors == {"Q": (64 * 16, 0), "O": (0, 64 * 16)}
    with pytest.raises(ScheduleError, match=r"step 'squash' does not say.*@Cost\(operations=.*timed_as=.*adding-a-sch"):
        predict(text_with(squash), p, t, hardware, [Occupancy(1)])
    unmeasured = replace(hardware, measured=None)
    assert predict(text_with(squash), p, t, unmeasured, [Occupancy(1)]).dram is not None, "of time only"

    seconds = []
    for timed_as in ("normalise", "zeros"):
        marked = Cost(operations=(1,), timed_as=timed_as)(squash)
        assert marked is squash
        seconds.append(predict(text_with(marked), p, t, hardware, [Occupancy(1)]).time.block_seconds)
    assert seconds[0] > seconds[1] > 0
    with pytest.raises(InputError, match=r"no tensor_squash in .measured.steps"):
        predict(text_with(Cost(operations=(1,))(squash)), p, t, hardware, [Occupancy(1)])


@pytest.mark.skipif(not MEASURED, reason="no measurement in validation/")
def test_the_marked_step_of_the_docs_is_timed():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-schedule.md").read_text(), re.S)
    given = {}
    exec(next(code for code in blocks if "def squash" in code), given)
    p, text = Attention(64, 16, acc_dtype="fp32"), text_with(given["squash"])
    found = predict(text, p, Tiling(16, 16), read_hardware(max(MEASURED)), [Occupancy(1)])
    assert found.time.block_seconds > 0


def test_blocks_are_alike_if_a_step_over_them_has_the_same_work():
    def block(*shape, tensor=None):
        return Block("S", shape, tensor, 0)

    first, second, ragged = Tile(80, 16, 0, 0), Tile(80, 16, 16, 1), Tile(80, 16, 64, 1)  # the last has room for 64
    assert alike([block(first, 8)]) == alike([block(second, 8)])
    others = [
        block(ragged, 8),
        block(first, 9),
        block(first),
        block(Tile(16, 16, 0, 0), 8),
        block(first, 8, tensor=TENSORS["Q"]),
    ]
    assert len({alike([one]) for one in [block(first, 8), *others]}) == 1 + len(others)
    assert alike([block(first, first)]) != alike([block(first, second)])
