"""Speeds of generated kernels on this GPU: flash1, flash2, and each launch of standard-tiled beside a copy.

`PYTHONPATH=. python3 validation/speed.py --softmax` compares plans of the softmax pass: words of a row for each thread,
rows a block.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product

import numpy as np

from iosim.core.problem import Attention
from iosim.core.tiling import parse_tiles
from iosim.counting.run import measure
from iosim.errors import IosimError
from iosim.gpu import device
from iosim.gpu.cuda.machine import generate
from iosim.gpu.cuda.plan import ROW_WORDS
from iosim.gpu.run import launch_all, prepare
from iosim.masks import parse_mask
from iosim.schedules import SCHEDULES
from validation.examples import FP16, FP32, HALF

SpeedRow = dict[str, str | float]


def copy_bandwidth(size_bytes: int = 2**31) -> float:
    """Bytes a second, read plus written, of a copy in the GPU's memory."""
    xp = device.cupy()
    source, target = xp.zeros(size_bytes // 8, np.float64), xp.empty(size_bytes // 8, np.float64)
    return 2 * size_bytes / (1e-3 * device.milliseconds(lambda: xp.copyto(target, source)))


def speeds() -> list[SpeedRow]:
    """TFLOP/s of flash1 and flash2, and the softmax pass of standard-tiled as a share of the copy bandwidth."""
    rows = []
    for name, tiles, d in product(["flash2", "flash1"], ["64x64", "128x64", "64x128"], [64, 128]):
        p = Attention(4096, d, heads=132, **FP16)
        rows.append(timed_row(name, tiles, p, None))
    rows.append(timed_row("flash2", "64x64", Attention(4096, 64, heads=132, **FP32), None))
    rows.append(timed_row("flash2", "128x64", Attention(4096, 128, heads=132, mask=parse_mask("causal"), **FP16), None))
    copy = copy_bandwidth()
    rows.append({"kernel": "copy of 2 GiB", "GB_per_s": copy / 1e9})
    for p, k in product(square_problems(), range(3)):
        rows.append(timed_row("standard-tiled", "128x128", p, k, copy))
    return rows


def square_problems() -> list[Attention]:
    """Problems with scores of a GiB or more."""
    sizes = product([1024, 4096, 8192, 16384], [FP16, FP32, HALF])
    return [Attention(N, 64, heads=max(1, 2**29 // N**2), **types) for N, types in sizes]


def softmax_plans() -> list[SpeedRow]:
    """The softmax pass with 16, 32 and 64 words of a row for each thread, and one or two rows a block."""
    copy = copy_bandwidth()
    plans = product(square_problems(), (16, 32, 64), (1, 2))
    rows = [timed_row("standard-tiled", "128x128", p, 1, copy, words, rows_s) for p, words, rows_s in plans]
    return [{"kernel": "copy of 2 GiB", "GB_per_s": copy / 1e9}, *rows]


def timed_row(name: str, tiles: str, p: Attention, launch: int | None, copy: float = 0.0,
          row_words: int = ROW_WORDS, rows_s: int = 1) -> SpeedRow:  # fmt: skip
    """A row with time and rates of all launches, or of the one with this number. Words and FLOPs are simulated."""
    tiling = replace(parse_tiles(tiles), rows_s=rows_s)
    program = generate(SCHEDULES[name], p, tiling, row_words=row_words)
    part = "" if launch is None else f" launch {launch}"
    if (row_words, rows_s) != (ROW_WORDS, 1):
        part += f" {row_words} words a thread, {rows_s} rows"
    label = f"{name}{part} {tiles} N={p.N} d={p.d} heads={p.heads} {p.dtype}/{p.acc_dtype} {p.mask}"
    xp = device.cupy()
    inputs = {n: xp.random.standard_normal(program.arrays[n].full_shape, np.float32) for n in ("Q", "K", "V")}
    try:
        arrays, tables, counts = prepare(program, inputs)
        launch_all(program, arrays, tables, counts)
        kernels = program.kernels if launch is None else program.kernels[launch : launch + 1]
        chosen = replace(program, kernels=kernels)
        ms = device.milliseconds(lambda: launch_all(chosen, arrays, tables, counts))
        registers = max(device.function(program, k).num_regs for k in kernels)
    except IosimError as fault:
        return {"kernel": label, "failed": str(fault)}
    result = measure(SCHEDULES[name], p, tiling)
    row: SpeedRow = {"kernel": label, "ms": ms, "smem_bytes": max(k.smem_bytes for k in kernels),
                "threads": kernels[0].block[0], "registers": registers}  # fmt: skip
    if launch is None:
        return {**row, "TFLOP_per_s": result["flops"] / ms / 1e9}
    step = result["steps"][launch]
    rate = (step["reads"] + step["writes"]) * p.word_bytes / ms * 1e3
    return {**row, "GB_per_s": rate / 1e9, "of_copy": rate / copy}


def row_text(row: SpeedRow) -> str:
    """A row as a line of text."""
    shown = (f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in row.items())
    return " ".join(["    ", *shown]).replace("kernel=", "")


if __name__ == "__main__":
    try:
        for row in softmax_plans() if "--softmax" in sys.argv else speeds():
            print(row_text(row))
    except IosimError as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
