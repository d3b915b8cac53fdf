"""What calibrate makes of the times of steps that are repeated: on made-up GPUs whose constants are known."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from iosim.errors import InputError
from iosim.gpu import device
from iosim.gpu.calibrate import step_texts, steps
from iosim.gpu.calibrate.steps import LONG, SHORT, TILE_ROWS, fitted_line
from iosim.gpu.predict.block_work import LoopKey, StepKey
from iosim.gpu.predict.launch_time import StepRates
from iosim.gpu.predict.predict import steps_of
from iosim.hardware import configs_folder, read_hardware

SMS, SHARED_BYTES, REGISTERS = 4, 233_472, 64
FIXED, ONE, EACH, FULL = 0.1, 1e5, 0.2, SMS * 4e5  # seconds and work a second: of a warp, then of a block and the GPU
OUT_ONE, OUT_FULL = 4096, SMS * 16_384  # words of the output of a product


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "function", lambda program, kernel: SimpleNamespace(num_regs=REGISTERS))


def launch(program):
    """(repetitions, rows, keys, d) of a program."""
    (turns,) = [n for n in (SHORT, LONG) if f"x < {n};" in program.source]
    return turns, program.problem.N, program.problem.Nk, program.problem.d


# ---------------------------------------------------------------- what is measured


def test_a_line_through_two_measurements():
    """1 s + work / 4: 3 s for 8, 2 s for 4; never negative, and at most half of the larger time is fixed."""
    assert fitted_line([8, 4], [3.0, 2.0]) == pytest.approx((1.0, 4.0))
    assert fitted_line([8, 4], [4.0, 1.0]) == pytest.approx((0.0, 2.0)), "superlinear"
    assert fitted_line([8, 4], [2.0, 2.5]) == pytest.approx((1.0, 8.0)) and fitted_line([8, 8], [2.0, 2.0]) == (
        0.0,
        4.0,
    )


@pytest.mark.parametrize("kind, threads, few", [("tensor", 128, 32), ("simt", 256, 64)])
@pytest.mark.parametrize("name", step_texts.MEASURED_STEPS)
def test_a_step_is_repeated_by_as_few_warps_as_there_can_be(name, kind, threads, few):
    """16 rows are a warp on tensor cores, else two; but four copy tiles of queries."""
    dtype, rows = steps.UNIT_TYPES[kind]
    least = rows * steps.few_warps(name, kind)
    for of, expected in ((TILE_ROWS, threads), (least, 128 if name == "load_Q" else few)):
        for size in steps.measured_sizes(name):
            program = steps.program_of(name, dtype, 7, 3, of, size)
            (kernel,) = program.kernels
            assert kernel.tensor_cores == (kind == "tensor") and kernel.block[0] == expected
            assert program.source.count("< 7;") == 1 and kernel.grid[0] * kernel.grid[1] == 3
            assert kernel.smem_bytes <= 232_448


def test_copies_of_single_words_are_of_rows_that_start_anywhere():
    """Rows of 317 words of 2 bytes start anywhere; the last of five tiles has 61."""
    for name in steps.SCALAR:
        ((keys, d),) = steps.measured_sizes(name)
        program = steps.program_of(name, "fp16", 7, 3, 32, (keys, d))
        assert "const int nj = 64;" in program.source and "const int nj = 61;" in program.source
        assert program.source.count(f"{name.split('_')[0]}<false>(") >= 2
        assert program.kernels[0].block[0] == 128 and not program.kernels[0].tensor_cores
        assert steps.work_of(name, "simt", 32, (keys, d)) == 2 * 32 * 317


@pytest.mark.parametrize("kind", ["tensor", "simt"])
def test_ragged_tiles_are_measured_after_whole_ones(kind):
    """One block goes over five tiles of 64 rows, the last 4 shorter."""
    for name in [name for name, step in step_texts.MEASURED_STEPS.items() if step.ragged]:
        program = steps.program_of(name, steps.UNIT_TYPES[kind][0], 7, 1, ragged=True)
        assert program.kernels[0].tensor_cores == (kind == "tensor")
        assert "const int ni = 64;" in program.source and "const int ni = 60;" in program.source
        assert (program.problem.N, program.problem.Nk) == (316, 64)
        assert program.kernels[0].grid[:2] == (1, 1), "one block"


def test_what_is_measured_is_compiled_before(monkeypatch):
    """The same sources, each of which is measured; but for copies of single words, which are few."""
    compiled, measured = set(), set()

    def key(program):
        (kernel,) = program.kernels
        return program.source, program.defines, kernel.name, kernel.smem_bytes

    def launch_seconds(program):
        measured.add(key(program))
        return 1.0

    monkeypatch.setattr(steps, "program_of", cache(steps.program_of))
    monkeypatch.setattr(device, "compile_all", lambda programs: compiled.update(map(key, programs)))
    monkeypatch.setattr(steps, "launch_seconds", launch_seconds)
    monkeypatch.setattr(device, "function", lambda program, kernel: SimpleNamespace(num_regs=REGISTERS))
    found = {str(key): rates for key, rates in steps.measure_steps(SMS, SHARED_BYTES).items()}
    assert compiled < measured and len(compiled) > 300
    assert len(measured - compiled) == 2 * (2 * 2 + 2), "of two copies: two numbers of rows and turns; and in passing"
    assert {len(rates) for rates in found.values()} == {4} and all(min(rates) >= 0 for rates in found.values())
    assert set(found) >= {
        f"{kind}_{name}" for kind in ("tensor", "simt") for name in step_texts.MEASURED_STEPS if name != "load_Q"
    }
    some = {"tensor_store_ragged", "simt_load_ragged", "simt_load_scalar", "tensor_scores_output"}
    assert set(found) >= some


# ---------------------------------------------------------------- what is made of it


def product_seconds(name, dtype, heads, rows, size, ragged):
    """Of a block among those of a multiprocessor, or of the slowest warp of a few. On tensor cores half as many
    products of 16 columns are under way."""
    keys, d = size
    flops, words = 2 * rows * keys * d, rows * (keys if name == "scores" else d)
    if rows == TILE_ROWS:
        blocks = heads // SMS
        return blocks * (EACH + flops * SMS / FULL + words * SMS / OUT_FULL)
    warps, columns = (1, keys if name == "scores" else d) if dtype == "fp16" else (2, TILE_ROWS)
    narrow = 2 if columns == 16 else 1
    return FIXED + (narrow * flops / ONE + words / OUT_ONE) / warps


@pytest.mark.parametrize("kind", ["tensor", "simt"])
@pytest.mark.parametrize("name", ["scores", "accumulate"])
def test_a_product_and_its_output_are_told_apart(monkeypatch, name, kind):
    monkeypatch.setattr(steps, "step_seconds", product_seconds)
    found = steps.measure_product(name, kind, SMS, SHARED_BYTES)
    step, output = StepKey(kind, name), StepKey(kind, name, output=True)
    assert set(found) == {step, output}
    assert found[step] == pytest.approx((FIXED, ONE, EACH, FULL))
    assert found[output] == pytest.approx((0.0, OUT_ONE, 0.0, OUT_FULL))


WORK = {"normalise": lambda rows, keys, d, b: rows * d, "online_softmax": lambda rows, keys, d, b: rows * keys,
        "hide": lambda rows, keys, d, b: rows * keys, "load": lambda rows, keys, d, b: keys * d * b}  # fmt: skip


@pytest.mark.parametrize("kind, width, warps", [("tensor", 2, 1), ("simt", 4, 2)])
@pytest.mark.parametrize("name", WORK)
def test_a_step_has_a_fixed_time_and_a_rate(monkeypatch, name, kind, width, warps):
    """The rates are so low that most of the time is not fixed."""
    one, full = ONE / 1000, FULL / 1000

    def seconds(name, dtype, heads, rows, size, ragged):
        work = WORK[name](rows, *size, width)
        if rows == TILE_ROWS:
            return heads // SMS * (EACH + work * SMS / full)
        return FIXED + work / warps / one

    monkeypatch.setattr(steps, "step_seconds", seconds)
    assert steps.measure_step(name, kind, False, SMS, SHARED_BYTES) == {
        StepKey(kind, name): pytest.approx((FIXED, one, EACH, full))
    }


def test_of_ragged_tiles_the_last_counts(monkeypatch):
    """0.25 s for 4 rows: 16 x 0.25 s for a whole tile, of which there are four, 15 x for one that is 4 shorter."""

    def launch_seconds(program):
        turns, rows, _, _ = launch(program)
        return 3.0 + turns * rows / 16

    monkeypatch.setattr(steps, "launch_seconds", launch_seconds)
    assert steps.step_seconds("store", "fp16", 1, TILE_ROWS, (64, 64), True) == pytest.approx(60 / 16)
    monkeypatch.setattr(steps, "launch_seconds", lambda program: 3.0 + launch(program)[0] * 2.0)
    assert steps.step_seconds("store", "fp16", 1, TILE_ROWS, (64, 64), True) == pytest.approx(2.0 * 60 / 64), (
        "never less"
    )
    assert steps.work_of("store", "tensor", TILE_ROWS, (64, 64), True) == 60 * 64 * 2
    assert steps.work_of("load_Q", "tensor", TILE_ROWS, (64, 64), True) == 64 * 64 * 2, "margins are filled"
    assert steps.work_of("load_Q", "simt", TILE_ROWS, (64, 64), True) == 60 * 64 * 4


@pytest.mark.parametrize("name, kind, rows, busiest", [
    ("online_softmax", "tensor", 16, 16), ("normalise", "tensor", 16, 12), ("online_softmax", "simt", 16, 2 * 8),
    ("normalise", "simt", 16, 2 * 8), ("store", "simt", 16, 2 * 8), ("store", "tensor", 16, 12),
    ("online_softmax", "tensor", 64, 64),
])  # fmt: skip
def test_the_busiest_warp_of_a_ragged_tile(name, kind, rows, busiest):
    """12 rows of 16: one warp on tensor cores, which takes 8 rows of scores at a time; else two, one of which has 8."""
    width = {"tensor": 2, "simt": 4}[kind] if name == "store" else 1  # copies are counted in bytes
    assert step_texts.chain_of(name, kind, rows, (64, 64), True) == busiest * 64 * width
    assert step_texts.chain_of(name, kind, rows, (64, 64)) == steps.work_of(name, kind, rows, (64, 64))


def test_as_many_blocks_as_fit_of_both_kernels(monkeypatch):
    """The ragged one needs more registers: of 256 threads with 128 two blocks fit, with 64 four."""
    asked = []
    monkeypatch.setattr(steps, "step_seconds", lambda *given: asked.append(given) or 1.0)

    def function(program, kernel):
        return SimpleNamespace(num_regs=128 if program.problem.N > TILE_ROWS else 64)

    monkeypatch.setattr(device, "function", function)
    list(steps.timed_sizes("normalise", "simt", True, SMS, 10**6))
    list(steps.timed_sizes("normalise", "simt", False, SMS, 10**6))
    assert [heads for _, _, heads, rows, *_ in asked if rows == TILE_ROWS] == [2 * SMS] * 2 + [4 * SMS] * 2


@pytest.mark.parametrize("name, like", [("load_scalar", "tensor_load_O"), ("store_scalar", "tensor_store")])
def test_words_are_copied_one_by_one_in_passing(monkeypatch, name, like):
    """A row whose length is odd takes 0.5 s a tile longer than 0.25 s + 2048 B / (4096 B/s): 2048 B in 1.25 s."""
    asked = []

    def launch_seconds(program):
        asked.append(program)
        return 7.0 + LONG * (0.5 if program.problem.Nk % 2 else 0.0)

    monkeypatch.setattr(steps, "launch_seconds", launch_seconds)
    found = {StepKey.parse(like): StepRates(0.25, 4096.0, 9.0, 9.0)}
    assert steps.in_passing(name, found) == pytest.approx(2048 / 1.25)
    odd, even = asked
    verb = name.split("_")[0]
    assert f"{verb}<false>(" in odd.source and f"{verb}<false>(" not in even.source, "word by word, and not"
    for program in asked:
        (kernel,) = program.kernels
        assert kernel.tensor_cores and kernel.block[0] == 32 and program.problem.N == 16, "one warp"
        assert -(-program.problem.Nk // TILE_ROWS) == LONG, "as many tiles"
    monkeypatch.setattr(steps, "launch_seconds", lambda program: float(program.problem.Nk % 2 == 0))
    assert steps.in_passing(name, found) == pytest.approx(2048 / 0.75), "never less"


# ---------------------------------------------------------------- the first time


def test_a_step_takes_longer_the_first_time(monkeypatch):
    """2 s without the step, 0.5 s each time, and 0.25 s more the first time; the median leaves one out that is odd."""
    compiled = []
    monkeypatch.setattr(device, "compile_all", compiled.extend)

    def launch_seconds(program):
        assert program.problem.N == program.problem.Nk == TILE_ROWS and program.kernels[0].grid[:2] == (1, 1)
        times = next((n for n in (1, SHORT, LONG) if f"x < {n};" in program.source), 0)
        first = 9.0 if "hide(" in program.kernels[0].source else 0.25 if program.kernels[0].tensor_cores else -0.25
        return 2.0 + 0.5 * times + first * bool(times)

    monkeypatch.setattr(steps, "launch_seconds", launch_seconds)
    assert steps.first_seconds() == {"tensor": pytest.approx(0.25), "simt": 0.0}, "never less than nothing"
    assert len(compiled) == 2 * 2 * len(step_texts.MEASURED_STEPS)


@pytest.mark.parametrize("cold", [False, True])
def test_a_launch_is_timed_with_inputs_and_cold_with_another_buffer(monkeypatch, cold):
    notes, program = {}, step_texts.program_of("store", "fp16", 2, 1)

    def milliseconds(start, repeats, flush):
        start()
        notes.update(repeats=repeats, flush=flush)
        return 2500.0

    monkeypatch.setattr(steps, "STEP_FLUSH_BYTES", 8)
    monkeypatch.setattr(device, "cupy", lambda: np)
    monkeypatch.setattr(device, "milliseconds", milliseconds)
    monkeypatch.setattr(steps, "prepare", lambda program, inputs: (notes.update(inputs), "tables", "counts"))
    monkeypatch.setattr(steps, "launch_all", lambda *launched: notes.update(launched=launched))
    assert steps.launch_seconds(program, cold) == 2.5 and notes["repeats"] == steps.STEP_REPEATS
    assert notes["launched"] == (program, None, "tables", "counts")
    assert [notes[name].shape for name in "QKV"] == [program.arrays[name].full_shape for name in "QKV"]
    assert notes["flush"].nbytes == 8 if cold else notes["flush"] is None


# ---------------------------------------------------------------- names in hardware files


@pytest.mark.parametrize("path", sorted((configs_folder() / "measured").glob("*.toml")), ids=lambda path: path.stem)
def test_keys_of_a_hardware_file_are_read_and_written_back(path):
    table = read_hardware(path).measured
    for names, kind in ((table["steps"], StepKey), (table["loop_ratios"], LoopKey)):
        keys = [kind.parse(name) for name in names]
        assert [str(key) for key in keys] == list(names) and len(set(keys)) == len(names) > 3
    assert {str(key): list(rates) for key, rates in steps_of(table["steps"]).items()} == table["steps"]
    measured = {(name if name != "load_Q" else "load") for name in (*step_texts.MEASURED_STEPS, *step_texts.SCALAR)}
    assert {StepKey.parse(name).step for name in table["steps"]} == measured


def test_keys_of_every_kind():
    for key, name in (
        (StepKey("simt", "load_O"), "simt_load_O"),
        (StepKey("tensor", "scores", output=True, sized=False), "tensor_scores_output_unsized"),
        (StepKey("tensor", "add_maximum_and_sum", ragged=True, sized=False), "tensor_add_maximum_and_sum_ragged_unsized"),
    ):  # fmt: skip
        assert str(key) == name and StepKey.parse(name) == key
    assert LoopKey.parse("simt_unsized") == LoopKey("simt", sized=False)
    for kind in (StepKey, LoopKey):
        with pytest.raises(ValueError, match="'cuda'"):
            kind.parse("cuda")
    with pytest.raises(InputError, match=r"'warp' is no unit.*iosim calibrate"):
        steps_of({"warp_scores": [0.0] * 4})
