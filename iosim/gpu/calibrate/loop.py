"""Measures how much longer a tile of flash2 takes in its real loop than the sum of its steps timed alone.

calibrate/steps.py times the steps. The rest of a tile's time is explained by three numbers, found one after another:

- `loop_ratios`: how much longer products and softmax take in the loop.
- `asking_ratio`: the share of the time in which a warp asks for copies that other warps wait.
- `far_seconds`: the extra time of a tile whose K and V come from DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from math import prod
from statistics import median

from ...core.problem import Attention
from ...core.tiling import Tiling
from ...core.unrolled import Unrolled
from ...schedules import find
from ..cuda.machine import generate
from ..cuda.program import Program
from ..cuda.warp_split import LANES
from ..predict.block_work import BlockWork, LoopKey, Occupancy, StepKey, Unit, WorkCounter
from ..predict.launch_time import BlockTimer, Memory, Rates, StepRates
from .step_texts import LONG, MARGIN, SHORT, TILE_ROWS, TILE_SIZES, UNIT_TYPES
from .steps import blocks_that_fit, launch_seconds

Loop = tuple[int, int, int]
"""(queries, fewer keys, more keys) of two launches, which differ by some whole tiles."""
TileShape = tuple[int, int, int]
"""(queries of a tile, keys of a tile, d)."""

LOOP: Loop = (TILE_ROWS, SHORT * TILE_ROWS, LONG * TILE_ROWS)
SHAPE: TileShape = (TILE_ROWS, TILE_ROWS, TILE_SIZES[0][1])
# The shapes for `asking_ratio`, whose blocks have one warp, two and four.
ASKING_SHAPES: tuple[TileShape, ...] = tuple(
    (rows, *sizes) for rows in (16, 32, 64) for sizes in ((64, 64), (32, 64), (32, 128))
)
# Here the compiler does not know the tile sizes: the last tiles are smaller, and there are too few whole tiles for a
# separate loop. So the two launches can differ by at most two tiles, and the result is less exact.
UNSIZED_LOOP: Loop = (2 * TILE_ROWS - MARGIN, 2 * TILE_ROWS - MARGIN, 4 * TILE_ROWS - MARGIN)

RatesByStep = Mapping[StepKey, StepRates]


def loop_ratios(steps: RatesByStep, sms: int) -> dict[LoopKey, float]:
    """The time of products and softmax in the loop of flash2, over their time repeated alone, for each unit.

    The model predicts a tile's time with the ratio 1 and with the ratio 2; the measured time gives the ratio by linear
    interpolation. One block runs on each multiprocessor. Where the compiler does not know the sizes, two blocks run, of
    which one is shorter; the slower one decides.
    """
    found: dict[LoopKey, float] = {}
    for unit, (sized, loop, many) in product(UNIT_TYPES, ((True, LOOP, sms), (False, UNSIZED_LOOP, 1))):
        key, measured = LoopKey(unit, sized), tile_seconds(flash2_pair(unit, (many * loop[0], *loop[1:])), loop)
        once, twice = (tiles_of_model(unit, rates_with(steps, sms, {key: ratio}), loop) for ratio in (1.0, 2.0))
        each = (1 + (measured - low) / (high - low) for low, high in zip(once, twice, strict=True))
        found[key] = max(min(each), 0.0)
    return found


def rates_with(
    steps: RatesByStep, sms: int, loop_ratios: Mapping[LoopKey, float] | None = None, asking_ratio: float = 0.0
) -> Rates:
    """Rates of a GPU with these steps and ratios. All other rates are 1, which a block's own time does not use."""
    ratios = dict(loop_ratios or {})
    return Rates(sms, *(1.0,) * 2, {}, *(1.0,) * 4, 0, steps=dict(steps), loop_ratios=ratios, asking_ratio=asking_ratio)


def tiles_of_model(
    unit: Unit, rates: Rates, loop: Loop = LOOP, shape: TileShape = SHAPE, blocks: int = 1
) -> list[float]:
    """Predicted seconds of a tile of flash2 for each block of a head, with `blocks` on a multiprocessor."""
    short, long = (
        [BlockTimer(rates, occupancy, Memory(0.0)).stepwise_seconds(work, blocks) for work in of_head]
        for of_head, occupancy in (work_of_flash2(unit, loop[0], keys, shape) for keys in loop[1:])
    )
    return [(b - a) / tiles_in(loop, shape) for a, b in zip(short, long, strict=True)]


@cache
def work_of_flash2(unit: Unit, N: int, keys: int, shape: TileShape) -> tuple[list[BlockWork], Occupancy]:
    """(the work of each block of flash2, how the blocks occupy the GPU)."""
    program = flash2(unit, N, keys, shape)
    occupancy = Occupancy(1, tensor_cores=unit == "tensor", warps=prod(program.kernels[0].block) // LANES)
    work = WorkCounter([occupancy])
    Unrolled(program.problem, work).run(find("flash2"), program.tiling)
    return work.blocks[0], occupancy


def asking_ratio(steps: RatesByStep, ratios: Mapping[LoopKey, float], sms: int, shared_bytes: int) -> float:
    """The share of the time in which a warp asks for copies that the other warps of its quarter wait.

    With it the model's tile of flash2 takes as long as the measured one, with as many blocks as fit, in the median of
    ASKING_SHAPES. It includes other causes for which such blocks wait: some of them load at over half of the L2's rate.
    """
    return median(asking_of(shape, steps, ratios, sms, shared_bytes) for shape in ASKING_SHAPES)


def asking_of(
    shape: TileShape, steps: RatesByStep, ratios: Mapping[LoopKey, float], sms: int, shared_bytes: int
) -> float:
    """The `asking_ratio` of one shape, by bisection between 0 and 1."""
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
    """The extra seconds of a tile of flash2 whose K and V come from DRAM. One block is alone, and waits once a tile."""
    pair = flash2_pair("tensor", LOOP)
    return max(tile_seconds(pair, LOOP, cold=True) - tile_seconds(pair, LOOP), 0.0)


def flash2(unit: Unit, N: int, keys: int, shape: TileShape = SHAPE) -> Program:
    """The program of flash2 in tiles of a shape."""
    rows, columns, d = shape
    problem = Attention(N, d, Nk=keys, dtype=UNIT_TYPES[unit][0], acc_dtype="fp32")
    return generate(find("flash2"), problem, Tiling(rows, columns))


def flash2_pair(unit: Unit, loop: Loop, shape: TileShape = SHAPE) -> list[Program]:
    """The programs of flash2 with the fewer keys of a loop and with more keys."""
    return [flash2(unit, loop[0], keys, shape) for keys in loop[1:]]


def tile_seconds(pair: list[Program], loop: Loop, shape: TileShape = SHAPE, cold: bool = False) -> float:
    """Measured seconds of a tile: the difference of two launches over the tiles by which they differ. `cold`: K and V
    come from DRAM."""
    short, long = (launch_seconds(program, cold) for program in pair)
    return max(long - short, 1e-9) / tiles_in(loop, shape)


def tiles_in(loop: Loop, shape: TileShape = SHAPE) -> int:
    """The number of key tiles by which the two launches of a loop differ."""
    return (loop[2] - loop[1]) // shape[1]
