"""Measures how fast this GPU runs each tile step of the generated kernels.

Each step has a kernel that repeats it, generated from a schedule (calibrate/step_texts.py). The kernel is timed with
few repetitions and with many. The difference leaves out the time outside of the loop. This is done

- in one block of as few warps as possible: it takes as long as its longest chain of instructions;
- in as many blocks as fit: they wait for the units that they share.

Both are done for two sizes of tile, which gives a fixed time and a rate (`StepRates`). Some steps are also measured on
ragged tiles, which do not use all the room that is reserved for them. Last, `first_seconds` measures the extra time of
the first run of a step in a launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from statistics import median

from ...core.problem import Attention
from ...core.tiling import Tiling
from ...occupancy import blocks_on
from .. import device
from ..cuda.machine import generate
from ..cuda.program import Program
from ..cuda.warp_split import WHOLE_TURNS
from ..predict.block_work import LOAD, LOAD_CONVERTED, LOAD_SCALAR, STORE, StepKey, Unit
from ..predict.launch_time import StepRates
from ..run import launch_all, prepare
from .step_texts import (
    LOAD_ROWS,
    LONG,
    MARGIN,
    MEASURED_STEPS,
    PASSING,
    SCALAR,
    SHORT,
    TILE_ROWS,
    UNIT_TYPES,
    TileSize,
    chain_of,
    is_product,
    measured_sizes,
    program_of,
    work_of,
)

STEP_REPEATS = 15  # launches, of which the median time counts
STEP_FLUSH_BYTES = 1 << 28  # empties the L2, and keeps the GPU busy until a launch and its events wait in its queue


def every_step() -> Iterator[tuple[Unit, str, bool]]:
    """(unit, step, whether its tile is ragged) of all that is measured, except copies of single words."""
    yield from ((unit, name, False) for unit in UNIT_TYPES for name, step in MEASURED_STEPS.items() if step.whole)
    yield from ((unit, name, True) for unit in UNIT_TYPES for name, step in MEASURED_STEPS.items() if step.ragged)


def measure_steps(sms: int, shared_bytes: int) -> dict[StepKey, StepRates]:
    """The rates of every measured step, as they stand in [measured.steps] of a hardware file."""
    device.compile_all(every_program())
    found: dict[StepKey, StepRates] = {}
    for unit, name, ragged in every_step():
        if is_product(name):
            found |= measure_product(name, unit, sms, shared_bytes)
        else:
            found |= measure_step(name, unit, ragged, sms, shared_bytes)
    for name in SCALAR:
        key = StepKey("simt", name)
        among_many = measure_step(name, "simt", False, sms, shared_bytes)[key]
        found[key] = among_many._replace(warp_seconds=0.0, warp_work_per_second=in_passing(name, found))
    return found


def every_program() -> Iterator[Program]:
    """The programs that will be measured, except copies of single words."""
    for unit, name, ragged in every_step():
        for rows in (UNIT_TYPES[unit][1] * few_warps(name, unit), TILE_ROWS):
            for size, times in product(measured_sizes(name), (SHORT, LONG)):
                yield program_of(name, UNIT_TYPES[unit][0], times, 1, rows, size, ragged)
                if not MEASURED_STEPS[
                    name
                ].whole:  # measured on ragged tiles only, whose time is found beside whole ones
                    yield program_of(name, UNIT_TYPES[unit][0], times, 1, rows, size)


def few_warps(name: str, unit: Unit) -> int:
    """The warps of the smallest block: those of a tile with 16 rows, or four for copies, which need more bytes."""
    return 4 if name == LOAD_ROWS else 16 // UNIT_TYPES[unit][1]


def measure_step(name: str, unit: Unit, ragged: bool, sms: int, shared_bytes: int) -> dict[StepKey, StepRates]:
    """{key: rates} of a step."""
    rates: list[float] = []
    for rows, parts, times in timed_sizes(name, unit, ragged, sms, shared_bytes):
        work = work_of if parts > 1 else chain_of
        rates += fitted_line([parts * work(name, unit, rows, size, ragged) for size in measured_sizes(name)], times)
    return {StepKey(unit, LOAD if name == LOAD_ROWS else name, ragged=ragged): StepRates(*rates)}


def measure_product(name: str, unit: Unit, sms: int, shared_bytes: int) -> dict[StepKey, StepRates]:
    """{key: rates} of a product, for its flops and for the words of its output.

    The first two sizes of tile differ in depth and give the rate of flops. The last two differ in output: what is left
    of their time gives the rate of its words.
    """
    products: list[float] = []
    outputs: list[float] = []
    for rows, parts, times in timed_sizes(name, unit, False, sms, shared_bytes):
        flops = [parts * work_of(name, unit, rows, size) for size in measured_sizes(name)]
        if unit == "tensor" and parts < sms:
            flops[-1] *= 2  # it is narrow: a warp works on one product at a time, not on two (predict/block_work.py)
        words = [parts * rows * (keys if name == "scores" else d) for keys, d in measured_sizes(name)]
        _, rate = fitted_line(flops[:2], times[:2])
        rest = [max(time - flop / rate, 1e-9) for flop, time in zip(flops, times, strict=True)]
        fixed, output_rate = fitted_line(words[1:], rest[1:])
        products += (fixed, rate)
        outputs += (0.0, output_rate)
    return {StepKey(unit, name): StepRates(*products), StepKey(unit, name, output=True): StepRates(*outputs)}


def timed_sizes(
    name: str, unit: Unit, ragged: bool, sms: int, shared_bytes: int
) -> Iterator[tuple[int, float, list[float]]]:
    """(rows of a tile, factor, seconds for each size), first for blocks of few warps, then for as many blocks as fit.

    The factor turns the work of a block into the work that was timed: in the first case that of one warp, in the second
    that of one block on each multiprocessor.
    """
    alone, full = [], []
    dtype, warps = "fp16" if name in SCALAR else UNIT_TYPES[unit][0], few_warps(name, unit)
    few = UNIT_TYPES[unit][1] * warps
    for size in measured_sizes(name):
        blocks = min(
            blocks_that_fit(program_of(name, dtype, SHORT, 1, size=size, ragged=each), shared_bytes)
            for each in {False, ragged}
        )
        alone.append(step_seconds(name, dtype, sms, few, size, ragged))
        full.append(step_seconds(name, dtype, sms * blocks, TILE_ROWS, size, ragged) / blocks)
    yield few, 1 / warps, alone
    yield TILE_ROWS, sms, full


def blocks_that_fit(program: Program, shared_bytes: int) -> int:
    """The number of blocks of a program that a multiprocessor holds."""
    (kernel,) = program.kernels
    return blocks_on(shared_bytes, kernel.smem_bytes, prod(kernel.block), device.function(program, kernel).num_regs)


def fitted_line(work: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """(fixed seconds, work a second) of the line through two measurements, the larger first. Neither is negative, and
    the fixed time is at most half of the smaller measurement. With a single measurement, the fixed time is 0."""
    if work[0] == work[-1]:
        return 0.0, work[0] / times[0]
    slope = max(times[0] - times[1], 0.0) / (work[0] - work[1])
    fixed = min(max(times[0] - slope * work[0], 0.0), times[0] / 2)
    return fixed, work[0] / (times[0] - fixed)


def step_seconds(name: str, dtype: str, heads: int, rows: int, size: TileSize, ragged: bool = False) -> float:
    """Seconds of one repetition, with a block for each head.

    A ragged tile comes after whole ones: its time is that of the loop less that of the whole tiles, and at least in
    proportion to its rows.
    """
    long, short = (launch_seconds(program_of(name, dtype, times, heads, rows, size, ragged)) for times in (LONG, SHORT))
    found = max(long - short, 1e-9) / (LONG - SHORT)
    if not ragged:
        return found
    whole = step_seconds(name, dtype, heads, rows, size)
    return max(found - WHOLE_TURNS * whole, whole * (rows - MARGIN) / rows)


def in_passing(name: str, found: dict[StepKey, StepRates]) -> float:
    """Bytes a second of a warp that copies tiles of S word by word, between other steps of a launch on tensor cores.

    The launch runs with rows that start at multiples of 16 bytes and with rows that do not. The time of a copy is that
    of an aligned one plus the difference.
    """
    text, rows = PASSING[name], UNIT_TYPES["tensor"][1]
    odd, even = (
        launch_seconds(generate(text, passing(rows, LONG * TILE_ROWS - less), Tiling(rows, TILE_ROWS)))
        for less in (3, 0)
    )
    size = 2 * rows * TILE_ROWS
    aligned = found[StepKey("tensor", LOAD_CONVERTED if name == LOAD_SCALAR else STORE)]
    longer = max(odd - even, 0.0) / LONG
    return size / (longer + aligned.warp_seconds + size / aligned.warp_work_per_second)


def passing(rows: int, keys: int) -> Attention:
    """The problem of those launches."""
    return Attention(rows, TILE_ROWS, Nk=keys, dtype="fp16", acc_dtype="fp32")


def first_seconds() -> dict[Unit, float]:
    """The extra seconds of a step the first time in a launch, by unit: the median of all steps.

    The data are in the L2 by then; the likely cause is instruction fetch.
    """
    device.compile_all(
        program_of(name, UNIT_TYPES[unit][0], times, 1)
        for unit in UNIT_TYPES
        for name in MEASURED_STEPS
        for times in (0, 1)
    )
    found: dict[Unit, float] = {}
    for unit, (dtype, _) in UNIT_TYPES.items():
        longer = []
        for name in MEASURED_STEPS:
            none, once, short, long = (launch_seconds(program_of(name, dtype, n, 1)) for n in (0, 1, SHORT, LONG))
            longer.append(once - none - (long - short) / (LONG - SHORT))
        found[unit] = max(median(longer), 0.0)
    return found


def launch_seconds(program: Program, cold: bool = False) -> float:
    """The median of the seconds that all launches of a program take together.

    `cold`: the L2 holds other data, and the launches wait in the queue of a busy GPU.
    """
    xp = device.cupy()
    rng = xp.random.default_rng(0)
    inputs = {
        name: rng.standard_normal(program.arrays[name].full_shape, dtype=xp.float32)
        for name in "QKV"
        if name in program.arrays
    }
    ready, flush = prepare(program, inputs), xp.empty(STEP_FLUSH_BYTES, xp.uint8) if cold else None
    return 1e-3 * device.milliseconds(lambda: launch_all(program, *ready), STEP_REPEATS, flush)
