"""Bands of equal tiles along an axis, and sets of tiles, as intervals or as a repeating pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from .closed_form import Axis

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
