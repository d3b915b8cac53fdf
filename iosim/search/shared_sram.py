"""The least traffic of a loop pair whose two tile sizes share the SRAM: exact, without trying every pair.

Traffic depends on the sizes only through the numbers of passes. The largest width that fits goes with each height of
the tile. More rows mean fewer passes along the rows. They also leave less room for columns, which means more passes
along the columns. So for a range of heights, the row passes of the largest height and the column passes of the smallest
bound the traffic of all heights between. Ranges are halved until their bound cannot beat the best. Where all heights of
a range have the same row passes, the smallest is best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Found(NamedTuple):
    """`cost` in words, and the sizes of the tile."""

    cost: int
    tile: tuple[int, int]


def least_passes(
    rows_axis: int,
    columns_axis: int,
    multiple: int,
    M_bytes: int,
    room: Callable[[int], tuple[int, int] | list[tuple[int, int]]],
    cost: Callable[[int, int], int],
) -> Found | None:
    """The tile (rows, columns) of least `cost(passes over rows, passes over columns)` that fits; None if none does.

    `room(rows)` -> (bytes for each column of the tile, bytes beside them), or a list of such pairs, all of which must
    fit. Both numbers grow with the rows, and cost grows with either number of passes. Rows and columns are multiples of
    `multiple`; a tile that is longer than its axis is clipped.
    """

    def columns(rows: int) -> int:
        found = room(min(rows * multiple, rows_axis))
        pairs = found if isinstance(found, list) else [found]
        return min(largest((M_bytes - beside) // each, columns_axis, multiple) for each, beside in pairs)

    def passes(low: int, high: int) -> tuple[int, int]:
        """(passes along the rows at `high`, along the columns at `low`): the fewest of the range. Rows count in units
        of `multiple`."""
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
    return Found(best, (up(-(-rows_axis // along_rows), multiple), up(-(-columns_axis // along_columns), multiple)))


def last_fitting(fits: Callable[[int], bool], most: int) -> int:
    """The largest n up to `most` that fits; 0 if none does. If n fits, all smaller numbers must fit too."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if fits(middle) else (low, middle - 1)
    return low


def sizes(length: int, multiple: int) -> Iterator[int]:
    """The smallest tile, a multiple of `multiple`, for each number of passes over an axis, from most passes to one."""
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
