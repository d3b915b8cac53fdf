"""Minimum, maximum, sum and choice, of numbers or of arrays. NumPy is loaded only for arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    """The sum of two numbers or arrays. If one is the number 0, the other is returned as it is."""
    if isinstance(a, int) and a == 0:
        return b
    return a if isinstance(b, int) and b == 0 else a + b


def sums(values: Size, owners: NDArray[np.int64]) -> Size:
    """The sum of the values of each owner. `owners` are numbers from 0, in order."""
    import numpy as np

    return np.add.reduceat(values, np.flatnonzero(np.diff(owners, prepend=-1)))


def choose(test: Test, yes: Size, no: Size) -> Size:
    """`yes` where the test is true, `no` elsewhere."""
    if isinstance(test, bool):
        return yes if test else no
    import numpy as np

    return np.where(test, yes, no)


def clamp(x: Size, least: Size, most: Size) -> Size:
    """x limited to the range from `least` to `most`."""
    if isinstance(x, int) and isinstance(least, int) and isinstance(most, int):
        return least if x < least else most if x > most else x
    return smaller(larger(x, least), most)


def anywhere(test: Test) -> bool:
    """Whether the test is true; for an array, whether any element is."""
    return test if isinstance(test, bool) else bool(test.any())
