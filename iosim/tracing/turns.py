"""Runs of a schedule in which all iterations of an innermost loop are made at once: places and sizes are arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from ..core.dependent_tiles import Span
from ..core.loop_paths import LoopPaths
from ..core.machine import Machine
from ..core.shapes import Tile
from ..core.watchers import Trace

if TYPE_CHECKING:
    from ..core.machine import Block
    from ..core.mask_types import MaskLine
    from ..core.shapes import Shape
    from ..core.typing import Size
    from ..core.watchers import Event

MARK = "\0{}\0"  # in place of a number that differs from turn to turn: which of these it is
MARK_IN_TEXT, MARK_IN_JSON = re.compile("\0([0-9]+)\0"), re.compile(r'"\\u0000([0-9]+)\\u0000"')


class OfTurns(Protocol):
    """A watcher of `Turns`."""

    def turns_ended(self) -> None:
        """Called after a loop whose iterations were made at once."""


class Turns(LoopPaths):
    """A machine without values that runs all iterations of an innermost loop at once."""

    turns = 0
    _made = False  # whether the loop that just ended was made at once

    def together(self, length: Size | Tile, size: Size, where: MaskLine | None) -> Iterable[Tile] | None:
        tiles = list(Machine._walk(self, length, size, where, False))
        return self._at_once(tiles) if len(tiles) > 1 else None

    def _at_once(self, tiles: list[Tile]) -> Iterator[Tile]:
        self.turns = len(tiles)
        start, size, index = np.array([(tile.start, tile.size, tile.index) for tile in tiles]).T
        yield Tile(tiles[0].length, size, start, index)
        self._made = True

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        self.refuse()  # an inner loop
        yield from super()._walk(length, size, where, parallel)
        if self._made:  # no loop is made at once any more, so an error of a watcher is one
            self._made = False
            for watcher in self.watchers:
                cast("OfTurns", watcher).turns_ended()

    def total(self, shape: Shape, where: MaskLine | None = None) -> Size:
        self.refuse(where is not None or any(isinstance(x, Span) for x in shape))
        return super().total(shape, where)


@dataclass(frozen=True)
class EventsOfTurns:
    """The events of all turns of a loop. `events` are those of one turn; their numbers may be arrays, with a value for
    each turn."""

    events: list[Event]
    turns: int

    def __len__(self) -> int:
        return self.turns * len(self.events)

    def __iter__(self) -> Iterator[Event]:
        """The events, one by one, in their order."""
        columns = [
            {name: x.tolist() if isinstance(x, np.ndarray) else [x] * self.turns for name, x in event.items()}
            for event in self.events
        ]
        for turn in range(self.turns):
            yield from ({name: values[turn] for name, values in each.items()} for each in columns)

    def column(self, name: str) -> list[object]:
        """The values of a column, in the order of the events."""
        parts = [event.get(name) for event in self.events]
        if any(isinstance(x, np.ndarray) for x in parts):
            return np.array([np.broadcast_to(cast("int", x), self.turns) for x in parts]).T.ravel().tolist()
        return cast("list[object]", parts) * self.turns

    def with_columns(self, each: Callable[[int, Event], Event]) -> EventsOfTurns:
        """The same turns with other events: `each` takes the place of an event in a turn, and the event."""
        return EventsOfTurns([each(number, event) for number, event in enumerate(self.events)], self.turns)

    def text(self, line_of: Callable[[Event], str], mark: re.Pattern[str] = MARK_IN_TEXT) -> str:
        """The text of all events. `line_of` gives that of an event, in which `mark` finds each MARK.

        All turns but the last are usually of one size. So they share a text, in which few numbers differ.
        """
        last = self.turns - 1
        return self._text(0, last, line_of, mark) + self._text(last, self.turns, line_of, mark)

    def _text(self, first: int, stop: int, line_of: Callable[[Event], str], mark: re.Pattern[str]) -> str:
        """The text of the turns from `first` on, before `stop`."""
        lines: list[str] = []
        numbers: list[list[int]] = []
        for event in self.events:
            plain = dict(event)
            for name, x in event.items():
                if isinstance(x, np.ndarray):
                    values = x[first:stop].tolist()
                    same = values.count(values[0]) == len(values)
                    plain[name] = values[0] if same else MARK.format(len(numbers))
                    numbers += [] if same else [values]
            lines.append(line_of(plain))
        text = "".join(lines)
        if not numbers:
            return text * (stop - first)
        used = [numbers[int(number)] for number in mark.findall(text)]
        pattern = mark.sub("%d", text.replace("%", "%%"))
        return "".join([pattern % row for row in zip(*used, strict=True)])


class TurnTrace(Trace):
    """Passes events to `emit`, one by one, and those of loops that are made at once to `emit_turns`."""

    machine: Turns

    def __init__(self, emit: Callable[[Event], None], emit_turns: Callable[[EventsOfTurns], None]) -> None:
        super().__init__(self._take)
        self._emit, self._emit_turns = emit, emit_turns
        self._of_turns: list[Event] = []

    def start(self, machine: Machine) -> None:
        self.machine = cast("Turns", machine)

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if self.machine.merged is not None or words:
            self._add("load", tensor, block, words)

    def turns_ended(self) -> None:
        """Pass the events of a loop on."""
        found, self._of_turns = EventsOfTurns(self._of_turns, self.machine.turns), []
        if isinstance(self.resident, np.ndarray):
            self.resident = int(self.resident[-1])
        if found.events:
            self._emit_turns(found)

    def _take(self, event: Event) -> None:
        if self.machine.merged is None:
            self._emit(event)
        else:
            self._of_turns.append(event)
