"""Parts of an axis that depend on a loop's tile. Texts walk them with `chip.tiles` and index tensors with them.

    for j in chip.tiles(seen(p, i), t.rows_k):      # only the keys up to the last one that query tile i sees
    for j in chip.tiles(Share(p.Nk, n, s), t.rows_k):   # the n keys of share s
    chip.store(o, "part", Moved(rows, i, ((p.N, s), (1, i))))  # the rows of tile i, after those of s shares

A machine that visits every tile reads `start` and `size`; the folded one asks for `rows`, all sizes at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

from .elementwise import smaller
from .errors import FoldingError, InputError, ScheduleError
from .machine import Block, Tile, same

Rows = list[tuple[Any, dict[Tile, Any]]]


class Span(Tile):
    """`size` positions from `start` of an axis of `length`, decided by `tile`, one turn of a loop around it."""

    __slots__ = ("tile",)
    tile: Tile
    index = 0

    @property
    def depth(self) -> int:
        """The loop that this is a tile of, as kernels ask: there is none."""
        raise ScheduleError("a part of an axis that hangs on another tile (spans.py) cannot be written as CUDA")

    def rows(self, rows: Rows) -> Rows:
        """The rows of the tile's group, (how often, {tile: size}), with the size of this span in each."""
        raise NotImplementedError

    def _alone(self, rows: Rows) -> None:
        if set(rows[0][1]) != {self.tile}:
            raise FoldingError("a part of an axis hangs on a tile that depends on another loop; run it unrolled")


class Share(Span):
    """One of the shares of `each` positions that an axis is cut into, the last one shorter; `tile` counts shares."""

    __slots__ = ("each",)

    def __init__(self, length: Any, each: Any, tile: Tile):
        self.length, self.each, self.tile = length, each, tile
        if not (same(tile.length, -(-length // each)) and same(tile.extent, 1)):
            raise ScheduleError(f"shares of {each} of an axis of {length} need a loop over their number, one at a time")

    @property
    def start(self) -> Any:  # type: ignore[override]
        return self.tile.start * self.each

    @property
    def size(self) -> Any:  # type: ignore[override]
        return smaller(self.each, self.length - self.start)

    @property
    def extent(self) -> Any:
        return smaller(self.each, self.length)

    def rows(self, rows: Rows) -> Rows:
        self._alone(rows)
        whole, shares = self.length // self.each, -(-self.length // self.each)
        return [
            (whole, {self.tile: 1, self: self.each}),
            (shares - whole, {self.tile: 1, self: self.length % self.each}),
        ]


class Moved(Span):
    """The positions of `tile`, found elsewhere on an axis of `length`: from the sum of factor times place over `terms`.

    The place of a tile is its start, that of a block its first word, as in the entry of a block table; a machine that
    carries no values takes an entry to name its own position.
    """

    __slots__ = ("terms",)

    def __init__(self, length: Any, tile: Tile, terms: tuple[tuple[Any, Tile | Block], ...]):
        self.length, self.tile, self.terms = length, tile, terms

    @property
    def start(self) -> Any:  # type: ignore[override]
        return sum(factor * place(x) for factor, x in self.terms)

    @property
    def size(self) -> Any:  # type: ignore[override]
        return self.tile.size

    @property
    def extent(self) -> Any:
        return self.tile.extent

    def rows(self, rows: Rows) -> Rows:
        return [(times, {**sizes, self: sizes[self.tile]}) for times, sizes in rows]


class Seen(Span):
    """The keys from the first to the last one that any query of `tile` sees."""

    __slots__ = ("mask",)
    start = 0  # type: ignore[assignment]

    def __init__(self, mask: Any, tile: Tile):
        self.mask, self.tile, self.length = mask, tile, mask.Nk

    @property
    def size(self) -> int:  # type: ignore[override]
        found = self.mask.visible(self.tile.start, self.tile.size, 0, self.length).any(axis=0).nonzero()[0]
        return int(found[-1]) + 1 if len(found) else 0

    @property
    def extent(self) -> Any:
        return self.length

    def rows(self, rows: Rows) -> Rows:
        self._alone(rows)
        kinds = Counter(reaches(self.mask))
        return [(times, {self.tile: height, self: keys}) for (height, keys), times in kinds.items()]


def place(x: Tile | Block) -> Any:
    """Where a tile starts, or what the first word of a block says."""
    if isinstance(x, Tile):
        return x.start
    return x.shape[0].start if x.value is None else int(x.value[0])


def seen(p: Any, i: Tile) -> Any:
    """The keys that a query tile needs: all, or with a mask that leaves tiles out those up to the last one it sees."""
    return p.Nk if p.mask.columns is None else Seen(p.mask, i)


def reaches(mask: Any) -> list[tuple[int, int]]:
    """(rows, keys up to the last one seen) of every query tile of a bound mask."""
    if not isinstance(mask.N, int):
        raise FoldingError("the last key that a query tile sees is counted for one problem at a time, not for arrays")
    starts = range(0, mask.N, mask.rows_q)
    heights = [min(mask.rows_q, mask.N - x) for x in starts]
    if str(mask).strip() == "causal":  # the last query of a tile sees most: y <= x + Nk - N
        keys = [max(0, x + height + mask.Nk - mask.N) for x, height in zip(starts, heights, strict=True)]
        return list(zip(heights, keys, strict=True))
    import numpy as np

    bound = mask if mask.tile_units else replace(mask, rows_q=1, rows_k=1)
    keys = np.maximum.reduceat(reach_of_rows(bound), list(starts)).tolist()
    return list(zip(heights, keys, strict=True))


@lru_cache(maxsize=64)
def reach_of_rows(mask: Any) -> Any:
    """For every query the number of keys up to the last one it sees, by looking at every pair of tokens."""
    import numpy as np

    from .masks import CHUNK, MOST_PAIRS

    if mask.N * mask.Nk > MOST_PAIRS:
        raise InputError("--mask", str(mask), f"causal, or at most {MOST_PAIRS} pairs of tokens to look at one by one")
    reach, chunk = np.zeros(mask.N, np.int64), max(1, CHUNK // mask.Nk)
    for x in range(0, mask.N, chunk):
        rows = min(chunk, mask.N - x)
        backwards = mask.visible(x, rows, 0, mask.Nk)[:, ::-1]
        reach[x : x + rows] = np.where(backwards.any(axis=1), mask.Nk - backwards.argmax(axis=1), 0)
    return reach
