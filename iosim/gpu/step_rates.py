"""How fast this GPU does one tile step of the generated kernels: each is repeated in a kernel of its own.

The kernels are generated from texts, as all others. Two rates a step: of one warp where nothing else runs on its part
of the multiprocessor (a step is then as long as its chain of instructions), and of the whole GPU with as many blocks as
fit (a step then waits for units that it shares). The time of two loops of different length is compared, so that what
is outside of the loop does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ..problem import Attention
from ..softmax import accumulate, minus_infinity, normalise, online_softmax, scores, softmax_rows, zeros
from ..tiling import Tiling
from ..timing import blocks_on
from . import device
from .cuda import generate
from .run import launch_all, prepare

TILE, D = 64, 64
SHORT, LONG = 16, 80
REPEATS = 5
KINDS = {"tensor": "fp16", "simt": "fp32"}
Repeat = Callable[..., None]

# What is repeated (chip, i, q, k, v, s, m, l, o), and its work: floating-point operations of products, else words.
STEPS: dict[str, tuple[Repeat, int]] = {
    "scores": (lambda chip, i, q, k, v, s, m, l, o: chip.update(s, scores, q, k), 2 * TILE * TILE * D),
    "accumulate": (lambda chip, i, q, k, v, s, m, l, o: chip.update(o, accumulate, s, v), 2 * TILE * TILE * D),
    "online_softmax": (lambda chip, i, q, k, v, s, m, l, o: chip.update((s, m, l, o), online_softmax), TILE * TILE),
    "softmax_rows": (lambda chip, i, q, k, v, s, m, l, o: chip.update(s, softmax_rows), TILE * TILE),
    "normalise": (lambda chip, i, q, k, v, s, m, l, o: chip.update(o, normalise, l), TILE * D),
    "load": (lambda chip, i, q, k, v, s, m, l, o: chip.load("Q", i), TILE * D),
    "load_O": (lambda chip, i, q, k, v, s, m, l, o: chip.load("O", i), TILE * D),
    "load_l": (lambda chip, i, q, k, v, s, m, l, o: chip.load("l", i), TILE),
    "store": (lambda chip, i, q, k, v, s, m, l, o: chip.store(o, "O", i), TILE * D),
}
LOADS = ("load", "load_O", "load_l")


def text_of(repeat: Repeat, times: int) -> Callable[..., None]:
    """All blocks of flash2, and one step again and again."""

    def repeated(chip: Any, p: Any, t: Tiling) -> None:
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            q, k, v = chip.load("Q", i), chip.load("K"), chip.load("V")
            o = chip.compute("O", (i, p.dv), zeros)
            l = chip.compute("l", (i,), zeros)
            m = chip.compute("m", (i,), minus_infinity)
            s = chip.compute("S", (i, p.Nk), scores, q, k)
            chip.update((s, m, l, o), online_softmax)
            chip.update(o, accumulate, s, v)
            for _ in chip.tiles(times, 1):
                repeat(chip, i, q, k, v, s, m, l, o)
            chip.store(o, "O", i)

    return repeated


def program_of(name: str, dtype: str, times: int, heads: int) -> Any:
    problem = Attention(TILE, D, Nk=TILE, heads=heads, dtype=dtype, acc_dtype="fp32")
    return generate(text_of(STEPS[name][0], times), problem, Tiling(TILE, TILE))


def measure_steps(sms: int, shared_bytes: int, l2_latency_seconds: float) -> dict[str, list[float]]:
    """{"tensor_scores": [work a second of one warp alone, of the whole GPU], ...}. Of a load alone, the latency that
    is measured by itself is not part."""
    found = {}
    for kind, dtype in KINDS.items():
        for name, (_, work) in STEPS.items():
            (kernel,) = program_of(name, dtype, SHORT, 1).kernels
            registers = device.function(program_of(name, dtype, SHORT, 1), kernel).num_regs
            threads = prod(kernel.block)
            blocks = blocks_on(shared_bytes, kernel.smem_bytes, threads, registers)
            alone, full = seconds(name, dtype, sms), seconds(name, dtype, sms * blocks)
            alone = max(alone - l2_latency_seconds, 1e-9) if name in LOADS else alone
            found[f"{kind}_{name}"] = [work / (threads // 32) / alone, work * sms * blocks / full]
    return found


def seconds(name: str, dtype: str, heads: int) -> float:
    """Of one repetition, with a block for each head."""
    long, short = (launch_seconds(program_of(name, dtype, times, heads)) for times in (LONG, SHORT))
    return (long - short) / (LONG - SHORT)


def launch_seconds(program: Any) -> float:
    """The median by events."""
    xp = device.cupy()
    rng = xp.random.default_rng(0)
    inputs = {name: rng.standard_normal(program.arrays[name].full_shape, dtype=xp.float32) for name in "QKV"}
    ready, times = prepare(program, inputs), []
    for _ in range(2 + REPEATS):
        start, stop = xp.cuda.Event(), xp.cuda.Event()
        start.record()
        launch_all(program, *ready)
        stop.record()
        stop.synchronize()
        times.append(xp.cuda.get_elapsed_time(start, stop) * 1e-3)
    return float(sorted(times[2:])[REPEATS // 2])
