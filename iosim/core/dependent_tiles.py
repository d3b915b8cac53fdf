"""Parts of an axis: fixed ones, and those whose place or size depends on the tile of an outer loop.

A schedule loops over them with `chip.tiles`, or indexes tensors with them:

    for j in chip.tiles(Stretch(p.Nk, 0, n), t.rows_k):        # the first n keys
    for j in chip.tiles(Share(p.Nk, n, s), t.rows_k):          # the n keys of share s
    chip.store(o, "part", Moved(rows, i, ((p.N, s), (1, i))))  # tile i, from row p.N * s + i.start on

A machine that visits every tile reads `start` and `size`. The folded machine calls `rows`, which returns all sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import FoldingError, ScheduleError
from .arrays import larger, largest, smaller
from .machine import Block
from .shapes import Tile, same

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .shapes import SizeClasses
    from .typing import Size


class Span(Tile):
    """A part of an axis of `length`: `size` positions from `start` on. `tile`, of an outer loop, says which."""

    __slots__ = ("tile",)
    tile: Tile
    index = 0
    owners: NDArray[np.int64] | None = None
    """The configuration of each element, if `rows` has one row, with arrays of the tiles of all configurations."""

    @property
    def depth(self) -> int:
        """Raises ScheduleError. The CUDA generator asks for the loop that a tile belongs to, and this tile has none."""
        raise ScheduleError(
            "a part of an axis that hangs on another tile (core/dependent_tiles.py) cannot be written as CUDA"
        )

    def rows(self, rows: SizeClasses) -> SizeClasses:
        """The rows of the tile's group (core/folded.py), with the size of this part of the axis added to each."""
        raise NotImplementedError

    def _alone(self, rows: SizeClasses) -> None:
        if set(rows[0][1]) != {self.tile}:
            raise FoldingError("a part of an axis hangs on a tile that depends on another loop; run it unrolled")


class Stretch(Tile):
    """A fixed part of an axis of `length`: `size` positions from `start` on. It depends on no loop."""

    __slots__ = ()

    def __init__(self, length: Size, start: Size, size: Size):
        super().__init__(length, size, start, 0)  # type: ignore[arg-type]  # as Share, it may be of arrays


class FromEnd(Stretch):
    """A whole axis in tiles that end at its end: the short one is the first, not the last."""

    __slots__ = ()
    from_end = True

    def __init__(self, length: Size):
        super().__init__(length, 0, length)


class Backwards(Stretch):
    """A fixed part of an axis in the tiles of `Stretch`, the last one first."""

    __slots__ = ()
    backwards = True


class Share(Span):
    """One share of an axis: `each` positions, or fewer in the last share. `tile` says which share it is.

    Shares may be nested: `tile` may come from a loop over another Share, whose positions are then shares.
    """

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

    def rows(self, rows: SizeClasses) -> SizeClasses:
        if not self._in_shares(set(rows[0][1]) - {self.tile}):
            self._alone(rows)
        left: Size = -(-self.length // self.each) - self.length // self.each  # 1 if the last share is smaller
        found = []
        for times, sizes in reversed(rows):  # the smaller share is the last one
            last = smaller(left, smaller(times, 1))
            found += [(times - last, {**sizes, self: self.each}), (last, {**sizes, self: self.length % self.each})]
            left = left - last
        return found

    def _in_shares(self, others: set[Tile]) -> bool:
        """Whether the shares are nested. `others` are the tiles that the loop over the shares depends on."""
        outer = next((x for x in others if isinstance(x, Share)), None)
        return outer is not None and others == {outer, outer.tile} and same(outer.length, self.tile.length)


class Ends(Span):
    """The last position of a share alone, or all positions before it."""

    __slots__ = ("last",)

    def __init__(self, share: Share, last: bool):
        self.length, self.tile, self.last = share.length, share, last

    @property
    def start(self) -> Size:  # type: ignore[override]
        return self.tile.start + self.tile.size - 1 if self.last else self.tile.start

    @property
    def size(self) -> Size:  # type: ignore[override]
        return 1 if self.last else self.tile.size - 1

    @property
    def extent(self) -> Size:
        return 1 if self.last else self.tile.extent - 1

    def rows(self, rows: SizeClasses) -> SizeClasses:
        return [(times, {**sizes, self: 1 if self.last else sizes[self.tile] - 1}) for times, sizes in rows]


class UpTo(Span):
    """The positions of a share, or of its `Ends`, up to tile i of a loop over it in single positions: before i, and
    with `own` i too.

    With `last_only` it is i alone, and only where i is the last position of the share.
    """

    __slots__ = ("last_only", "own", "share")

    def __init__(self, share: Share | Ends, i: Tile, own: bool, last_only: bool = False):
        self.length, self.share, self.tile, self.own, self.last_only = share.length, share, i, own, last_only

    @property
    def start(self) -> Size:  # type: ignore[override]
        return self.tile.start if self.last_only else self.share.start

    @property
    def size(self) -> Size:  # type: ignore[override]
        return self._size(self.tile.start - self.share.start + 1, self.share.size)

    @property
    def extent(self) -> Size:
        return larger(self.share.extent - 1 + self.own, 0)

    def _size(self, place: Size, length: Size) -> Size:
        """The size for the position that is so many from the start of a share on, counted from 1."""
        return (place == length) * 1 if self.last_only else place - 1 + self.own

    def rows(self, rows: SizeClasses) -> SizeClasses:
        found = []
        for times, sizes in rows:
            length = sizes[self.share]
            if (other := next((x for x in sizes if isinstance(x, UpTo) and not x.last_only), None)) is not None:
                found.append((times, {**sizes, self: self._size(sizes[other] + 1 - other.own, length)}))
                continue
            shares = times // larger(length, 1)
            for place in range(1, max(1, largest(self.share.extent)) + 1):
                found.append((shares * (place <= length), {**sizes, self: self._size(place, length)}))
        return found


class Each(Span):
    """The positions that belong to those of `tile`: `every` for each. `only` is how many of them at the start, if not
    all: `tile` is then a single position."""

    __slots__ = ("every", "only")

    def __init__(self, length: Size, tile: Tile, every: Size, only: Size | None = None):
        self.length, self.tile, self.every, self.only = length, tile, every, every if only is None else only

    @property
    def start(self) -> Size:  # type: ignore[override]
        return self.tile.start * self.every

    @property
    def size(self) -> Size:  # type: ignore[override]
        return self.tile.size * self.only

    @property
    def extent(self) -> Size:
        return self.tile.extent * self.only

    def rows(self, rows: SizeClasses) -> SizeClasses:
        return [(times, {**sizes, self: sizes[self.tile] * self.only}) for times, sizes in rows]


class Moved(Span):
    """A part with as many positions as `tile`, at another place of an axis of `length`. Its start is a sum over
    `terms`.

    A term (factor, x) adds factor * place(x). The place of a tile is its start. The place of a block is its first word,
    as in an entry of a block table. A machine without values assumes that each entry holds its own position.
    """

    __slots__ = ("terms",)

    def __init__(self, length: Size, tile: Tile, terms: tuple[tuple[Size, Tile | Block], ...]):
        self.length, self.tile, self.terms = length, tile, terms

    @property
    def start(self) -> Size:  # type: ignore[override]
        return sum(factor * place(x) for factor, x in self.terms) % self.length  # unknown entries may be large

    @property
    def size(self) -> Size:  # type: ignore[override]
        return self.tile.size

    @property
    def extent(self) -> Size:
        return self.tile.extent

    @property
    def moved(self) -> Tile:
        return self.tile

    def rows(self, rows: SizeClasses) -> SizeClasses:
        return [(times, {**sizes, self: sizes[self.tile]}) for times, sizes in rows]


def place(x: Tile | Block) -> Size:
    """The start of a tile; the first word of a block, or the block's own position on a machine without values."""
    if isinstance(x, Tile):
        return x.start
    if x.value is not None:
        return int(x.value.flat[0])
    last = x.shape[-1]
    return last.start if isinstance(last, Tile) else 0
