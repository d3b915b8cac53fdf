"""The keys that a query tile needs under a mask: all keys up to the last one that it sees.

    for j in chip.tiles(seen(p, i), t.rows_k):      # the keys up to the last one that query tile i sees

If no tile may be left out, the query tile needs all keys.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import Span
from ..core.machine import Tile
from ..errors import FoldingError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.problem import Attention
    from ..core.typing import Bools, BoundMask, Size, SizeClasses
    from . import mask as masks


class Seen(Span):
    """The keys from the first of the axis to the last one that any query of `tile` sees."""

    __slots__ = ("mask",)
    start = 0  # type: ignore[assignment]

    def __init__(self, mask: BoundMask, tile: Tile):
        self.mask, self.tile, self.length = cast("masks.BoundMask", mask), tile, mask.Nk

    @property
    def size(self) -> int:  # type: ignore[override]
        keys = self.mask.visible(self.tile.start, self.tile.size, 0, self.mask.Nk).any(axis=0)
        found = cast("Bools", keys).nonzero()[0]
        return int(found[-1]) + 1 if len(found) else 0

    @property
    def extent(self) -> Size:
        return self.length

    def rows(self, rows: SizeClasses) -> SizeClasses:
        self._alone(rows)
        kinds = Counter(reaches(self.mask))
        return [(times, {self.tile: height, self: keys}) for (height, keys), times in kinds.items()]


def seen(p: Attention, i: Tile) -> Size | Tile:
    """The keys that a query tile needs: those up to the last one it sees, or all keys if no tile may be left out."""
    return p.Nk if p.mask.columns is None else Seen(p.mask, i)


def reaches(bound: BoundMask) -> list[tuple[int, int]]:
    """For every query tile of a bound mask: (its rows, the number of keys up to the last one it sees)."""
    if not isinstance(bound.N, int):
        raise FoldingError("the last key that a query tile sees is counted for one problem at a time, not for arrays")
    mask = cast("masks.BoundMask", bound)
    starts = range(0, mask.N, mask.rows_q)
    heights = [min(mask.rows_q, mask.N - x) for x in starts]
    if str(mask).strip() == "causal":  # the last query of a tile sees most: y <= x + Nk - N
        keys = [max(0, x + height + mask.Nk - mask.N) for x, height in zip(starts, heights, strict=True)]
        return list(zip(heights, keys, strict=True))
    import numpy as np

    whole = mask if mask.tile_units else replace(mask, rows_q=1, rows_k=1)
    keys = np.maximum.reduceat(reach_of_rows(whole), list(starts)).tolist()
    return list(zip(heights, keys, strict=True))


@lru_cache(maxsize=64)
def reach_of_rows(mask: masks.BoundMask) -> NDArray[np.int64]:
    """For each query, the number of keys up to the last one it sees. Every pair of tokens is evaluated."""
    import numpy as np

    from .mask import MOST_TABLE_PAIRS, PAIRS_AT_ONCE

    if mask.N * mask.Nk > MOST_TABLE_PAIRS:
        raise InputError(
            "--mask", str(mask), f"causal, or at most {MOST_TABLE_PAIRS} pairs of tokens to look at one by one"
        )
    reach, chunk = np.zeros(mask.N, np.int64), max(1, PAIRS_AT_ONCE // mask.Nk)
    for x in range(0, mask.N, chunk):
        rows = min(chunk, mask.N - x)
        backwards = mask.visible(x, rows, 0, mask.Nk)[:, ::-1]
        reach[x : x + rows] = np.where(backwards.any(axis=1), mask.Nk - backwards.argmax(axis=1), 0)
    return reach
