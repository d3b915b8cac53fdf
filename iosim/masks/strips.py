"""Which masks are strips of diagonals, or have another closed form. Nothing here needs NumPy."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast

from ..core.arrays import choose, larger, smaller
from ..core.problem import DENSE
from .atoms import Diagonals, Stripes
from .closed_form import Axis, Counts, Strip, strip_counts
from .expression import Atom, Expr, Join, atoms, evaluate, joined, unit

MOST_DIAGONALS = 256

if TYPE_CHECKING:
    from ..core.mask_types import Mask as AnyMask
    from ..core.typing import Size, Test

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


def keys_behind(mask: AnyMask) -> int | None:
    """The most keys before its own that a query sees under a window; None under a mask that has no such bound."""
    if mask is DENSE or unit(cast("Mask", mask).expr) != "tokens":
        return None
    far = 1 << 62
    strip = strip_of(cast("Mask", mask).expr, far, far, 0)
    return None if strip is None or strip.low == -far else -int(strip.low)


def strip_of(expr: Expr, N: Size, Nk: Size, shift: Size) -> Strip | None:
    """The expression as a strip within -N..Nk; None if it is not a strip. An empty strip lies outside all pairs."""
    if isinstance(expr, Atom):
        return Strip(*expr.shape.bounds(N, Nk, shift)) if isinstance(expr.shape, Diagonals) else None
    if expr.op != "&":
        return None
    low, high = -N, Nk
    for part in expr.parts:
        strip = strip_of(part, N, Nk, shift)
        if strip is not None:
            low, high = larger(low, strip.low), smaller(high, strip.high)
        elif not all(isinstance(atom.shape, Diagonals | Stripes) for atom in atoms(part)):
            return None
    if not all(isinstance(atom.shape, Diagonals) for atom in atoms(expr)) or any(
        isinstance(part, Join) and strip_of(part, N, Nk, shift) is None for part in expr.parts
    ):
        return few_diagonals(expr, low, high, shift, Nk)
    return Strip(choose(low <= high, low, Nk), choose(low <= high, high, Nk))


def few_diagonals(expr: Expr, low: Size, high: Size, shift: Size, Nk: Size) -> Strip | None:
    """The strip that is left of the few diagonals low <= y - r <= high; None if they are many, or if there are gaps."""
    if not (isinstance(low, int) and isinstance(high, int) and isinstance(shift, int)) or high - low >= MOST_DIAGONALS:
        return None
    seen = seen_of_few(expr, low, high, shift)
    if not seen:
        return Strip(Nk, Nk)
    return Strip(seen[0], seen[-1]) if seen[-1] - seen[0] < len(seen) else None


@lru_cache(maxsize=1024)
def seen_of_few(expr: Expr, low: int, high: int, shift: int) -> list[int]:
    """The differences y - r from `low` to `high` that are visible, of an expression of diagonals and stripes."""
    far = 1 << 50  # r and y are far from 0, where only y - r counts

    def visible(difference: int) -> Test:
        return evaluate(expr, lambda atom: atom.sees(far, far + difference, shift), joined)

    return [difference for difference in range(low, high + 1) if visible(difference)]
