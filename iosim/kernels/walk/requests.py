"""The memory requests of programs: patterns of words, with their starts. They give words, distinct words and sectors.

Most programs request the same pattern from different starts. So a launch is a few patterns with many starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...hardware import SECTOR_BYTES
from .numbers import Mask, Number

if TYPE_CHECKING:
    from .numbers import Integers, Truths

    Lanes = TypeVar("Lanes", Integers, Truths)

MOST_STARTS = 1 << 22  # starts that are kept before equal ones are merged
MOST_PIECES = 1 << 22  # intervals that are merged at a time


@dataclass
class Pattern:
    """Words at fixed distances that one request asks for: their bytes from the first word, in order, and the starts.

    A word that several lanes ask for is listed several times.
    """

    offsets: Integers
    word_bytes: int
    starts: list[Integers] = field(default_factory=list)
    counts: list[Integers] = field(default_factory=list)
    waiting: int = 0

    def add(self, starts: Integers) -> None:
        """Add requests for the pattern at these starts."""
        self.starts.append(starts)
        self.counts.append(np.ones_like(starts))
        self.waiting += len(starts)
        if self.waiting > MOST_STARTS:
            self.gather()

    def gather(self) -> tuple[Integers, Integers]:
        """(the distinct starts in order, the number of requests at each)."""
        starts, inverse = np.unique(np.concatenate(self.starts), return_inverse=True)
        counts = np.zeros(len(starts), np.int64)
        np.add.at(counts, inverse, np.concatenate(self.counts))
        self.starts, self.counts, self.waiting = [starts], [counts], 0
        return starts, counts

    @property
    def words(self) -> int:
        """The number of words in all requests."""
        return len(self.offsets) * int(self.gather()[1].sum())

    @property
    def sectors(self) -> int:
        """The sectors that requests touch. A sector counts once for each request that touches it."""
        starts, counts = self.gather()
        total = 0
        for rest in np.unique(starts % SECTOR_BYTES):
            first, last = self.offsets + rest, self.offsets + rest + self.word_bytes - 1
            touched = len(np.union1d(first // SECTOR_BYTES, last // SECTOR_BYTES))
            total += touched * int(counts[starts % SECTOR_BYTES == rest].sum())
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

    def __init__(self, note: Callable[[Integers, Integers, Integers], None] | None = None) -> None:
        self.note = note
        """A function that is called for each request with (bytes from its first word, the programs, their starts)."""
        self.patterns: dict[tuple[int, bytes], Pattern] = {}
        self.lanes = 0
        """The number of lanes, including those that are masked off."""
        self.unplaced: dict[int, int] = {}
        """{bytes of a word: words whose addresses are not known}."""

    def add(self, offset: Number, mask: Mask | None, shape: tuple[int, ...], word_bytes: int, on: Truths) -> None:
        """Add a request of the programs that are `on`, for the words at `offset` where the mask holds."""
        self.lanes += int(np.prod(shape, dtype=np.int64)) * int(on.sum())
        lanes = np.ones((1,) * (len(shape) + 1), np.bool_) if mask is None else mask.lanes
        if mask is not None:
            on = on & mask.programs.reshape(-1)
        edge = edge_programs(mask, on)
        inner = on & ~edge
        if offset.mixed is None:
            base = np.broadcast_to(offset.programs.reshape(-1), on.shape)
            self._ask(offset.lanes, lanes, shape, word_bytes, base[inner], np.flatnonzero(inner))
        else:
            edge, inner = on, inner & False
        if edge.any():
            self._ask_one_by_one(offset, mask, shape, word_bytes, np.flatnonzero(edge))

    def add_anywhere(self, mask: Mask | None, shape: tuple[int, ...], word_bytes: int, on: Truths) -> None:
        """Add a request of the programs that are `on`, for words at addresses that nobody knows."""
        lanes = int(np.prod(shape, dtype=np.int64))
        self.lanes += lanes * int(on.sum())
        truths = np.ones((1,) * (len(shape) + 1), np.bool_) if mask is None else mask.array
        each = truths.sum(axis=tuple(range(1, truths.ndim)), dtype=np.int64)
        each *= lanes // int(np.prod(truths.shape[1:], dtype=np.int64))
        words = int((np.broadcast_to(each, on.shape) * on).sum())
        self.unplaced[word_bytes] = self.unplaced.get(word_bytes, 0) + words

    def _ask(
        self, offset: Integers, mask: Truths, shape: tuple[int, ...], word: int, base: Integers, programs: Integers
    ) -> None:
        """Add the same request of several programs, which start at `base`."""
        if len(base) == 0:
            return
        on = np.broadcast_to(mask[0], shape)
        self._keep(np.broadcast_to(offset[0], shape)[on], word, base, programs)

    def _keep(self, offsets: Integers, word: int, base: Integers, programs: Integers) -> None:
        """Record a request for words at these distances from each base."""
        if offsets.size == 0:
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

    def _ask_one_by_one(
        self, offset: Number, mask: Mask | None, shape: tuple[int, ...], word: int, programs: Integers
    ) -> None:
        """Add requests of programs that are not all alike. Those that differ only in their start are added together."""
        places = offset.array
        truths = np.ones((1,) * places.ndim, np.bool_) if mask is None else mask.array
        step = max(1, MOST_PIECES // max(1, int(np.prod(shape))))

        for k in range(0, len(programs), step):
            some = programs[k : k + step]
            at, on = rows_of(places, some, shape), rows_of(truths, some, shape)
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


def rows_of(array: Lanes, programs: Integers, shape: tuple[int, ...]) -> Lanes:
    """The lanes of some programs, a row for each."""
    some = array if len(array) == 1 else array[programs]
    return np.broadcast_to(some, (len(programs), *shape)).reshape(len(programs), -1)


def edge_programs(mask: Mask | None, on: Truths) -> Truths:
    """The programs whose mask depends on both program and lane and is not the same for all lanes."""
    edge = np.zeros_like(on)
    for part in mask.mixed if mask is not None else ():
        edge |= ~part.reshape(len(part), -1).all(axis=1)
    return edge & on


def alike(places: Integers, on: Truths) -> Sequence[Integers]:
    """Groups of rows that differ only in their start."""
    rows = np.where(on, places - places[:, :1], np.iinfo(np.int64).min)
    text = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, inverse = np.unique(text, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)
