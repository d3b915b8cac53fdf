"""Active tiles in closed form, for numbers or for arrays of sizes: strips of diagonals, and global tokens.

A strip is the pairs with low <= y - x <= high: `causal`, `window:W`, and whatever & makes of them. A run of queries
sees one run of keys there, so counts are sums of clamped floors, in O(log). `global:G` hides one rectangle of tiles.
Whole numbers only; arrays are int64, or object where a count may not fit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .elementwise import anywhere, choose, clamp, larger, smaller
from .mask_expr import DENSE, Atom, Expr


class Axis(NamedTuple):
    """`whole` tiles of `size` positions, then a ragged one of `rest` (none where 0)."""

    whole: Any
    size: Any
    rest: Any

    @property
    def length(self) -> Any:
        return self.whole * self.size + self.rest

    @property
    def ragged(self) -> Any:
        """How many ragged tiles there are: 0 or 1."""
        return smaller(self.rest, 1)

    @property
    def tiles(self) -> Any:
        return self.whole + self.ragged

    @property
    def least(self) -> int:
        """The smallest tile."""
        return min(self.rest or self.size, self.size)

    @property
    def last(self) -> tuple[Any, Any]:
        """First and last position of the ragged tile."""
        return self.whole * self.size, self.length - 1

    @property
    def every(self) -> tuple[Any, Any]:
        """First and last position."""
        return 0, self.length - 1


class Counts(NamedTuple):
    """Active tiles by (row ragged, column ragged), and rows and columns with any active tile, by ragged."""

    pairs: dict[tuple[bool, bool], Any]
    rows: dict[bool, Any]
    cols: dict[bool, Any]


class Strip(NamedTuple):
    """The pairs with low <= y - x <= high."""

    low: Any
    high: Any

    @property
    def mirrored(self) -> Strip:
        """The same with rows and columns exchanged."""
        return Strip(-self.high, -self.low)


def has_closed_form(expr: Expr) -> bool:
    """Whether `closed_counts` knows the expression."""
    return (isinstance(expr, Atom) and expr.kind == "global") or strip_of(expr, 1, 1, 0) is not None


def closed_counts(expr: Expr, rows: Axis, cols: Axis, shift: Any) -> Counts | None:
    """The counts of an expression whose atoms are in the axes' unit; None where there is no closed form here.
    `shift` moves causal's diagonal: y - x <= shift."""
    if isinstance(expr, Atom) and expr.kind == "global":
        return global_counts(expr.size, rows, cols)
    if isinstance(expr, Atom) and expr.kind == "strided" and expr.size < rows.least + cols.least:
        expr = DENSE  # every tile has as many diagonals as there are residues
    strip = strip_of(expr, rows.length, cols.length, shift)
    return None if strip is None else strip_counts(strip, rows, cols)


def strip_of(expr: Expr, N: Any, Nk: Any, shift: Any) -> Strip | None:
    """The expression as a strip within -N..Nk, where an empty one lies outside all pairs; None if it is none."""
    if isinstance(expr, Atom):
        if expr.kind == "causal":
            return Strip(-N, shift)
        if expr.kind == "window":
            return Strip(larger(-expr.size, -N), smaller(expr.size, Nk))
        return Strip(-N, Nk) if expr.kind == "dense" else None
    strips = [strip_of(part, N, Nk, shift) for part in expr.parts]
    if expr.op != "&" or any(strip is None for strip in strips):
        return None
    low, high = -N, Nk
    for strip in strips:
        low, high = larger(low, strip.low), smaller(high, strip.high)  # type: ignore[union-attr]
    return Strip(choose(low <= high, low, Nk), choose(low <= high, high, Nk))


def strip_counts(strip: Strip, rows: Axis, cols: Axis) -> Counts:
    """The counts of a strip: whole tiles that spans see, and the ragged tiles one by one."""
    flipped, last_row, last_col = strip.mirrored, rows.last, cols.last
    return Counts(
        {
            (False, False): whole_pairs(strip, rows, cols),
            (False, True): cols.ragged * seen(flipped, last_col, rows),
            (True, False): rows.ragged * seen(strip, last_row, cols),
            (True, True): rows.ragged * cols.ragged * meets(strip, last_row, last_col),
        },
        {False: seen(flipped, cols.every, rows), True: rows.ragged * meets(strip, last_row, cols.every)},
        {False: seen(strip, rows.every, cols), True: cols.ragged * meets(strip, rows.every, last_col)},
    )


def seen(strip: Strip, span: tuple[Any, Any], cols: Axis) -> Any:
    """Whole column tiles with a pair that is visible to some row of a span."""
    start, stop = (span[0] + strip.low) // cols.size, (span[1] + strip.high) // cols.size + 1
    return clamp(stop, 0, cols.whole) - clamp(start, 0, cols.whole)


def meets(strip: Strip, row: tuple[Any, Any], col: tuple[Any, Any]) -> Any:
    """Whether a span of rows and a span of columns have a visible pair."""
    return (col[0] - row[1] <= strip.high) & (col[1] - row[0] >= strip.low)


def whole_pairs(strip: Strip, rows: Axis, cols: Axis) -> Any:
    """`seen` by each whole row tile, summed."""
    stops = clamped_floors(rows, rows.size - 1 + strip.high + cols.size, cols)
    return stops - clamped_floors(rows, strip.low, cols)


def clamped_floors(rows: Axis, start: Any, cols: Axis) -> Any:
    """The sum of floor((i * Br + start) / Bc), brought into 0..whole columns, over the whole row tiles i."""
    first = clamp(-(start // rows.size), 0, rows.whole)  # 0 before it
    full = clamp(-((start - cols.whole * cols.size) // rows.size), 0, rows.whole)  # all columns from it on
    between = floor_sum(full - first, cols.size, rows.size, start + first * rows.size)
    return between + (rows.whole - full) * cols.whole


def floor_sum(n: Any, m: Any, a: Any, b: Any) -> Any:
    """Sum of floor((a*i + b) / m) over 0 <= i < n, in O(log); a and b may be negative, m > 0."""
    total = 0
    while anywhere(n > 0):
        total = total + (a // m) * (n * (n - 1) // 2) + (b // m) * n
        a, b = a % m, b % m
        top = a * n + b
        # The lattice points under the line, counted from the other axis; none are left where top < m.
        n, b, m, a = top // m, top % m, larger(a, 1), m
    return total


def global_counts(size: int, rows: Axis, cols: Axis) -> Counts:
    """`x < size or y < size`: all tiles but those whose row and column both lie behind."""
    far = [(axis.whole - clamp(-(-size // axis.size), 0, axis.whole), axis.ragged * (axis.last[0] >= size))
           for axis in (rows, cols)]  # fmt: skip
    row_tiles, col_tiles = (rows.whole, rows.ragged), (cols.whole, cols.ragged)
    some = int(size > 0)
    return Counts(
        {(bool(r), bool(c)): row_tiles[r] * col_tiles[c] - far[0][r] * far[1][c] for r in (0, 1) for c in (0, 1)},
        {bool(r): some * row_tiles[r] for r in (0, 1)},
        {bool(c): some * col_tiles[c] for c in (0, 1)},
    )
