"""What each query sees, as intervals of keys, for masks of any atoms but files and functions. Imports NumPy.

The rows are cut into pieces. In a piece every query x sees the same intervals of keys, and each end of an interval
stands still or moves with x: the atoms change at places as `x - W`, K, or the end of x's own segment, and a row ends
a piece where two of these meet. Between two ends only stripes tell one key from the next, by (y - x) modulo their
period. The predicates themselves (atoms.py) say which intervals are visible.

Counts of tiles (intervals.py), of pairs (visible.py) and of the keys that tiles need (reach.py) follow from the pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import total
from ..errors import InputError
from .atoms import Chunks, Diagonals, Documents, First, Stripes
from .atoms import ends as ends_of_documents
from .expression import Atom, Expr, atoms, evaluate, joined

if TYPE_CHECKING:
    from ..core.typing import Bools, Size, Test

Whole = NDArray[np.int64]  # of Python integers (dtype object) where int64 is too small
MOST_PIECES = 2**22  # pieces of rows
MOST_RUNS = 2**26  # intervals of keys that are made at once
MOST_LARGE_RUNS = 2**20  # the same over 2^31 positions and more, where numbers are Python integers
MOST_ROWS = 2**24  # rows under stripes that are looked at one by one: some seconds
ROWS_AT_ONCE = 2**18
MOST_RESIDUES = 2**26  # of the periods of all pieces


class Runs(NamedTuple):
    """Intervals of visible keys, `first`..`last`, each with the number of its owner."""

    owner: NDArray[np.intp]
    first: Whole
    last: Whole


@dataclass(frozen=True, eq=False)
class Visible:
    """Which keys of the intervals of pieces are visible.

    `seen` (pieces, intervals, period) says it of each residue of y - x modulo the period of the stripes.
    """

    seen: Bools

    @cached_property
    def some(self) -> Bools:
        """Whether some residue is visible."""
        return np.asarray(self.seen.any(axis=2))

    @cached_property
    def all(self) -> Bools:
        """Whether every residue is visible."""
        return np.asarray(self.seen.all(axis=2))

    @cached_property
    def below(self) -> Whole:
        """The number of visible residues below each number up to the period."""
        return np.pad(self.seen.cumsum(axis=2), ((0, 0), (0, 0), (1, 0)))

    @cached_property
    def ahead(self) -> Whole:
        """The steps from each residue on to the next one that is visible."""
        return steps_back(self.seen[..., ::-1])[..., ::-1]

    @cached_property
    def back(self) -> Whole:
        """The steps from each residue back to the last one that is visible."""
        return steps_back(self.seen)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of the rows of several problems, one after the other."""

    problem: NDArray[np.intp]
    start: Whole
    stop: Whole
    """The first row of each piece, and the row after its last."""
    ends: Whole
    """(pieces, ends): the ends of the intervals of keys at the first row, ascending."""
    moves: Bools
    """(pieces, ends): whether an end moves with the row, one key for each row."""
    kind: NDArray[np.intp]
    """The row of `visible` that each piece has."""
    visible: Visible

    @property
    def period(self) -> int:
        """The least common multiple of the strides."""
        return self.visible.seen.shape[-1]

    @cached_property
    def seen(self) -> Bools:
        """Whether some key of an interval is visible, (pieces, intervals)."""
        return self.visible.some[self.kind]

    def at(self, end: int, rows: Whole) -> Whole:
        """An end at given rows, one for each piece."""
        return self.ends[:, end] + self.moves[:, end] * (rows - self.start)

    def of(self, which: NDArray[np.intp]) -> Pieces:
        """Some of the pieces, by their numbers."""
        start, stop, kind = self.start[which], self.stop[which], self.kind[which]
        return Pieces(self.problem[which], start, stop, self.ends[which], self.moves[which], kind, self.visible)

    def within(self, start: Whole, stop: Whole) -> Pieces:
        """The pieces with other rows, start..stop-1, that lie in them."""
        ends = self.ends + self.moves * (start - self.start)[:, None]
        return Pieces(self.problem, start, stop, ends, self.moves, self.kind, self.visible)

    def in_rows(self) -> Iterator[Pieces]:
        """The rows of the pieces of one problem, each by itself, some at a time."""
        number = int(self.stop[-1])
        affordable(number * (self.period > 1), MOST_ROWS, f"N = {number} queries that see different stripes")
        for start in range(0, number, ROWS_AT_ONCE):
            x = np.arange(start, min(number, start + ROWS_AT_ONCE))
            yield self.of(np.searchsorted(self.start, x, "right") - 1).within(x, x + 1)

    def joined(self) -> Pieces:
        """The pieces, with those as one that follow each other and are of one kind."""
        alike = (self.kind[1:] == self.kind[:-1]) & (self.start[1:] == self.stop[:-1])
        first = np.flatnonzero(np.concatenate([[True], ~alike]))
        last = np.append(first[1:], len(self.start)) - 1
        return self.of(first).within(self.start[first], self.stop[last])

    def keys_seen(self) -> tuple[Whole, Whole]:
        """(the keys that the first row of each piece sees, how many more each row sees than the one before). Under
        stripes the second is right for pieces of one row only."""
        each = more = 0 * self.start
        for k in range(self.seen.shape[1]):
            first, after = self.ends[:, k], self.ends[:, k + 1]
            if self.period == 1:
                each = each + np.where(self.seen[:, k], after - first, 0)
                more = more + self.seen[:, k] * (self.moves[:, k + 1].astype(int) - self.moves[:, k])
            else:
                seen = self.visible_below(k, after - self.start) - self.visible_below(k, first - self.start)
                each = each + np.where(self.seen[:, k] & (first < after), seen, 0)
        return each, more

    def visible_below(self, k: int, delta: Whole) -> Whole:
        """The number of visible differences from 0 up to `delta` - 1, by the residues of interval k; negative for those
        below 0."""
        below, L = self.visible.below, self.period
        return delta // L * below[self.kind, k, L] + below[self.kind, k, (delta % L).astype(np.intp)]

    def runs(self, gap: int | Whole = 1) -> Iterator[Runs]:
        """The keys that any row of each piece sees, as intervals whose owners are the pieces. They may have holes of
        fewer than `gap` keys, which hide no tile of so many keys."""
        last_row = self.stop - 1
        for k in range(self.seen.shape[1]):
            first, last, whole = self.ends[:, k], self.at(k + 1, last_row) - 1, self.visible.all[self.kind, k]
            owner = np.flatnonzero(whole & (first <= last))
            yield Runs(owner, first[owner], last[owner])
            some = np.flatnonzero(self.seen[:, k] & ~whole & (first <= last))
            if len(some):
                part = self.of(some)
                for found in part.striped(k, gap if isinstance(gap, int) else gap[some]):
                    yield Runs(some[found.owner], found.first, found.last)

    def striped(self, k: int, gap: int | Whole) -> Iterator[Runs]:
        """The keys of interval k, whose visibility depends on y - x modulo the period."""
        L, rows = self.period, self.stop - self.start

        def ahead(delta: Whole) -> Whole:
            return self.visible.ahead[self.kind, k, (delta % L).astype(np.intp)]

        def back(delta: Whole) -> Whole:
            return self.visible.back[self.kind, k, (delta % L).astype(np.intp)]

        first, last = self.ends[:, k], self.at(k + 1, self.stop - 1) - 1
        moves, moves_on = self.moves[:, k], self.moves[:, k + 1]
        low = first - np.where(moves, self.start, self.stop - 1)
        high = last - np.where(moves_on, self.stop - 1, self.start)
        low, high = low + ahead(low), high - back(high)
        hidden = self.visible.back.max(axis=2)[self.kind, k] - rows + 1  # keys between two that some row sees
        shortest = np.minimum(self.ends[:, k + 1] - first, self.at(k + 1, self.stop - 1) - self.at(k, self.stop - 1))
        joined_up = (hidden <= 0) | ((hidden < gap) & ((moves == moves_on) | (shortest >= L)))
        # The first key that a row sees from a fixed end on, and the last one up to it.
        on, before = back(first - self.start), back(last - self.start)
        start = np.where(moves, self.start + low, first + np.where(on < rows, 0, ahead(first - self.start)))
        stop = np.where(moves_on, self.stop - 1 + high, last - np.where(before < rows, 0, before - rows + 1))
        start, stop = np.where(hidden <= 0, self.start + low, start), np.where(hidden <= 0, self.stop - 1 + high, stop)
        kept = np.flatnonzero(joined_up & (low <= high))
        yield clipped(kept, start[kept], stop[kept], first, last)
        rest = np.flatnonzero(~joined_up & (low <= high))
        if len(rest):
            owner, a, b = repeated(self.visible.seen[self.kind[rest], k], low[rest], high[rest])
            owner = rest[owner]
            yield clipped(owner, self.start[owner] + a, self.stop[owner] - 1 + b, first, last)


def clipped(owner: NDArray[np.intp], start: Whole, stop: Whole, first: Whole, last: Whole) -> Runs:
    """Intervals as far as they lie in first..last of their owners; those that do not are left out."""
    start, stop = np.maximum(start, first[owner]), np.minimum(stop, last[owner])
    kept = start <= stop
    return Runs(owner[kept], start[kept], stop[kept])


def steps_back(seen: Bools) -> Whole:
    """The steps back from each residue to the nearest one that is seen, along the last axis. The period wraps around;
    where nothing is seen, the steps are more than a period."""
    L = seen.shape[-1]
    places = np.arange(2 * L)
    last = np.maximum.accumulate(np.where(np.concatenate([seen, seen], axis=-1), places, -1), axis=-1)
    return (places - last)[..., L:]


def repeated(seen: Bools, low: Whole, high: Whole) -> Runs:
    """The visible differences among low..high of each owner, from its residues."""
    L = seen.shape[-1]
    edge = np.diff(np.pad(seen.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    owner, start = np.nonzero(edge == 1)
    stop = np.nonzero(edge == -1)[1] - 1
    turns = (high // L - low // L + 1)[owner].astype(np.int64)
    number, small = total(turns), len(owner) == 0 or max(int(high.max()), -int(low.min())) < 2**31
    affordable(number, MOST_RUNS if small else MOST_LARGE_RUNS, f"N too large for {number} stripes")
    each = np.repeat(np.arange(len(owner)), turns)
    turn = np.arange(len(each)) - np.repeat(np.cumsum(turns) - turns, turns)
    origin = ((low // L)[owner[each]] + turn) * L
    a = np.maximum(origin + start[each], low[owner[each]])
    b = np.minimum(origin + stop[each], high[owner[each]])
    kept = a <= b
    return Runs(owner[each][kept], a[kept], b[kept])


def affordable(number: int, most: int = MOST_RUNS, found: str | None = None) -> None:
    """Raise InputError for more intervals of a mask than can be looked at. `found` says what they are."""
    if number > most:
        allowed = f"at most {most} stripes or chunks between the tiles"
        hint = "try a smaller N, larger tiles or another stride"
        raise InputError("--mask", found or f"{number} stripes", allowed, hint)


# ---------------------------------------------------------------- the pieces of a mask


def pieces(expr: Expr, N: Whole, Nk: Whole, shift: Whole) -> Pieces:
    """The pieces of the rows of problems with N queries and Nk keys. `shift` is Nk - N, or 0 for tiles."""
    shapes = [atom.shape for atom in atoms(expr)]
    firsts = [shape.size for shape in shapes if isinstance(shape, First)]
    segments = [shape for shape in shapes if isinstance(shape, Chunks | Documents)]
    diagonals = [0 * N + edge for shape in shapes if isinstance(shape, Diagonals) for edge in shape.edges(shift)]
    fixed = [0 * N, Nk, *(0 * N + size for size in firsts)]
    cuts = segment_edges(segments, max(N.max(), Nk.max()))
    met = [*fixed, *(0 * N + cut for cut in cuts)]
    rows = [
        0 * N,
        N,
        *(end - shift for end in met[2:]),
        *(end - edge + after for end in met for edge in diagonals for after in (0, 1)),
    ]
    affordable(len(N) * len(rows), MOST_PIECES)
    edges = np.sort(np.clip(np.stack(rows, axis=1), 0, N[:, None]), axis=1)
    problem, place = np.nonzero(edges[:, :-1] < edges[:, 1:])
    start, stop = edges[problem, place], edges[problem, place + 1]
    standing = [
        *(end[problem] for end in fixed),
        *(end for one in segments for end in own_segment(one, start + shift[problem])),
    ]
    moving = [start + edge[problem] for edge in diagonals]
    ends = np.stack([*standing, *moving], axis=1)
    order = np.argsort(ends, axis=1, kind="stable")
    moves = np.broadcast_to(np.arange(len(standing) + len(moving)) >= len(standing), ends.shape)
    ends, moves = (np.take_along_axis(part, order, axis=1) for part in (ends, moves))
    seen = visible_intervals(expr, start, ends, shift[problem], Nk[problem])
    return Pieces(problem, start, stop, ends, moves, np.arange(len(start)), Visible(seen))


@lru_cache(maxsize=2)
def pieces_of(expr: Expr, N: int, Nk: int, shift: int, kind: str = "int64") -> Pieces:
    """The pieces of one problem, kept for all sizes of its tiles. `kind` is the type of its numbers."""
    return pieces(expr, *(np.array([size], kind) for size in (N, Nk, shift)))


def visible_intervals(expr: Expr, rows: Whole, ends: Whole, shift: Whole, Nk: Whole) -> Bools:
    """Whether the predicates hold in the intervals between the ends, for each residue of y - x."""
    period = lcm(*(atom.shape.size for atom in atoms(expr) if isinstance(atom.shape, Stripes)))
    number = len(rows) * (ends.shape[1] - 1) * period
    affordable(number, MOST_RESIDUES, f"strides that repeat only after {period} tokens, over {int(Nk.max())} keys")
    x, y, moved = rows[:, None, None], ends[:, :-1, None], shift[:, None, None]

    def sees(atom: Atom) -> Test:
        """What an atom says; stripes tell residues of y - r apart, and nothing else does."""
        return atom.sees(0, np.arange(period), moved) if isinstance(atom.shape, Stripes) else atom.sees(x, y, moved)

    inside = (y >= 0) & (ends[:, 1:, None] <= Nk[:, None, None]) & (y < ends[:, 1:, None])
    return np.broadcast_to(evaluate(expr, sees, joined), (*inside.shape[:2], period)) & inside


def segment_edges(segments: list[Chunks | Documents], length: Size) -> list[int]:
    """The positions at which segments of an axis start."""
    affordable(sum(int(length) // one.size for one in segments if isinstance(one, Chunks)), MOST_PIECES)
    return sorted({cut for one in segments for cut in one.edges(0, int(length) - 1)})


def own_segment(segments: Chunks | Documents, places: Whole) -> tuple[Whole, Whole]:
    """The first position of the segment of each place, and the one after its last."""
    if isinstance(segments, Chunks):
        start = places // segments.size * segments.size
        return start, start + segments.size
    stops = np.array([0, *ends_of_documents(segments.lengths)], places.dtype)
    own = np.minimum(np.searchsorted(stops[1:].astype(np.int64), places.astype(np.int64), "right"), len(stops) - 2)
    return stops[own], stops[own + 1]
