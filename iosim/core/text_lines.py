"""The line of a schedule's text that a machine is at, and the words that each line moves.

The Python stack says which line calls a primitive. So a schedule needs no marks, and a machine without these watchers
does no extra work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from os.path import dirname
from typing import TYPE_CHECKING, NamedTuple

from . import blame
from .arrays import plus
from .watchers import Trace, Watcher

if TYPE_CHECKING:
    from types import CodeType

    from .machine import Block, Input
    from .typing import Size, Step
    from .watchers import Event

ENTRY = blame.read_text.__code__


class Line(NamedTuple):
    """A line of a schedule's function, or of a function that it calls."""

    function: str
    """The function's name, as `Cache.load`."""
    number: int
    """The line of the function, from 0 on: 0 is its `def`."""
    code: CodeType
    """The function's code, which knows its file."""


def lines_now() -> tuple[Line, ...]:
    """The lines that a running schedule is at: that of its own function first, then those of the functions that it
    calls. A watcher may ask at any event; outside of a run there are none."""
    found: list[Line] = []
    frame = sys._getframe(1)
    while frame.f_code is not ENTRY:
        code = frame.f_code
        if in_core(code.co_filename):
            found.clear()  # functions that a machine or a watcher calls are not part of the schedule
        elif not code.co_name.startswith("<"):
            found.append(Line(code.co_qualname, frame.f_lineno - code.co_firstlineno, code))
        if frame.f_back is None:
            return ()
        frame = frame.f_back
    return tuple(reversed(found))


@cache
def in_core(file: str) -> bool:
    """Whether a file is in the folder of this one."""
    return dirname(file) == dirname(__file__)


def source_of(code: CodeType) -> list[str]:
    """The lines of a function's source, without the indentation of its `def`; empty if no file has it."""
    from inspect import getsourcelines
    from textwrap import dedent

    try:
        return dedent("".join(getsourcelines(code)[0])).splitlines()
    except OSError:
        return []


def box(lines: Iterable[Line]) -> list[tuple[Line, str]]:
    """(line, source) for every line of the functions that the given lines are in, in the order of the given lines."""
    codes = dict.fromkeys(line.code for line in lines)
    return [(Line(code.co_qualname, k, code), text) for code in codes for k, text in enumerate(source_of(code))]


class LineTrace(Trace):
    """A Trace whose events have `line` as well: the line of the schedule's own function, 0 for its `def`.

    `lines` are all lines that the events came from, in their order: `box(trace.lines)` is the text to show beside them.
    """

    def __init__(self, emit: Callable[[Event], None] | None = None) -> None:
        super().__init__(emit)
        take = self.emit
        self.lines: dict[Line, None] = {}

        def add(event: Event) -> None:
            now = lines_now()
            self.lines |= dict.fromkeys(now)
            take({**event, "line": now[0].number})

        self.emit = add


class LineTraffic(Watcher):
    """Words read and written at each line of a schedule. A line that calls a function also has the words of that
    function."""

    def __init__(self) -> None:
        self.words: dict[Line, dict[str, tuple[Size, Size]]] = {}
        """{line: {tensor: (words read, words written)}}. Lines that only compute have no tensor."""

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self._add(tensor, words, 0)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._add(tensor, 0, words)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        for line in lines_now():
            self.words.setdefault(line, {})

    def _add(self, tensor: str, read: Size, written: Size) -> None:
        for line in dict.fromkeys(lines_now()):
            moved = self.words.setdefault(line, {})
            reads, writes = moved.get(tensor, (0, 0))
            moved[tensor] = plus(reads, read), plus(writes, written)
