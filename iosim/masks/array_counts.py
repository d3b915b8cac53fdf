"""Counts of active tiles for arrays of sizes at once, for masks that have no closed form. Imports NumPy.

Most masks are counted as in counts.py, with a whole array in place of each number: both axes are cut into
bands of tiles that the mask treats alike, and in a pair of bands a tile is active if t = j*Bc - i*Br lies in one of
some intervals. A band or an interval that a problem does not have is empty. Those that are not empty stand in flat
arrays, each beside the index of its problem.

Only diagonals and first positions (atoms.py) are counted so. A mask with stripes or segments is counted one problem
after another, each combination of sizes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..progress import watched
from .atoms import Diagonals, First
from .closed_form import Axis, Counts, tiles_below
from .expression import Atom, Expr, atoms, evaluate, joined

if TYPE_CHECKING:
    from ..core.typing import Size

K = TypeVar("K")
Whole = NDArray[np.int64]  # of Python integers (dtype object) where int64 is too small
Flags = NDArray[np.bool_]
Piece = tuple[Whole, Whole]
"""(offset, length) of a part of each tile; the length is 0 or less where there is no such part."""

INTERVALS_AT_ONCE = 2**22


class Bands(NamedTuple):
    """A band of tiles for each problem: from `start` to `stop` - 1. `pieces` are the parts of its first tile between
    the cuts of the mask."""

    start: Whole
    stop: Whole
    pieces: list[Piece]
    ragged: bool


class Found(NamedTuple):
    """Intervals `low`..`high` of each `problem`: of visible deltas, of the t of active tiles, or of tiles."""

    problem: NDArray[np.intp]
    low: Whole
    high: Whole


def array_counts(expr: Expr, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts:
    """The counts of an expression without strides and segments, whose atoms have the unit of the axes."""
    sizes = np.broadcast_arrays(*rows, *cols, shift)
    if any(size.dtype == object for size in sizes):
        sizes = tuple(size.astype(object) for size in sizes)
    length = len(sizes[0])
    shapes = [atom.shape for atom in atoms(expr)]
    cuts = sorted({0, *(shape.size for shape in shapes if isinstance(shape, First))})
    edges = 2 + sum(len(shape.edges(0)) for shape in shapes if isinstance(shape, Diagonals))
    chunk = max(1, INTERVALS_AT_ONCE // (edges * (2 * len(cuts)) ** 2))
    found = []
    for start in range(0, length, chunk):
        part = [size[start : start + chunk] for size in sizes]
        found.append(counts_of_chunk(expr, Axis(*part[:3]), Axis(*part[3:6]), part[6], cuts))
    return combined(found, np.concatenate)


def combined(found: Sequence[Counts], join: Callable[[list[Whole]], Whole]) -> Counts:
    """The counts that `join` makes from the same counts of all `found`, one count at a time."""

    def of(part: Callable[[Counts], dict[K, Size]]) -> dict[K, Size]:
        return {key: join([cast("Whole", part(one)[key]) for one in found]) for key in part(found[0])}

    return Counts(of(lambda one: one.pairs), of(lambda one: one.rows), of(lambda one: one.cols))


def counts_of_chunk(expr: Expr, rows: Axis[Whole], cols: Axis[Whole], shift: Whole, cuts: list[int]) -> Counts:
    """The counts of some problems."""
    zeros = rows.whole * 0
    pairs = {(r, c): zeros.copy() for r in (False, True) for c in (False, True)}
    row_bands, col_bands = bands(rows, cuts), bands(cols, cuts)
    visible = {
        (k, n): list(visible_deltas(expr, x, y, rows.length, cols.length, shift))
        for k, x in enumerate(cuts)
        for n, y in enumerate(cuts)
    }
    row_lines: list[list[Found]] = [[] for _ in row_bands]
    col_lines: list[list[Found]] = [[] for _ in col_bands]
    for row, row_line in zip(row_bands, row_lines, strict=True):
        for col, col_line in zip(col_bands, col_lines, strict=True):
            found = active(row, col, visible)
            if len(found.problem):
                add_pairs(pairs[row.ragged, col.ragged], found, row, col, rows.size, cols.size)
                row_line.append(lines(found, row, col, rows.size, cols.size))
                col_line.append(lines(found._replace(low=-found.high, high=-found.low), col, row, cols.size, rows.size))
    counted: list[dict[bool, Whole]] = []
    for side, side_lines in ((row_bands, row_lines), (col_bands, col_lines)):
        counted.append({False: zeros.copy(), True: zeros.copy()})
        for band, line in zip(side, side_lines, strict=True):
            counted[-1][band.ragged] += covered(line, len(zeros))
    return Counts({**pairs}, {**counted[0]}, {**counted[1]})


def bands(axis: Axis[Whole], cuts: Sequence[int]) -> list[Bands]:
    """The bands of an axis: tiles before each cut, the tile that a cut divides, tiles after the last cut, the ragged
    tile."""
    whole, size, length = axis.whole, axis.size, axis.length
    edges = [whole * 0]
    for cut in cuts[1:]:
        end = np.minimum(cut, length)
        for edge in (end // size, -(-end // size)):
            edges.append(np.maximum(edges[-1], np.minimum(edge, whole)))
    edges += [whole, axis.tiles]
    found = []
    for number, (start, stop) in enumerate(pairwise(edges)):
        first = start * size
        end = np.minimum(first + size, length)
        ends: list[int | Whole] = [*cuts[1:], length]
        starts = [np.maximum(cut, first) for cut in cuts]
        pieces = [(at - first, np.minimum(to, end) - at) for at, to in zip(starts, ends, strict=True)]
        found.append(Bands(start, stop, pieces, number == len(edges) - 2))
    return found


def visible_deltas(
    expr: Expr, x: int, y: int, N: Whole, Nk: Whole, shift: Whole
) -> Iterator[tuple[Whole, Whole, Flags]]:
    """(low, high, whether these deltas are visible) in the cell that starts at (x, y). No atom changes inside
    low..high."""
    edges: list[Size] = [-N, Nk]
    for atom in atoms(expr):
        if isinstance(atom.shape, Diagonals):
            edges += atom.shape.edges(shift)
    inside = np.sort(np.stack([np.clip(edge, -N, Nk) for edge in edges]), axis=0)
    for low, stop in pairwise(inside):
        found = evaluate(expr, partial(Atom.sees_in_cell, x=x, y=y, delta=low, shift=shift), joined)
        yield low, stop - 1, (low < stop) & found


def active(row: Bands, col: Bands, visible: dict[tuple[int, int], list[tuple[Whole, Whole, Flags]]]) -> Found:
    """The intervals of t = j*Bc - i*Br at which a tile of a pair of bands is active. They may overlap."""
    exists = (row.start < row.stop) & (col.start < col.stop)
    found: list[Found] = []
    for k, (row_offset, row_length) in enumerate(row.pieces):
        for n, (col_offset, col_length) in enumerate(col.pieces):
            here = exists & (row_length > 0) & (col_length > 0)
            if not here.any():
                continue
            for low, high, seen in visible[k, n]:
                index = np.flatnonzero(here & seen)
                moved = (row_offset - col_offset)[index]
                first, last = low[index] + moved - col_length[index] + 1, high[index] + moved + row_length[index] - 1
                found.append(Found(index, first, last))
    if not found:
        none = np.zeros(0, np.int64)
        return Found(none, none, none)
    return Found(*map(np.concatenate, zip(*found, strict=True)))


def disjoint(intervals: Found) -> tuple[NDArray[np.intp], Whole, Whole]:
    """(index, low, high) of intervals that hold the same numbers and do not overlap."""
    index, low, high = intervals
    least = low.min()
    span = max(high.max(), low.max()) - least + 2
    at = index * span if low.dtype != object else index.astype(object) * span
    order = np.argsort(at + (low - least), kind="stable")
    index, low, high, at = index[order], low[order], high[order], at[order]
    reached = np.maximum.accumulate(at + (high - least))
    before = np.append(at[:1] - 1, reached[:-1]) - at + least  # the last number in the problem's earlier intervals
    low = np.maximum(low, before + 1)
    kept = np.flatnonzero(low <= high)
    return index[kept], low[kept], high[kept]


def add_pairs(total: Whole, found: Found, row: Bands, col: Bands, Br: Whole, Bc: Whole) -> None:
    """Add the number of active tiles of a pair of bands to `total`."""
    index, low, high = disjoint(found)
    rows, cols = (row.start[index], row.stop[index]), (col.start[index], col.stop[index])
    counted, before = (tiles_below(bound, rows, cols, Br[index], Bc[index]) for bound in (high, low - 1))
    np.add.at(total, index, counted - before)


def lines(found: Found, first: Bands, second: Bands, size: Whole, other: Whole) -> Found:
    """The tiles of `first` that are active with some tile of `second`, for each interval of t: one interval or none."""
    index = found.problem
    size, other = size[index], other[index]
    start = np.maximum(first.start[index], -((found.high - second.start[index] * other) // size))
    stop = np.minimum(first.stop[index], ((second.stop[index] - 1) * other - found.low) // size + 1)
    kept = start < stop
    return Found(index[kept], start[kept], stop[kept] - 1)


def covered(line: list[Found], length: int) -> Whole:
    """The number of tiles of a band that are in at least one interval, for each problem."""
    found = [part for part in line if len(part.problem)]
    if not found:
        return np.zeros(length, np.int64)
    index, low, high = disjoint(Found(*map(np.concatenate, zip(*found, strict=True))))
    total = np.zeros(length, low.dtype)
    np.add.at(total, index, high - low + 1)
    return total


def distinct(columns: Sequence[Whole]) -> tuple[list[Whole], NDArray[np.intp]]:
    """(the distinct rows of a table that is given by its columns, the index of each row among them).

    In a search or a sweep many problems differ only in d or M, and a mask depends on neither.
    """
    ranges = [(int(column.min()), int(column.max())) for column in columns]
    spans = [most - least + 1 for least, most in ranges]
    if prod(spans) >= 2**63:
        return list(columns), np.arange(len(columns[0]))
    key = np.zeros(len(columns[0]), np.int64)
    for column, (least, _), span in zip(columns, ranges, spans, strict=True):
        key = key * span + (column - least).astype(np.int64)
    _, first, places = np.unique(key, return_index=True, return_inverse=True)
    return [column[first] for column in columns], places


def each_counts(columns: Sequence[Whole], count: Callable[[int, int, int, int], Counts]) -> Counts:
    """The counts of problems whose N, Nk, Br and Bc are `columns`, by calling `count` for each."""
    sizes = zip(*(column.tolist() for column in columns), strict=True)
    found = [count(*one) for one in watched(sizes, "counts of the mask", len(columns[0]))]
    small = max(int(column.max()) for column in columns) < 2**31  # then no count is above 2^62
    return combined(found, lambda values: np.array(values, "int64" if small else object))
