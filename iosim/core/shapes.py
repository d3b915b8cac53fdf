"""Shapes of blocks: the product of dimensions, the equality of two, and the part of a tensor that tiles select."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, overload

from ..errors import ScheduleError

if TYPE_CHECKING:
    from .typing import Attention, Shape, Size, Tensor, Tile


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


def axes_of(tensor: str, tensors: Mapping[str, Tensor], p: Attention[Size]) -> tuple[Size, ...]:
    """The lengths of a tensor's axes. Raises ScheduleError for an unknown tensor."""
    if tensor not in tensors:
        raise ScheduleError(f"tensor {tensor!r} is unknown; known: {', '.join(tensors)}")
    return p.shape(tensors[tensor])


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


def described(shape: Shape) -> str:
    """A shape as messages show it."""
    return "(" + ", ".join("tile" if hasattr(x, "length") else str(x) for x in shape) + ")"
