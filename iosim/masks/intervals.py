"""Counts of active tiles from the intervals of keys that rows see, for one problem or for arrays. Imports NumPy.

A row tile sees the keys of all its rows, so its active tiles are those of their intervals. In a piece of rows
(pieces.py) without stripes the intervals of one row tile are those of the tile before it, each end moved by Br or not
at all. So the row tiles that lie in a piece are counted by sums of floors, whatever their number: a search for
`causal&(window:4096|sink:4)` over 131,072 tokens counts thousands of tilings in a second. Row tiles on the border of a
piece are looked at one by one. Under stripes the intervals are many, and each is counted so, one problem at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import clamp
from .atoms import Diagonals, First
from .closed_form import Axis, Counts, clamped_floors, floor_sum
from .expression import Expr, atoms, check_lengths
from .gaps import by_diagonals, gap_counts
from .pieces import Pieces, Runs, Whole, pieces, pieces_of, repeated

if TYPE_CHECKING:
    from ..core.typing import Bools, Size

ENDS_AT_ONCE = 2**22
T = TypeVar("T")


class Group(NamedTuple):
    """The row tiles that see some column tiles: how many, and whether one of them is the ragged one (1 or 0)."""

    problem: NDArray[np.intp]
    tile: Whole
    tiles: Whole
    ragged: Whole


def tile_counts(expr: Expr, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts:
    """The counts of an expression whose atoms have the unit of the axes, for numbers or for arrays of problems."""
    given = np.broadcast_arrays(*rows, *cols, shift)
    small = max(int(np.max(axis.length)) for axis in (rows, cols)) < 2**31  # then no count is above 2^62
    sizes = [np.atleast_1d(size).astype(np.int64 if small else object) for size in given]
    columns, places = distinct(sizes)
    lengths = (Axis(*part).length.tolist() for part in (columns[:3], columns[3:6]))
    for N, Nk in set(zip(*lengths, strict=True)):
        check_lengths(expr, int(N), int(Nk))
    found = [counts_of(expr, part) for part in chunks(expr, columns)]
    number = np.ndim(given[0]) == 0

    def of(counts: list[Size]) -> Size:
        whole = np.concatenate(cast("list[Whole]", counts))[places]
        return int(whole[0]) if number else whole

    return Counts(
        {key: of([one.pairs[key] for one in found]) for key in found[0].pairs},
        {key: of([one.rows[key] for one in found]) for key in found[0].rows},
        {key: of([one.cols[key] for one in found]) for key in found[0].cols},
    )


def chunks(expr: Expr, columns: list[Whole]) -> Iterator[list[Whole]]:
    """The problems, a few at a time, so that their pieces take a limited memory."""
    shapes = [atom.shape for atom in atoms(expr)]
    plain = all(isinstance(shape, Diagonals | First) for shape in shapes)
    step = max(1, ENDS_AT_ONCE // (4 * len(shapes) + 2) ** 3) if plain else 1
    for start in range(0, len(columns[0]), step):
        yield [column[start : start + step] for column in columns]


def counts_of(expr: Expr, sizes: list[Whole]) -> Counts:
    """The counts of some problems. Of a mask with stripes there is one."""
    if by_diagonals(expr) and (counts := of_gaps(expr, sizes)) is not None:
        return counts
    rows, cols = Axis(*sizes[:3]), Axis(*sizes[3:6])
    problem, none = (rows.length, cols.length, sizes[6]), rows.whole * 0
    if len(none) == 1:
        found = pieces_of(expr, *(int(size[0]) for size in problem), none.dtype.str)
    else:
        found = pieces(expr, *problem)
    pairs = {(r, c): none.copy() for r in (False, True) for c in (False, True)}
    seen_rows = {False: none.copy(), True: none.copy()}
    if found.period > 1:
        whole, ragged, lit = striped_tiles(found, rows, cols)
    else:
        whole, ragged, lit = whole_tiles(found, rows, cols)
    np.add.at(pairs[False, False], found.problem, whole - ragged)
    np.add.at(pairs[False, True], found.problem, ragged)
    np.add.at(seen_rows[False], found.problem, lit)
    part, gap = border_tiles(found, rows), smallest_tile(cols)
    owner, first, last = all_runs(part, gap[part.problem])
    which = part.problem[owner]
    group = union(which, part.start[owner] // rows.size[which], first, last, cols)
    for r in (False, True):
        some = (group.tile == rows.whole[group.problem]) == r
        problem = group.problem[some]
        np.add.at(pairs[r, True], problem, group.ragged[some])
        np.add.at(pairs[r, False], problem, (group.tiles - group.ragged)[some])
        np.add.at(seen_rows[r], problem, 1)
    owner, first, last = all_runs(found, gap[found.problem])
    return Counts({**pairs}, {**seen_rows}, {**lines(found.problem[owner], first, last, cols)})


def of_gaps(expr: Expr, sizes: list[Whole]) -> Counts | None:
    """The counts of one problem of a mask by diagonals; None if they have too many gaps."""
    numbers = [int(size[0]) for size in sizes]
    found = gap_counts(expr, Axis(*numbers[:3]), Axis(*numbers[3:6]), numbers[6])
    if found is None:
        return None

    def of(part: dict[T, Size]) -> dict[T, Size]:
        return {key: np.array([number], sizes[0].dtype) for key, number in part.items()}

    return Counts(of(found.pairs), of(found.rows), of(found.cols))


def all_runs(part: Pieces, gap: int | Whole = 1) -> Runs:
    """The intervals of keys of some pieces, in one list."""
    return Runs(*map(np.concatenate, zip(*part.runs(gap), strict=True)))


def smallest_tile(axis: Axis[Whole]) -> Whole:
    """The positions of the smallest tile of an axis."""
    return np.where((axis.rest > 0) & (axis.whole >= 0), np.minimum(axis.rest, axis.size), axis.size)


def lines(problem: NDArray[np.intp], first: Whole, last: Whole, axis: Axis[Whole]) -> dict[bool, Whole]:
    """The numbers of tiles of an axis, whole and ragged, that some intervals of positions meet, for each problem."""
    group = union(problem, 0 * first, first, last, axis)
    found = {False: axis.whole * 0, True: axis.whole * 0}
    np.add.at(found[True], group.problem, group.ragged)
    np.add.at(found[False], group.problem, group.tiles - group.ragged)
    return found


def border_tiles(found: Pieces, rows: Axis[Whole]) -> Pieces:
    """The parts of pieces that fill no row tile: before the first one that lies in the piece, and after the last."""
    Br = rows.size[found.problem]
    head = np.minimum(found.stop, -(-found.start // Br) * Br)
    tail = np.maximum(head, np.minimum(found.stop // Br, rows.whole[found.problem]) * Br)
    before, after = np.flatnonzero(found.start < head), np.flatnonzero(tail < found.stop)
    which = np.concatenate([before, after])
    starts, stops = (
        np.concatenate([found.start[before], tail[after]]),
        np.concatenate([head[before], found.stop[after]]),
    )
    return found.of(which).within(starts, stops)


def union(problem: NDArray[np.intp], tile: Whole, first: Whole, last: Whole, axis: Axis[Whole]) -> Group:
    """The tiles of an axis that intervals of positions meet, for each problem and row tile that has some."""
    first, last = first // axis.size[problem], last // axis.size[problem]
    order = np.lexsort((first, tile, problem))
    problem, tile, first, last = problem[order], tile[order], first[order], last[order]
    new = np.ones(len(order), bool)
    new[1:] = (problem[1:] != problem[:-1]) | (tile[1:] != tile[:-1])
    starts = np.flatnonzero(new)
    if not len(starts):
        return Group(problem, tile, first, first)
    own = np.cumsum(new) - 1  # the number of the group of each interval
    span = int(last.max()) + 2
    base = own * span if span * len(starts) < 2**62 else own.astype(object) * span
    reached = np.maximum.accumulate(last + base)
    before = np.where(new, -1, np.roll(reached, 1) - base)
    tiles = np.add.reduceat(np.maximum(last - np.maximum(first - 1, before), 0), starts)
    ragged = np.maximum.reduceat(last, starts) == axis.whole[problem[starts]]
    return Group(problem[starts], tile[starts], tiles, ragged.astype(int))


# ---------------------------------------------------------------- row tiles that lie in a piece


def whole_tiles(found: Pieces, rows: Axis[Whole], cols: Axis[Whole]) -> tuple[Whole, Whole, Whole]:
    """(active tiles, those in the ragged column, row tiles with any) of the row tiles that lie in each piece."""
    Br, Bc = rows.size[found.problem], cols.size[found.problem]
    tile = -(-found.start // Br)
    many = np.maximum(np.minimum(found.stop // Br, rows.whole[found.problem]) - tile, 0)
    first_row = tile * Br
    total = 0 * many
    before, before_moves = -Bc, np.zeros(len(Bc), bool)  # the last key of the interval before: none
    for k in range(found.seen.shape[1]):
        a, b = found.at(k, first_row), found.at(k + 1, first_row + Br - 1) - 1
        moves, moves_on = found.moves[:, k], found.moves[:, k + 1]
        through = floors(many, b, moves_on, Br, Bc)
        hidden = larger_floors(many, (a - Bc, moves), (before, before_moves), Br, Bc)
        here = found.seen[:, k]
        total = total + np.where(here, through - hidden, 0)
        before, before_moves = np.where(here, b, before), np.where(here, moves_on, before_moves)
    edge = cols.whole[found.problem] * Bc
    reaching = np.where(before_moves, many - clamp(-((before - edge) // Br), 0, many), many * (before >= edge))
    return total, np.where(cols.rest[found.problem] > 0, reaching, 0), many * found.seen.any(axis=1)


def floors(many: Whole, start: Whole, moves: Bools, Br: Whole, Bc: Whole) -> Whole:
    """The sum of floor((start + i * Br) / Bc) over 0 <= i < many, or of floor(start / Bc) where it does not move."""
    moving = np.where(moves, many, 0)
    return floor_sum(moving, Bc, Br, start) + (many - moving) * (start // Bc)


def larger_floors(many: Whole, one: tuple[Whole, Bools], other: tuple[Whole, Bools], Br: Whole, Bc: Whole) -> Whole:
    """The sum of the larger of two such floors. Each is given by its start, and whether it moves."""
    (a, a_moves), (b, b_moves) = one, other
    both_move, none_moves = a_moves & b_moves, ~(a_moves | b_moves)
    moving = np.where(both_move, np.maximum(a, b), np.where(a_moves, a, b))
    standing = np.where(none_moves, np.maximum(a, b), np.where(a_moves, b, a)) // Bc
    later = clamp(-((moving - (standing + 1) * Bc) // Br), 0, many)  # from this tile on, the moving one is larger
    later = np.where(both_move, 0, np.where(none_moves, many, later))
    return later * standing + floor_sum(many - later, Bc, Br, moving + later * Br)


# ---------------------------------------------------------------- the same under stripes


def striped_tiles(found: Pieces, rows: Axis[Whole], cols: Axis[Whole]) -> tuple[Whole, Whole, Whole]:
    """What `whole_tiles` gives, for the pieces of one problem under stripes."""
    axes = Axis(*(int(part[0]) for part in rows)), Axis(*(int(part[0]) for part in cols))
    each = [striped_piece(found, k, *axes) for k in range(len(found.start))]
    whole, ragged, lit = (np.array(part, found.start.dtype) for part in zip(*each, strict=True))
    return whole, ragged, lit


def striped_piece(found: Pieces, k: int, rows: Axis[int], cols: Axis[int]) -> tuple[int, int, int]:
    """The same for one piece. Between two ends that stand still, what is visible depends only on y - x."""
    Br, Bc, start, stop = rows.size, cols.size, int(found.start[k]), int(found.stop[k])
    span = -(-start // Br), min(stop // Br, rows.whole)
    bands = [band for band in still_bands(found, k) if len(band.first)] if span[0] < span[1] else []
    total = ragged = 0
    edges = {end // Bc for band in bands for end in (band.low, band.high) if end % Bc}
    edges |= {cols.whole} if cols.rest else set()
    for band in bands:
        inner = -(-band.low // Bc), min(band.high // Bc, cols.whole)
        total += pairs_between(band, span, inner, Br, Bc) if inner[0] < inner[1] else 0
    for tile in edges:
        seen = row_tiles([band.within(tile * Bc, (tile + 1) * Bc) for band in bands], span, Br)
        total, ragged = total + seen, ragged + seen * (tile == cols.whole)
    return total, ragged, row_tiles(bands, span, Br)


class StillBand(NamedTuple):
    """The keys low..high-1, of which a row x sees x + first .. x + last for each of some intervals."""

    low: int
    high: int
    first: Whole
    last: Whole

    def within(self, low: int, high: int) -> StillBand:
        """The band without the keys below `low` and from `high` on."""
        return self._replace(low=max(low, self.low), high=min(high, self.high))


def still_bands(found: Pieces, k: int) -> Iterator[StillBand]:
    """The keys of a piece between each two ends that stand still."""
    ends, moves, start, stop = found.ends[k], found.moves[k], found.start[k], found.stop[k]
    still = np.flatnonzero(~moves)
    for low, high in pairwise(still):
        parts = []
        for one in range(low, high):
            least = ends[one] - (start if moves[one] else stop - 1)
            most = ends[one + 1] - 1 - start
            if found.seen[k, one] and least <= most:
                pattern, a, b = found.visible.seen[found.kind[k], one], *np.array([[least], [most]], ends.dtype)
                parts.append((a, b) if pattern.all() else repeated(pattern[None], a, b)[1:])
        first, last = (np.concatenate([ends[:0], *(part[end] for part in parts)]) for end in (0, 1))
        order = np.argsort(first, kind="stable")
        yield StillBand(int(ends[low]), int(ends[high]), first[order], last[order])


def merged(first: Whole, last: Whole, reach: int) -> tuple[Whole, Whole]:
    """Ascending intervals; those become one between which fewer than `reach` numbers lie."""
    reached = np.maximum.accumulate(last)
    new = np.flatnonzero(np.concatenate([[True], first[1:] - reached[:-1] > reach]))
    return first[new], np.maximum.reduceat(last, new)


def pairs_between(band: StillBand, span: tuple[int, int], tiles: tuple[int, int], Br: int, Bc: int) -> int:
    """The active tiles of row tiles `span` and column tiles `tiles`, which lie in the band: tile (i, j) is active if
    j * Bc - i * Br lies in one of some intervals."""
    first, last = merged(band.first, band.last, Br + Bc - 1)
    origin, sizes = span[0] * Br - (tiles[0] - 1) * Bc, (span[1] - span[0], tiles[1] - tiles[0], Br, Bc)
    below = clamped_floors(first - Bc + origin, *sizes)
    return int(np.asarray(clamped_floors(last + Br - 1 + origin, *sizes) - below, object).sum())


def row_tiles(bands: Sequence[StillBand], span: tuple[int, int], Br: int) -> int:
    """The row tiles of `span` that see some key of the bands."""
    found = []
    for band in bands:
        if band.low < band.high:
            first = np.maximum((band.low - band.last) // Br, span[0])
            last = np.minimum((band.high - 1 - band.first) // Br, span[1] - 1)
            found.append((first[first <= last], last[first <= last]))
    first, last = (np.concatenate(part) for part in zip(*found, strict=True)) if found else (np.zeros(0, int),) * 2
    if not len(first):
        return 0
    order = np.argsort(first, kind="stable")
    first, last = merged(first[order], last[order], 1)
    return int((last - first + 1).sum())


# ---------------------------------------------------------------- equal problems


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
