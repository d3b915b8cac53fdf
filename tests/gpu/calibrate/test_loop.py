"""What calibrate makes of the time of a tile of flash2 in its loop: on made-up GPUs whose constants are known."""

import pytest

from iosim.gpu.calibrate import loop as loop_rates
from iosim.gpu.calibrate.loop import TILE_ROWS
from iosim.gpu.predict.block_work import LoopKey, StepKey
from iosim.gpu.predict.launch_time import StepRates

SMS, SHARED_BYTES = 4, 233_472
PARTS_OF_PRODUCTS = ("scores_output", "accumulate_output")
STEPS = (
    "scores",
    "accumulate",
    *PARTS_OF_PRODUCTS,
    "online_softmax",
    "normalise",
    "denormalise",
    "zeros",
    "load",
    "store",
)


def fixed_rates(unit, seconds, **others):
    """Steps that take a fixed time, whatever their work; the words of a product's output take none."""
    times = {**dict.fromkeys(STEPS, seconds), **dict.fromkeys(PARTS_OF_PRODUCTS, 0.0), "denormalise": 0.0, **others}
    return {StepKey.parse(f"{unit}_{name}"): StepRates(each, 1e30, 0.0, 1e30) for name, each in times.items()}


def test_a_tile_in_its_loop_over_its_steps(monkeypatch):
    """Two loads, the scores, the softmax and the product with V of 0.5 s each, but for the loads, which come together;
    rescaling takes none. 3 s in the loop: of 0.5 s for loads and 1.5 s, which become 2.5. 4 s with another block that
    is shorter: 3.5."""
    steps = fixed_rates("tensor", 0.5) | fixed_rates("simt", 0.5)
    tile = {SMS * 64: 3.0, 124: 4.0}  # a block on each multiprocessor, or two
    monkeypatch.setattr(loop_rates, "launch_seconds",
                        lambda program, cold: 11.0 + program.problem.Nk / TILE_ROWS * tile[program.problem.N])  # fmt: skip
    found = loop_rates.loop_ratios(steps, SMS)
    whole, unsized = pytest.approx(2.5 / 1.5), pytest.approx(3.5 / 1.5)
    names = {str(key): ratio for key, ratio in found.items()}
    assert names == {"tensor": whole, "tensor_unsized": unsized, "simt": whole, "simt_unsized": unsized}
    quick = steps | fixed_rates("simt", 0.25)
    assert loop_rates.loop_ratios(quick, SMS)[LoopKey("simt")] == pytest.approx(2.75 / 0.75), "of its own unit"


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.75, 1.0])
def test_how_much_others_wait_while_a_warp_asks_is_found_again(monkeypatch, ratio):
    """From tiles of all shapes that are as long as the model has them; then from half of them, and some: the median."""
    steps = {StepKey.parse(f"tensor_{name}"): StepRates(1e-8, 1e10, 1e-9, 1e14) for name in STEPS}
    blocks = 7
    monkeypatch.setattr(loop_rates, "blocks_that_fit", lambda program, shared_bytes: blocks)
    rates = loop_rates.rates_with(steps, SMS, loop_ratios={LoopKey("tensor"): 1.2}, asking_ratio=ratio)
    wrong: list[tuple[int, int, int]] = []

    def launch_seconds(program, cold):
        rows, keys = program.tiling.rows_q, program.tiling.rows_k
        assert rows * blocks * SMS == program.problem.N and program.kernels[0].block[0] == 2 * rows
        shape, loop = (rows, keys, program.problem.d), (rows, loop_rates.SHORT * keys, loop_rates.LONG * keys)
        (tile,) = loop_rates.tiles_of_model("tensor", rates, loop, shape, blocks)
        return program.problem.Nk / keys * tile * (3.0 if shape in wrong else 1.0)

    monkeypatch.setattr(loop_rates, "launch_seconds", launch_seconds)
    found = loop_rates.asking_ratio(steps, {LoopKey("tensor"): 1.2}, SMS, SHARED_BYTES)
    assert found == pytest.approx(ratio, abs=1e-5)
    wrong += loop_rates.ASKING_SHAPES[: len(loop_rates.ASKING_SHAPES) // 2]
    assert loop_rates.asking_ratio(steps, {LoopKey("tensor"): 1.2}, SMS, SHARED_BYTES) == pytest.approx(ratio, abs=1e-5)


def test_the_slower_of_two_blocks_decides(monkeypatch):
    """A ragged tile takes 3 s for its softmax, where a whole one takes 0.5 s: 4 s with the two products, and 0.5 s for
    loads. Of 7 s 6.5 are left."""
    steps = fixed_rates("tensor", 0.5, online_softmax_ragged=3.0)
    monkeypatch.setattr(loop_rates, "UNIT_TYPES", {"tensor": loop_rates.UNIT_TYPES["tensor"]})
    monkeypatch.setattr(loop_rates, "launch_seconds", lambda program, cold: program.problem.Nk / TILE_ROWS * 7.0)
    assert loop_rates.loop_ratios(steps, SMS)[LoopKey("tensor", sized=False)] == pytest.approx(6.5 / 4)


def test_one_loop_has_known_sizes_and_the_other_has_not():
    whole, unsized = (
        loop_rates.flash2("tensor", *loop[:2]).source for loop in (loop_rates.LOOP, loop_rates.UNSIZED_LOOP)
    )
    assert "const int ni = 64;" in whole and "min(" not in whole[whole.index("__global__") :]
    assert "const int ni = min(64, 124 - i0);" in unsized and "const int nj = min(64, 124 - j0);" in unsized
    assert [loop_rates.tiles_in(loop) for loop in (loop_rates.LOOP, loop_rates.UNSIZED_LOOP)] == [65, 2]


def test_a_tile_that_comes_from_dram(monkeypatch):
    def launch_seconds(program, cold):
        return 5.0 + program.problem.Nk / TILE_ROWS * (2.5 if cold else 2.0)

    monkeypatch.setattr(loop_rates, "launch_seconds", launch_seconds)
    assert loop_rates.far_seconds() == pytest.approx(0.5)
    monkeypatch.setattr(loop_rates, "launch_seconds", lambda program, cold: 5.0 - 4.0 * cold)
    assert loop_rates.far_seconds() == 0.0, "nothing is negative"
