"""Which masks are strips of diagonals, or have another closed form. Nothing here needs NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from ..core.arrays import choose, larger, smaller
from ..core.problem import DENSE
from .atoms import Diagonals
from .closed_form import Axis, Counts, Strip, strip_counts
from .expression import Atom, Expr, unit

if TYPE_CHECKING:
    from ..core.mask_types import Mask as AnyMask
    from ..core.typing import Size

    class Mask(Protocol):
        """A mask of an expression."""

        @property
        def expr(self) -> Expr: ...


def closed_counts(expr: Expr, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts | None:
    """The counts of an expression whose atoms have the unit of the axes; None if there is no closed form for it here.
    `shift` is Nk - N, or 0 for tiles."""
    if isinstance(expr, Atom) and expr.row.counts and isinstance(expr.value, int):
        return expr.row.counts(expr.value, rows, cols, shift)
    strip = strip_of(expr, rows.length, cols.length, shift)
    return None if strip is None else strip_counts(strip, rows, cols)


def reach(mask: AnyMask) -> tuple[int | None, int | None]:
    """The most keys before and after its own that a query sees under a window; None where the mask has no bound."""
    if mask is DENSE or unit(cast("Mask", mask).expr) != "tokens":
        return None, None
    far = 1 << 62
    strip = strip_of(cast("Mask", mask).expr, far, far, 0) or Strip(-far, far)
    return None if strip.low == -far else -int(strip.low), None if strip.high == far else int(strip.high)


def strip_of(expr: Expr, N: Size, Nk: Size, shift: Size) -> Strip | None:
    """The expression as a strip within -N..Nk; None if it is not a strip. An empty strip lies outside all pairs."""
    if isinstance(expr, Atom):
        return Strip(*expr.shape.bounds(N, Nk, shift)) if isinstance(expr.shape, Diagonals) else None
    if expr.op != "&":
        return None
    low, high = -N, Nk
    for part in expr.parts:
        if (strip := strip_of(part, N, Nk, shift)) is None:
            return None
        low, high = larger(low, strip.low), smaller(high, strip.high)
    return Strip(choose(low <= high, low, Nk), choose(low <= high, high, Nk))
