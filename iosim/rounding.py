"""Element types that NumPy has not, as float32 that is rounded to them. Imports NumPy when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LARGEST_E4M3, SMALLEST_NORMAL_E4M3 = 448.0, -6  # the largest number; the exponent of the least normal one


def to_bf16(x: Any) -> Any:
    """Float32 with the lower 16 of its bits rounded away, to the nearest, ties to even. NaN and infinities stay."""
    import numpy as np

    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(x), rounded.astype(np.uint32).view(np.float32).reshape(np.shape(x)), x)


def to_e4m3(x: Any) -> Any:
    """Float32 on the grid of FP8 E4M3 (Micikevicius et al. 2022, arXiv 2209.05433): 3 bits after the first, exponents
    from -6, ties to even. What is larger than 448 becomes 448. Infinities, which E4M3 has not, stay: they mark what
    a mask hides and a maximum of nothing."""
    import numpy as np

    x = np.asarray(x, np.float32)
    _, exponent = np.frexp(x)
    step = np.ldexp(np.float32(1), np.maximum(exponent - 1, SMALLEST_NORMAL_E4M3) - 3)
    finite = np.isfinite(x)
    rounded = np.rint(np.where(finite, x, 0) / step) * step
    return np.where(finite, np.clip(rounded, -LARGEST_E4M3, LARGEST_E4M3), x).astype(np.float32)


ROUNDED: dict[str, Callable[[Any], Any]] = {"bf16": to_bf16, "fp8": to_e4m3}


def rounder(dtype: str) -> Callable[[Any], Any] | None:
    """The rounding of a type that is carried as float32; None for a type of NumPy's own."""
    return ROUNDED.get(dtype)
