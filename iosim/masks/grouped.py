"""A mask over packed rows: the query heads of a group stand in the rows of one query, so row r is the query r // group.

Every tile is counted as under the mask of a strip of diagonals. Query x sees the keys y with low <= y - x <= high. If
keys are measured in steps of `group`, row r sees those with group low <= group y - r <= group high, up to a remainder
that never decides about a tile. So the counts are those of a strip whose key tiles are `group` times as wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, cast

from ..core.tiling import S
from ..errors import InputError
from .closed_form import Axis, Counts, Strip, strip_counts
from .expression import unit
from .mask import BoundMask, Mask, axis
from .strips import strip_of

if TYPE_CHECKING:
    from ..core.mask_types import Mask as AnyMask
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Bools, Size


def grouped(mask: AnyMask, group: int) -> AnyMask | None:
    """The mask of packed rows; None if it is not a strip of diagonals, as `causal` and `window:W` are."""
    if not isinstance(mask, Mask) or unit(mask.expr) != "tokens" or strip_of(mask.expr, 1, 1, 0) is None:
        return None
    return cast("AnyMask", Grouped(mask, group))


@dataclass(frozen=True)
class Grouped:
    """The mask of packed rows, not yet bound to sizes. N counts packed rows."""

    mask: Mask
    group: int
    tile_units = False
    counts_arrays = True
    counts_at_once = True

    def __str__(self) -> str:
        return self.mask.text

    @property
    def is_causal(self) -> bool:
        """Whether the rows of each query see what `causal` shows them."""
        return self.mask.is_causal

    def bind(self, problem: Attention[Size], tiling: Tiling[Size], skips: bool = True) -> BoundGrouped[Size]:
        """The mask over a problem's packed rows and keys in tiles."""
        return BoundGrouped(self.mask, problem.N, problem.Nk, tiling.rows_q, tiling.rows_k, bool(skips), self.group)


@dataclass(frozen=True)
class BoundGrouped(BoundMask[S], Generic[S]):
    """A mask over N packed rows and Nk keys in tiles."""

    group: int = 1

    @property
    def shift(self) -> S:
        """Nk less the number of queries: the last query then sees the last key."""
        return self.Nk - self.N // self.group  # type: ignore[operator,return-value]  # both are S

    def visible(self, x0: int, rows: int, y0: int, keys: int) -> Bools:
        """Booleans (rows x keys) of packed rows and keys from (x0, y0), True where visible."""
        first = x0 // self.group
        tokens = (x0 + rows - 1) // self.group - first + 1
        return super().visible(first, tokens, y0, keys).repeat(self.group, axis=0)[x0 - first * self.group :][:rows]

    @cached_property
    def _counts(self) -> Counts:
        rows, cols = axis(self.N, self.rows_q, "tokens"), axis(self.Nk, self.rows_k, "tokens")
        strip, g = self.strip()
        if self.from_end:
            raise InputError("--short-tile", "first, for packed query heads under a mask", "last, or --gqa repeat")
        wide: Axis[Size] = Axis(cols.whole, g * cols.size, g * cols.rest)
        return strip_counts(strip, rows, wide)

    def strip(self) -> tuple[Strip, int]:
        """The strip of packed rows and keys in steps of `group`."""
        g, queries = self.group, self.N // self.group  # type: ignore[operator]
        strip = strip_of(self.mask.expr, queries, self.Nk, self.shift)  # type: ignore[arg-type]  # S is a Size
        assert strip is not None
        return Strip(g * strip.low, g * strip.high), g
