"""All tilings that are best at some M, where two tile sizes share the SRAM. NumPy is loaded on the first call.

As in search/shared_sram.py, cost depends on the sizes only through the numbers of passes. So for each number of passes
the smallest size is enough, which leaves about 4 sqrt(rows x columns) pairs. A pair is kept if it costs less than every
pair that needs no more M.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from ..core.tiling import Tiling
from ..errors import InputError
from ..progress import watched
from .shared_sram import sizes_by_passes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.typing import Size

    SizeArray = NDArray[np.int64]  # or of Python integers, where a count may not fit
    Reach = Callable[[int], list[tuple[int, int]]]

MOST = 2**24  # pairs; they take twenty seconds
AT_ONCE = 2**18  # pairs; they take some hundred MB
MOST_SEEN = 2**28  # pairs of sizes under a mask, which take twenty seconds


class Falls(NamedTuple):
    """Arrays of equal length. From `M` bytes on, the `tile` (rows, columns) costs less than every tile before it."""

    M: SizeArray
    tile: tuple[SizeArray, SizeArray]


F_co = TypeVar("F_co", covariant=True)


class Solver(Protocol[F_co]):
    """Finds the best tile at one M (shared_sram.least_passes) or for every M at once (`falls`)."""

    def __call__(
        self, rows_axis: int, columns_axis: int, multiple: int, M_bytes: int,
        room: Callable[[int], tuple[int, int]], cost: Callable[[int, int], int],
    ) -> F_co: ...  # fmt: skip


def pairs(rows_axis: int, columns_axis: int, multiple: int) -> Iterator[tuple[SizeArray, SizeArray]]:
    """The smallest rows and columns for each pair of numbers of passes: arrays of Python integers, some at a time."""
    import numpy as np

    rows, columns = list(sizes_by_passes(rows_axis, multiple)), list(sizes_by_passes(columns_axis, multiple))
    if len(rows) * len(columns) > MOST:
        enough = 1 << (4 * isqrt(rows_axis * columns_axis) // MOST).bit_length()  # an axis has about 2 sqrt(N) counts
        raise InputError("--N", max(rows_axis, columns_axis), f"at most {MOST} pairs of tile counts",
                         f"give --tile-multiple {max(enough, 2 * multiple)}")  # fmt: skip
    step = max(1, AT_ONCE // len(columns))
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    for part in watched(parts, "pairs of tile sizes, in parts", len(parts)):
        yield np.repeat(np.array(part, object), len(columns)), np.tile(np.array(columns, object), len(part))


def falls(
    rows_axis: int, columns_axis: int, multiple: int, M_bytes: int,
    room: Callable[[int], tuple[int, int]], cost: Callable[[int, int], int],
) -> Falls:  # fmt: skip
    """The tiles that `shared_sram.least_passes` finds, for every M at once; `M_bytes` is not used. `room` and `cost`
    are called with numbers and with arrays."""
    import numpy as np

    most, least = room(rows_axis)
    kind = integers(most * columns_axis + least, cost(rows_axis, columns_axis))
    found = []
    for rows, columns in pairs(rows_axis, columns_axis, multiple):
        found.append(falls_among(rows.astype(kind), columns.astype(kind), rows_axis, columns_axis, room, cost))
    M, words, rows, columns = (np.concatenate(parts) for parts in zip(*found, strict=True))
    kept = cheaper(M, words)
    return Falls(M[kept], (rows[kept], columns[kept]))


def falls_among(
    rows: SizeArray, columns: SizeArray, rows_axis: int, columns_axis: int,
    room: Callable[[int], tuple[int, int]], cost: Callable[[int, int], int],
) -> tuple[SizeArray, SizeArray, SizeArray, SizeArray]:  # fmt: skip
    """(M, cost, rows, columns) of the pairs that cost less than every other pair that needs as much M or less."""
    import numpy as np

    room_of, cost_of = (
        cast("Callable[[Size], tuple[Size, Size]]", room),
        cast("Callable[[Size, Size], SizeArray]", cost),
    )
    each, beside = room_of(np.minimum(rows, rows_axis))
    M = cast("SizeArray", each * np.minimum(columns, columns_axis) + beside)
    words = cost_of(-(-rows_axis // rows), -(-columns_axis // columns))
    kept = cheaper(M, words)
    return M[kept], words[kept], rows[kept], columns[kept]


def seen_pairs(
    rows_axis: int, columns_axis: int, multiple: int,
    reach: Reach, room: Callable[[int], list[tuple[int, int]]], cost: Callable[[int, int, int], int],
) -> list[Tiling]:  # fmt: skip
    """All tilings that are best at some M, if each tile of rows needs the columns up to the last one it sees.

    `reach(rows)` lists (rows, columns up to the last one seen) of every tile. `cost` takes three sums over these tiles,
    and grows with each: the columns, the rows times the tiles of columns, and the rows times the columns. How
    the sums change with the size of a tile is not known. So every pair of sizes is counted: for each number of columns,
    all numbers of rows at once, as arrays. `room` and `cost` are called with numbers and with arrays.
    """
    import numpy as np

    units = -(-rows_axis // multiple), -(-columns_axis // multiple)
    if units[0] * units[1] > MOST_SEEN:
        raise InputError("--mask", f"{units[0]} x {units[1]} tile sizes", f"at most {MOST_SEEN} pairs to count",
                         "give a --tile-multiple, or schedules whose inner tile does not matter")  # fmt: skip
    square = rows_axis * columns_axis
    kind = integers(cost(square, square, square), sum(x * columns_axis + y for x, y in room(rows_axis)))
    rows, columns = (np.arange(1, n + 1).astype(kind) * multiple for n in units)
    sums = sums_of(reach, rows, kind)
    rooms = cast("Callable[[Size], list[tuple[Size, Size]]]", room)(np.minimum(rows, rows_axis))
    words_of = cast("Callable[[Size, Size, Size], SizeArray]", cost)
    found = []
    for width in watched(columns.tolist(), "key tiles", len(columns)):
        words = words_of(*sums(width))
        M = np.maximum.reduce([each * min(width, columns_axis) + beside for each, beside in rooms])
        below = np.append(True, words[1:] < np.minimum.accumulate(words)[:-1]).astype(bool)  # M grows with the rows
        found.append((M[below], words[below], rows[below], np.full(below.sum(), width)))
    M, words, rows, columns = (np.concatenate(parts) for parts in zip(*found, strict=True))
    kept = cheaper(M, words)
    return [Tiling(*pair) for pair in zip(rows[kept].tolist(), columns[kept].tolist(), strict=True)]


def sums_of(reach: Reach, rows: SizeArray, kind: str | type) -> Callable[[int], tuple[SizeArray, SizeArray, SizeArray]]:
    """A function of the columns of a tile: the three sums of `seen_pairs`, each an array over all numbers of rows."""
    import numpy as np

    tiles = [reach(n) for n in rows.tolist()]
    heights, seen = np.array([pair for found in tiles for pair in found], kind).T
    starts = np.cumsum([0, *map(len, tiles)])[:-1]
    columns, squares = np.add.reduceat(seen, starts), np.add.reduceat(heights * seen, starts)
    fewer, less = -heights, -seen  # -h * floor(-n / c) is h * ceil(n / c)
    return lambda width: (columns, np.add.reduceat(fewer * (less // width), starts), squares)


def integers(*most: int) -> str | type[object]:
    """The element type for arrays of numbers up to `most` and sums of a few: int64, or object if that is too small."""
    return "int64" if 16 * max(most) < 2**63 else object


def cheaper(M: SizeArray, cost: SizeArray) -> NDArray[np.intp]:
    """The indices, in the order of M, of the entries that cost less than every entry that needs as much M or less."""
    import numpy as np

    order = np.argsort(cost, kind="stable")
    order = order[np.argsort(M[order], kind="stable")]
    least = np.minimum.accumulate(cost[order])
    return order[np.append(True, least[1:] < least[:-1]).astype(bool)]


def best_together(first: Falls, output: Falls, depth: int) -> Tiling[Size]:
    """The best tiles of two products that use the same M one after the other, at each M where the cost of either
    falls. `output` has the tiles of the second product, rows_o x cols_o."""
    import numpy as np

    falls_at = np.unique(np.concatenate([first.M, output.M]))
    falls_at = falls_at[falls_at >= max(first.M[0], output.M[0])]
    a = np.searchsorted(first.M, falls_at, side="right") - 1
    b = np.searchsorted(output.M, falls_at, side="right") - 1
    (rows_q, rows_k), (rows_o, cols_o) = first.tile, output.tile
    return Tiling(rows_q[a], rows_k[a], depth=depth, rows_o=rows_o[b], cols_o=cols_o[b])
