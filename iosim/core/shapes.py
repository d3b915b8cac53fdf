"""Tiles, and shapes of blocks: the product of dimensions, and the part of a tensor that tiles select."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, TypeAlias, overload

from ..errors import ScheduleError

if TYPE_CHECKING:
    from .typing import Places, Size

    Shape: TypeAlias = "tuple[Tile | Size, ...]"
    """The dimensions of a block or a tensor: a tile of an axis, or a length."""
    SizeClasses: TypeAlias = "list[tuple[Size, dict[Tile, Size]]]"
    """Rows (times, {tile: size}): sizes that some tiles have together, and how many times."""
    Visits = SizeClasses
    """What an event of a machine stands for, in such rows."""
    Own: TypeAlias = "bool | tuple[Tile, ...]"
    """What of a block lies in this memory already: all, nothing, or the part that tiles select."""


class Tile:
    """The tile of iteration `index` of a loop: `size` consecutive positions of an axis of `length`, from `start` on."""

    __slots__ = ("index", "length", "size", "start")
    from_end = False
    """Whether tiles of a loop over it end at its end, so that the short one is the first (`FromEnd`)."""
    backwards = False
    """Whether a loop over it visits the last tile first (`Backwards`)."""

    def __init__(self, length: Size, size: int, start: int, index: int):
        self.length, self.size, self.start, self.index = length, size, start, index

    @property
    def extent(self) -> Size:
        """The positions that the tile has room for in SRAM."""
        return self.size

    @property
    def moved(self) -> Tile | None:
        """The tile of which this one is a copy at another place, if it is one."""
        return None

    @property
    def places(self) -> Places:
        """The positions, as NumPy indexes an axis."""
        return slice(self.start, self.start + self.size)


class Groups(Tile):
    """A tile in groups of `each` positions, as the rows of an instruction: its size is the number of groups, the last
    one counted whole."""

    __slots__ = ("each", "tile")

    def __init__(self, tile: Tile, each: int):
        self.tile, self.each = tile, each

    @property
    def size(self) -> int:  # type: ignore[override]
        return -(-self.tile.size // self.each)


def groups_of(dimension: Tile | Size, each: int) -> Tile | Size:
    """A dimension in groups of `each` positions, for `Machine.total`: of a length, the number of groups."""
    return Groups(dimension, each) if isinstance(dimension, Tile) else -(-dimension // each)


@overload
def product(factors: Iterable[int]) -> int: ...


@overload
def product(factors: Iterable[Size]) -> Size: ...


def product(factors: Iterable[Size]) -> Size:
    """The product of the factors; 1 if there are none."""
    return prod(factors)  # type: ignore[arg-type]  # it multiplies arrays as well


def same(a: object, b: object) -> bool:
    """Whether two dimensions are the same tile, or equal lengths (numbers or arrays)."""
    equal = a is b or a == b
    return equal if isinstance(equal, bool) else bool(equal.all())


def selected(tensor: str, axes: tuple[Size, ...], tiles: tuple[Tile, ...]) -> Shape:
    """The shape of the part of a tensor with these axes that tiles select. An axis without a tile is whole.

    Raises ScheduleError for tiles that do not belong to its axes.
    """
    if len(tiles) > len(axes):
        raise ScheduleError(f"{tensor} has {len(axes)} axes; {len(tiles)} tiles were given")
    for tile, axis in zip(tiles, axes):  # noqa: B905  # axes may be more
        length = getattr(tile, "length", None)
        if length is None:
            raise ScheduleError(f"{tensor} is indexed by tiles of chip.tiles, not by {tile!r}")
        if length is not axis and not same(length, axis):
            raise ScheduleError(f"a tile of an axis of {length} cannot index {tensor}'s axis of {axis}")
    return (*tiles, *axes[len(tiles) :])


def stored_at(place: Tile | Size, dimension: Tile | Size) -> bool:
    """Whether a dimension of a block may be stored at a place: its own, or one that its tile was moved to."""
    moved = place.moved if isinstance(place, Tile) else None
    return same(place, dimension) or (moved is not None and moved is dimension)


def described(shape: Shape) -> str:
    """A shape as messages show it."""
    return "(" + ", ".join("tile" if hasattr(x, "length") else str(x) for x in shape) + ")"
