"""The requests of a launch in order, as events of `iosim trace`: tiles that are read or written.

Programs run one after the other, in the order of the grid. A request is one tile if its words form a rectangle of the
tensor, else several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ...errors import InputError
from .code import ATOMICS, READS, WRITES

if TYPE_CHECKING:
    from ...core.watchers import Event
    from .launch import Tensor
    from .numbers import Integers

EVENTS = {READS: "load", WRITES: "store", ATOMICS: "atomic"}
MORE_COLUMNS = ("program", "word_bytes")  # beside those of `iosim trace`
MOST_EVENTS = 5_000_000


class Request(NamedTuple):
    """One request, made by several programs from different starts. `offsets` are bytes from its first word, in
    order."""

    number: int
    name: str
    way: str
    offsets: Integers
    programs: Integers
    starts: Integers


@dataclass
class Log:
    """All requests of a launch, in the order in which a program makes them."""

    requests: list[Request] = field(default_factory=list)
    first: int = 0
    """The number in the grid of the first program in the current group."""
    number: int = 0
    """The number of the current operation."""
    waiting: int = 0
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def note(self, name: str, way: str, offsets: Integers, programs: Integers, starts: Integers) -> None:
        """Record a request of some programs."""
        self.waiting += len(starts)
        check_length(self.waiting)
        self.requests.append(Request(self.number, name, way, offsets, programs + self.first, starts))

    def events(self) -> Iterator[Event]:
        """The events in order, with the columns of `iosim trace` and the number of the program.

        The words that a program keeps on chip are not known, so `resident_words` has no value.
        """
        parts = [tiles_of(r, k, self.tensors[r.name]) for k, r in enumerate(self.requests)]
        check_length(sum(len(part) for part in parts))
        table = np.concatenate(parts) if parts else np.zeros((0, 8), np.int64)
        order = np.lexsort((table[:, 4], table[:, 3], table[:, 1], table[:, 0]))
        for program, _, which, row, column, rows, columns, words in table[order].tolist():
            request = self.requests[which]
            event = {
                "event": EVENTS[request.way],
                "name": request.name,
                "row": row,
                "rows": rows,
                "column": column,
                "columns": columns,
                "words": words,
                "resident_words": None,
                "launch": 1,
                "program": program,
                "word_bytes": self.tensors[request.name].word_bytes,
            }
            yield cast("Event", event)  # one of its numbers is None


def check_length(events: int) -> None:
    """Raise InputError for too many events."""
    if events > MOST_EVENTS:
        raise InputError("--trace", f"{events} events or more", f"at most {MOST_EVENTS}", "a smaller grid")


def tiles_of(request: Request, which: int, tensor: Tensor) -> Integers:
    """A row for each tile: (program, operation, request, row, column, rows, columns, words)."""
    width = tensor.shape[-1] if len(tensor.shape) > 1 else 1
    words = request.offsets // tensor.word_bytes
    row, rest = np.divmod(request.starts // tensor.word_bytes, width)
    found = []
    for start in np.unique(rest):
        here = np.flatnonzero(rest == start)
        tiles = rectangles(words + start, width)
        programs, rows = np.repeat(request.programs[here], len(tiles)), np.repeat(row[here], len(tiles))
        table = np.tile(tiles, (len(here), 1))
        table[:, 0] += rows
        same = np.full((len(table), 1), 1)
        found.append(np.hstack([programs[:, None], request.number * same, which * same, table]))
    return np.concatenate(found)


def rectangles(words: Integers, width: int) -> Integers:
    """The tiles that cover words, in rows of this width: (row, column, rows, columns, number of words requested)."""
    places, times = np.unique(words, return_counts=True)
    new = np.r_[True, (np.diff(places) > 1) | (places[1:] % width == 0)]
    begin = np.flatnonzero(new)
    row, column = np.divmod(places[begin], width)
    columns, asked = np.diff(np.r_[begin, len(places)]), np.add.reduceat(times, begin)
    follows = (np.diff(row) == 1) & (np.diff(column) == 0) & (np.diff(columns) == 0)
    first = np.flatnonzero(np.r_[True, ~follows])
    rows = np.diff(np.r_[first, len(row)])
    return np.stack([row[first], column[first], rows, columns[first], np.add.reduceat(asked, first)], axis=1)
