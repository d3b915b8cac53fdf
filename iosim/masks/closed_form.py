"""Counts of active tiles of a strip of diagonals in closed form, for numbers or for arrays of sizes.

A strip is the set of pairs (x, y) with low <= y - x <= high. `causal` and `window:W` are strips, and so are
their combinations by &. In a strip each row tile sees one range of column tiles. So counts are sums of clamped floors,
and such a sum takes O(log N) steps. All numbers are integers. Arrays have the type int64, or object (Python integers)
where a count may not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, overload

from ..core.arrays import anywhere, clamp, larger, smaller
from ..core.tiling import S

if TYPE_CHECKING:
    from ..core.typing import Size, Test


class Visible(NamedTuple):
    """What the queries of one head see.

    `rows` is the number of queries that see two keys or more, `pairs` the number of pairs that they see, and `keys` the
    number of keys that any of them sees. `any_rows` and `any_keys` are the numbers of queries that see a key, and of
    keys that any query sees.
    """

    pairs: int
    rows: int
    keys: int
    any_rows: int
    any_keys: int


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
    sizes = rows.whole, cols.whole, rows.size, cols.size
    return clamped_floors(rows.size - 1 + strip.high + cols.size, *sizes) - clamped_floors(strip.low, *sizes)


def clamped_floors(start: Size, rows: Size, cols: Size, Br: Size, Bc: Size) -> Size:
    """The sum over 0 <= i < rows of floor((i * Br + start) / Bc), clamped to 0..cols."""
    first = clamp(-(start // Br), 0, rows)  # before this row the floor is clamped to 0
    behind: Size = start - cols * Bc  # type: ignore[assignment]  # NumPy's type of - is wider
    full = clamp(-(behind // Br), 0, rows)  # from this row on it is clamped to all columns
    return floor_sum(full - first, Bc, Br, start + first * Br) + (rows - full) * cols


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
