"""Minimum, maximum and choice of numbers or arrays. NumPy is imported only where an array is met."""

from __future__ import annotations

from typing import Any


def smaller(a: Any, b: Any) -> Any:
    """The minimum of two numbers or arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    import numpy as np

    return np.minimum(a, b)


def larger(a: Any, b: Any) -> Any:
    """The maximum of two numbers or arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    import numpy as np

    return np.maximum(a, b)


def plus(a: Any, b: Any) -> Any:
    """The sum of two numbers or arrays; to a plain 0 nothing is added."""
    if isinstance(a, int) and a == 0:
        return b
    return a if isinstance(b, int) and b == 0 else a + b


def choose(test: Any, yes: Any, no: Any) -> Any:
    """`yes` where a test holds, else `no`."""
    if isinstance(test, bool):
        return yes if test else no
    import numpy as np

    return np.where(test, yes, no)


def clamp(x: Any, least: Any, most: Any) -> Any:
    """x, brought into least..most."""
    if isinstance(x, int) and isinstance(least, int) and isinstance(most, int):
        return least if x < least else most if x > most else x
    return smaller(larger(x, least), most)


def anywhere(test: Any) -> bool:
    """Whether a test, or any of an array of them, holds."""
    return test if isinstance(test, bool) else bool(test.any())
