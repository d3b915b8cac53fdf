"""How fast this GPU does one tile step of the generated kernels: each is repeated in a kernel of its own.

The kernels are generated from texts, as all others. Of each step two things are measured, for two sizes of tile each,
which gives a fixed time and a rate: one block of as few warps as there can be, where a step is as long as its chain of
instructions; and as many blocks as fit, where it waits for units that it shares. The time of two loops of different
length is compared, so that what is outside of the loop does not count. Then some steps on ragged tiles; how much longer
than its steps, each repeated by itself, a tile of flash2 takes; and how much longer where it comes from DRAM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any

from ..cuts import LANES, MMA, WHOLE_TURNS
from ..l2 import Unrolled
from ..problem import Attention
from ..schedules import find
from ..tiling import Tiling
from ..timing import Memory, Rates, blocks_on, stepwise_seconds
from ..works import OUTPUT, RAGGED, UNSIZED, Occupancy, Work, Works
from . import device
from .cuda import generate
from .run import launch_all, prepare
from .step_texts import (
    FEWER_KEYS,
    KINDS,
    LONG,
    MARGIN,
    ODD,
    OF_KEYS,
    OF_RAGGED,
    PASSING,
    PRODUCTS,
    ROWS,
    SCALAR,
    SHORT,
    SIZES,
    STEPS,
    WIDE,
    program_of,
    work_of,
)

REPEATS = 15
FLUSH_BYTES = 1 << 28  # empties the L2, and keeps the GPU busy until a launch and its events wait in its queue


def every_step() -> Iterator[tuple[str, str, bool]]:
    """(kind, name, whether its tile is ragged)."""
    yield from ((kind, name, False) for kind in KINDS for name in STEPS)
    yield from ((kind, name, True) for kind in KINDS for name in OF_RAGGED)


def measure_steps(sms: int, shared_bytes: int) -> dict[str, list[float]]:
    """{"tensor_scores": [seconds and work a second of one warp, seconds a block and work a second of the GPU], ...}"""
    device.compile_all(every_program())
    found: dict[str, list[float]] = {}
    for kind, name, ragged in every_step():
        if name in PRODUCTS:
            found |= measure_product(name, kind, sms, shared_bytes)
        else:
            found |= measure_step(name, kind, ragged, sms, shared_bytes)
    for name in SCALAR:
        _, _, *full = measure_step(name, "simt", False, sms, shared_bytes)[f"simt_{name}"]
        found[f"simt_{name}"] = [0.0, in_passing(name, found), *full]
    return found


def every_program() -> Iterator[Any]:
    """All that will be measured, but for copies of single words."""
    for kind, name, ragged in every_step():
        for rows in (KINDS[kind][1] * few_warps(name, kind), ROWS):
            for size, times in product(sizes_of(name), (SHORT, LONG)):
                yield program_of(name, KINDS[kind][0], times, 1, rows, size, ragged)


def sizes_of(name: str) -> tuple[tuple[int, int], ...]:
    """Of a load that is short most is latency."""
    others = ODD if name in SCALAR else FEWER_KEYS if name in OF_KEYS else WIDE if name == "load" else SIZES
    return PRODUCTS.get(name, others)


def few_warps(name: str, kind: str) -> int:
    """Of a tile with 16 rows; but a warp that copies a whole tile by itself is not what is usual."""
    return 4 if name == "load" else 16 // KINDS[kind][1]


def measure_step(name: str, kind: str, ragged: bool, sms: int, shared_bytes: int) -> dict[str, list[float]]:
    """{name: fixed time and rate of a warp, with as few others as there can be; then those of a block among many}."""
    rates: list[float] = []
    for rows, parts, times in timed(name, kind, ragged, sms, shared_bytes):
        works = [parts * work_of(name, kind, rows, size, ragged) for size in sizes_of(name)]
        rates += line(works, times)
    return {f"{kind}_{name}{RAGGED if ragged else ''}": rates}


def measure_product(name: str, kind: str, sms: int, shared_bytes: int) -> dict[str, list[float]]:
    """The same of a product by its depth, and of its output."""
    products: list[float] = []
    outputs: list[float] = []
    for rows, parts, times in timed(name, kind, False, sms, shared_bytes):
        flops = [parts * work_of(name, kind, rows, size) for size in sizes_of(name)]
        if kind == "tensor" and parts < sms:
            flops[-1] *= 2  # which is narrow: half as many products of a warp are under way (works.py)
        words = [parts * rows * (keys if name == "scores" else d) for keys, d in sizes_of(name)]
        _, rate = line(flops[:2], times[:2])
        rest = [max(time - flop / rate, 1e-9) for flop, time in zip(flops, times, strict=True)]
        fixed, output_rate = line(words[1:], rest[1:])
        products += (fixed, rate)
        outputs += (0.0, output_rate)
    return {f"{kind}_{name}": products, f"{kind}_{name}{OUTPUT}": outputs}


def timed(name: str, kind: str, ragged: bool, sms: int, shared_bytes: int) -> Iterator[tuple[int, float, list[float]]]:
    """(rows, the parts of whose work count, seconds for each size): of a warp where there are few of them, and of all
    multiprocessors where there are as many blocks as fit."""
    alone, full = [], []
    dtype, warps = "fp16" if name in SCALAR else KINDS[kind][0], few_warps(name, kind)
    few = KINDS[kind][1] * warps
    for size in sizes_of(name):
        blocks = min(
            blocks_that_fit(program_of(name, dtype, SHORT, 1, size=size, ragged=each), shared_bytes)
            for each in {False, ragged}
        )
        alone.append(seconds(name, dtype, sms, few, size, ragged))
        full.append(seconds(name, dtype, sms * blocks, ROWS, size, ragged) / blocks)
    yield few, 1 / warps, alone
    yield ROWS, sms, full


def blocks_that_fit(program: Any, shared_bytes: int) -> int:
    """On a multiprocessor."""
    (kernel,) = program.kernels
    return blocks_on(shared_bytes, kernel.smem_bytes, prod(kernel.block), device.function(program, kernel).num_regs)


def line(work: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """(fixed seconds, work a second) through two measurements, the larger first, or one; nothing is negative."""
    if work[0] == work[-1]:
        return 0.0, work[0] / times[0]
    slope = max(times[0] - times[1], 0.0) / (work[0] - work[1])
    fixed = min(max(times[0] - slope * work[0], 0.0), times[0] / 2)
    return fixed, work[0] / (times[0] - fixed)


def seconds(name: str, dtype: str, heads: int, rows: int, size: tuple[int, int], ragged: bool = False) -> float:
    """Of one repetition, with a block for each head; of ragged tiles on the last: what is left of a longer time, but
    no less than its part of a whole one."""
    long, short = (launch_seconds(program_of(name, dtype, times, heads, rows, size, ragged)) for times in (LONG, SHORT))
    found = max(long - short, 1e-9) / (LONG - SHORT)
    if not ragged:
        return found
    whole = seconds(name, dtype, heads, rows, size)
    return max(found - WHOLE_TURNS * whole, whole * (rows - MARGIN) / rows)


def in_passing(name: str, found: dict[str, list[float]]) -> float:
    """Bytes a second of a warp that copies words of a row of S one by one, each tile once, between the steps of a
    launch on tensor cores: what it takes longer where the length of the row is odd, and what it takes where not."""
    text, rows = PASSING[name], KINDS["tensor"][1]
    odd, even = (
        launch_seconds(generate(text, passing(rows, LONG * ROWS - less), Tiling(rows, ROWS))) for less in (3, 0)
    )
    size = 2 * rows * ROWS
    fixed, rate, *_ = found["tensor_load_O" if name == "load_scalar" else "tensor_store"]
    return size / (max(odd - even, 0.0) / LONG + fixed + size / rate)


def passing(rows: int, keys: int) -> Attention:
    return Attention(rows, ROWS, Nk=keys, dtype="fp16", acc_dtype="fp32")


def loop_ratios(steps: dict[str, list[float]], sms: int) -> dict[str, float]:
    """{kind: how much longer steps of LOOPED take in the loop of flash2, one block alone, than repeated by themselves}:
    what is left of a tile's time when timing.py has taken the other steps from it. Then the same of two blocks, one of
    them smaller, whose sizes the compiler does not know; the slower one decides, on tensor cores the smaller:
    then this is too large."""
    found = {}
    for kind, less in product(KINDS, (0, MARGIN)):
        name = kind + UNSIZED if less else kind
        once, twice = (
            tile_of_model(kind, rates_with(steps, sms, loop_ratios={name: ratio}), less=less) for ratio in (1.0, 2.0)
        )
        found[name] = max(1 + (tile_seconds(kind, less=less) - once) / (twice - once), 0.0)
    return found


def rates_with(steps: dict[str, list[float]], sms: int, **more: Any) -> Rates:
    """Rates of nothing but `steps`."""
    each = {name: tuple(rates) for name, rates in steps.items()}
    return Rates(sms, *(1.0,) * 2, 0, {}, *(1.0,) * 4, 0, steps=each, **more)


def tile_of_model(kind: str, rates: Rates, rows: int = ROWS, blocks: int = 1, less: int = 0) -> float:
    """What timing.py makes of a tile of flash2, by one of so many blocks on a multiprocessor."""
    long, short = (
        stepwise_seconds(work, blocks, sit, rates, Memory(0.0))
        for work, sit in (work_of_flash2(kind, tiles, rows, less) for tiles in (LONG, SHORT))
    )
    return (long - short) / (LONG - SHORT)


@cache
def work_of_flash2(kind: str, tiles: int, rows: int, less: int) -> tuple[Work, Occupancy]:
    program = flash2(kind, tiles, rows, less=less)
    sit = Occupancy(1, tensor_cores=kind == "tensor", warps=prod(program.kernels[0].block) // LANES)
    works = Works([sit])
    Unrolled(program.problem, works).run(find("flash2"), program.tiling)
    return works.blocks[0][0], sit


def asking_ratio(steps: dict[str, list[float]], ratios: dict[str, float], sms: int, shared_bytes: int) -> float:
    """For how much of the time in which a warp asks for a tile no other warp of its part of the multiprocessor gets on:
    what makes timing.py's tile of flash2 as long as it is where as many blocks of one warp run as fit. By bisection,
    between nothing and all of it. What else keeps such blocks waiting, which load at over half of the L2's rate, is in
    it as well."""
    blocks = blocks_that_fit(flash2("tensor", SHORT, MMA), shared_bytes)
    measured, low, high = tile_seconds("tensor", rows=MMA, blocks=blocks * sms), 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        rates = rates_with(steps, sms, loop_ratios=ratios, asking_ratio=middle)
        low, high = (middle, high) if tile_of_model("tensor", rates, MMA, blocks) < measured else (low, middle)
    return high


def far_seconds() -> float:
    """How much longer a tile of flash2 takes, one block alone, where K and V come from DRAM. It waits once."""
    return max(tile_seconds("tensor", cold=True) - tile_seconds("tensor"), 0.0)


def flash2(kind: str, tiles: int, rows: int = ROWS, blocks: int = 1, less: int = 0) -> Any:
    """Blocks of 64 queries, or fewer, and so many tiles of 64 keys. `less`: there is another, with so many less."""
    problem = Attention(
        rows * (blocks + bool(less)) - less, SIZES[0][1], Nk=tiles * ROWS, dtype=KINDS[kind][0], acc_dtype="fp32"
    )
    return generate(find("flash2"), problem, Tiling(rows, ROWS))


def tile_seconds(kind: str, cold: bool = False, rows: int = ROWS, blocks: int = 1, less: int = 0) -> float:
    long, short = (launch_seconds(flash2(kind, tiles, rows, blocks, less), cold) for tiles in (LONG, SHORT))
    return max(long - short, 1e-9) / (LONG - SHORT)


def launch_seconds(program: Any, cold: bool = False) -> float:
    """The median by events. `cold`: the L2 holds other lines, and all waits in the queue of a GPU that is busy."""
    xp = device.cupy()
    rng = xp.random.default_rng(0)
    inputs = {
        name: rng.standard_normal(program.arrays[name].full_shape, dtype=xp.float32)
        for name in "QKV"
        if name in program.arrays
    }
    ready, flush = prepare(program, inputs), xp.empty(FLUSH_BYTES, xp.uint8) if cold else None
    return 1e-3 * device.milliseconds(lambda: launch_all(program, *ready), REPEATS, flush)
