"""The mask of the pairs with low <= y - x <= high: what a part of a causal mask or a window is, seen by itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, cast

from ..core.problem import DENSE
from .atoms import Diagonals, Row
from .expression import Atom
from .mask import Mask, parse

if TYPE_CHECKING:
    from ..core.mask_types import Mask as AnyMask
    from ..core.typing import Size, Test
    from .atoms import Of
    from .expression import Value

CAUSAL = parse("causal")
BETWEEN = Row("between", None, "low <= y - x <= high", tiles=False)  # not in the table: no text stands for it


@dataclass(frozen=True)
class Between(Atom):
    """The predicate low <= y - x <= high, for the places x of queries. No text of a mask names it."""

    kind: str = "between"
    low: int = 0
    high: int = 0

    @property
    def row(self) -> Row:
        return BETWEEN

    @cached_property
    def shape(self) -> Diagonals:
        return Diagonals(self.low, self.high)

    def sees(self, r: Size, y: Size, shift: Size, n: Value | Of[object] | None = None) -> Test:
        x = r + shift
        return (y - x >= self.low) & (y - x <= self.high)


@lru_cache(maxsize=4096)
def between(low: int, high: int, N: int, Nk: int) -> AnyMask:
    """The mask of N queries and Nk keys that shows low <= y - r <= high for the query of number r: dense or causal by
    name where it is that."""
    everything, last = low <= 1 - N, high >= Nk - 1
    if everything and last:
        return DENSE
    if everything and high == Nk - N:
        return CAUSAL
    return cast("AnyMask", Mask(f"{low} <= y - r <= {high}", Between(low=low - Nk + N, high=high - Nk + N)))
