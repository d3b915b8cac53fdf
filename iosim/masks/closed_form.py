"""Counts of active tiles in closed form, for numbers or for arrays of sizes: strips of diagonals, and global tokens.

A strip is the set of pairs (x, y) with low <= y - x <= high. `causal` and `window:W` are strips, and so are
their combinations by &. In a strip each row tile sees one range of column tiles. So counts are sums of clamped floors,
and such a sum takes O(log N) steps. `global:G` hides one rectangle of tiles. All numbers are integers. Arrays have the
type int64, or object (Python integers) where a count may not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, overload

from ..core.arrays import anywhere, choose, clamp, larger, smaller
from ..core.problem import S
from .expression import DENSE, Atom, Expr

if TYPE_CHECKING:
    from ..core.typing import Size, Test


class Axis(NamedTuple, Generic[S]):
    """An axis in tiles: `whole` tiles of `size` positions, then a ragged one of `rest` (none if 0)."""

    whole: S
    size: S
    rest: S

    @property
    def length(self) -> S:
        """Positions of the axis."""
        return self.whole * self.size + self.rest  # type: ignore[operator,return-value]  # all are S

    @property
    def ragged(self) -> S:
        """The number of ragged tiles: 0 or 1."""
        return smaller(self.rest, 1)  # type: ignore[return-value]  # as above

    @property
    def tiles(self) -> S:
        """The number of tiles."""
        return self.whole + self.ragged  # type: ignore[operator,return-value]

    @property
    def last(self) -> tuple[S, S]:
        """First and last position of the ragged tile."""
        return self.whole * self.size, self.length - 1  # type: ignore[operator,return-value]

    @property
    def every(self) -> tuple[Size, Size]:
        """First and last position of the axis."""
        return 0, self.length - 1


class Counts(NamedTuple):
    """Numbers of active tiles, and of the rows and columns that have one.

    `pairs` counts active tiles; its keys are (whether the row is ragged, whether the column is). `rows` and `cols`
    count the row tiles and the column tiles that have an active tile; their keys say whether the tile is ragged.
    """

    pairs: dict[tuple[bool, bool], Size]
    rows: dict[bool, Size]
    cols: dict[bool, Size]


class Strip(NamedTuple):
    """The pairs with low <= y - x <= high."""

    low: Size
    high: Size

    @property
    def mirrored(self) -> Strip:
        """The strip with rows and columns exchanged."""
        return Strip(-self.high, -self.low)


def has_closed_form(expr: Expr) -> bool:
    """Whether `closed_counts` knows the expression."""
    return (isinstance(expr, Atom) and expr.kind == "global") or strip_of(expr, 1, 1, 0) is not None


def closed_counts(expr: Expr, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts | None:
    """The counts of an expression whose atoms have the unit of the axes; None if there is no closed form for it here.
    `shift` moves the diagonal of `causal`: y - x <= shift."""
    if isinstance(expr, Atom) and expr.kind == "global":
        return global_counts(expr.size, rows, cols)
    if isinstance(expr, Atom) and expr.kind == "strided" and expr.size < least(rows) + least(cols):
        expr = DENSE  # every tile has enough diagonals for all residues, so it is active
    strip = strip_of(expr, rows.length, cols.length, shift)
    return None if strip is None else strip_counts(strip, rows, cols)


def least(axis: Axis[Size]) -> int:
    """The size of the smallest tile of an axis. The axis must have numbers, not arrays."""
    return min(int(axis.rest or axis.size), int(axis.size))


def strip_of(expr: Expr, N: Size, Nk: Size, shift: Size) -> Strip | None:
    """The expression as a strip within -N..Nk; None if it is not a strip. An empty strip lies outside all pairs."""
    if isinstance(expr, Atom):
        if expr.kind == "causal":
            return Strip(-N, shift)
        if expr.kind == "window":
            return Strip(larger(-expr.size, -N), smaller(expr.size, Nk))
        return Strip(-N, Nk) if expr.kind == "dense" else None
    if expr.op != "&":
        return None
    low, high = -N, Nk
    for part in expr.parts:
        strip = strip_of(part, N, Nk, shift)
        if strip is None:
            return None
        low, high = larger(low, strip.low), smaller(high, strip.high)
    return Strip(choose(low <= high, low, Nk), choose(low <= high, high, Nk))


def strip_counts(strip: Strip, rows: Axis[Size], cols: Axis[Size]) -> Counts:
    """The counts of a strip. Whole tiles are counted as ranges, ragged tiles one by one."""
    flipped, last_row, last_col = strip.mirrored, rows.last, cols.last
    return Counts(
        {
            (False, False): whole_pairs(strip, rows, cols),
            (False, True): cols.ragged * columns_seen(flipped, last_col, rows),
            (True, False): rows.ragged * columns_seen(strip, last_row, cols),
            (True, True): rows.ragged * cols.ragged * meets(strip, last_row, last_col),
        },
        {False: columns_seen(flipped, cols.every, rows), True: rows.ragged * meets(strip, last_row, cols.every)},
        {False: columns_seen(strip, rows.every, cols), True: cols.ragged * meets(strip, rows.every, last_col)},
    )


def columns_seen(strip: Strip, span: tuple[Size, Size], cols: Axis[Size]) -> Size:
    """The number of whole column tiles in which some row of a span (first, last) sees some column."""
    start, stop = (span[0] + strip.low) // cols.size, (span[1] + strip.high) // cols.size + 1
    return clamp(stop, 0, cols.whole) - clamp(start, 0, cols.whole)


def meets(strip: Strip, row: tuple[Size, Size], col: tuple[Size, Size]) -> Test:
    """Whether a span of rows and a span of columns have a visible pair."""
    return (col[0] - row[1] <= strip.high) & (col[1] - row[0] >= strip.low)


def whole_pairs(strip: Strip, rows: Axis[Size], cols: Axis[Size]) -> Size:
    """The number of pairs (whole row tile, whole column tile that it sees)."""
    stops = clamped_floors(rows, rows.size - 1 + strip.high + cols.size, cols)
    return stops - clamped_floors(rows, strip.low, cols)


def clamped_floors(rows: Axis[Size], start: Size, cols: Axis[Size]) -> Size:
    """The sum over the whole row tiles i of floor((i * Br + start) / Bc), clamped to 0..whole columns."""
    first = clamp(-(start // rows.size), 0, rows.whole)  # before this row the floor is clamped to 0
    behind: Size = start - cols.whole * cols.size  # type: ignore[assignment]  # NumPy's type of - is wider
    full = clamp(-(behind // rows.size), 0, rows.whole)  # from this row on it is clamped to all columns
    between = floor_sum(full - first, cols.size, rows.size, start + first * rows.size)
    return between + (rows.whole - full) * cols.whole


@overload
def floor_sum(n: int, m: int, a: int, b: int) -> int: ...


@overload
def floor_sum(n: Size, m: Size, a: Size, b: Size) -> Size: ...


def floor_sum(n: Size, m: Size, a: Size, b: Size) -> Size:
    """The sum of floor((a*i + b) / m) over 0 <= i < n, in O(log m) steps. a and b may be negative; m > 0."""
    total: Size = 0
    while anywhere(n > 0):
        total = total + (a // m) * (n * (n - 1) // 2) + (b // m) * n
        a, b = a % m, b % m
        top = a * n + b
        # The lattice points under the line, counted from the other axis; none are left if top < m.
        n, b, m, a = top // m, top % m, larger(a, 1), m
    return total


def global_counts(size: int, rows: Axis[Size], cols: Axis[Size]) -> Counts:
    """The counts of `x < size or y < size`: all tiles but those whose row and column both begin at `size` or later."""
    far = [(axis.whole - clamp(-(-size // axis.size), 0, axis.whole), axis.ragged * (axis.last[0] >= size))
           for axis in (rows, cols)]  # fmt: skip
    row_tiles, col_tiles = (rows.whole, rows.ragged), (cols.whole, cols.ragged)
    some = int(size > 0)
    return Counts(
        {(bool(r), bool(c)): row_tiles[r] * col_tiles[c] - far[0][r] * far[1][c] for r in (0, 1) for c in (0, 1)},
        {bool(r): some * row_tiles[r] for r in (0, 1)},
        {bool(c): some * col_tiles[c] for c in (0, 1)},
    )
