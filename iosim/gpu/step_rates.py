"""How fast this GPU does one tile step of the generated kernels: each is repeated in a kernel of its own.

The kernels are generated from texts, as all others. Of each step two things are measured, for two sizes of tile each,
which gives a fixed time and a rate: one block of as few warps as there can be, where a step is as long as its chain of
instructions; and as many blocks as fit, where it waits for units that it shares. The time of two loops of different
length is compared, so that what is outside of the loop does not count. Then some steps on ragged tiles; and how much
longer a step takes the first time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from statistics import median
from typing import Any

from ..cuts import WHOLE_TURNS
from ..problem import Attention
from ..tiling import Tiling
from ..timing import blocks_on
from ..works import OUTPUT, RAGGED
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
    chain_of,
    program_of,
    work_of,
)

REPEATS = 15
FLUSH_BYTES = 1 << 28  # empties the L2, and keeps the GPU busy until a launch and its events wait in its queue


def every_step() -> Iterator[tuple[str, str, bool]]:
    """(kind, name, whether its tile is ragged)."""
    yield from ((kind, name, False) for kind in KINDS for name in STEPS if name != "load_Q")
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
                if name == "load_Q":  # whose whole tiles are measured only before a ragged one
                    yield program_of(name, KINDS[kind][0], times, 1, rows, size)


def sizes_of(name: str) -> tuple[tuple[int, int], ...]:
    others = ODD if name in SCALAR else FEWER_KEYS if name in OF_KEYS else SIZES
    return {**PRODUCTS, **WIDE}.get(name, others)


def few_warps(name: str, kind: str) -> int:
    """Of a tile with 16 rows; but of so few rows there is little to copy."""
    return 4 if name == "load_Q" else 16 // KINDS[kind][1]


def measure_step(name: str, kind: str, ragged: bool, sms: int, shared_bytes: int) -> dict[str, list[float]]:
    """{name: fixed time and rate of a warp, with as few others as there can be; then those of a block among many}."""
    rates: list[float] = []
    for rows, parts, times in timed(name, kind, ragged, sms, shared_bytes):
        work = work_of if parts > 1 else chain_of
        works = [parts * work(name, kind, rows, size, ragged) for size in sizes_of(name)]
        rates += line(works, times)
    return {f"{kind}_{name.removesuffix('_Q')}{RAGGED if ragged else ''}": rates}


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


def first_seconds() -> dict[str, float]:
    """{kind: how much longer a step takes the first time in a launch than any time after, in the median of all}. Not
    because of its words, which are in the L2 and on the chip."""
    device.compile_all(
        program_of(name, KINDS[kind][0], times, 1) for kind in KINDS for name in STEPS for times in (0, 1)
    )
    found = {}
    for kind, (dtype, _) in KINDS.items():
        longer = []
        for name in STEPS:
            none, once, short, long = (launch_seconds(program_of(name, dtype, n, 1)) for n in (0, 1, SHORT, LONG))
            longer.append(once - none - (long - short) / (LONG - SHORT))
        found[kind] = max(median(longer), 0.0)
    return found


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
