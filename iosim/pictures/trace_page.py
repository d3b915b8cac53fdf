"""The page of a file of events, as `iosim report --trace` shows it: a player of its loads and stores, and their words.

The file is one of `iosim trace` or of `iosim explain --trace`. A file of `explain` has the programs of a kernel, which
the player lists, and says nothing about what is on chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..drawing.colours import ink_on, tensor_colours
from ..drawing.page import document, rows_table, section
from ..drawing.player import section_of
from ..errors import InputError
from ..tables import Rows
from ..tracing.event_reader import PLACE, STORES, Line, highest, lines_of, whole
from .player import MOST_EVENTS

MOST_CELLS = 64  # along a side of a tensor in the picture; more tiles than this share cells
ON_CHIP = "on chip"
ABOUT = {
    True: "Each event is a request of a program, as iosim explain counts it. Programs follow one another here; on a "
    "GPU they run at the same time. What a program keeps on chip is not in the file.",
    False: "Each event is a load, a step or a store of the file, in its order.",
}


@dataclass(frozen=True)
class Event:
    """A load, a store, or a step that moves nothing."""

    kind: str
    name: str
    row: int
    rows: int
    column: int
    columns: int
    words: int
    resident_words: int | None
    part: str
    """The program or the launch that it belongs to; empty if the file has only one."""


def events_of(path: str) -> list[Event]:
    """The events of a file; an atomic operation is a load and a store. Raises InputError for more than can be shown."""
    found: list[Event] = []
    several = 0
    with lines_of(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.get("schedule"):
                raise InputError(f"{path}, event {number}", "a column schedule", "the events of one schedule")
            kinds = ("load", "store") if line.get("event") == "atomic" else (str(line.get("event")),)
            several += len(kinds)
            if several <= MOST_EVENTS:
                found += [event_of(line, kind, path, number) for kind in kinds]
    if several > MOST_EVENTS:
        hint = "a smaller grid or smaller sizes, when the file is made"
        raise InputError("--trace", f"{several} events", f"at most {MOST_EVENTS}, as many as can be watched", hint)
    if not any(event.words for event in found):
        raise InputError("--trace", path, "a file with loads and stores, of iosim trace or iosim explain --trace")
    return found


def event_of(line: Line, kind: str, path: str, number: int) -> Event:
    """One event of a file."""
    row, rows, column, columns = (whole(line, key, path, number) for key in PLACE)
    words = whole(line, "words", path, number) if kind in STORES else 0
    program, launch = line.get("program"), line.get("launch")
    part = f"program {program}" if program not in (None, "") else f"launch {launch}" if launch else ""
    resident = highest(None, line.get("resident_words"))
    return Event(kind, str(line.get("name")), row, rows, column, columns, words, resident, part)


def shapes_of(events: list[Event]) -> dict[str, list[int]]:
    """{tensor: [rows, columns, rows of a cell, columns of a cell, its first row]}."""
    found = {}
    for name in dict.fromkeys(event.name for event in events if event.words):
        mine = [event for event in events if event.name == name and event.words]
        first = min(0, *(event.row for event in mine))
        rows = max(event.row + event.rows for event in mine) - first
        columns = max(event.column + event.columns for event in mine)
        high = cell(rows, max(event.rows for event in mine))
        found[name] = [rows, columns, high, cell(columns, max(event.columns for event in mine)), first]
    return found


def cell(length: int, tile: int) -> int:
    """The side of a cell: a tile, or several if the picture would have too many."""
    tiles = -(-length // tile)
    return tile * -(-tiles // MOST_CELLS)


def data_of(path: str, events: list[Event]) -> dict[str, object]:
    """The data of player.js, as values of JSON."""
    shapes = shapes_of(events)
    parts = list(dict.fromkeys(event.part for event in events))
    held = [event.resident_words for event in events if event.resident_words is not None]
    rows = [event_row(event, shapes, parts) for event in events]
    run = {
        "name": Path(path).name,
        "tiles": "",
        "tensors": {name: shape[:4] for name, shape in shapes.items()},
        "events": rows,
        "text": parts if len(parts) > 1 else [],
        "peak": max(held) if held else None,
    }
    colours = tensor_colours([*shapes, ON_CHIP])
    return {
        "M": max(held, default=1),
        "file": True,
        "runs": [run],
        "colours": {name: [colour, ink_on(colour)] for name, colour in colours.items()},
    }


def event_row(event: Event, shapes: Mapping[str, Sequence[int]], parts: Sequence[str]) -> list[object]:
    """An event as player.js takes it: [kind, name, row, rows, column, columns, words, words on chip, [its part], 0]."""
    row = event.row - shapes[event.name][4] if event.words else event.row
    inside = {} if event.resident_words is None else {ON_CHIP: event.resident_words}
    place = [row, event.rows, event.column, event.columns]
    return [event.kind, event.name, *place, event.words, inside, [parts.index(event.part)], 0]


def words_by_tensor(events: list[Event]) -> Rows:
    """A row for each tensor: the words that are read and written."""
    rows = []
    for name in dict.fromkeys(event.name for event in events if event.words):
        read, written = (
            sum(e.words for e in events if e.name == name and e.kind == kind) for kind in ("load", "store")
        )
        rows.append({"tensor": name, "reads": read, "writes": written})
    return rows


def trace_page(path: str) -> str:
    """The page of a file of events, as HTML."""
    events = events_of(path)
    moved = sum(event.words for event in events)
    of_kernel = events[0].part.startswith("program")
    heading = f"Loads and stores of {Path(path).name}"
    parts = len({event.part for event in events})
    what = f"{len(events):,} events" + (f" of {parts:,} programs" if of_kernel else "")
    body = (
        f"<h1>{escape(heading)}</h1><p class=answer>{what} move {moved:,} words.</p>"
        f"{section_of(ABOUT[of_kernel], data_of(path, events))}"
        f"{section('Words moved', rows_table(words_by_tensor(events)), '')}"
    )
    return document(heading, body)
