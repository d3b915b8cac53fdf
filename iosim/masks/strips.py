"""Which masks are strips of diagonals, or have another closed form. Nothing here needs NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.arrays import choose, larger, smaller
from .atoms import Diagonals
from .closed_form import Axis, Counts, Strip, strip_counts
from .expression import Atom, Expr

if TYPE_CHECKING:
    from ..core.typing import Size


def closed_counts(expr: Expr, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts | None:
    """The counts of an expression whose atoms have the unit of the axes; None if there is no closed form for it here.
    `shift` is Nk - N, or 0 for tiles."""
    if isinstance(expr, Atom) and expr.row.counts and isinstance(expr.value, int):
        return expr.row.counts(expr.value, rows, cols, shift)
    strip = strip_of(expr, rows.length, cols.length, shift)
    return None if strip is None else strip_counts(strip, rows, cols)


def strip_of(expr: Expr, N: Size, Nk: Size, shift: Size) -> Strip | None:
    """The expression as a strip within -N..Nk; None if it is not a strip. An empty strip lies outside all pairs."""
    if isinstance(expr, Atom):
        return Strip(*expr.shape.bounds(N, Nk, shift)) if isinstance(expr.shape, Diagonals) else None
    if expr.op != "&":
        return None
    low, high = -N, Nk
    for part in expr.parts:
        strip = strip_of(part, N, Nk, shift)
        if strip is None:
            return None
        low, high = larger(low, strip.low), smaller(high, strip.high)
    return Strip(choose(low <= high, low, Nk), choose(low <= high, high, Nk))
