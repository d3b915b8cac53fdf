"""Minimum, maximum, sum, choice and bisection, of numbers or of arrays. NumPy is loaded only for arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .typing import Size, Test


MOST_KEPT_BYTES = 31 * 2**20  # glibc heeds no array of 32 MiB or more (mallopt(3), M_MMAP_THRESHOLD)


@cache
def keep_freed_memory() -> None:
    """Let this process keep the memory of freed arrays for the next ones: up to 62 MiB.

    glibc gives the memory of an array back to the system, unless a larger array was freed before. Every step of a walk
    over arrays would then wait for page faults. So a large array is made here, and freed at once.
    """
    import numpy as np

    np.empty(MOST_KEPT_BYTES, np.uint8)


def smaller(a: Size, b: Size) -> Size:
    """The minimum of two numbers or arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return a if a < b else b
    import numpy as np

    return np.minimum(a, b)


def larger(a: Size, b: Size) -> Size:
    """The maximum of two numbers or arrays."""
    if isinstance(a, int) and isinstance(b, int):
        return a if a > b else b
    import numpy as np

    return np.maximum(a, b)


def plus(a: Size, b: Size) -> Size:
    """The sum of two numbers or arrays. If one is the number 0, the other is returned as it is."""
    if isinstance(a, int) and a == 0:
        return b
    return a if isinstance(b, int) and b == 0 else a + b


def sums(values: Size, owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the values of each owner, in their type, which whoever makes the arrays proves to hold it
    (`kind_of` of search/best.py, `fits_int64` of counting/sweep.py). `owners` are numbers from 0, in order."""
    import numpy as np

    return np.add.reduceat(values, np.flatnonzero(np.diff(owners, prepend=-1)))


def total(values: NDArray[np.int64]) -> int:
    """The sum of an array, exactly: in Python's integers unless int64 is sure to hold it."""
    most = 0 if values.dtype == object or not values.size else max(int(values.max()), -int(values.min()))
    return int((values if most * values.size < 2**63 else values.astype(object)).sum())


def largest(sizes: Size) -> int:
    """The largest of some sizes."""
    return sizes if isinstance(sizes, int) else int(sizes.max())


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


@overload
def last_true(test: Callable[[int], bool], most: int) -> int: ...


@overload
def last_true(test: Callable[[Size], Test], most: Size) -> Size: ...


def last_true(test: Callable[..., Test], most: Size) -> Size:  # type: ignore[explicit-any]
    """The largest n from 1 to `most` for which a test holds; 0 if there is none. The test must hold up to some n, and
    fail after it. If `most` is an array, so is n."""
    low, high = 0 * most, most
    while anywhere(low < high):
        middle = larger((low + high + 1) // 2, 1)  # an element whose search is over tests its answer again
        holds = test(middle)
        low, high = choose(holds, middle, low), choose(holds, high, larger(middle - 1, low))
    return low


def at_first(test: Test, *values: object) -> tuple[object, ...]:
    """The values at the first point at which a test of arrays is true, for messages. Without arrays they are as they
    are."""
    if not hasattr(test, "ravel"):
        return values
    import numpy as np

    found, *arrays = np.broadcast_arrays(test, *(np.asarray(value, object) for value in values))
    place = int(np.argmax(found.ravel()))
    return tuple(array.ravel()[place] for array in arrays)
