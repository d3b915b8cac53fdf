"""Types that the core shares. Only type checkers load this file, so it may import NumPy: import it under TYPE_CHECKING.

It imports no class of the core: those come from the files that define them.

In a count of one problem every size is an int. In one walk over many problems every size is an array, and all arrays
have the same shape. A `Size` is either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Size = int | NDArray[np.int64]
"""A number of positions, words or bytes."""
Same = TypeVar("Same", bound=Size)
"""A Size that is the same in a whole signature: numbers give a number, and arrays an array."""
Test = bool | NDArray[np.bool]
"""The result of a comparison of sizes."""
Places = slice[int, Size, None] | NDArray[np.int64]
"""Positions of an axis, as NumPy indexes it."""
Array = NDArray[np.floating]  # type: ignore[explicit-any]  # NumPy's own alias holds an Any
"""The values of a tensor or of a block."""
Bools = NDArray[np.bool]
"""The booleans of a mask: True where a query sees a key."""
Arrays = dict[str, Array]
"""Arrays of one head by the names of their tensors."""

Words = dict[str, tuple[int, int]]
"""{tensor: (words read, words written)}, of one head, from formulas that were derived by hand."""


class Step(Protocol):
    """A named tile step: a function that writes into its first arrays and reads the others.

    `flops` and `work` (steps/softmax.py) are optional attributes that say what it costs.
    """

    @property
    def __name__(self) -> str: ...

    __call__: Callable[..., None]  # type: ignore[explicit-any]  # each step has arguments of its own


class Values(Protocol):
    """An input of a step that is not a block: a part of a mask or of dropout, or a number."""

    def array(self) -> NDArray[np.generic]: ...  # type: ignore[explicit-any]
