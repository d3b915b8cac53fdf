"""Exact counts of active tiles from a mask's expression, without looking at every tile.

Most atoms depend only on delta = y - x (in tokens) or delta = j - i (in tiles). `global:G` and `sink:K` depend on which
positions are below G or K, `chunk` and `documents` on which segment a position lies in. So each axis is divided into
bands of tiles that the mask treats alike. In a pair of bands, whether tile (i, j) is active depends only on
t = j*Bc - i*Br: it is active if t lies in one of some intervals. A sum of floors counts the tiles of an interval. All
numbers are Python integers.

To a band of rows all segments but its own are alike. So the other axis is cut only where the band's own segments start
and end. The number of pairs of bands then grows with the number of segments, and not with its square.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from math import gcd, lcm
from typing import TYPE_CHECKING, NamedTuple

from ..core.arrays import choose, larger, smaller
from ..errors import InputError
from .atoms import Chunks, Diagonals, Documents, First, Stripes
from .closed_form import Axis, Counts, Strip, floor_sum, strip_counts, tiles_below
from .expression import Atom, Expr, atoms, evaluate

if TYPE_CHECKING:
    from ..core.typing import Size, Test

MOST_STRIPES = 2**21
MOST_SUMS = 2**14  # sums of floors; more are counted by classes of residues
RUNS: dict[Expr, Intervals] = {}
"""The visible deltas of one period, of the last expression of stripes."""
TileSpan = tuple[int, int]  # (offset, length) within a tile


# ---------------------------------------------------------------- closed forms


def closed_counts(expr: Expr, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts | None:
    """The counts of an expression whose atoms have the unit of the axes; None if there is no closed form for it here.
    `shift` moves the diagonal of `causal`: y - x <= shift."""
    if isinstance(expr, Atom) and expr.row.counts and isinstance(expr.value, int):
        return expr.row.counts(expr.value, rows, cols)
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


# ---------------------------------------------------------------- bands, and sets of their tiles

Intervals = list[tuple[int, int]]  # disjoint, ascending, both ends included


class Band(NamedTuple):
    """The tiles from `start` to `stop` - 1, which a mask treats alike. A `ragged` band is the one shorter last tile.

    `pieces` are the parts of a tile, as (offset, length), that no cut divides: no boundary of a `global`, a `sink` or a
    segment. In a band of several tiles, the only piece is the whole tile.
    """

    start: int
    stop: int
    pieces: tuple[tuple[int, int], ...]
    ragged: bool


def bands(axis: Axis[int], cuts: Iterable[int]) -> list[Band]:
    """The bands of an axis. A band ends at each position in `cuts`, and before a ragged last tile."""
    length, size = axis.length, axis.size
    inner = sorted({cut for cut in cuts if 0 < cut < length})
    special = {cut // size for cut in inner if cut % size} | ({axis.whole} if axis.rest else set())
    edges = sorted({0, axis.tiles} | {cut // size for cut in inner} | special | {tile + 1 for tile in special})
    found = []
    for start, stop in pairwise(edges):
        first, end = start * size, min((start + 1) * size, length)
        ends = [first, *(cut for cut in inner if first < cut < end), end]
        pieces = tuple((a - first, b - a) for a, b in pairwise(ends))
        found.append(Band(start, stop, pieces, axis.rest > 0 and stop == axis.tiles))
    return found


def merge_intervals(intervals: Iterable[tuple[int, int]], reach: int = 1) -> Intervals:
    """The union of intervals. Two become one if fewer than `reach` numbers lie between them."""
    merged: Intervals = []
    for low, high in sorted(intervals):
        if merged and low - merged[-1][1] <= reach:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged


class Turn(NamedTuple):
    """Tiles of a band in a pattern that repeats every `step` tiles. `runs` are its intervals in the first period."""

    runs: Intervals
    step: int

    def before(self, tiles: int) -> int:
        """The number of tiles of the pattern among the first `tiles` tiles of the band."""
        turns, rest = divmod(tiles, self.step)
        return turns * total(self.runs) + sum(max(0, min(high + 1, rest) - low) for low, high in self.runs)


def covered(band: Band, lines: Iterable[Callable[[], Intervals | Turn]]) -> int:
    """The number of tiles of a band that are in at least one of several sets.

    `lines` are functions that return the sets. They are called one by one until all tiles are found. All patterns of a
    band have the same step.
    """
    found: Intervals = []
    turn = Turn([], 1)
    for line in lines:
        more = line()
        if isinstance(more, Turn):
            turn = Turn(merge_intervals([*turn.runs, *more.runs]), more.step)
        else:
            found = merge_intervals([*found, *more])
        if found == [whole(band)]:
            break
    ends = [band.start, *(end for low, high in found for end in (low, high + 1)), band.stop]
    gaps = zip(ends[::2], ends[1::2], strict=True)
    return total(found) + sum(turn.before(stop - band.start) - turn.before(start - band.start) for start, stop in gaps)


def whole(band: Band) -> tuple[int, int]:
    """The interval of all tiles of a band."""
    return band.start, band.stop - 1


def total(intervals: Intervals) -> int:
    """The number of tiles in disjoint intervals."""
    return sum(high - low + 1 for low, high in intervals)


# ---------------------------------------------------------------- the counter


def tiles_between(low: int, high: int, first: Band, second: Band, size: int, other: int) -> Intervals:
    """The tiles i of `first` with low <= j*other - i*size <= high for some tile j of `second`: one interval, or none.

    There are no gaps: if `second` has several tiles, they are whole tiles, and low..high is at least `other` wide.
    """
    start = max(first.start, -((high - second.start * other) // size))
    stop = min(first.stop, ((second.stop - 1) * other - low) // size + 1)
    return [(start, stop - 1)] if start < stop else []


def lines(found: Intervals, first: Band, second: Band, size: int, other: int) -> Intervals:
    """The tiles of `first` that are active with some tile of `second`: their t lies in one of the intervals `found`."""
    # The interval in the middle often gives all tiles. Then the others need not be tried.
    middle = ((second.start + second.stop) * other - (first.start + first.stop) * size) // 2
    at = bisect(found, (middle, middle))
    near = merge_intervals(
        run for a, b in found[max(at - 1, 0) : at + 1] for run in tiles_between(a, b, first, second, size, other)
    )
    if near == [whole(first)]:
        return near
    return merge_intervals(run for a, b in found for run in tiles_between(a, b, first, second, size, other))


CellTest = Callable[[int, int, int], "Test"]
"""(x, y, delta) -> whether the pairs with y - x = delta are visible in the cell that starts at (x, y)."""


def joined_tests(op: str, tests: list[CellTest]) -> CellTest:
    """Tests joined by an operator of expressions. The last ones are called only if the first ones do not decide."""
    if op == "~":
        return lambda *at: not tests[0](*at)
    enough = all if op == "&" else any
    return lambda *at: enough(test(*at) for test in tests)


class Active(NamedTuple):
    """The active tiles of a pair of bands: their number, and functions that return the rows and columns with any."""

    tiles: int
    rows: Callable[[], Intervals | Turn]
    cols: Callable[[], Intervals | Turn]


class Counter:
    """Counts the active tiles of an expression over two axes. All its atoms are in the unit of the axes.

    `shift` moves the diagonal of `causal`: delta <= shift.
    """

    def __init__(self, expr: Expr, rows: Axis[int], cols: Axis[int], shift: int):
        self.expr, self.rows, self.cols, self.shift = expr, rows, cols, shift
        self.holds = evaluate(
            expr, lambda atom: lambda x, y, delta: atom.sees_in_cell(x, y, delta, shift), joined_tests
        )
        shapes = [atom.shape for atom in atoms(expr)]
        diagonals = (shape for shape in shapes if isinstance(shape, Diagonals))
        self.edges = {int(edge) for shape in diagonals for edge in shape.edges(shift)}  # where one starts or ends
        self.strides = {shape.size for shape in shapes if isinstance(shape, Stripes)}
        self.period = lcm(*self.strides)
        self.cuts = [shape.size for shape in shapes if isinstance(shape, First)]
        self.segmented = [shape for shape in shapes if isinstance(shape, Chunks | Documents)]

    def counts(self) -> Counts:
        """The counts of all pairs of bands together."""
        none = {False: 0, True: 0}
        counts = Counts({(row, col): 0 for row in none for col in none}, dict(none), dict(none))
        by_column: dict[Band, list[Active]] = {}
        for row in self.row_bands():
            line = [(col, self.active(row, col)) for col in self.col_bands(row)]
            counts.rows[row.ragged] += covered(row, (active.rows for _, active in line))
            for col, active in line:
                counts.pairs[row.ragged, col.ragged] += active.tiles
                by_column.setdefault(col, []).append(active)
        if self.segmented:  # each band of rows has its own bands of columns
            by_column = {col: [self.active(row, col) for row in self.row_bands(col)] for col in self.col_bands()}
        for col, column in by_column.items():
            counts.cols[col.ragged] += covered(col, (active.cols for active in column))
        return counts

    def row_bands(self, cols: Band | None = None) -> list[Band]:
        """The bands of rows, cut only where the band `cols` sees a difference; cut everywhere if it is None."""
        return self.bands(self.rows, self.cols, cols)

    def col_bands(self, rows: Band | None = None) -> list[Band]:
        """The bands of columns, cut only where the band `rows` sees a difference; cut everywhere if it is None."""
        return self.bands(self.cols, self.rows, rows)

    def bands(self, axis: Axis[int], other: Axis[int], against: Band | None) -> list[Band]:
        """The bands of an axis. A segment has its own band if the band `against` of the other axis lies in it too."""
        first, last = 0, axis.length - 1
        if against is not None:
            first, last = against.start * other.size, min(against.stop * other.size, other.length) - 1
        affordable(sum((last - first) // shape.size for shape in self.segmented if isinstance(shape, Chunks)))
        return bands(axis, [*self.cuts, *(cut for segments in self.segmented for cut in segments.edges(first, last))])

    def active(self, rows: Band, cols: Band) -> Active:
        """The active tiles of a pair of bands, counted by residues or by intervals, whichever takes fewer steps."""
        Br, Bc = self.rows.size, self.cols.size
        first, last = self.span(rows, cols)
        if self.strides and not self.edges and self.period <= last - first:
            residues = self.residues(rows, cols)
            if total(residues) == self.period:
                size = (rows.stop - rows.start) * (cols.stop - cols.start)
                return Active(size, lambda: [whole(rows)], lambda: [whole(cols)])
            steps = turns(self.period, rows, Br) + turns(self.period, cols, Bc)
            if steps <= (last - first) // self.period * len(residues):
                return periodic(residues, self.period, rows, cols, Br, Bc)
        found = merge_intervals(dilate(low, high, *piece) for low, high, piece in self.visible(rows, cols))

        def below(bound: int) -> int:
            return int(tiles_below(bound, rows[:2], cols[:2], Br, Bc))

        return Active(
            sum(below(high) - below(low - 1) for low, high in found),
            lambda: lines(found, rows, cols, Br, Bc),
            lambda: lines([(-b, -a) for a, b in reversed(found)], cols, rows, Bc, Br),
        )

    def residues(self, rows: Band, cols: Band) -> Intervals:
        """The t at which a tile is active, modulo the period, for an expression of `strided` and positions only."""
        L, found = self.period, []
        for row, col, x, y in self.pieces(rows, cols):
            for low, high in self.period_runs(x, y):
                low, high = dilate(low, high, row, col)
                if high - low >= L - 1:
                    return [(0, L - 1)]
                low, high = low % L, high % L
                found += [(low, high)] if low <= high else [(0, high), (low, L - 1)]
        return merge_intervals(found)

    def period_runs(self, x: int, y: int) -> Intervals:
        """The visible deltas of one period. Where no position matters they are found once for each expression."""
        if self.cuts or self.segmented:
            return self.runs(0, self.period - 1, x, y)
        if self.expr not in RUNS:
            RUNS.clear()
            RUNS[self.expr] = self.runs(0, self.period - 1, x, y)
        return RUNS[self.expr]

    def span(self, rows: Band, cols: Band) -> tuple[int, int]:
        """The least and the largest delta of a pair of bands."""
        return (
            cols.start * self.cols.size - min(rows.stop * self.rows.size, self.rows.length) + 1,
            min(cols.stop * self.cols.size, self.cols.length) - 1 - rows.start * self.rows.size,
        )

    def pieces(self, rows: Band, cols: Band) -> Iterator[tuple[TileSpan, TileSpan, int, int]]:
        """All pairs of pieces of two bands, each with its first position (x, y). Inside one, no predicate of positions
        changes."""
        for row in rows.pieces:
            for col in cols.pieces:
                yield row, col, rows.start * self.rows.size + row[0], cols.start * self.cols.size + col[0]

    def visible(self, rows: Band, cols: Band) -> Iterator[tuple[int, int, tuple[TileSpan, TileSpan]]]:
        """Intervals (low, high) of visible deltas for each pair of pieces. Gaps that cannot hide a tile are closed."""
        first, last = self.span(rows, cols)
        edges = sorted({first, last + 1} | {edge for edge in self.edges if first < edge <= last})
        for row, col, x, y in self.pieces(rows, cols):
            reach = row[1] + col[1] - 1
            runs = [run for a, b in pairwise(edges) for run in self.repeat(a, b - 1, x, y, reach)]
            for low, high in merge_intervals(runs, reach):
                yield low, high, (row, col)

    def repeat(self, low: int, high: int, x: int, y: int, reach: int) -> Intervals:
        """The visible deltas among low..high, a range without edges inside, found from one period of the stripes."""
        L = self.period
        once = self.runs(low, min(high, low + L - 1), x, y)
        if high - low < L or not once:
            return [(low, high)] if once and not self.strides else once
        joined, last = merge_intervals(once, reach), (high - low) // L * L
        tail = [(a + shift, min(b + shift, high)) for shift in (last - L, last) for a, b in once if a + shift <= high]
        if len(joined) == 1 and joined[0][0] + L - joined[0][1] <= reach:
            return [(joined[0][0], max(b for _, b in tail))]
        affordable(last // L * len(joined))
        return [(a + k, b + k) for k in range(0, last, L) for a, b in joined] + tail

    def runs(self, low: int, high: int, x: int, y: int) -> Intervals:
        """The visible deltas among low..high, a range without edges inside, at position (x, y), stripe by stripe."""
        starts = {low}
        affordable(sum((high - low) // S for S in self.strides))
        for S in self.strides:
            for multiple in range(low + (-low) % S - S, high + 1, S):
                starts |= {multiple, multiple + 1}
        ends = [*sorted(start for start in starts if low <= start <= high), high + 1]
        return merge_intervals((a, b - 1) for a, b in pairwise(ends) if self.holds(x, y, a))


def affordable(stripes: int) -> None:
    """Raise InputError for more than MOST_STRIPES stripes or chunks, which would take too long."""
    if stripes > MOST_STRIPES:
        allowed = f"at most {MOST_STRIPES} stripes or chunks between the tiles"
        raise InputError("--mask", f"{stripes} stripes", allowed, "try a smaller N, larger tiles or another stride")


def dilate(low: int, high: int, row: TileSpan, col: TileSpan) -> tuple[int, int]:
    """The interval of t = j*Bc - i*Br at which a pair of pieces has a delta of low..high."""
    (row_offset, row_length), (col_offset, col_length) = row, col
    return low - col_offset - col_length + 1 + row_offset, high - col_offset + row_offset + row_length - 1


def turns(L: int, band: Band, size: int) -> int:
    """The number of tiles of a band before their starts repeat modulo L, or before the band ends."""
    return min(L // gcd(L, size), band.stop - band.start)


def periodic(residues: Intervals, L: int, rows: Band, cols: Band, Br: int, Bc: int) -> Active:
    """The active tiles of a pair of bands: those with j*Bc - i*Br in `residues` modulo L."""
    # Rows i and i + L/gcd(L, Br) have active tiles at the same t modulo L.
    mirrored = [(-high % L, -low % L) for low, high in residues]
    counts, step = by_turn(residues, L, rows, cols, Br, Bc), L // gcd(L, Br)
    return Active(
        sum(count * (-(-(rows.stop - rows.start - k) // step)) for k, count in enumerate(counts)),
        lambda: repeated(counts, rows, step),
        lambda: repeated(by_turn(mirrored, L, cols, rows, Bc, Br), cols, L // gcd(L, Bc)),
    )


def by_turn(residues: Intervals, L: int, rows: Band, cols: Band, Br: int, Bc: int) -> list[int]:
    """The number of active tiles in each row, until rows repeat. An interval that wraps around has low > high."""
    width, number = cols.stop - cols.start, turns(L, rows, Br)
    affordable(number)
    origins = (cols.start * Bc - (rows.start + k) * Br for k in range(number))
    if number * len(residues) > MOST_SUMS:
        return by_class(residues, L, width, Bc, origins)
    counts = []
    for origin in origins:
        ends = ((low, low + (high - low) % L) for low, high in residues)
        counts.append(
            sum(floor_sum(width, L, Bc, origin - low) - floor_sum(width, L, Bc, origin - top - 1) for low, top in ends)
        )
    return counts


def by_class(residues: Intervals, L: int, width: int, Bc: int, origins: Iterable[int]) -> list[int]:
    """For each origin, how many of `width` columns j have origin + j Bc in the residues modulo L.

    Columns repeat after L / g, with g = gcd(L, Bc). The residues that they meet are a class modulo g. In each class
    they are put in the order in which columns meet them, and counted from the first one on.
    """
    affordable(L)
    g = gcd(L, Bc)
    step = L // g
    active = bytearray(L)
    for low, high in residues:
        for first, stop in [(low, high + 1)] if low <= high else [(low, L), (0, high + 1)]:
            active[first:stop] = b"\1" * (stop - first)
    before = [list(accumulate([active[(c + j * Bc) % L] for j in range(step)] * 2, initial=0)) for c in range(g)]
    inverse, (periods, rest) = pow(Bc // g, -1, step) if step > 1 else 0, divmod(width, step)
    counts = []
    for origin in origins:
        found, at = before[origin % L % g], origin % L // g * inverse % step
        counts.append(periods * found[step] + found[at + rest] - found[at])
    return counts


def repeated(counts: list[int], band: Band, step: int) -> Intervals | Turn:
    """The tiles of a band that have an active tile, from the `counts` of the first period."""
    if all(counts):
        return [whole(band)]
    return Turn(merge_intervals((k, k) for k, count in enumerate(counts) if count), step)
