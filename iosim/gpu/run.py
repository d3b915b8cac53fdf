"""Runs a program on the GPU, from inputs to outputs and counted words. Outputs start as NaN, so that gaps show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from . import device
from .arrays import DeviceArray, DeviceArrays, DeviceTables, WordCounts
from .cuda.program import HbmArray, Program


def make_arrays(program: Program, inputs: Mapping[str, object]) -> DeviceArrays:
    """Device arrays of all tensors of a program, of shape (instances, *axes).

    `inputs` are floats (NumPy or CuPy) by tensor, of shape (instances, *axes) or (batch, heads, *axes), or of shape
    *axes if all instances are alike. K and V have batch x kv_heads instances. A tensor that is not an input holds its
    initial value if the schedule reads it before writing (O = 0, l = 0, m = -inf), else NaN in every word.
    """
    return {
        name: _input(array, inputs[name]) if name in inputs else _poison(array, name in program.starts)
        for name, array in program.arrays.items()
    }


def _input(array: HbmArray, value: object) -> DeviceArray:
    """The device array of an input."""
    xp = device.cupy()
    given = xp.asarray(value)
    if given.shape == array.shape:
        given = xp.broadcast_to(given, array.full_shape)
    given = given.reshape(array.full_shape)
    if array.dtype == "int32":
        return given.astype(np.int32)  # type: ignore[no-any-return]
    return device.to_device(given, array.dtype)


def _poison(array: HbmArray, initialised: bool) -> DeviceArray:
    """The device array of a tensor that is not an input."""
    if array.dtype == "int32":
        return device.cupy().full(array.full_shape, -1, np.int32)  # type: ignore[no-any-return]
    fill = array.initial if initialised and array.initial is not None else np.nan
    return device.to_device(device.cupy().full(array.full_shape, fill, np.float32), array.dtype)


def launch_all(program: Program, arrays: DeviceArrays, tables: DeviceTables, counts: WordCounts) -> None:
    """Start all launches of a program, in order, on the current stream, without waiting for them."""
    for kernel in program.kernels:
        device.launch(program, kernel, arrays, tables, counts)


def prepare(program: Program, inputs: Mapping[str, object]) -> tuple[DeviceArrays, DeviceTables, WordCounts]:
    """(arrays, tables, counts) on the device, as `launch_all` takes them; counts are zero."""
    xp = device.cupy()
    tables = {name: xp.asarray(words) for name, words in program.tables.items()}
    return make_arrays(program, inputs), tables, xp.zeros(max(1, len(program.counters)), np.uint64)


def run_on_device(program: Program, inputs: Mapping[str, object]) -> tuple[DeviceArrays, dict[str, tuple[int, int]]]:
    """(outputs, counts) of one run.

    `outputs` is {tensor: CuPy array (instances, *axes)} of every tensor that is not an input, or that a kernel writes,
    as floats of its dtype (bf16 as float32). `counts` is {tensor: (words read, words written)} over all instances, as
    the kernels counted them. It is empty unless the program was generated with count=True.
    """
    arrays, tables, counts = prepare(program, inputs)
    launch_all(program, arrays, tables, counts)
    device.cupy().cuda.Device().synchronize()
    outputs = {
        name: device.from_device(arrays[name], array.dtype)
        for name, array in program.arrays.items()
        if name not in inputs or (name, "writes") in program.counters
    }
    return outputs, program.counts_by_tensor(counts.get()) if program.count else {}
