"""Rounding of float32 to narrower types, as at the end of a kernel's step. Imports NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .typing import Array

SMALLEST_NORMAL_FP16, FIRST_ABOVE_FP16 = 2.0**-14, 65520.0  # from there on a number is rounded to infinity
WORTH_BITS = 4096  # numbers; NumPy's own conversion is faster for fewer
LARGEST_E4M3, SMALLEST_NORMAL_E4M3 = 448.0, -6  # the largest number; the exponent of the smallest normal number


def to_bf16(x: Array) -> Array:
    """Float32 rounded to its upper 16 bits: to the nearest, ties to even. NaN and infinities stay."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(x), rounded.astype(np.uint32).view(np.float32).reshape(np.shape(x)), x)


def to_fp16(x: Array) -> Array:
    """Float32 rounded to fp16, and kept as float32: to the nearest, ties to even. What is too large is infinite."""
    x = np.asarray(x)
    if x.dtype != np.float32 or x.size < WORTH_BITS:
        with np.errstate(over="ignore"):
            return np.asarray(x, np.float16).astype(np.float32)
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = ((bits + (0xFFF + ((bits >> 13) & 1))) & np.uint32(0xFFFFE000)).view(np.float32)
    size = np.abs(x)
    small, large = size < SMALLEST_NORMAL_FP16, ~((size < FIRST_ABOVE_FP16) | (size == np.inf))
    if small.any():  # a step of float32 beside 0.75 is the smallest number of fp16
        part = x[small]
        rounded[small] = np.copysign((part + np.float32(0.75)) - np.float32(0.75), part)
    if large.any():
        part = x[large]
        rounded[large] = np.where(np.isnan(part), part, np.copysign(np.float32(np.inf), part))
    return rounded


def to_e4m3(x: Array) -> Array:
    """Float32 rounded to FP8 E4M3 (Micikevicius et al. 2022, arXiv 2209.05433): 3 bits after the leading one, exponents
    from -6, ties to even. Numbers above 448 become 448. Infinities stay, although E4M3 has none: they mark hidden
    scores and the maximum of a row without scores."""
    x = np.asarray(x, np.float32)
    _, exponent = np.frexp(x)
    step = np.ldexp(np.float32(1), np.maximum(exponent - 1, SMALLEST_NORMAL_E4M3) - 3)
    finite = np.isfinite(x)
    rounded = np.rint(np.where(finite, x, 0) / step) * step
    return np.where(finite, np.clip(rounded, -LARGEST_E4M3, LARGEST_E4M3), x).astype(np.float32)


def e4m3_bits(x: Array) -> NDArray[np.uint8]:
    """The e4m3 encodings of numbers, rounded as by `to_e4m3`; 127 for NaN and infinity."""
    rounded = to_e4m3(x)
    size, finite = np.abs(np.where(np.isfinite(rounded), rounded, 0)), np.isfinite(rounded)
    exponent = np.maximum(np.frexp(size)[1] - 1, SMALLEST_NORMAL_E4M3)
    units = np.ldexp(size, 3 - exponent).astype(np.int64)  # 8 to 15, or 0 to 7 for subnormal numbers
    code = np.where(units < 8, units, units + 8 * (exponent - SMALLEST_NORMAL_E4M3))
    return np.where(finite, code | (np.signbit(rounded) << 7), 127).astype(np.uint8)


def of_e4m3_bits(bits: NDArray[np.uint8]) -> Array:
    """The numbers that e4m3 encodings stand for, in float32."""
    exponent, mantissa = np.maximum(bits >> 3 & 15, 1).astype(np.int32), (bits & 7) + np.where(bits & 120, 8, 0)
    size = np.ldexp(mantissa.astype(np.float32), exponent - 1 + SMALLEST_NORMAL_E4M3 - 3)
    return np.where(bits & 127 == 127, np.nan, np.where(bits & 128, -size, size)).astype(np.float32)


ROUNDED: dict[str, Callable[[Array], Array]] = {"fp16": to_fp16, "bf16": to_bf16, "fp8": to_e4m3}


def rounder(dtype: str) -> Callable[[Array], Array] | None:
    """The rounding of a type that is carried as float32; None for a type that NumPy computes in."""
    return ROUNDED.get(dtype)
