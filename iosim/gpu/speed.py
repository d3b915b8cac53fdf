"""How fast generated kernels are on this GPU: flash1 and flash2, and the launches of standard-tiled beside a copy."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import IosimError
from ..experiment import measure, parse_mask
from ..problem import Attention
from ..schedules import SCHEDULES
from ..tiling import parse_tiles
from . import device
from .cuda import generate
from .run import launch_all, prepare

Row = dict[str, Any]


def speeds() -> list[Row]:
    """TFLOP/s of flash1 and flash2, and the softmax pass of standard-tiled as a share of the copy bandwidth."""
    rows = []
    fp16: Row = {"dtype": "fp16", "acc_dtype": "fp32"}
    for name, tiles, d in itertools.product(["flash2", "flash1"], ["64x64", "128x64", "64x128"], [64, 128]):
        p = Attention(4096, d, heads=132, **fp16)
        rows.append(timed(name, tiles, p, None))
    rows.append(timed("flash2", "64x64", Attention(4096, 64, heads=132, dtype="fp32"), None))
    rows.append(timed("flash2", "128x64", Attention(4096, 128, heads=132, mask=parse_mask("causal"), **fp16), None))
    copy = device.copy_bandwidth()
    rows.append({"kernel": "copy of 2 GiB", "GB_per_s": copy / 1e9})
    kinds: list[Row] = [fp16, {"dtype": "fp32"}, {"dtype": "fp16"}]
    for N, types in itertools.product([1024, 4096, 8192, 16384], kinds):
        p = Attention(N, 64, heads=max(1, 2**29 // N**2), **types)
        for k in range(3):
            rows.append(timed("standard-tiled", "128x128", p, k, copy))
    return rows


def timed(name: str, tiles: str, p: Attention, launch: int | None, copy: float = 0.0) -> Row:
    """Time of all launches, or of one; its bytes from the simulation."""
    program = generate(SCHEDULES[name], p, parse_tiles(tiles))
    part = "" if launch is None else f" launch {launch}"
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
    result = measure(SCHEDULES[name], p, parse_tiles(tiles))
    row = {"kernel": label, "ms": ms, "smem_bytes": max(k.smem_bytes for k in kernels), "threads": kernels[0].block[0],
           "registers": registers}  # fmt: skip
    if launch is None:
        return {**row, "TFLOP_per_s": result["flops"] / ms / 1e9}
    step = result["steps"][launch]
    rate = (step["reads"] + step["writes"]) * p.word_bytes / ms * 1e3
    return {**row, "GB_per_s": rate / 1e9, "of_copy": rate / copy}
