"""Two tile sizes that share the SRAM: the pair of least traffic that fits in one M, and those that are best at some M.

Traffic depends on the sizes only through the numbers of passes over the two axes. With more rows there are fewer passes
over the rows. But there is less room for columns, so there are more passes over the columns. For each number of passes
the smallest size is enough.

Under a mask each tile of rows may need only the columns up to the last one that it sees. How traffic then changes with
the rows of a tile is not known, but it never grows with the columns.

`Outputs` is the tile of several matrix products that use the same sizes, one after the other. In each product a tile of
the result stays, and parts of both factors stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ..core.arrays import choose, larger, last_true, parts_of, smaller, sums
from ..core.tiling import Tiling
from ..errors import InputError
from ..masks.reach import reaches_of_sizes
from ..progress import watched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.problem import Attention
    from ..core.typing import Same, Size

    SizeArray = NDArray[np.int64]  # or of Python integers, where a count may not fit
    Places = NDArray[np.int64]
    Room = Callable[[Size], list[tuple[Size, Size]]]
    Cost = Callable[[Size, Size, Size], Size]

MOST = 2**24  # pairs; they take twenty seconds
AT_ONCE = 2**18  # pairs; they take some hundred MB
MOST_ROWS = 2**20  # numbers of rows that may be counted under a mask
MOST_SEEN = 2**28  # pairs of sizes under a mask; a small part of them is counted
SEEN_AT_ONCE = 2**17  # tiles of rows; they take some MB


class Sizes(Protocol):
    """Two tile sizes with an SRAM of their own: a Pair, or Outputs."""

    @property
    def others(self) -> tuple[str, ...]: ...
    @property
    def sees(self) -> Attention | None: ...
    def least(self, M_bytes: int, multiple: int) -> tuple[int, int] | None: ...
    def falls(self, multiple: int) -> list[SizeArray]: ...
    def tile(self, rows: Size, columns: Size, multiple: int) -> dict[str, Size]: ...


class Pair(NamedTuple):
    """Two tile sizes that share the SRAM of a kernel. A tile of rows goes over the columns, one of columns over the
    rows. `room` and `cost` are called with numbers and with arrays."""

    rows: int
    """The length of the axis of rows."""
    columns: int
    """The length of the axis of columns."""
    room: Room
    """`room(rows)` lists (bytes for each column of the tile, bytes besides them) of all phases of the kernel, beside a
    tile of so many rows. None of these numbers falls as the rows grow."""
    cost: Cost
    """`cost(columns, rows, area)`: what is moved, in words or bytes, if all tiles of rows together read so many
    columns, all tiles of columns so many rows, and `area` pairs of a row and a column are visited. What is the same for
    all tiles may be left out."""
    sizes: tuple[str, str] = ("rows_q", "rows_k")
    """The fields of Tiling: of rows, of columns."""
    others: tuple[str, ...] = ()
    """Fields of Tiling whose sizes change no traffic, so that the smallest are best. If there are none, a tiling for
    one M has the most columns that fit."""
    sees: Attention | None = None
    """The problem whose mask says up to which column each row needs the columns; None if every row needs all."""
    cut: bool = False
    """Whether a row needs the columns from the first one on that it sees, and not those before."""
    keys_cost: Cost | None = None
    """If the columns are not keys: `keys_cost(keys, columns, area)` in place of `cost` under a mask, if all tiles of
    rows together need so many keys, and `area` is the number of their pairs of a row and a key."""

    def passes_cost(self, over_rows: Same, over_columns: Same) -> Same:
        """The cost of so many passes over each axis, without a mask."""
        rows, columns = self.rows * over_columns, self.columns * over_rows
        return cast("Same", self.cost(columns, rows, self.rows * self.columns))

    def most_columns(self, rows: Same, M_bytes: int, multiple: int) -> Same:
        """The most columns, a multiple, that fit beside these rows; 0 or less if none do."""
        rooms = self.room(smaller(rows, self.rows))
        most = [largest(M_bytes - beside, each, self.columns, multiple) for each, beside in rooms]
        return cast("Same", reduce(smaller, most))

    def needed(self, rows: Same, columns: Same) -> Same:
        """The bytes that a tile of these sizes needs. A tile that is longer than its axis is clipped."""
        width = smaller(columns, self.columns)
        needs = [each * width + beside for each, beside in self.room(smaller(rows, self.rows))]
        return cast("Same", reduce(larger, needs))

    def tile(self, rows: Size, columns: Size, multiple: int) -> dict[str, Size]:
        """The sizes by their fields of Tiling."""
        return dict(zip(self.sizes, (rows, columns), strict=True)) | dict.fromkeys(self.others, multiple)

    def least(self, M_bytes: int, multiple: int) -> tuple[int, int] | None:
        """The tile (rows, columns) of least cost that fits in M; None if none does."""
        return (least_passes if self.sees is None else least_seen)(self, M_bytes, multiple)

    def falls(self, multiple: int) -> list[SizeArray]:
        """The tiles that `least` finds, for every M at once: arrays of M, rows and columns. From each M on, its tile
        costs less than every tile before it."""
        return falls(self, multiple)

    def kind(self, multiple: int) -> str | type[object]:
        """The element type of arrays that hold any size, cost or need."""
        square = self.rows * self.columns
        most = (self.cost(square, square, square), self.needed(self.rows, self.columns), multiple)
        return integers(*cast("tuple[int, ...]", most))


@dataclass(frozen=True)
class Pairs:
    """The candidates of a schedule whose best tiles are pairs: `of(p, multiple)` lists them. Each has an SRAM of its
    own. A single one is a Pair."""

    of: Callable[[Attention, int], Sequence[Sizes]]

    def __call__(self, p: Attention, multiple: int) -> Iterable[Tiling[Size]]:
        """Tilings of arrays that have a best one for every M. A single pair without a mask has all its sizes there."""
        found = self.of(p, multiple)
        if len(found) > 1:
            return [best_together(found, multiple)]
        (pair,) = cast("Sequence[Pair]", found)
        if pair.sees is None:
            return (Tiling(**pair.tile(*some, multiple)) for some in size_pairs(pair.rows, pair.columns, multiple))
        return [Tiling(**pair.tile(*seen_falls(pair, pair.sees, multiple), multiple))]

    def complete(self, p: Attention) -> bool:
        """Whether there is a candidate for all numbers of tiles, and not only for those of least traffic."""
        return all(pair.sees is None and not pair.others for pair in self.of(p, 1))

    def best(self, p: Attention, M_bytes: int, multiple: int) -> Tiling | None:
        """The tiling of least traffic that fits in M; None if nothing fits."""
        sizes: dict[str, Size] = {}
        for pair in self.of(p, multiple):
            found = pair.least(M_bytes, multiple)
            if found is None:
                return None
            sizes |= pair.tile(*found, multiple)
        return cast("Tiling", Tiling(**sizes))


# ---------------------------------------------------------------- at one M


def least_passes(pair: Pair, M_bytes: int, multiple: int) -> tuple[int, int] | None:
    """The tile (rows, columns) of least cost that fits, without a mask; None if none does.

    Take a range of row numbers. The row passes of the largest one and the column passes of the smallest one together
    bound the cost of the whole range from below. Ranges are halved until their bound cannot beat the best tile found.
    If all row numbers of a range have the same row passes, the smallest is the best of them.
    """

    @cache
    def columns(n: int) -> int:
        return pair.most_columns(n * multiple, M_bytes, multiple)

    def passes(low: int, high: int) -> tuple[int, int]:
        """The fewest (passes over the rows, passes over the columns) for row numbers low..high in units of `multiple`:
        the row passes are those of `high`, and the column passes those of `low`."""
        return -(-pair.rows // (high * multiple)), -(-pair.columns // columns(low))

    def cost(low: int, high: int) -> int:
        return pair.passes_cost(*passes(low, high))

    most = most_rows(pair, M_bytes, multiple)
    if most == 0:
        return None
    best, found = min((cost(n, n), n) for n in (1, most))
    ranges = [(1, most)]
    while ranges:
        low, high = ranges.pop()
        if cost(low, high) >= best:
            continue
        best, found = min((best, found), (cost(low, low), low))
        middle = (low + high) // 2
        if passes(low, low)[0] != passes(low, high)[0]:
            ranges += [(low + 1, middle)] * (low < middle) + [(middle + 1, high)]
    along_rows, along_columns = passes(found, found)
    rows = up(-(-pair.rows // along_rows), multiple)
    if pair.others:
        return rows, up(-(-pair.columns // along_columns), multiple)
    return rows, pair.most_columns(rows, M_bytes, multiple)


def most_rows(pair: Pair, M_bytes: int, multiple: int) -> int:
    """The most rows that fit beside the fewest columns, in multiples; 0 if none do."""
    return last_true(lambda n: bool(pair.needed(n * multiple, multiple) <= M_bytes), -(-pair.rows // multiple))


def least_seen(pair: Pair, M_bytes: int, multiple: int) -> tuple[int, int] | None:
    """The tile (rows, columns) of least cost that fits, under a mask of tokens; None if none does. Each number of rows
    is counted, with the most columns that fit beside it."""
    M_bytes, p = min(M_bytes, pair.needed(pair.rows, pair.columns)), cast("Attention", pair.sees)
    most = most_rows(pair, M_bytes, multiple)
    if most == 0:
        return None
    if p.mask.tile_units or most > MOST_ROWS:
        raise InputError(
            "--tiles",
            f"best with --mask {p.mask}",
            f"a mask in tokens and at most {MOST_ROWS} query tiles",
            "give --tiles as 128x64, or a --tile-multiple",
        )
    import numpy as np

    sizes = np.arange(1, most + 1).astype(pair.kind(multiple)) * multiple
    parts = list(parts_of(np.cumsum(-(-pair.rows // sizes)), AT_ONCE))
    best: list[tuple[int, int, int]] = []
    for part in watched(parts, "query tiles, in parts", len(parts)):
        rows = sizes[part]
        columns = pair.most_columns(rows, M_bytes, multiple)
        cost = SeenCost(pair, p, rows)(np.arange(len(rows)), columns)
        least = int(np.argmin(cost))
        best.append((int(cost[least]), int(rows[least]), int(columns[least])))
    return min(best)[1:]


# ---------------------------------------------------------------- at every M


def size_pairs(rows_axis: int, columns_axis: int, multiple: int) -> Iterator[tuple[SizeArray, SizeArray]]:
    """The smallest rows and columns for each pair of numbers of passes: arrays of Python integers, some at a time."""
    import numpy as np

    rows, columns = list(sizes_by_passes(rows_axis, multiple)), list(sizes_by_passes(columns_axis, multiple))
    if len(rows) * len(columns) > MOST:
        enough = 1 << (4 * isqrt(rows_axis * columns_axis) // MOST).bit_length()  # an axis has about 2 sqrt(N) counts
        raise InputError(
            "--N",
            max(rows_axis, columns_axis),
            f"at most {MOST} pairs of tile counts",
            f"give --tile-multiple {max(enough, 2 * multiple)}",
        )
    step = max(1, AT_ONCE // len(columns))
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    for part in watched(parts, "pairs of tile sizes, in parts", len(parts)):
        yield np.repeat(np.array(part, object), len(columns)), np.tile(np.array(columns, object), len(part))


def falls(pair: Pair, multiple: int) -> list[SizeArray]:
    """The tiles that `least_passes` or `least_seen` finds at every M: arrays of M, rows and columns. From each
    M on, its tile costs less than every tile before it."""
    import numpy as np

    if pair.sees is not None:
        rows, columns = seen_falls(pair, pair.sees, multiple)
        return [pair.needed(rows, columns), rows, columns]
    kind, found = pair.kind(multiple), []
    for some in size_pairs(pair.rows, pair.columns, multiple):
        rows, columns = (sizes.astype(kind) for sizes in some)
        M = pair.needed(rows, columns)
        cost = pair.passes_cost(-(-pair.rows // rows), -(-pair.columns // columns))
        kept = cheaper(M, cost)
        found.append([column[kept] for column in (M, rows, columns, cost)])
    *tiles, cost = (np.concatenate(parts) for parts in zip(*found, strict=True))
    kept = cheaper(tiles[0], cost)
    return [column[kept] for column in tiles]


def best_together(pairs: Sequence[Sizes], multiple: int) -> Tiling[Size]:
    """The best tiles of kernels that use the same M one after the other, at each M where the cost of any falls."""
    import numpy as np

    every = [pair.falls(multiple) for pair in pairs]
    M = np.unique(np.concatenate([needed for needed, _, _ in every]))
    M = M[max(needed[0] for needed, _, _ in every) <= M]
    sizes: dict[str, Size] = {}
    for pair, (needed, rows, columns) in zip(pairs, every, strict=True):
        at = np.searchsorted(needed, M, side="right") - 1
        sizes |= pair.tile(rows[at], columns[at], multiple)
    return Tiling(**sizes)


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


# ---------------------------------------------------------------- at every M, under a mask


class SeenCost:
    """The costs of tiles of the given rows and of any columns, if a tile needs the columns up to the last one it
    sees."""

    def __init__(self, pair: Pair, p: Attention, rows: SizeArray):
        import numpy as np

        tiles = reaches_of_sizes(p.tiled(Tiling(1, 1)).mask, rows, pair.cut)
        self.pair, self.heights, self.reach = pair, tiles.heights.astype(rows.dtype), tiles.keys.astype(rows.dtype)
        self.tiles = np.bincount(tiles.owners)
        self.firsts = np.cumsum(self.tiles) - self.tiles
        self.columns, self.area = sums(self.reach, tiles.owners), sums(self.heights * self.reach, tiles.owners)

    def __call__(self, n: Places, columns: SizeArray) -> SizeArray:
        """The costs of tiles of the n-th rows beside these columns."""
        import numpy as np

        if self.pair.keys_cost is not None:
            return cast("SizeArray", self.pair.keys_cost(self.columns[n], columns, self.area[n]))
        found = []
        for part in parts_of(np.cumsum(self.tiles[n]), SEEN_AT_ONCE):
            tiles, firsts = self.tiles[n[part]], self.firsts[n[part]]
            starts = np.cumsum(tiles) - tiles
            tile = np.arange(tiles.sum()) + np.repeat(firsts - starts, tiles)
            turns = -(-self.reach[tile] // np.repeat(columns[part], tiles))
            found.append(np.add.reduceat(self.heights[tile] * turns, starts))
        return cast("SizeArray", self.pair.cost(self.columns[n], np.concatenate(found), self.area[n]))


def seen_falls(pair: Pair, p: Attention, multiple: int) -> tuple[SizeArray, SizeArray]:
    """The rows and columns of all tiles that are best at some M, under a mask of tokens."""
    import numpy as np

    units = -(-pair.rows // multiple), -(-pair.columns // multiple)
    if units[0] * units[1] > MOST_SEEN:
        raise InputError(
            "--mask",
            f"{units[0]} x {units[1]} tile sizes",
            f"at most {MOST_SEEN} pairs to count",
            "give a --tile-multiple, or schedules whose inner tile does not matter",
        )
    kind = pair.kind(multiple)
    rows, columns = (np.arange(1, count + 1).astype(kind) * multiple for count in units)
    cost = SeenCost(pair, p, rows)
    n, k = least_by_halves(
        *units,
        needed=lambda n, k: pair.needed(rows[n], columns[k]),
        cost=lambda n, k: cost(n, columns[k]),
    )
    return rows[n], columns[k]


def least_by_halves(
    rows: int, columns: int, needed: Callable[[Places, Places], SizeArray], cost: Callable[[Places, Places], SizeArray]
) -> tuple[Places, Places]:
    """The places (of rows, of columns), from 0, of the pairs that cost less than every pair that needs as much M or
    less. M grows with both, and the cost never grows with the columns.

    For each number of rows, ranges of columns are halved. A range between two pairs is left out if its last pair costs
    more than one that needs no more M than its first inner pair, or no less than its first pair.
    """
    import numpy as np

    powers = np.unique(np.minimum(2 ** np.arange(columns.bit_length() + 1), columns)) - 1
    n, k = np.repeat(np.arange(rows), len(powers)), np.tile(powers, rows)
    M, words = needed(n, k), cost(n, k)
    found, stairs = [(M, words, n, k)], staircase(M, words)
    left = np.flatnonzero(k < columns - 1)
    ranges = [n[left], k[left], k[left + 1], words[left], words[left + 1]]
    while True:
        n, low, high, above, below = ranges
        worth = (high - low > 1) & (below < above) & (below <= least_at(needed(n, low + 1), stairs))
        n, low, high, above, below = (column[worth.astype(bool)] for column in ranges)
        if not len(n):
            break
        k = (low + high) // 2
        M, words = needed(n, k), cost(n, k)
        found.append((M, words, n, k))
        stairs = staircase(*map(np.append, stairs, (M, words)))
        ranges = list(map(np.append, (n, low, k, above, words), (n, k, high, words, below)))
    M, words, n, k = (np.concatenate(parts) for parts in zip(*found, strict=True))
    near = np.flatnonzero((words <= least_at(M, stairs)).astype(bool))
    near = near[np.lexsort((n[near], k[near]))]  # of equal pairs, the one with the fewest columns is taken
    near = near[cheaper(M[near], words[near])]
    return n[near], k[near]


def staircase(M: SizeArray, cost: SizeArray) -> tuple[SizeArray, SizeArray]:
    """Each M at which the least cost falls, and that cost."""
    kept = cheaper(M, cost)
    return M[kept], cost[kept]


def least_at(M: SizeArray, stairs: tuple[SizeArray, SizeArray]) -> SizeArray:
    """The cost of a staircase at each M."""
    return stairs[1][stairs[0].searchsorted(M, "right") - 1]


# ---------------------------------------------------------------- sizes


def sizes_by_passes(length: int, multiple: int) -> Iterator[int]:
    """The smallest tile, a multiple of `multiple`, for each number of passes over an axis, from most to one."""
    size = multiple
    yield size
    while size < length:
        passes = -(-length // size)
        size = up(-(-length // (passes - 1)), multiple)
        yield size


def largest(room: Size, each: Size, length: int, multiple: int) -> Size:
    """The largest multiple of `multiple` positions of `each` bytes that fit in `room` when clipped to `length`; 0 or
    less if none do."""
    return choose(room >= each * length, up(length, multiple), room // larger(each, 1) // multiple * multiple)


def up(n: int, multiple: int) -> int:
    """n rounded up to a multiple."""
    return -(-n // multiple) * multiple


@dataclass(frozen=True)
class Outputs:
    """Products of (rows, columns, positions that are summed over), with tiles of `sizes` that may be clipped."""

    products: tuple[tuple[int, int, int], ...]
    acc_bytes: int
    """Bytes of a word of the result, and of the first factor."""
    word_bytes: int
    """Bytes of a word of the second factor."""
    sizes: tuple[str, str] = ("rows_o", "cols_o")
    others: tuple[str, ...] = ("depth",)
    sees: None = None

    def needed(self, rows: Size, columns: Size, multiple: int) -> Size:
        """The bytes that the largest of the products needs, with parts of `multiple` positions."""
        found = []
        for most_rows, most_columns, summed in self.products:
            r, c, depth = smaller(rows, most_rows), smaller(columns, most_columns), min(multiple, summed)
            found.append(r * c * self.acc_bytes + depth * (r * self.acc_bytes + c * self.word_bytes))
        return reduce(larger, found)

    def cost(self, rows: Size, columns: Size) -> Size:
        """The words that the products read."""
        return sum(
            summed * (most_rows * -(-most_columns // columns) + most_columns * -(-most_rows // rows))
            for most_rows, most_columns, summed in self.products
        )

    def axis(self, number: int, multiple: int) -> list[int]:
        """The sizes worth trying along an axis of the results."""
        lengths = {product[number] for product in self.products}
        return sorted({size for length in lengths for size in sizes_by_passes(length, multiple)})

    def least(self, M_bytes: int, multiple: int) -> tuple[int, int] | None:
        """The tile (rows, columns) of least cost that fits; None if none does."""
        rows, found = self.axis(0, multiple), []
        for columns in self.axis(1, multiple):
            fitting = [n for n in rows if self.needed(n, columns, multiple) <= M_bytes]
            if fitting:
                found.append((cast("int", self.cost(fitting[-1], columns)), fitting[-1], columns))
        return min(found)[1:] if found else None

    def falls(self, multiple: int) -> list[SizeArray]:
        """The tiles that `least` finds, for every M at once: arrays of M, rows and columns."""
        import numpy as np

        both = np.meshgrid(np.array(self.axis(0, multiple), object), np.array(self.axis(1, multiple), object))
        rows, columns = (sizes.ravel() for sizes in both)
        most = max(r for r, _, _ in self.products), max(c for _, c, _ in self.products)
        kind = integers(int(self.cost(1, 1)), int(self.needed(*most, multiple)))
        rows, columns = rows.astype(kind), columns.astype(kind)
        M, cost = (cast("SizeArray", x) for x in (self.needed(rows, columns, multiple), self.cost(rows, columns)))
        kept = cheaper(M, cost)
        return [column[kept] for column in (M, rows, columns)]

    def tile(self, rows: Size, columns: Size, multiple: int) -> dict[str, Size]:
        """The sizes by their fields of Tiling."""
        return dict(zip(self.sizes, (rows, columns), strict=True)) | dict.fromkeys(self.others, multiple)
