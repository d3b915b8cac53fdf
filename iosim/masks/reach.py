"""The keys that a query tile needs under a mask: all keys up to the last one that it sees.

    for j in chip.tiles(seen(p, i), t.rows_k):      # the keys up to the last one that query tile i sees

If no tile may be left out, the query tile needs all keys.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import Span
from ..core.machine import Tile
from ..core.tiling import Tiling
from ..errors import FoldingError, InputError
from .bands import Band
from .closed_form import Axis
from .counts import Counter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.problem import Attention
    from ..core.typing import Bools, BoundMask, Size, SizeClasses
    from . import mask as masks

MOST_PERIOD = 2**20  # of strides together
MOST_QUERIES = 2**25  # one number each: 256 MB
QUERIES_AT_ONCE = 2**20


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
        kinds = Tally(reaches(self.mask))
        return [(times, {self.tile: height, self: keys}) for (height, keys), times in kinds.items()]


def seen(p: Attention, i: Tile) -> Size | Tile:
    """The keys that a query tile needs: those up to the last one it sees, or all keys if no tile may be left out."""
    return p.Nk if p.mask.columns is None else Seen(p.mask, i)


def reaches(bound: BoundMask) -> list[tuple[int, int]]:
    """(rows, number of keys up to the last one seen) of every query tile of a bound mask."""
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
    """The number of keys up to the last one that each query sees."""
    if mask.unit == "tokens" and Counter(mask.mask.expr, *token_axes(mask), mask.shift).period <= MOST_PERIOD:
        return reach_by_interval(mask)
    return reach_by_pair(mask)


def token_axes(mask: masks.BoundMask) -> tuple[Axis[int], Axis[int]]:
    """The axes of queries and of keys, in tiles of one token."""
    return Axis(mask.N, 1, 0), Axis(mask.Nk, 1, 0)


def reach_by_interval(mask: masks.BoundMask) -> NDArray[np.int64]:
    """The reach of each query under a mask of tokens. In a pair of bands, and between two edges of causal and windows,
    what a query sees depends only on y - x modulo the strides: on its residue."""
    import numpy as np

    if mask.N > MOST_QUERIES:
        raise InputError("--mask", f"{mask} with --N {mask.N}", f"at most {MOST_QUERIES} queries, or causal alone")
    reach, counter = np.zeros(mask.N, np.int64), Counter(mask.mask.expr, *token_axes(mask), mask.shift)
    edges = sorted({-mask.N, mask.Nk, *(edge for edge in counter.edges if -mask.N < edge < mask.Nk)})
    for rows in counter.row_bands():
        for cols in counter.col_bands(rows):
            first, last = counter.span(rows, cols)
            for low, stop in pairwise(edges):
                if low <= last and first < stop:
                    see(reach, rows, cols, counter, (low, stop))
    return reach


def see(reach: NDArray[np.int64], rows: Band, cols: Band, counter: Counter, deltas: tuple[int, int]) -> None:
    """Raise `reach` to what the queries of a band see in a band of keys, where y - x lies in `deltas` (low, stop)."""
    import numpy as np

    from .array_counts import holds

    (low, stop), period = deltas, counter.period
    at, shift = np.array(low), np.array(counter.shift)
    seen = np.broadcast_to(holds(counter.expr, rows.start, cols.start, at, shift, np.arange(period)), (period,))
    if not seen.any():
        return
    back = steps_back(seen)
    for start in range(rows.start, rows.stop, QUERIES_AT_ONCE):
        x = np.arange(start, min(rows.stop, start + QUERIES_AT_ONCE))
        delta = np.minimum(stop - 1, cols.stop - 1 - x)
        delta = delta - back[delta % period]
        found = np.where(delta >= np.maximum(low, cols.start - x), x + delta + 1, 0)
        part = reach[start : start + len(x)]
        np.maximum(part, found, out=part)


def steps_back(seen: Bools) -> NDArray[np.int64]:
    """The steps back from each residue to the nearest one that is seen. The period wraps around."""
    import numpy as np

    places = np.arange(2 * len(seen))
    last = np.maximum.accumulate(np.where(np.tile(seen, 2), places, -1))
    return (places - last)[len(seen) :]


def reach_by_pair(mask: masks.BoundMask) -> NDArray[np.int64]:
    """The reach of each query under any mask. Every pair of tokens is evaluated."""
    import numpy as np

    from .mask import MOST_TABLE_PAIRS, PAIRS_AT_ONCE

    if mask.N * mask.Nk > MOST_TABLE_PAIRS:
        raise InputError(
            "--mask", str(mask), f"a mask in tokens, or at most {MOST_TABLE_PAIRS} pairs of tokens to look at"
        )
    reach, chunk = np.zeros(mask.N, np.int64), max(1, PAIRS_AT_ONCE // mask.Nk)
    for x in range(0, mask.N, chunk):
        rows = min(chunk, mask.N - x)
        backwards = mask.visible(x, rows, 0, mask.Nk)[:, ::-1]
        reach[x : x + rows] = np.where(backwards.any(axis=1), mask.Nk - backwards.argmax(axis=1), 0)
    return reach


def reaches_of_sizes(p: Attention, multiple: int, most: int) -> Iterator[NDArray[np.int64]]:
    """The keys up to the last one seen of every query tile, for tiles of 1 to `most` multiples, in this order.

    The maximum of a tile is that of two overlapping ranges whose length is a power of two. So all sizes together take
    about N log N steps.
    """
    import numpy as np

    reach = reach_of_rows(cast("masks.BoundMask", p.tiled(Tiling(1, 1)).mask))
    ends = np.maximum.accumulate(reach[::-1])[::-1]  # the maximum from each query to the last one
    span, highest = 1, reach  # the maximum of `span` queries from each one on
    for size in range(multiple, (most + 1) * multiple, multiple):
        while 2 * span <= min(size, p.N):
            highest = np.maximum(highest[:-span], highest[span:])
            span *= 2
        starts = np.arange(0, p.N, size)
        whole = starts[:-1]
        tiles = np.maximum(highest[whole], highest[whole + size - span])
        yield np.append(tiles, ends[starts[-1]])
