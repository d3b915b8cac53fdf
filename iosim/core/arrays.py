"""Minimum, maximum, sum and choice of numbers or arrays. NumPy is imported only where an array is met."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .typing import Size, Test


def smaller(a: Size, b: Size) -> Size:
    """The minimum of two numbers or arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    import numpy as np

    return np.minimum(a, b)


def larger(a: Size, b: Size) -> Size:
    """The maximum of two numbers or arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    import numpy as np

    return np.maximum(a, b)


def plus(a: Size, b: Size) -> Size:
    """The sum of two numbers or arrays. A plain 0 leaves the other as it is."""
    if isinstance(a, int) and a == 0:
        return b
    return a if isinstance(b, int) and b == 0 else a + b


def choose(test: Test, yes: Size, no: Size) -> Size:
    """`yes` where a test holds, else `no`."""
    if isinstance(test, bool):
        return yes if test else no
    import numpy as np

    return np.where(test, yes, no)


def clamp(x: Size, least: Size, most: Size) -> Size:
    """x, brought into least..most."""
    if isinstance(x, int) and isinstance(least, int) and isinstance(most, int):
        return least if x < least else most if x > most else x
    return smaller(larger(x, least), most)


def anywhere(test: Test) -> bool:
    """Whether a test holds, or any of an array of them."""
    return test if isinstance(test, bool) else bool(test.any())
