"""Parts of an axis that depend on a loop's tile. Texts walk them with `chip.tiles` and index tensors with them.

    for j in chip.tiles(Share(p.Nk, n, s), t.rows_k):   # the n keys of share s
    chip.store(o, "part", Moved(rows, i, ((p.N, s), (1, i))))  # the rows of tile i, after those of s shares

A machine that visits every tile reads `start` and `size`; the folded one asks for `rows`, all sizes at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import FoldingError, ScheduleError
from .arrays import smaller
from .machine import Block, Tile
from .shapes import same

if TYPE_CHECKING:
    from .typing import Rows, Size


class Span(Tile):
    """`size` positions from `start` of an axis of `length`. `tile`, one turn of a loop around it, decides which."""

    __slots__ = ("tile",)
    tile: Tile
    index = 0

    @property
    def depth(self) -> int:
        """ScheduleError: generated kernels ask for the loop that a tile belongs to, and here there is none."""
        raise ScheduleError(
            "a part of an axis that hangs on another tile (core/dependent_tiles.py) cannot be written as CUDA"
        )

    def rows(self, rows: Rows) -> Rows:
        """The rows of the tile's group, (how often, {tile: size}), with the size of this part of the axis in each."""
        raise NotImplementedError

    def _alone(self, rows: Rows) -> None:
        if set(rows[0][1]) != {self.tile}:
            raise FoldingError("a part of an axis hangs on a tile that depends on another loop; run it unrolled")


class Share(Span):
    """One of the shares of `each` positions that an axis is cut into, the last one shorter; `tile` counts shares."""

    __slots__ = ("each",)

    def __init__(self, length: Size, each: Size, tile: Tile):
        self.length, self.each, self.tile = length, each, tile
        if not (same(tile.length, -(-length // each)) and same(tile.extent, 1)):
            raise ScheduleError(f"shares of {each} of an axis of {length} need a loop over their number, one at a time")

    @property
    def start(self) -> Size:  # type: ignore[override]
        return self.tile.start * self.each

    @property
    def size(self) -> Size:  # type: ignore[override]
        return smaller(self.each, self.length - self.start)

    @property
    def extent(self) -> Size:
        return smaller(self.each, self.length)

    def rows(self, rows: Rows) -> Rows:
        self._alone(rows)
        whole, shares = self.length // self.each, -(-self.length // self.each)
        return [
            (whole, {self.tile: 1, self: self.each}),
            (shares - whole, {self.tile: 1, self: self.length % self.each}),
        ]


class Moved(Span):
    """The positions of `tile` at another start on an axis of `length`: the sum of factor times place over `terms`.

    The place of a tile is its start. The place of a block is its first word, as in the entry of a block table; a
    machine that carries no values takes an entry to name its own position.
    """

    __slots__ = ("terms",)

    def __init__(self, length: Size, tile: Tile, terms: tuple[tuple[Size, Tile | Block], ...]):
        self.length, self.tile, self.terms = length, tile, terms

    @property
    def start(self) -> Size:  # type: ignore[override]
        return sum(factor * place(x) for factor, x in self.terms)

    @property
    def size(self) -> Size:  # type: ignore[override]
        return self.tile.size

    @property
    def extent(self) -> Size:
        return self.tile.extent

    def rows(self, rows: Rows) -> Rows:
        return [(times, {**sizes, self: sizes[self.tile]}) for times, sizes in rows]


def place(x: Tile | Block) -> Size:
    """The start of a tile, or the first word of a block."""
    if isinstance(x, Tile):
        return x.start
    if x.value is not None:
        return int(x.value[0])
    first = x.shape[0]
    return first.start if isinstance(first, Tile) else 0
