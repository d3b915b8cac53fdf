"""What a tile of flash2 takes in its loop beyond its steps (gpu/step_rates.py), each of which was repeated by itself.

How much longer it takes than timing.py makes of them, where the compiler knows the sizes of tiles and where not; how
much warps that ask for copies keep others waiting; and how much longer it takes where K and V come from DRAM.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from typing import Any

from ..cuts import LANES, MMA
from ..l2 import Unrolled
from ..problem import Attention
from ..schedules import find
from ..tiling import Tiling
from ..timing import Memory, Rates, stepwise_seconds
from ..works import UNSIZED, Occupancy, Work, Works
from .cuda import generate
from .step_rates import blocks_that_fit, launch_seconds
from .step_texts import KINDS, LONG, MARGIN, ROWS, SHORT, SIZES

LOOP = (ROWS, SHORT * ROWS, LONG * ROWS)  # queries, and keys of two launches that differ by some whole tiles
# The compiler knows no size: the last tiles are shorter, and there are too few others for a loop of their own. So the
# two launches cannot differ by more than two tiles, and this is known less well.
UNSIZED_LOOP = (2 * ROWS - MARGIN, 2 * ROWS - MARGIN, 4 * ROWS - MARGIN)


def loop_ratios(steps: dict[str, list[float]], sms: int) -> dict[str, float]:
    """{kind: how much longer steps of LOOPED take in the loop of flash2, one block alone, than repeated by themselves}:
    what is left of a tile's time when timing.py has taken the other steps from it. Then the same of two blocks, one of
    them shorter, whose sizes the compiler does not know; that decides which is the slower one, in the model too."""
    found: dict[str, float] = {}
    for kind, (suffix, loop) in product(KINDS, (("", LOOP), (UNSIZED, UNSIZED_LOOP))):
        name, measured = kind + suffix, tile_seconds(kind, loop)
        once, twice = (
            tiles_of_model(kind, rates_with(steps, sms, loop_ratios={name: ratio}), loop) for ratio in (1.0, 2.0)
        )
        each = (1 + (measured - low) / (high - low) for low, high in zip(once, twice, strict=True))
        found[name] = max(min(each), 0.0)
    return found


def rates_with(steps: dict[str, list[float]], sms: int, **more: Any) -> Rates:
    """Rates of nothing but `steps`."""
    each = {name: tuple(rates) for name, rates in steps.items()}
    return Rates(sms, *(1.0,) * 2, 0, {}, *(1.0,) * 4, 0, steps=each, **more)


def tiles_of_model(
    kind: str, rates: Rates, loop: tuple[int, int, int] = LOOP, rows: int = ROWS, blocks: int = 1
) -> list[float]:
    """What timing.py makes of a tile of flash2: by each of the blocks of a head, so many on a multiprocessor."""
    N, *keys = loop
    short, long = (
        [stepwise_seconds(work, blocks, sit, rates, Memory(0.0)) for work in works]
        for works, sit in (works_of_flash2(kind, N, each, rows) for each in keys)
    )
    return [(b - a) / tiles_in(loop) for a, b in zip(short, long, strict=True)]


@cache
def works_of_flash2(kind: str, N: int, keys: int, rows: int) -> tuple[list[Work], Occupancy]:
    program = flash2(kind, N, keys, rows)
    sit = Occupancy(1, tensor_cores=kind == "tensor", warps=prod(program.kernels[0].block) // LANES)
    works = Works([sit])
    Unrolled(program.problem, works).run(find("flash2"), program.tiling)
    return works.blocks[0], sit


def asking_ratio(steps: dict[str, list[float]], ratios: dict[str, float], sms: int, shared_bytes: int) -> float:
    """For how much of the time in which a warp asks for a tile no other warp of its part of the multiprocessor gets on:
    what makes timing.py's tile of flash2 as long as it is where as many blocks of one warp run as fit. By bisection,
    between nothing and all of it. What else keeps such blocks waiting, which load at over half of the L2's rate, is in
    it as well."""
    _, short, long = LOOP
    blocks = blocks_that_fit(flash2("tensor", MMA, short, MMA), shared_bytes)
    measured, low, high = tile_seconds("tensor", (MMA * blocks * sms, short, long), MMA), 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        rates = rates_with(steps, sms, loop_ratios=ratios, asking_ratio=middle)
        (tile,) = tiles_of_model("tensor", rates, (MMA, short, long), MMA, blocks)
        low, high = (middle, high) if tile < measured else (low, middle)
    return high


def far_seconds() -> float:
    """How much longer a tile of flash2 takes, one block alone, where K and V come from DRAM. It waits once."""
    return max(tile_seconds("tensor", cold=True) - tile_seconds("tensor"), 0.0)


def flash2(kind: str, N: int, keys: int, rows: int = ROWS) -> Any:
    """In blocks of so many queries, and tiles of 64 keys."""
    problem = Attention(N, SIZES[0][1], Nk=keys, dtype=KINDS[kind][0], acc_dtype="fp32")
    return generate(find("flash2"), problem, Tiling(rows, ROWS))


def tile_seconds(kind: str, loop: tuple[int, int, int] = LOOP, rows: int = ROWS, cold: bool = False) -> float:
    N, *keys = loop
    short, long = (launch_seconds(flash2(kind, N, each, rows), cold) for each in keys)
    return max(long - short, 1e-9) / tiles_in(loop)


def tiles_in(loop: tuple[int, int, int]) -> int:
    return (loop[2] - loop[1]) // ROWS
