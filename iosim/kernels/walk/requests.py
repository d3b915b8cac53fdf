"""The memory requests of programs: patterns of words, with their starts. They give words, distinct words and sectors.

Most programs request the same pattern from different starts. So a launch is a few patterns with many starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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


@dataclass(frozen=True, eq=False)
class Asked:
    """The load instructions by which warps ask the L1 for one request: the number of an instruction, and of an element
    that it asks for. Several may ask for the same element."""

    instructions: Integers
    elements: Integers
    split: bool = False
    """Whether a thread loads words one by one that its layout has side by side."""

    @lru_cache(maxsize=64)  # noqa: B019  # few are made, and they are small
    def of_row(self, wide: tuple[int, ...], tall: tuple[int, ...], shape: tuple[int, ...]) -> Asked | None:
        """The instructions for one row, where `wide` is the shape of a row and `tall` that of a column; None if rows
        differ."""
        row, column = (
            np.broadcast_to(np.arange(prod(n)).reshape(n), shape).ravel()[self.elements] for n in (tall, wide)
        )
        order = np.lexsort((column, self.instructions, row))
        if np.ptp(np.bincount(row, minlength=prod(tall))):
            return None
        own, columns = (x[order].reshape(prod(tall), -1) for x in (self.instructions, column))
        new = np.diff(own, axis=1, prepend=own[:, :1]) != 0
        alike = (columns == columns[0]).all() and (new == new[0]).all()
        return Asked(np.cumsum(new[0]), columns[0]) if alike else None


@dataclass
class Pattern:
    """Words at fixed distances that one request asks for: their bytes from the first word, in order, and the starts.

    A word that several lanes ask for is listed several times.
    """

    offsets: Integers
    word_bytes: int
    asked: Asked | None = None
    """The load instructions that ask for it, with bytes from its first word for elements; None if that is not known."""
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
        return self.touched(Asked(np.zeros_like(self.offsets), self.offsets))

    def touched(self, asked: Asked) -> int:
        """The sectors that instructions touch, where a sector counts once for each."""
        starts, counts = self.gather()
        total = 0
        places = starts % SECTOR_BYTES
        for rest in np.flatnonzero(np.bincount(places)):
            first, last = ((asked.elements + byte) // SECTOR_BYTES for byte in (rest, rest + self.word_bytes - 1))
            sectors, which = np.unique(np.concatenate([first, last]), return_inverse=True)
            touched = len(np.unique(np.tile(asked.instructions, 2) * len(sectors) + which))
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
        self.patterns: dict[tuple[object, ...], Pattern] = {}
        self.lanes = 0
        """The number of lanes, including those that are masked off."""
        self.unplaced: dict[int, int] = {}
        """{bytes of a word: words whose addresses are not known}."""

    def add(
        self,
        offset: Number,
        mask: Mask | None,
        shape: tuple[int, ...],
        word: int,
        on: Truths,
        asked: Asked | None = None,
    ) -> None:
        """Add a request of the programs that are `on`, for the words at `offset` where the mask holds."""
        self.lanes += prod(shape) * int(on.sum())
        mask = mask or everywhere(shape)
        on = on & mask.programs.reshape(-1)
        if offset.mixed is None:
            edge = edge_programs(mask.mixed, on)
            inner, base = on & ~edge, np.broadcast_to(offset.programs.reshape(-1), on.shape)
            at, lanes = (np.broadcast_to(part[0], shape).ravel() for part in (offset.lanes, mask.lanes))
            self._keep(at, lanes, word, base[inner], np.flatnonzero(inner), asked)
        else:
            edge = on if self.whole else self._keep_rows(offset, mask, shape, word, on, asked)
        if edge.any():
            self._keep_one_by_one(offset, mask, shape, word, np.flatnonzero(edge), asked)

    def add_anywhere(self, mask: Mask | None, shape: tuple[int, ...], word_bytes: int, on: Truths) -> None:
        """Add a request of the programs that are `on`, for words at addresses that nobody knows."""
        self.lanes += prod(shape) * int(on.sum())
        truths = (mask or everywhere(shape)).array
        each = truths.sum(axis=lane_axes(truths), dtype=np.int64) * (prod(shape) // prod(truths.shape[1:]))
        words = int((np.broadcast_to(each, on.shape) * on).sum())
        self.unplaced[word_bytes] = self.unplaced.get(word_bytes, 0) + words

    def _keep(
        self, at: Integers, on: Truths, word: int, base: Integers, programs: Integers, asked: Asked | None
    ) -> None:
        """Record a request for words at these distances from each base, in the lanes that are `on`."""
        if not on.any() or not base.size:
            return
        least = at[on].min()
        offsets = at[on] - least
        key = word, offsets.tobytes(), asked, None if asked is None else on.tobytes()
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self.patterns[key] = Pattern(np.sort(offsets), word)
            if asked is not None:
                part = on[asked.elements]
                pattern.asked = Asked(asked.instructions[part], at[asked.elements[part]] - least)
        pattern.add(base + least)
        if self.note is not None:
            self.note(pattern.offsets, programs, base + least)

    def _keep_rows(
        self, offset: Number, mask: Mask, shape: tuple[int, ...], word: int, on: Truths, asked: Asked | None
    ) -> Truths:
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
        own = asked and asked.of_row(wide, tall, shape)
        if not apart or not on_across.any() or len(on) * prod(tall) > MOST_PIECES or (asked and not own):
            return on
        by_row = [part for part in mask.mixed if all(part.shape[k] == 1 for k in columns)]
        edge = edge_programs([part for part in mask.mixed if any(part.shape[k] > 1 for k in columns)], on)
        wanted = Mask(on.reshape(-1, *[1] * len(shape)), on_down, tuple(by_row)).array
        columns_at, some = (np.broadcast_to(part[0], wide).ravel() for part in (across, on_across))
        piece = np.sort(columns_at[some])
        wanted, begin = rows_of(wanted, len(on), tall), rows_of(offset.programs + down + offset.mixed, len(on), tall)
        left = edge | share_sectors(np.where(wanted, begin + piece[0], NOWHERE), piece[-1] - piece[0] + word)
        self._keep(columns_at, some, word, begin[~left][wanted[~left]], np.zeros(0, np.int64), own)
        return on & left

    def _keep_one_by_one(
        self,
        offset: Number,
        mask: Mask,
        shape: tuple[int, ...],
        word: int,
        programs: Integers,
        asked: Asked | None,
    ) -> None:
        """Record requests of programs that are not all alike. Those that differ only in their start go together."""
        step = max(1, MOST_PIECES // max(1, prod(shape)))
        for k in range(0, len(programs), step):
            some = programs[k : k + step]
            own = lambda part, some=some: part if len(part) == 1 else part[some]  # noqa: E731
            at = rows_of(offset.each(own).array, len(some), shape)
            on = rows_of(mask.each(own).array, len(some), shape)
            for rows in alike(at, on):
                self._keep(at[rows[0]] - at[rows[0], 0], on[rows[0]], word, at[rows, 0], some[rows], asked)

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

    @property
    def asked_sectors(self) -> int | None:
        """The sectors that the L1 is asked for, once for each instruction of a warp; None if that is not known."""
        own = [(pattern, pattern.asked) for pattern in self.patterns.values() if pattern.asked is not None]
        whole = len(own) == len(self.patterns) and not self.unplaced
        return sum(pattern.touched(asked) for pattern, asked in own) if whole else None

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
