"""The least traffic of two loops whose tile sizes share the SRAM: exact, without trying every pair of sizes.

Traffic depends on the sizes only through the numbers of passes over the two axes. Each number of rows is paired with
the most columns that fit beside it. With more rows there are fewer passes over the rows. But there is less room for
columns, so there are more passes over the columns.

Take a range of row numbers. The row passes of the largest one and the column passes of the smallest one together bound
the traffic of the whole range from below. Ranges are halved until their bound cannot beat the best tile found. If all
row numbers of a range have the same row passes, the smallest is the best of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class LeastCost(NamedTuple):
    """The least cost, in words, and the tile (rows, columns) that has it."""

    cost: int
    tile: tuple[int, int]


def least_passes(
    rows_axis: int,
    columns_axis: int,
    multiple: int,
    M_bytes: int,
    room: Callable[[int], tuple[int, int] | list[tuple[int, int]]],
    cost: Callable[[int, int], int],
) -> LeastCost | None:
    """The tile (rows, columns) of least `cost(passes over rows, passes over columns)` that fits; None if none does.

    `room(rows)` returns (bytes for each column of the tile, bytes besides the columns), or a list of such pairs, all of
    which must fit. Both numbers grow with the rows, and cost grows with either number of passes. Rows and columns are
    multiples of `multiple`. A tile that is longer than its axis is clipped.
    """

    def columns(rows: int) -> int:
        found = room(min(rows * multiple, rows_axis))
        pairs = found if isinstance(found, list) else [found]
        return min(largest((M_bytes - beside) // each, columns_axis, multiple) for each, beside in pairs)

    def passes(low: int, high: int) -> tuple[int, int]:
        """The fewest (passes over the rows, passes over the columns) for row numbers low..high in units of `multiple`:
        the row passes are those of `high`, and the column passes those of `low`."""
        return -(-rows_axis // (high * multiple)), -(-columns_axis // columns(low))

    most = last_fitting(lambda rows: columns(rows) > 0, -(-rows_axis // multiple))
    if most == 0:
        return None
    best, rows = min((cost(*passes(rows, rows)), rows) for rows in (1, most))
    ranges = [(1, most)]
    while ranges:
        low, high = ranges.pop()
        if cost(*passes(low, high)) >= best:
            continue
        best, rows = min((best, rows), (cost(*passes(low, low)), low))
        middle = (low + high) // 2
        if passes(low, low)[0] != passes(low, high)[0]:
            ranges += [(low + 1, middle)] * (low < middle) + [(middle + 1, high)]
    along_rows, along_columns = passes(rows, rows)
    return LeastCost(best, (up(-(-rows_axis // along_rows), multiple), up(-(-columns_axis // along_columns), multiple)))


def last_fitting(fits: Callable[[int], bool], most: int) -> int:
    """The largest n up to `most` that fits; 0 if none does. All numbers below one that fits must fit too."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if fits(middle) else (low, middle - 1)
    return low


def sizes_by_passes(length: int, multiple: int) -> Iterator[int]:
    """The smallest tile, a multiple of `multiple`, for each number of passes over an axis, from most to one."""
    size = multiple
    yield size
    while size < length:
        passes = -(-length // size)
        size = up(-(-length // (passes - 1)), multiple)
        yield size


def largest(room: int, length: int, multiple: int) -> int:
    """The largest multiple of `multiple` that fits in `room` when clipped to `length`; 0 or less if none does."""
    return up(length, multiple) if room >= length else room // multiple * multiple


def up(n: int, multiple: int) -> int:
    """n rounded up to a multiple."""
    return -(-n // multiple) * multiple
