"""The keys that a query tile needs under a mask: all keys up to the last one that it sees.

    for j in chip.tiles(seen(p, i), t.rows_k):      # the keys up to the last one that query tile i sees

With `cut` they begin at the first one that it sees. If no tile may be left out, the query tile needs all keys.
"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..core.dependent_tiles import Span
from ..errors import FoldingError, InputError
from .mask import MOST_TABLE_PAIRS, BoundMask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.mask_types import BoundMask as AnyBoundMask
    from ..core.problem import Attention
    from ..core.shapes import SizeClasses, Tile
    from ..core.typing import Size

MOST_QUERIES = 2**25  # one number each: 256 MB


class Reaches(NamedTuple):
    """The query tiles of several sizes, one size after another, as arrays.

    Each tile has its rows, the number of keys that it needs, and the place of its size in the list of sizes.
    """

    heights: NDArray[np.int64]
    keys: NDArray[np.int64]
    owners: NDArray[np.int64]


class Seen(Span):
    """The keys up to the last one that any query of `tile` sees, from the first of the axis on; with `cut`, from the
    first one that it sees. `rows` is the size of the tiles of its loop: that of the mask's tiles unless given."""

    __slots__ = ("cut", "mask", "owners", "size_of_tiles")

    def __init__(self, mask: AnyBoundMask, tile: Tile, rows: Size | None = None, cut: bool = False):
        assert isinstance(mask, BoundMask)
        self.mask, self.tile, self.length = mask, tile, mask.Nk
        self.size_of_tiles: Size = mask.rows_q if rows is None else rows
        self.owners, self.cut = None, cut

    def _ends(self) -> tuple[int, int]:
        """The first key, and the key after the last one."""
        import numpy as np

        seen = np.flatnonzero(self.mask.visible(self.tile.start, self.tile.size, 0, self.mask.Nk).any(axis=0))
        if not len(seen):
            return 0, 0
        return int(seen[0]) if self.cut else 0, int(seen[-1]) + 1

    @property
    def start(self) -> int:  # type: ignore[override]
        return self._ends()[0] if self.cut else 0

    @property
    def size(self) -> int:  # type: ignore[override]
        start, end = self._ends()
        return end - start

    @property
    def extent(self) -> Size:
        return self.length

    def rows(self, rows: SizeClasses) -> SizeClasses:
        self._alone(rows)
        if not isinstance(self.mask.N, int):
            raise FoldingError(
                "the last key that a query tile sees is counted for one problem at a time, not for arrays"
            )
        sizes = self.size_of_tiles
        if isinstance(sizes, int):
            kinds = Tally(needed(self.mask, sizes, self.cut))
            return [(times, {self.tile: height, self: keys}) for (height, keys), times in kinds.items()]
        heights, keys, self.owners = reaches_of_sizes(self.mask, sizes, self.cut)
        once = (heights >= 0).astype(sizes.dtype)
        return [(once, {self.tile: heights.astype(sizes.dtype), self: keys.astype(sizes.dtype)})]


def seen(p: Attention, i: Tile, rows: Size | None = None, cut: bool = False) -> Size | Tile:
    """The keys that a query tile needs (see Seen), or all keys if no tile may be left out."""
    return p.Nk if p.mask.columns is None else Seen(p.mask, i, rows, cut)


def needed(mask: BoundMask, rows: int, cut: bool) -> list[tuple[int, int]]:
    """(rows, number of keys needed) of every tile of so many queries."""
    return [(height, end - start) for height, start, end in ends(mask, rows, cut)]


def ends(mask: BoundMask, rows: int, cut: bool) -> list[tuple[int, int, int]]:
    """(rows, first key needed, key after the last one) of every tile of so many queries."""
    few_enough(-(-mask.N // rows), mask)
    starts = range(0, mask.N, rows)
    heights = [min(rows, mask.N - x) for x in starts]
    if mask.mask.is_causal:  # the last query of a tile sees most: y <= x + Nk - N. All see the first key
        keys = [max(0, x + height + mask.Nk - mask.N) for x, height in zip(starts, heights, strict=True)]
        return [(height, 0, end) for height, end in zip(heights, keys, strict=True)]
    import numpy as np

    each = ends_of_rows(in_tokens(mask))
    last = np.maximum.reduceat(each.last, list(starts))
    first = np.minimum.reduceat(each.first, list(starts)) if cut else np.zeros_like(last)
    return list(zip(heights, np.minimum(first, last).tolist(), last.tolist(), strict=True))


def keys_between(mask: BoundMask) -> list[tuple[int, int, int]]:
    """(rows, first key seen, key after the last one) of every row tile of the mask; (rows, 0, 0) if it sees none."""
    if mask.unit != "tokens" or (found := mask.strip()) is None:
        return ends(mask, mask.rows_q, cut=True)
    (low, high), keys = found
    seen = []
    for x in range(0, mask.N, mask.rows_q):
        rows = min(mask.rows_q, mask.N - x)
        first, last = max(0, int(x + low) // keys), min(mask.Nk, int(x + rows - 1 + high) // keys + 1)
        seen.append((rows, first, last) if first < last else (rows, 0, 0))
    return seen


def few_enough(tiles: int, mask: BoundMask) -> None:
    """Raise InputError for more than MOST_QUERIES query tiles, each of which has keys of its own."""
    if tiles > MOST_QUERIES:
        raise InputError(
            "--mask",
            f"{mask} with --N {mask.N}",
            f"at most {MOST_QUERIES} query tiles that see different keys",
            "try a smaller N, larger tiles or another --schedule",
        )


def in_tokens(mask: BoundMask) -> BoundMask:
    """The mask in tiles of one token, unless tiles change what it hides."""
    return mask if mask.tile_units else replace(mask, rows_q=1, rows_k=1)


class Ends(NamedTuple):  # places are at most LARGEST_COUNT, and are compared, never multiplied
    """For each query the first key that it sees, and the key after the last one. A query that sees nothing has the
    number of all keys, and 0."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]


@lru_cache(maxsize=64)
def ends_of_rows(mask: BoundMask) -> Ends:
    """The first and the last key that each query sees."""
    return ends_by_interval(mask) if mask.unit == "tokens" else ends_by_pair(mask)


def ends_by_interval(mask: BoundMask) -> Ends:
    """The ends of each query under a mask of tokens, from the intervals of keys that it sees."""
    import numpy as np

    from .gaps import by_diagonals, ends_by_gaps
    from .pieces import pieces_of

    few_enough(mask.N, mask)
    if by_diagonals(mask.mask.expr) and (each := ends_by_gaps(mask.mask.expr, mask.N, mask.Nk)) is not None:
        return Ends(*each)
    found = Ends(np.full(mask.N, mask.Nk), np.zeros(mask.N, np.int64))
    whole = pieces_of(mask.mask.expr, int(mask.N), int(mask.Nk), int(mask.shift))
    for rows in whole.in_rows():
        for owner, first, last in rows.runs(gap=mask.Nk):
            np.minimum.at(found.first, rows.start[owner], first)
            np.maximum.at(found.last, rows.start[owner], last + 1)
    return found


def ends_by_pair(mask: BoundMask) -> Ends:
    """The ends of each query under any mask. Every pair of tokens is evaluated."""
    import numpy as np

    if mask.N * mask.Nk > MOST_TABLE_PAIRS:
        raise InputError(
            "--mask", str(mask), f"a mask in tokens, or at most {MOST_TABLE_PAIRS} pairs of tokens to look at"
        )
    found = Ends(np.full(mask.N, mask.Nk), np.zeros(mask.N, np.int64))
    for x, seen in mask.parts():
        part, any_key, backwards = slice(x, x + len(seen)), seen.any(axis=1), seen[:, ::-1]
        found.first[part] = np.where(any_key, seen.argmax(axis=1), mask.Nk)
        found.last[part] = np.where(any_key, mask.Nk - backwards.argmax(axis=1), 0)
    return found


def reaches_of_sizes(mask: AnyBoundMask, sizes: NDArray[np.int64], cut: bool = False) -> Reaches:
    """The query tiles of all sizes, and the keys that each needs, under a mask of tokens."""
    import numpy as np

    assert isinstance(mask, BoundMask)
    sizes = np.minimum(sizes, mask.N).astype(np.int64)
    tiles = -(-mask.N // sizes)
    few_enough(int(tiles.max()), mask)
    owners = np.repeat(np.arange(len(sizes)), tiles)  # a start is below N, which is at most MOST_QUERIES x a size
    starts = (np.arange(len(owners)) - (np.cumsum(tiles) - tiles)[owners]) * sizes[owners]
    heights = np.minimum(sizes[owners], mask.N - starts)
    each = ends_of_rows(in_tokens(mask))
    keys = maxima(each.last, starts, heights)
    if cut:
        keys = np.maximum(0, keys + maxima(-each.first, starts, heights))
    return Reaches(heights, keys, owners)


def maxima(values: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The maximum of each range of values: that of two overlapping ranges whose length is a power of two."""
    import numpy as np

    found, powers = np.empty_like(starts), np.frexp(lengths)[1] - 1
    for power in range(powers.max() + 1):
        some, span = np.flatnonzero(powers == power), 2**power
        first = starts[some]
        found[some] = np.maximum(values[first], values[first + lengths[some] - span])
        values = np.maximum(values[:-span], values[span:])  # of twice as many from each place on
    return found
