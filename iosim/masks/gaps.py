"""Counts of active tiles under strides, `causal` and windows, from the gaps between visible diagonals. Imports NumPy.

Whether query r sees key y depends on d = y - r alone. So a tile is hidden if all of its diagonals lie in one gap
between two visible ones, and the tiles that a gap hides are counted by sums of floors. A gap shorter than a tile hides
none: under `strided:1000|strided:1001` every tile of 512 x 512 is active, and none is looked at. Gaps that come
again are kept once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .atoms import Diagonals, Stripes
from .closed_form import Axis, Counts, Visible, clamped_floors
from .expression import Atom, Expr, atoms, evaluate, joined
from .pieces import Whole

if TYPE_CHECKING:
    from ..core.typing import Bools

    Gaps = tuple[Whole, Whole]  # the first and the last diagonal of each, ascending

MOST_CHANGES = 2**23  # diagonals at which visibility changes: some seconds
MOST_GAPS = 2**23  # that hide tiles of one tiling
MANY_TILES = 2**30  # from here on their pairs are counted in Python integers
MOST_LARGE_GAPS = 2**20  # then
GAPS_AT_ONCE = 2**18


class Stretch(NamedTuple):
    """The gaps first..last among the diagonals low..high-1. Those that begin after `low` come again each `period`."""

    low: int
    high: int
    first: Whole
    last: Whole
    period: int

    @property
    def turns(self) -> int:
        """The periods whose gaps end before `high`."""
        return max(0, (self.high - self.low) // self.period - 1)

    def long(self, least: int) -> Bools:
        """Which gaps are of `least` diagonals or more, and come again."""
        return np.asarray((self.last - self.first + 1 >= least) & (self.first > self.low))

    def gaps(self, least: int) -> Iterator[Gaps]:
        """The gaps of `least` diagonals or more, and those at the ends, in ascending order."""
        begins, turns, long = self.first == self.low, self.turns if self.long(least).any() else 0, self.long(least)
        for some, turn, stop in ((begins, 0, 1), (long, 0, turns), (~begins, self.turns, self.turns + 2)):
            shift = np.arange(turn, stop)[:, None] * self.period
            yield (self.first[some] + shift).ravel(), (self.last[some] + shift).ravel()


class Tiles(NamedTuple):
    """Tiles of an axis: `number` of `size` positions each, the first at `start`, one every `step` positions."""

    start: int
    number: int
    size: int
    step: int


def by_diagonals(expr: Expr) -> bool:
    """Whether an expression with strides depends on y - r alone."""
    shapes = [atom.shape for atom in atoms(expr)]
    return any(isinstance(one, Stripes) for one in shapes) and all(
        isinstance(one, Diagonals | Stripes) for one in shapes
    )


@lru_cache(maxsize=2**15)  # schedules ask for the same tiles one after the other
def gap_counts(expr: Expr, rows: Axis[int], cols: Axis[int], shift: int) -> Counts | None:
    """The counts of an expression by diagonals; None if they have too many gaps."""
    r_tiles, c_tiles = tiles_of(rows), tiles_of(cols)
    gaps = gaps_for(expr, (rows.length, cols.length, shift), [*r_tiles.values()], [*c_tiles.values()])
    if gaps is None:
        return None
    all_rows, all_cols = Tiles(0, 1, rows.length, rows.length), Tiles(0, 1, cols.length, cols.length)
    return Counts(
        {(r, c): active(gaps, row, col) for r, row in r_tiles.items() for c, col in c_tiles.items()},
        {r: active(gaps, row, all_cols) for r, row in r_tiles.items()},
        {c: active(gaps, all_rows, col) for c, col in c_tiles.items()},
    )


def cell_counts(expr: Expr, rows: Axis[int], Nk: int, cells: list[Tiles]) -> list[tuple[int, int]] | None:
    """For each progression of cells of keys, the pairs of a cell and a whole row tile that sees it, and those of a
    ragged row tile; None if there are too many gaps."""
    r_tiles = tiles_of(rows)
    gaps = gaps_for(expr, (rows.length, Nk, Nk - rows.length), [*r_tiles.values()], cells)
    return gaps and [(active(gaps, r_tiles[False], one), active(gaps, r_tiles[True], one)) for one in cells]


def ends_by_gaps(expr: Expr, N: int, Nk: int) -> tuple[Whole, Whole] | None:
    """For each query the first key that it sees (Nk if it sees none) and the key after the last one (0); None if there
    are too many gaps."""
    one = Tiles(0, 1, 1, 1)
    gaps = gaps_for(expr, (N, Nk, Nk - N), [one], [one])
    if gaps is None:
        return None
    x, (first, last) = np.arange(N), (np.append(part, Nk) for part in gaps)  # Nk is no diagonal
    least, most = -x, Nk - 1 - x
    ahead, behind = np.searchsorted(last, least), np.searchsorted(first, most, "right") - 1
    start = x + np.where(first[ahead] <= least, last[ahead] + 1, least)
    stop = x + np.where((behind >= 0) & (last[behind] >= most), first[behind], most + 1)
    none = start >= Nk
    return np.where(none, Nk, start), np.where(none, 0, stop)


def visible_by_gaps(expr: Expr, N: int, Nk: int) -> Visible | None:
    """What the queries see under an expression by diagonals; None if there are too many gaps.

    A query that sees several keys sees each of them beside another: on visible diagonals d < e, between which none is
    visible. The queries -d .. Nk - 1 - e see both.
    """
    queries, each_key = Tiles(0, N, 1, 1), Tiles(0, Nk, 1, 1)
    gaps = gaps_for(expr, (N, Nk, Nk - N), [queries], [each_key])
    if gaps is None:
        return None
    a, b = visible_runs(gaps, N, Nk)  # their pairs differ, so int64 holds the sum: N x Nk is below 2^60, else Python's
    pairs = int(np.sum(pairs_up_to(b, N, Nk) - pairs_up_to(a - 1, N, Nk)))
    any_rows = active(gaps, queries, Tiles(0, 1, Nk, Nk))
    any_keys = active(gaps, Tiles(0, 1, N, N), each_key)
    low, high, d, e = a[a < b], b[a < b], b[:-1], a[1:]
    if Nk == 1:
        return Visible(0, 0, 0, any_rows, any_keys)
    start, stop = np.maximum(0, -d), np.minimum(N - 1, Nk - 1 - e)
    beside = start <= stop
    start, stop, d, e = start[beside], stop[beside], d[beside], e[beside]
    rows = joined_length([start, np.maximum(0, 1 - high)], [stop, np.minimum(N - 1, Nk - 2 - low)])
    inner = np.maximum(0, low), np.minimum(Nk - 1, N - 1 + high)
    keys = joined_length([start + d, start + e, inner[0]], [stop + d, stop + e, inner[1]])
    return Visible(pairs - any_rows + rows, rows, keys, any_rows, any_keys)


def visible_runs(gaps: Gaps, N: int, Nk: int) -> Gaps:
    """The first and the last of the visible diagonals between gaps, as numbers whose squares fit."""
    first, last = (part.astype(object if max(N, Nk) >= MANY_TILES else np.int64) for part in gaps)
    start, stop = np.append(1 - N, last + 1), np.append(first - 1, Nk - 1)
    return start[start <= stop], stop[start <= stop]


def pairs_up_to(d: Whole, N: int, Nk: int) -> Whole:
    """The number of pairs with y - r <= d, for d < Nk: those under a corner, less what lies beyond queries or keys."""

    def corner(size: Whole) -> Whole:
        return np.where(size > 0, size * (size + 1) // 2, 0)

    return corner(d + N) - corner(d) - corner(d + N - Nk)


def joined_length(first: list[Whole], last: list[Whole]) -> int:
    """The length of a union of ranges first..last."""
    starts, stops = np.concatenate(first), np.concatenate(last)
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(stops[order])
    before = np.append(starts[0] - 1, reached[:-1])
    return int(np.sum(np.maximum(0, reached - np.maximum(before, starts - 1))))


def gaps_for(expr: Expr, sizes: tuple[int, int, int], rows: list[Tiles], cols: list[Tiles]) -> Gaps | None:
    """The gaps that can hide a tile or a cell; None for more than MOST_GAPS. `sizes` are N, Nk and Nk - N, or 0."""
    found = stretches(expr, *sizes)
    least = sum(min(one.size for one in some if one.number) for some in (rows, cols)) - 1
    most = MOST_GAPS if max(one.number for one in (*rows, *cols)) < MANY_TILES else MOST_LARGE_GAPS
    if found is None or sum(int(part.long(least).sum()) * part.turns for part in found) > most:
        return None
    return long_gaps(found, least)


def tiles_of(axis: Axis[int]) -> dict[bool, Tiles]:
    """The whole tiles of an axis, and the ragged one."""
    ragged = Tiles(axis.whole * axis.size, axis.ragged, axis.rest, axis.size)
    return {False: Tiles(0, axis.whole, axis.size, axis.size), True: ragged}


def active(gaps: Gaps, r: Tiles, c: Tiles) -> int:
    """The pairs of a row tile and a tile of keys that it sees: all but those whose diagonals lie in one of the gaps."""
    if not r.number or not c.number:
        return 0
    first, last = gaps
    some = last - first > r.size + c.size - 3
    first, last = first[some] + (r.start - c.start), last[some] + (r.start - c.start)
    if max(r.number, c.number) >= MANY_TILES:
        first, last = first.astype(object), last.astype(object)
    total, sizes = r.number * c.number, (r.number, c.number, r.step, c.step)  # a sum is no larger: below 2^60 in int64
    for k in range(0, len(first), GAPS_AT_ONCE):
        before = clamped_floors(first[k : k + GAPS_AT_ONCE] + (r.size + c.step - 2), *sizes)
        total -= int(np.sum(clamped_floors(last[k : k + GAPS_AT_ONCE] + (1 - c.size + c.step), *sizes) - before))
    return total


def long_gaps(found: tuple[Stretch, ...], least: int) -> Gaps:
    """The gaps of `least` diagonals or more. Those of neighbouring stretches become one where they touch."""
    firsts, lasts = [], []
    for part in found:
        for first, last in part.gaps(least):
            kept = first < part.high
            firsts.append(first[kept])
            lasts.append(np.minimum(last[kept], part.high - 1))
    first, last = np.concatenate(firsts), np.concatenate(lasts)
    if not len(first):
        return first, last
    apart = first[1:] > last[:-1] + 1
    first, last = first[np.append(True, apart)], last[np.append(apart, True)]
    long = last - first + 1 >= least
    return first[long], last[long]


@lru_cache(maxsize=16)
def stretches(expr: Expr, N: int, Nk: int, shift: int) -> tuple[Stretch, ...] | None:
    """The diagonals 1 - N .. Nk - 1, cut at the edges of windows; None for more than MOST_CHANGES, or beyond int64."""
    shapes = [atom.shape for atom in atoms(expr)]
    edges = {int(edge) for shape in shapes if isinstance(shape, Diagonals) for edge in shape.edges(shift)}
    cuts = sorted({1 - N, Nk, *(edge for edge in edges if 1 - N < edge < Nk)})
    sizes = sorted({shape.size for shape in shapes if isinstance(shape, Stripes)})
    found, changes = [], MOST_CHANGES * (max(N, Nk) >= 2**60)
    for low, high in pairwise(cuts):
        known = decided(expr, low, shift)
        stop = low + 1 if known is not None else min(high, low + 2 * lcm(*sizes))
        changes += sum(2 * (stop - low) // size for size in sizes)
        if changes >= MOST_CHANGES:
            return None
        found.append(stretch(expr, low, high, stop, sizes, shift))
    return tuple(found)


def decided(expr: Expr, d: int, shift: int) -> bool | None:
    """Whether diagonal d is visible, where its windows tell; None where its strides do."""

    def of(atom: Atom) -> bool | None:
        return None if isinstance(atom.shape, Stripes) else bool(atom.sees(0, d, shift))

    return evaluate(expr, of, either)


def either(op: str, tests: list[bool | None]) -> bool | None:
    """Booleans joined by an operator, where None is unknown."""
    if op == "~":
        return None if tests[0] is None else not tests[0]
    decides = op == "|"
    return decides if decides in tests else None if None in tests else not decides


def stretch(expr: Expr, low: int, high: int, stop: int, sizes: list[int], shift: int) -> Stretch:
    """The gaps of low..high-1, between which no window ends. What is before `stop` comes again."""
    starts = [np.array([low])]
    if stop > low + 1:
        for size in sizes:
            on = np.arange(low + (shift - low) % size, stop, size)
            starts += [on, on + 1]
    d = np.unique(np.concatenate(starts))
    d = d[d < stop]
    seen = np.broadcast_to(evaluate(expr, lambda atom: atom.sees(0, d, shift), joined), d.shape)
    turns = np.flatnonzero(np.append(True, seen[1:] != seen[:-1]))
    first, after = d[turns], np.append(d[turns[1:]], stop)
    gap = ~seen[turns]
    first, last, period = first[gap], after[gap] - 1, max(1, (stop - low) // 2)
    if stop in (high, low + 1) or not seen.any():  # the gap that meets `stop` goes on to `high`
        return Stretch(low, high, first, np.where(last == stop - 1, high - 1, last), high - low)
    once = first <= low + period
    return Stretch(low, high, first[once], last[once], period)
