"""What a tile of flash2 costs in its real loop beyond the sum of its steps timed alone (calibrate/steps.py).

Three things are found: how much longer its products and softmax take, where the compiler knows the sizes of tiles and
where not; how much warps that ask for copies keep others waiting; and the extra time where K and V come from DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from math import prod
from statistics import median

from ..core.problem import Attention
from ..core.tiling import Tiling
from ..core.unrolled import Unrolled
from ..cuda.machine import generate
from ..cuda.program import Program
from ..cuda.warp_split import LANES
from ..predict.block_work import BlockWork, LoopKey, Occupancy, StepKey, Unit, WorkCounter
from ..predict.launch_time import BlockTimer, Memory, Rates, StepRates
from ..schedules import find
from .step_texts import KINDS, LONG, MARGIN, ROWS, SHORT, SIZES
from .steps import blocks_that_fit, launch_seconds

Loop = tuple[int, int, int]  # queries, and keys of two launches that differ by some whole tiles
Shape = tuple[int, int, int]  # queries and keys of a tile, and d

LOOP: Loop = (ROWS, SHORT * ROWS, LONG * ROWS)
SHAPE: Shape = (ROWS, ROWS, SIZES[0][1])
# Those of which as many blocks as fit are measured: of one warp, of two and of four.
SHAPES: tuple[Shape, ...] = tuple((rows, *sizes) for rows in (16, 32, 64) for sizes in ((64, 64), (32, 64), (32, 128)))
# The compiler knows no size: the last tiles are shorter, and there are too few others for a loop of their own. So the
# two launches cannot differ by more than two tiles, and this is known less well.
UNSIZED_LOOP: Loop = (2 * ROWS - MARGIN, 2 * ROWS - MARGIN, 4 * ROWS - MARGIN)

Steps = Mapping[StepKey, StepRates]


def loop_ratios(steps: Steps, sms: int) -> dict[LoopKey, float]:
    """How much longer products and softmax take in the loop of flash2 than repeated alone, on each unit.

    One block runs on each multiprocessor. What is left of a tile's time, less the other steps as the model has them,
    goes to products and softmax. Where the compiler does not know the sizes, two blocks run, one of them shorter: the
    slower one decides, in the model too.
    """
    found: dict[LoopKey, float] = {}
    for unit, (sized, loop, many) in product(KINDS, ((True, LOOP, sms), (False, UNSIZED_LOOP, 1))):
        key, measured = LoopKey(unit, sized), tile_seconds(flash2_pair(unit, (many * loop[0], *loop[1:])), loop)
        once, twice = (tiles_of_model(unit, rates_with(steps, sms, {key: ratio}), loop) for ratio in (1.0, 2.0))
        each = (1 + (measured - low) / (high - low) for low, high in zip(once, twice, strict=True))
        found[key] = max(min(each), 0.0)
    return found


def rates_with(
    steps: Steps, sms: int, loop_ratios: Mapping[LoopKey, float] | None = None, asking_ratio: float = 0.0
) -> Rates:
    """Rates of `steps` and their loops. All others are 1, and no latency."""
    ratios = dict(loop_ratios or {})
    return Rates(sms, *(1.0,) * 2, {}, *(1.0,) * 4, 0, steps=dict(steps), loop_ratios=ratios, asking_ratio=asking_ratio)


def tiles_of_model(unit: Unit, rates: Rates, loop: Loop = LOOP, shape: Shape = SHAPE, blocks: int = 1) -> list[float]:
    """Seconds of a tile of flash2 in the model, for each of the blocks of a head; so many on a multiprocessor."""
    short, long = (
        [BlockTimer(rates, occupancy, Memory(0.0)).stepwise_seconds(work, blocks) for work in works]
        for works, occupancy in (work_of_flash2(unit, loop[0], keys, shape) for keys in loop[1:])
    )
    return [(b - a) / tiles_in(loop, shape) for a, b in zip(short, long, strict=True)]


@cache
def work_of_flash2(unit: Unit, N: int, keys: int, shape: Shape) -> tuple[list[BlockWork], Occupancy]:
    """The work of its blocks, and how they occupy the GPU."""
    program = flash2(unit, N, keys, shape)
    occupancy = Occupancy(1, tensor_cores=unit == "tensor", warps=prod(program.kernels[0].block) // LANES)
    work = WorkCounter([occupancy])
    Unrolled(program.problem, work).run(find("flash2"), program.tiling)
    return work.blocks[0], occupancy


def asking_ratio(steps: Steps, ratios: Mapping[LoopKey, float], sms: int, shared_bytes: int) -> float:
    """The part of the time in which a warp asks for a tile that the other warps of its quarter wait, in the median of
    SHAPES.

    It makes the model's tile of flash2 as long as the measured one where as many blocks run as fit. Other causes that
    keep such blocks waiting are in it as well: some of them load at over half of the L2's rate.
    """
    return median(asking_of(shape, steps, ratios, sms, shared_bytes) for shape in SHAPES)


def asking_of(
    shape: Shape, steps: Steps, ratios: Mapping[LoopKey, float], sms: int, shared_bytes: int
) -> float:  # fmt: skip
    """The same part for one shape, by bisection between 0 and 1."""
    rows, keys, _ = shape
    loop = (rows, SHORT * keys, LONG * keys)
    blocks = blocks_that_fit(flash2("tensor", *loop[:2], shape), shared_bytes)
    measured = tile_seconds(flash2_pair("tensor", (rows * blocks * sms, *loop[1:]), shape), loop, shape)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        (tile,) = tiles_of_model("tensor", rates_with(steps, sms, ratios, middle), loop, shape, blocks)
        low, high = (middle, high) if tile < measured else (low, middle)
    return high


def far_seconds() -> float:
    """Extra seconds of a tile of flash2 whose K and V come from DRAM, one block alone. It waits once."""
    pair = flash2_pair("tensor", LOOP)
    return max(tile_seconds(pair, LOOP, cold=True) - tile_seconds(pair, LOOP), 0.0)


def flash2(unit: Unit, N: int, keys: int, shape: Shape = SHAPE) -> Program:
    """flash2 in tiles of a shape."""
    rows, columns, d = shape
    problem = Attention(N, d, Nk=keys, dtype=KINDS[unit][0], acc_dtype="fp32")
    return generate(find("flash2"), problem, Tiling(rows, columns))


def flash2_pair(unit: Unit, loop: Loop, shape: Shape = SHAPE) -> list[Program]:
    """flash2 with the fewer keys of a loop, and with the more."""
    return [flash2(unit, loop[0], keys, shape) for keys in loop[1:]]


def tile_seconds(pair: list[Program], loop: Loop, shape: Shape = SHAPE, cold: bool = False) -> float:
    """Measured seconds of a tile, from two launches of different length."""
    short, long = (launch_seconds(program, cold) for program in pair)
    return max(long - short, 1e-9) / tiles_in(loop, shape)


def tiles_in(loop: Loop, shape: Shape = SHAPE) -> int:
    """Key tiles by which the two launches of a loop differ."""
    return (loop[2] - loop[1]) // shape[1]
