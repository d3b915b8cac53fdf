"""How fast this GPU does one tile step of the generated kernels: each is repeated in a kernel of its own.

The kernels are generated from texts, as all others. Of each step two things are measured, for two sizes of tile each,
which gives a fixed time and a rate: one block of 4 warps on a multiprocessor, where a step is as long as its chain of
instructions; and as many blocks as fit, where it waits for units that it shares. The time of two loops of different
length is compared, so that what is outside of the loop does not count. Then what a step takes more where it runs for
the first time; and some steps on ragged tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ..problem import Attention
from ..softmax import (
    accumulate,
    denormalise,
    minus_infinity,
    normalise,
    online_softmax,
    scores,
    softmax_rows,
    zeros,
)
from ..steps_more import add_maximum_and_sum, exponentials
from ..tiling import Tiling
from ..timing import ALONE_WARPS, blocks_on
from . import device
from .cuda import generate
from .run import launch_all, prepare

ROWS = 64
SIZES = ((64, 64), (64, 32))  # keys of a tile, d
FEWER_KEYS = ((64, 64), (32, 64))
# Those whose work falls with the keys, and not with d.
OF_KEYS = ("accumulate", "online_softmax", "softmax_rows", "add_maximum_and_sum", "exponentials")
RAGGED = (125, 64)  # keys of a row, which are two tiles, and d
WIDE = ((64, 128), (64, 32))
MARGIN = 4  # rows less than a tile of tensor cores has room for
# Those that go over a ragged tile in a loop of their own (tiles.cuh, steps.cuh).
OF_RAGGED = ("load", "online_softmax", "add_maximum_and_sum", "exponentials", "normalise", "store")
SHORT, LONG = 16, 80
REPEATS = 5
COLD_REPEATS = 15
FLUSH_BYTES = 1 << 28  # empties the L2, and keeps the GPU busy until a launch and its events wait in its queue
KINDS = {"tensor": ("fp16", ROWS), "simt": ("fp32", ROWS // 2)}  # type, rows of 4 warps
Repeat = Callable[..., None]

# What is repeated (machine, i, q, k, v, s, m, l, o), and its work of (rows, keys, d, bytes a word): flops of products,
# bytes of a copy, else words.
STEPS: dict[str, tuple[Repeat, Callable[[int, int, int, int], int]]] = {
    "scores": (lambda on, i, q, k, v, s, m, l, o: on.update(s, scores, q, k), lambda r, c, d, b: 2 * r * c * d),
    "accumulate": (lambda on, i, q, k, v, s, m, l, o: on.update(o, accumulate, s, v), lambda r, c, d, b: 2 * r * c * d),
    "online_softmax": (
        lambda on, i, q, k, v, s, m, l, o: on.update((s, m, l, o), online_softmax),
        lambda r, c, d, b: r * c,
    ),
    "softmax_rows": (lambda on, i, q, k, v, s, m, l, o: on.update(s, softmax_rows), lambda r, c, d, b: r * c),
    "add_maximum_and_sum": (
        lambda on, i, q, k, v, s, m, l, o: on.update((m, l), add_maximum_and_sum, s),
        lambda r, c, d, b: r * c,
    ),
    "exponentials": (lambda on, i, q, k, v, s, m, l, o: on.update(s, exponentials, m), lambda r, c, d, b: r * c),
    "normalise": (lambda on, i, q, k, v, s, m, l, o: on.update(o, normalise, l), lambda r, c, d, b: r * d),
    "denormalise": (lambda on, i, q, k, v, s, m, l, o: on.update(o, denormalise, l), lambda r, c, d, b: r * d),
    "zeros": (lambda on, i, q, k, v, s, m, l, o: on.update(o, zeros), lambda r, c, d, b: r * d),
    "load": (lambda on, i, q, k, v, s, m, l, o: on.load("Q", i), lambda r, c, d, b: r * d * b),
    "load_O": (lambda on, i, q, k, v, s, m, l, o: on.load("O", i), lambda r, c, d, b: r * d * b),
    "load_l": (lambda on, i, q, k, v, s, m, l, o: on.load("l", i), lambda r, c, d, b: r * 4),
    "store": (lambda on, i, q, k, v, s, m, l, o: on.store(o, "O", i), lambda r, c, d, b: r * d * b),
}
# Copies of single words, of 2 bytes: tiles of S whose rows start anywhere in HBM, of sizes that are known at run time.
SCALAR: dict[str, Callable[..., None]] = {
    "load_scalar": lambda on, i, j, s: on.load("S", i, j),
    "store_scalar": lambda on, i, j, s: on.store(s, "S", i, j),
}


def ragged_text_of(name: str, times: int) -> Callable[..., None]:
    """The same of the tiles of a row of S."""

    def repeated(chip: Any, p: Any, t: Tiling) -> None:
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            for j in chip.tiles(p.Nk, t.rows_k):
                s = chip.compute("S", (i, j), zeros)
                for _ in chip.tiles(times, 1):
                    SCALAR[name](chip, i, j, s)
                chip.store(s, "S", i, j)

    return repeated


def text_of(repeat: Repeat, times: int) -> Callable[..., None]:
    """All blocks of flash2, and one step again and again."""

    def again(chip: Any, *blocks: Any) -> None:
        for _ in chip.tiles(times, 1):
            repeat(chip, *blocks)

    return around(again)


def around(more: Callable[..., Any]) -> Callable[..., None]:
    """A tile of flash2 in each block, and something more. With several tiles a block has them all, one by one."""

    def text(chip: Any, p: Any, t: Tiling) -> None:
        for i in chip.tiles(p.N, t.rows_q, parallel=t.rows_q >= p.N):
            q, k, v = chip.load("Q", i), chip.load("K"), chip.load("V")
            o = chip.compute("O", (i, p.dv), zeros)
            l = chip.compute("l", (i,), zeros)
            m = chip.compute("m", (i,), minus_infinity)
            s = chip.compute("S", (i, p.Nk), scores, q, k)
            chip.update((s, m, l, o), online_softmax)
            chip.update(o, accumulate, s, v)
            more(chip, i, q, k, v, s, m, l, o)
            chip.store(o, "O", i)

    return text


def program_of(
    name: str, dtype: str, times: int, heads: int, rows: int = ROWS, size: tuple[int, int] = SIZES[0], less: int = 0
) -> Any:
    """`less`: rows that a second tile lacks, whose size is known at run time. `times` 0: the step stands in the text
    once, and not in a loop."""
    keys, d = size
    if name in SCALAR:
        problem = Attention(rows, d, Nk=keys, heads=heads, dtype=dtype, acc_dtype="fp32")
        return generate(ragged_text_of(name, times), problem, Tiling(rows, ROWS))
    problem = Attention(2 * rows - less if less else rows, d, Nk=keys, heads=heads, dtype=dtype, acc_dtype="fp32")
    text = text_of(STEPS[name][0], times) if times else around(STEPS[name][0])
    return generate(text, problem, Tiling(rows, keys))


def work_of(name: str, rows: int, keys: int, d: int, word_bytes: int) -> int:
    return rows * keys * word_bytes if name in SCALAR else STEPS[name][1](rows, keys, d, word_bytes)


def measure_steps(sms: int, shared_bytes: int) -> dict[str, list[float]]:
    """{"tensor_scores": [seconds and work a second of one warp, seconds a block and work a second of the GPU, seconds
    more where it runs for the first time], ...}"""
    found = {}
    for kind, (dtype, rows) in KINDS.items():
        for name in STEPS:
            found[f"{kind}_{name}"] = measure_step(name, dtype, rows, sizes_of(name), sms, shared_bytes)
            found[f"{kind}_{name}"] += [first_seconds(name, dtype, rows)]
    dtype, rows = KINDS["tensor"]
    for name in OF_RAGGED:
        found[f"tensor_{name}_ragged"] = measure_step(name, dtype, rows, sizes_of(name), sms, shared_bytes, MARGIN)
    for name in SCALAR:
        found[f"simt_{name}"] = measure_step(name, "fp16", ROWS // 2, (RAGGED, RAGGED), sms, shared_bytes)
    return found


def sizes_of(name: str) -> tuple[tuple[int, int], ...]:
    """The output of a product is the same in both; of a load, most of a short one is latency."""
    return FEWER_KEYS if name in OF_KEYS else WIDE if name == "load" else SIZES


def measure_step(
    name: str, dtype: str, rows: int, sizes: tuple[tuple[int, int], ...], sms: int, shared_bytes: int, less: int = 0
) -> list[float]:  # fmt: skip
    """Fixed time and rate of one warp of 4 on a multiprocessor; then those of one block among many."""
    alone, full, work_alone, work_full = [], [], [], []
    word_bytes = 4 if dtype == "fp32" else 2
    for keys, d in sizes:
        program = program_of(name, dtype, SHORT, 1, size=(keys, d), less=less)
        (kernel,) = program.kernels
        blocks = blocks_on(
            shared_bytes, kernel.smem_bytes, prod(kernel.block), device.function(program, kernel).num_regs
        )
        alone.append(seconds(name, dtype, sms, rows, (keys, d), less))
        full.append(seconds(name, dtype, sms * blocks, ROWS, (keys, d), less) / blocks)
        lacks = 0 if name == "load" else less  # margins are filled
        work_alone.append(work_of(name, rows - lacks, keys, d, word_bytes) / ALONE_WARPS)
        work_full.append(work_of(name, ROWS - lacks, keys, d, word_bytes) * sms)
    return [*line(work_alone, alone), *line(work_full, full)]


def line(work: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """(fixed seconds, work a second) through two measurements, the larger first; nothing is negative."""
    if work[0] == work[1]:
        return 0.0, work[0] / times[0]
    slope = max(times[0] - times[1], 0.0) / (work[0] - work[1])
    fixed = min(max(times[0] - slope * work[0], 0.0), times[0] / 2)
    return fixed, work[0] / (times[0] - fixed)


def seconds(name: str, dtype: str, heads: int, rows: int, size: tuple[int, int], less: int = 0) -> float:
    """Of one repetition, with a block for each head; with `less`, on the second tile."""
    long, short = (launch_seconds(program_of(name, dtype, times, heads, rows, size, less)) for times in (LONG, SHORT))
    found = max(long - short, 1e-9) / (LONG - SHORT)
    return max(found - seconds(name, dtype, heads, rows, size), 1e-9) if less else found


def first_seconds(name: str, dtype: str, rows: int) -> float:
    """What a step takes more where it runs for the first time, and its instructions are in no cache: after a tile of
    flash2 by one block, once more."""
    keys, d = SIZES[0]
    problem = Attention(rows, d, Nk=keys, dtype=dtype, acc_dtype="fp32")
    without = launch_seconds(generate(around(lambda *blocks: None), problem, Tiling(rows, keys)), cold=True)
    once = launch_seconds(program_of(name, dtype, 0, 1, rows), cold=True)
    return max(once - without - seconds(name, dtype, 1, rows, SIZES[0]), 0.0)


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
    repeats = COLD_REPEATS if cold else REPEATS
    return 1e-3 * device.milliseconds(lambda: launch_all(program, *ready), repeats, flush)
