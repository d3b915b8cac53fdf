"""What a tile of flash2 takes in its loop beyond its steps (gpu/step_rates.py), each of which was repeated by itself.

How much longer it takes than timing.py makes of them, where the compiler knows the sizes of tiles and where not; how
much warps that ask for copies keep others waiting; and how much longer it takes where K and V come from DRAM.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from statistics import median
from typing import Any

from ..cuts import LANES
from ..problem import Attention
from ..schedules import find
from ..tiling import Tiling
from ..timing import Memory, Rates, stepwise_seconds
from ..unrolled import Unrolled
from ..works import UNSIZED, Occupancy, Work, Works
from .cuda import generate
from .step_rates import blocks_that_fit, launch_seconds
from .step_texts import KINDS, LONG, MARGIN, ROWS, SHORT, SIZES

LOOP = (ROWS, SHORT * ROWS, LONG * ROWS)  # queries, and keys of two launches that differ by some whole tiles
SHAPE = (ROWS, ROWS, SIZES[0][1])  # queries and keys of a tile, and d
# Those of which as many blocks as fit are measured: of one warp, of two and of four.
SHAPES = tuple((rows, *sizes) for rows in (16, 32, 64) for sizes in ((64, 64), (32, 64), (32, 128)))
# The compiler knows no size: the last tiles are shorter, and there are too few others for a loop of their own. So the
# two launches cannot differ by more than two tiles, and this is known less well.
UNSIZED_LOOP = (2 * ROWS - MARGIN, 2 * ROWS - MARGIN, 4 * ROWS - MARGIN)


def loop_ratios(steps: dict[str, list[float]], sms: int) -> dict[str, float]:
    """{kind: how much longer steps of LOOPED take in the loop of flash2 than repeated by themselves}, with a block on
    each multiprocessor: what is left of a tile's time when timing.py has taken the other steps from it. Then the same
    of two blocks, one of them shorter, whose sizes the compiler does not know; that decides which is the slower one, in
    the model too."""
    found: dict[str, float] = {}
    for kind, (suffix, loop, many) in product(KINDS, (("", LOOP, sms), (UNSIZED, UNSIZED_LOOP, 1))):
        name, measured = kind + suffix, tile_seconds(flash2_pair(kind, (many * loop[0], *loop[1:])), loop)
        once, twice = (
            tiles_of_model(kind, rates_with(steps, sms, loop_ratios={name: ratio}), loop) for ratio in (1.0, 2.0)
        )
        each = (1 + (measured - low) / (high - low) for low, high in zip(once, twice, strict=True))
        found[name] = max(min(each), 0.0)
    return found


def rates_with(steps: dict[str, list[float]], sms: int, **more: Any) -> Rates:
    """Rates of nothing but `steps`."""
    each = {name: tuple(rates) for name, rates in steps.items()}
    return Rates(sms, *(1.0,) * 2, {}, *(1.0,) * 4, 0, steps=each, **more)


def tiles_of_model(
    kind: str, rates: Rates, loop: tuple[int, int, int] = LOOP, shape: tuple[int, int, int] = SHAPE, blocks: int = 1
) -> list[float]:
    """What timing.py makes of a tile of flash2: by each of the blocks of a head, so many on a multiprocessor."""
    short, long = (
        [stepwise_seconds(work, blocks, sit, rates, Memory(0.0)) for work in works]
        for works, sit in (works_of_flash2(kind, loop[0], keys, shape) for keys in loop[1:])
    )
    return [(b - a) / tiles_in(loop, shape) for a, b in zip(short, long, strict=True)]


@cache
def works_of_flash2(kind: str, N: int, keys: int, shape: tuple[int, int, int]) -> tuple[list[Work], Occupancy]:
    program = flash2(kind, N, keys, shape)
    sit = Occupancy(1, tensor_cores=kind == "tensor", warps=prod(program.kernels[0].block) // LANES)
    works = Works([sit])
    Unrolled(program.problem, works).run(find("flash2"), program.tiling)
    return works.blocks[0], sit


def asking_ratio(steps: dict[str, list[float]], ratios: dict[str, float], sms: int, shared_bytes: int) -> float:
    """For how much of the time in which a warp asks for a tile no other warp of its part of the multiprocessor gets on:
    what makes timing.py's tile of flash2 as long as it is where as many blocks run as fit, in the median of SHAPES.
    What else keeps such blocks waiting, some of which load at over half of the L2's rate, is in it as well."""
    return median(asking_of(shape, steps, ratios, sms, shared_bytes) for shape in SHAPES)


def asking_of(
    shape: tuple[int, int, int], steps: dict[str, list[float]], ratios: dict[str, float], sms: int, shared_bytes: int
) -> float:
    """The same of one shape; by bisection, between nothing and all of it."""
    rows, keys, _ = shape
    loop = (rows, SHORT * keys, LONG * keys)
    blocks = blocks_that_fit(flash2("tensor", *loop[:2], shape), shared_bytes)
    measured, low, high = (
        tile_seconds(flash2_pair("tensor", (rows * blocks * sms, *loop[1:]), shape), loop, shape),
        0.0,
        1.0,
    )
    for _ in range(20):
        middle = (low + high) / 2
        rates = rates_with(steps, sms, loop_ratios=ratios, asking_ratio=middle)
        (tile,) = tiles_of_model("tensor", rates, loop, shape, blocks)
        low, high = (middle, high) if tile < measured else (low, middle)
    return high


def far_seconds() -> float:
    """How much longer a tile of flash2 takes, one block alone, where K and V come from DRAM. It waits once."""
    pair = flash2_pair("tensor", LOOP)
    return max(tile_seconds(pair, LOOP, cold=True) - tile_seconds(pair, LOOP), 0.0)


def flash2(kind: str, N: int, keys: int, shape: tuple[int, int, int] = SHAPE) -> Any:
    """In tiles of a shape."""
    rows, columns, d = shape
    problem = Attention(N, d, Nk=keys, dtype=KINDS[kind][0], acc_dtype="fp32")
    return generate(find("flash2"), problem, Tiling(rows, columns))


def flash2_pair(kind: str, loop: tuple[int, int, int], shape: tuple[int, int, int] = SHAPE) -> list[Any]:
    """With the fewer keys of a loop, and with the more."""
    return [flash2(kind, loop[0], keys, shape) for keys in loop[1:]]


def tile_seconds(
    pair: list[Any], loop: tuple[int, int, int], shape: tuple[int, int, int] = SHAPE, cold: bool = False
) -> float:
    short, long = (launch_seconds(program, cold) for program in pair)
    return max(long - short, 1e-9) / tiles_in(loop, shape)


def tiles_in(loop: tuple[int, int, int], shape: tuple[int, int, int] = SHAPE) -> int:
    return (loop[2] - loop[1]) // shape[1]
