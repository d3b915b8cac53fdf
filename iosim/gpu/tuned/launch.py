"""Tuned kernels for Hopper: flash2 and the three kernels of standard-tiled, which move the words of their schedules.

Their accumulators live in registers, so they need another M than their schedules. They show how fast a schedule can be.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...core.problem import DENSE, Attention, skips_tiles
from ...core.tiling import Tiling
from ...errors import InputError, MissingError
from ...schedules import find
from .. import device
from ..arrays import DeviceArray, DeviceArrays, Module, WordCounts

KERNELS = Path(__file__).parent
COUNTERS = (  # the tensor and direction that each word of the array `counts` counts
    ("Q", "reads"),
    ("K", "reads"),
    ("V", "reads"),
    ("O", "writes"),
    ("S", "writes"),
    ("S", "reads"),
    ("P", "writes"),
    ("P", "reads"),
    ("LSE", "writes"),
)
ROWS_Q = {"flash2.cu": 128, "standard.cu": 256}
ROWS_K = 128
PANEL = 64  # 2-byte words: the width of a box swizzled by 128 bytes
WARP_ROWS = 32  # rows of S that a warp stores at once
TUNED_FILES = {"flash2": "flash2.cu", "block-sparse-q": "flash2.cu", "standard-tiled": "standard.cu"}
MASKS = {"flash2.cu": ("dense", "causal"), "standard.cu": ("dense",)}  # that the kernels of a file have
TensorMap = np.void  # a CUtensorMap, which CuPy passes by value


@dataclass(frozen=True)
class TunedKernel:
    """The tuned kernels of a schedule for one problem: their tiles, compiler options and launch sizes."""

    schedule: str
    problem: Attention

    @property
    def tiling(self) -> Tiling:
        """The tiles that the kernels are written for."""
        return Tiling(ROWS_Q[self.file], ROWS_K)

    @property
    def causal(self) -> bool:
        """Whether the kernels apply the causal mask."""
        return self.problem.mask is not DENSE

    @property
    def file(self) -> str:
        """The name of the CUDA file."""
        return TUNED_FILES[self.schedule]

    @property
    def one_launch(self) -> bool:
        """Whether one launch does all; else there are three."""
        return self.file == "flash2.cu"

    def options(self, count: bool = False) -> tuple[str, ...]:
        """The compiler's options. With `count` the kernels count the words that they move."""
        p = self.problem
        flags = [f"-DD={p.d}", f"-DBC={self.tiling.rows_k}", f"-DCAUSAL={int(self.causal)}"]
        flags += ["-DBF16"] * (p.dtype == "bf16") + ["-DLSE"] * p.lse + ["-DIOSIM_COUNT"] * count
        flags += [f"-DROWS_Q={self.tiling.rows_q}", f"-DWARP_ROWS={WARP_ROWS}"]
        return (*flags, f"-DCHUNKS={self.row[0]}")

    @property
    def row(self) -> tuple[int, int]:
        """(16-byte chunks a thread, threads) of the softmax pass, where each block holds a row in registers."""
        chunks = -(-self.problem.Nk // 8)
        threads = min(1024, max(32, -(-chunks // 4 // 32) * 32))
        return -(-chunks // threads), threads

    @property
    def smem_bytes(self) -> dict[str, int]:
        """Shared memory of each kernel's tiles. A launch adds room for barriers and alignment."""
        rows_q, rows_k, d = self.tiling.rows_q, self.tiling.rows_k, self.problem.d
        q, k, s = rows_q * d * 2, rows_k * d * 2, rows_q * rows_k * 2
        return {"flash2": q + 4 * k, "scores": q + 2 * k + s, "softmax_rows": 0, "output": 2 * (s + k)}


def tuned(schedule: str, problem: Attention) -> TunedKernel:
    """The tuned kernels of a schedule; InputError if there are none for the problem."""
    p = problem
    masks = MASKS.get(TUNED_FILES.get(schedule, ""), ())
    skips = schedule not in TUNED_FILES or p.mask is DENSE or skips_tiles(find(schedule), p)
    one_launch = TUNED_FILES.get(schedule) == "flash2.cu"
    whole = p.Nk % 8 == 0 and p.Nk <= 65536
    rules = [
        ("--tuned --schedule", schedule, ", ".join(TUNED_FILES), schedule in TUNED_FILES),
        ("--tuned --dtype", p.dtype, "fp16 or bf16", p.dtype in ("fp16", "bf16")),
        ("--tuned --d", p.d, "64 or 128", p.d in (64, 128) and p.dv == p.d),
        ("--tuned --mask", p.mask, f"{' or '.join(masks)} for {schedule}", str(p.mask) in masks),
        ("--tuned --visit-all", "given", f"not with --mask {p.mask}", skips),
        ("--tuned --Nk", p.Nk, "a multiple of 8 up to 65536, for rows of whole 16-byte chunks", one_launch or whole),
    ]
    for option, found, allowed, holds in rules:
        if not holds:
            raise InputError(option, found, allowed)
    return TunedKernel(schedule, p)


@lru_cache(maxsize=64)
def source(file: str) -> str:
    """The text of a file and of all that it includes: one translation unit."""
    return re.sub(r'#include "(.+)"\n', lambda included: source(included[1]), (KERNELS / file).read_text())


@lru_cache(maxsize=64)
def module(file: str, options: tuple[str, ...]) -> Module:
    """The compiled kernels of a file; MissingError for a GPU that cannot run them."""
    if device.cupy().cuda.Device().compute_capability != "90":
        raise MissingError("the tuned kernels need a Hopper GPU (compute capability 9.0); leave --tuned out")
    return device.cubin_module(source(file), ("-std=c++17", "--gpu-architecture=sm_90a", *options))


def tensor_map(array: DeviceArray, rows: int) -> TensorMap:
    """The tensor map of a device array (instances, length, columns) of 2-byte words. Its boxes have `rows` x 64
    columns, with zeros past the end."""
    instances, length, columns = array.shape
    return _encoded(array, (columns, length, instances), (columns, length * columns), (PANEL, rows, 1))


def panel_map(array: DeviceArray, rows: int, columns: int) -> TensorMap:
    """The tensor map with panels of 64 columns as an axis of their own, so that a box of `columns` is copied row by
    row. Columns after the last whole panel are left out."""
    instances, length, width = array.shape
    dims, strides = (PANEL, max(1, width // PANEL), length, instances), (PANEL, width, length * width)
    return _encoded(array, dims, strides, (PANEL, columns // PANEL, rows, 1))


def _encoded(array: DeviceArray, dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> TensorMap:
    """The tensor map with these axes, innermost first. Its boxes are swizzled by 128 bytes. `strides` are in words, for
    every axis except the innermost."""
    room = ctypes.create_string_buffer(128 + 64)
    address, axes = -(-ctypes.addressof(room) // 64) * 64, len(dims)
    fp16, swizzle_128, promote_256 = 6, 3, 3
    fault = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(address),
        fp16,
        axes,
        ctypes.c_void_p(array.data.ptr),
        (ctypes.c_uint64 * axes)(*dims),
        (ctypes.c_uint64 * (axes - 1))(*(2 * n for n in strides)),
        (ctypes.c_uint32 * axes)(*box),
        (ctypes.c_uint32 * axes)(*[1] * axes),
        0,
        swizzle_128,
        promote_256,
        0,
    )
    if fault:
        raise MissingError(f"cuTensorMapEncodeTiled failed with {fault} for an array of shape {array.shape}")
    return np.frombuffer(ctypes.string_at(address, 128), dtype=np.dtype("V128"))[0]  # type: ignore[no-any-return]


def launches(
    kernel: TunedKernel, arrays: DeviceArrays, counts: DeviceArray, count: bool = False
) -> list[Callable[[], None]]:
    """The launches over device arrays (instances, rows, columns), each ready to be started."""
    p, compiled = kernel.problem, module(kernel.file, kernel.options(count))
    group, rows_q, rows_k = np.int32(p.heads // p.kv_heads), kernel.tiling.rows_q, kernel.tiling.rows_k
    N, Nk, blocks = np.int32(p.N), np.int32(p.Nk), (-(-p.N // rows_q), p.instances)
    maps = {name: tensor_map(arrays[name], rows) for name, rows in (("Q", rows_q), ("K", rows_k), ("V", rows_k))}

    def start(name: str, grid: tuple[int, ...], threads: int, *arguments: object) -> Callable[[], None]:
        function, smem = compiled.get_function(name), kernel.smem_bytes[name]
        if smem:
            smem += 1024 + 256  # alignment; barriers
            function.max_dynamic_shared_size_bytes = smem
        return lambda: function(grid, (threads,), arguments, shared_mem=smem)

    scale = p.d**-0.5
    if kernel.one_launch:
        base_2, lse = np.float32(scale * np.log2(math.e)), arrays.get("LSE", counts)
        inputs = maps["Q"], maps["K"], maps["V"]
        return [start("flash2", blocks, 384, *inputs, arrays["O"], lse, counts, N, Nk, group, base_2)]
    chunks, panels, scaled = np.int32(p.Nk // 8), panel_map(arrays["S"], WARP_ROWS, rows_k), np.float32(scale)
    return [
        start("scores", blocks, 384, maps["Q"], maps["K"], panels, arrays["S"], counts, N, Nk, group, scaled),
        start("softmax_rows", (p.N * p.instances,), kernel.row[1], arrays["S"], arrays["P"], counts, chunks),
        start("output", blocks, 384, tensor_map(arrays["P"], rows_q), maps["V"], arrays["O"], counts, N, Nk, group),
    ]


def tuned_arrays(kernel: TunedKernel, inputs: Mapping[str, object]) -> DeviceArrays:
    """Device arrays by tensor: inputs (instances, rows, d) rounded to the dtype, and outputs full of NaN."""
    p = kernel.problem
    shapes = {"O": (p.instances, p.N, p.d)}
    if not kernel.one_launch:
        shapes |= {"S": (p.instances, p.N, p.Nk), "P": (p.instances, p.N, p.Nk)}
    made = {name: device.to_device(array, p.dtype) for name, array in inputs.items()}
    made |= {name: device.cupy().full(shape, 0x7FFF, np.uint16) for name, shape in shapes.items()}
    if p.lse:
        made["LSE"] = device.cupy().full((p.instances, p.N), np.nan, np.float32)
    return made


def run_tuned(
    kernel: TunedKernel, inputs: Mapping[str, object], count: bool = False
) -> tuple[DeviceArrays, dict[str, tuple[int, int]]]:
    """(outputs on the device as floats, {tensor: (words read, words written)}) of one run. Without `count` no words are
    counted."""
    xp = device.cupy()
    arrays, counts = tuned_arrays(kernel, inputs), xp.zeros(len(COUNTERS), np.uint64)
    for launch in launches(kernel, arrays, counts, count):
        launch()
    xp.cuda.Device().synchronize()
    words = np.uint16 if kernel.problem.dtype == "bf16" else np.float16
    outputs = {
        name: device.from_device(array.view(words), kernel.problem.dtype)
        for name, array in arrays.items()
        if name not in inputs and name != "LSE"
    }
    if "LSE" in arrays:
        outputs["LSE"] = arrays["LSE"]
    return outputs, counted(counts) if count else {}


def counted(counts: WordCounts) -> dict[str, tuple[int, int]]:
    """The array `counts` as {tensor: (words read, words written)}. Tensors that do not move are left out."""
    found = dict(zip(COUNTERS, map(int, counts.get()), strict=True))
    names = dict.fromkeys(tensor for tensor, _ in COUNTERS)
    both = {name: (found.get((name, "reads"), 0), found.get((name, "writes"), 0)) for name in names}
    return {name: words for name, words in both.items() if any(words)}
