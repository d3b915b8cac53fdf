"""The memory requests of programs: patterns of words, with their starts. They give words, distinct words and sectors.

Most programs request the same pattern from different starts. So a launch is a few patterns with many starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...hardware import SECTOR_BYTES
from .numbers import Mask, Number, lane_axes

if TYPE_CHECKING:
    from .numbers import Integers, Truths

    Lanes = TypeVar("Lanes", Integers, Truths)

MOST_STARTS = 1 << 22  # starts that are kept before equal ones are merged
MOST_PIECES = 1 << 22  # intervals that are merged at a time
NOWHERE = 1 << 62  # beyond all addresses (MOST_BYTES of launch.py)


@dataclass
class Pattern:
    """Words at fixed distances that one request asks for: their bytes from the first word, in order, and the starts.

    A word that several lanes ask for is listed several times.
    """

    offsets: Integers
    word_bytes: int
    starts: list[Integers] = field(default_factory=list)
    counts: list[Integers] = field(default_factory=list)  # of requests, each of which was walked: int64 holds all
    waiting: int = 0

    def add(self, starts: Integers) -> None:
        """Add requests for the pattern at these starts."""
        self.starts.append(starts)
        self.counts.append(np.ones_like(starts))
        self.waiting += len(starts)
        if self.waiting > max(MOST_STARTS, len(self.starts[0])):
            self.gather()

    def gather(self) -> tuple[Integers, Integers]:
        """(the distinct starts in order, the number of requests at each)."""
        if self.waiting:
            starts, counts = np.concatenate(self.starts), np.concatenate(self.counts)
            order = np.argsort(starts, kind="stable")  # what was gathered before is in order already
            starts, counts = starts[order], counts[order]
            new = np.flatnonzero(np.r_[True, starts[1:] > starts[:-1]])
            self.starts, self.counts, self.waiting = [starts[new]], [np.add.reduceat(counts, new)], 0
        return self.starts[0], self.counts[0]

    @property
    def words(self) -> int:
        """The number of words in all requests."""
        return len(self.offsets) * int(self.gather()[1].sum())

    @property
    def sectors(self) -> int:
        """The sectors that requests touch. A sector counts once for each request that touches it."""
        starts, counts = self.gather()
        total = 0
        places = starts % SECTOR_BYTES
        for rest in np.flatnonzero(np.bincount(places)):
            first, last = self.offsets + rest, self.offsets + rest + self.word_bytes - 1
            touched = len(np.union1d(first // SECTOR_BYTES, last // SECTOR_BYTES))
            total += touched * int(counts[places == rest].sum())
        return total

    def behind(self, size: int) -> tuple[int, int]:
        """(requests without a byte among the first `size`, all requests)."""
        starts, counts = self.gather()
        away = (starts >= size) | (starts + self.offsets[-1] + self.word_bytes <= 0)
        return int(counts[away].sum()), int(counts.sum())

    def pieces(self) -> Iterator[tuple[Integers, Integers]]:
        """The bytes that it covers, as intervals (first, end), in chunks."""
        offsets = np.unique(self.offsets)
        breaks = np.flatnonzero(np.diff(offsets) > self.word_bytes)
        first, end = offsets[[0, *(breaks + 1)]], offsets[[*breaks, -1]] + self.word_bytes
        starts, _ = self.gather()
        step = max(1, MOST_PIECES // len(first))
        for k in range(0, len(starts), step):
            some = starts[k : k + step, None]
            yield (some + first).ravel(), (some + end).ravel()


def joined(pieces: Iterator[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
    """The union of intervals, as intervals that do not touch each other, in order."""
    firsts, ends = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for first, end in pieces:
        firsts, ends = np.concatenate([firsts, first]), np.concatenate([ends, end])
        order = np.argsort(firsts, kind="stable")
        firsts, reach = firsts[order], np.maximum.accumulate(ends[order])
        new = np.flatnonzero(np.r_[True, firsts[1:] > reach[:-1]])
        firsts, ends = firsts[new], reach[np.r_[new[1:] - 1, len(reach) - 1]]
    return firsts, ends


class Requests:
    """All requests of one kind (reads, writes or atomics) to one argument."""

    def __init__(self, note: Callable[[Integers, Integers, Integers], None] | None = None, whole: bool = False) -> None:
        self.note = note
        """A function that is called for each request with (bytes from its first word, the programs, their starts)."""
        self.whole = whole or note is not None
        """Whether a request stays one pattern. Else its rows may be patterns of their own, which counts the same."""
        self.patterns: dict[tuple[int, bytes], Pattern] = {}
        self.lanes = 0
        """The number of lanes, including those that are masked off."""
        self.unplaced: dict[int, int] = {}
        """{bytes of a word: words whose addresses are not known}."""

    def add(self, offset: Number, mask: Mask | None, shape: tuple[int, ...], word_bytes: int, on: Truths) -> None:
        """Add a request of the programs that are `on`, for the words at `offset` where the mask holds."""
        self.lanes += prod(shape) * int(on.sum())
        mask = mask or everywhere(shape)
        on = on & mask.programs.reshape(-1)
        if offset.mixed is None:
            edge = edge_programs(mask.mixed, on)
            inner, base = on & ~edge, np.broadcast_to(offset.programs.reshape(-1), on.shape)
            lanes = np.broadcast_to(offset.lanes[0], shape)[np.broadcast_to(mask.lanes[0], shape)]
            self._keep(lanes, word_bytes, base[inner], np.flatnonzero(inner))
        else:
            edge = on if self.whole else self._keep_rows(offset, mask, shape, word_bytes, on)
        if edge.any():
            self._keep_one_by_one(offset, mask, shape, word_bytes, np.flatnonzero(edge))

    def add_anywhere(self, mask: Mask | None, shape: tuple[int, ...], word_bytes: int, on: Truths) -> None:
        """Add a request of the programs that are `on`, for words at addresses that nobody knows."""
        self.lanes += prod(shape) * int(on.sum())
        truths = (mask or everywhere(shape)).array
        each = truths.sum(axis=lane_axes(truths), dtype=np.int64) * (prod(shape) // prod(truths.shape[1:]))
        words = int((np.broadcast_to(each, on.shape) * on).sum())
        self.unplaced[word_bytes] = self.unplaced.get(word_bytes, 0) + words

    def _keep(self, offsets: Integers, word: int, base: Integers, programs: Integers) -> None:
        """Record a request for words at these distances from each base."""
        if not offsets.size or not base.size:
            return
        least = offsets.min()
        offsets = np.sort(offsets - least, axis=None)
        key = word, offsets.tobytes()
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self.patterns[key] = Pattern(offsets, word)
        pattern.add(base + least)
        if self.note is not None:
            self.note(offsets, programs, base + least)

    def _keep_rows(self, offset: Number, mask: Mask, shape: tuple[int, ...], word: int, on: Truths) -> Truths:
        """Record requests whose rows begin where data say row by row, and give the programs that are left: those with
        rows that share a sector, which counts once for a request. The columns of a row lie alike in all programs."""
        assert offset.mixed is not None
        columns = tuple(k for k, n in enumerate(offset.mixed.shape) if k and n == 1)
        rows = tuple(k for k, n in enumerate(offset.mixed.shape) if k and n > 1)
        across, on_across = leading(offset.lanes, rows), np.asarray(mask.lanes.any(axis=rows, keepdims=True))
        down = leading(offset.lanes - across, columns)
        on_down = np.asarray(mask.lanes.any(axis=columns, keepdims=True))
        apart = (offset.lanes == across + down).all() and (mask.lanes == (on_across & on_down)).all()
        wide, tall = (tuple(1 if k in axes else n for k, n in enumerate(shape, 1)) for axes in (rows, columns))
        if not apart or not on_across.any() or len(on) * prod(tall) > MOST_PIECES:
            return on
        by_row = [part for part in mask.mixed if all(part.shape[k] == 1 for k in columns)]
        edge = edge_programs([part for part in mask.mixed if any(part.shape[k] > 1 for k in columns)], on)
        asked = Mask(on.reshape(-1, *[1] * len(shape)), on_down, tuple(by_row)).array
        piece = np.sort(np.broadcast_to(across[0], wide)[np.broadcast_to(on_across[0], wide)])
        asked, begin = rows_of(asked, len(on), tall), rows_of(offset.programs + down + offset.mixed, len(on), tall)
        left = edge | share_sectors(np.where(asked, begin + piece[0], NOWHERE), piece[-1] - piece[0] + word)
        self._keep(piece, word, begin[~left][asked[~left]], np.zeros(0, np.int64))
        return on & left

    def _keep_one_by_one(
        self, offset: Number, mask: Mask, shape: tuple[int, ...], word: int, programs: Integers
    ) -> None:
        """Record requests of programs that are not all alike. Those that differ only in their start go together."""
        step = max(1, MOST_PIECES // max(1, prod(shape)))
        for k in range(0, len(programs), step):
            some = programs[k : k + step]
            own = lambda part, some=some: part if len(part) == 1 else part[some]  # noqa: E731
            at = rows_of(offset.each(own).array, len(some), shape)
            on = rows_of(mask.each(own).array, len(some), shape)
            for rows in alike(at, on):
                lanes = on[rows[0]]
                if lanes.any():
                    self._keep(at[rows[0]][lanes] - at[rows[0], 0], word, at[rows, 0], some[rows])

    @property
    def words(self) -> int:
        """The number of words in all requests."""
        return sum(pattern.words for pattern in self.patterns.values()) + self.unplaced_words

    @property
    def word_bytes(self) -> int:
        """The bytes of a word of the first request."""
        return next(iter([*(pattern.word_bytes for pattern in self.patterns.values()), *self.unplaced]), 1)

    @property
    def byte_count(self) -> int:
        """The number of bytes in all requests."""
        placed = sum(pattern.words * pattern.word_bytes for pattern in self.patterns.values())
        return placed + sum(size * words for size, words in self.unplaced.items())

    @property
    def unplaced_words(self) -> int:
        """The number of words whose addresses are not known."""
        return sum(self.unplaced.values())

    @property
    def sectors(self) -> int:
        """The sectors that requests touch. A sector counts once for each request."""
        return sum(pattern.sectors for pattern in self.patterns.values())

    def behind(self, size: int) -> tuple[int, int]:
        """(requests without a byte among the first `size`, all requests). A program may make several."""
        pairs = [pattern.behind(size) for pattern in self.patterns.values()]
        return sum(away for away, _ in pairs), sum(all for _, all in pairs)

    def covered(self) -> tuple[Integers, Integers]:
        """The bytes that were requested at least once, as intervals in order."""
        return joined(piece for pattern in self.patterns.values() for piece in pattern.pieces())


def leading(array: Integers, axes: tuple[int, ...]) -> Integers:
    """The first elements of an array along some axes, which stay."""
    return array[tuple(slice(0, 1) if k in axes else slice(None) for k in range(array.ndim))]


def rows_of(array: Lanes, programs: int, shape: tuple[int, ...]) -> Lanes:
    """The lanes of some programs, a row for each."""
    return np.broadcast_to(array, (programs, *shape)).reshape(programs, -1)


def everywhere(shape: tuple[int, ...]) -> Mask:
    """A mask that holds in all lanes."""
    yes = np.ones((1,) * (len(shape) + 1), np.bool_)
    return Mask(yes, yes)


def edge_programs(parts: Sequence[Truths], on: Truths) -> Truths:
    """The programs in which some part of a mask, which depends on both program and lane, is not true for all lanes."""
    edge = np.zeros_like(on)
    for part in parts:
        edge |= ~part.all(axis=lane_axes(part))
    return edge & on


def share_sectors(starts: Integers, length: int) -> Truths:
    """The programs in which two of the pieces that begin here, of so many bytes, touch the same sector."""
    starts = np.sort(starts, axis=1)
    last = (starts[:, :-1] + length - 1) // SECTOR_BYTES
    return ((starts[:, 1:] // SECTOR_BYTES <= last) & (starts[:, 1:] != NOWHERE)).any(axis=1)


def alike(places: Integers, on: Truths) -> Sequence[Integers]:
    """Groups of rows that differ only in their start."""
    rows = np.where(on, places - places[:, :1], np.iinfo(np.int64).min)
    text = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, inverse = np.unique(text, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)
