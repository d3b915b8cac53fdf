"""A line of progress on stderr for what takes more than a second: on a terminal, and for the command line only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
QUIET_SECONDS, SECONDS_BETWEEN = 1.0, 0.2


class State:
    """Whether progress is wanted, and whether some work has the line: of nested work, only the outermost has it."""

    wanted = False
    busy = False


def want_progress() -> None:
    """Let `watched` write from now on. The command line calls it; a script does not."""
    State.wanted = True


def watched(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, one after the other. After a second a line says how many of `total` are done; it goes at the end."""
    if not State.wanted or State.busy or not sys.stderr.isatty():
        yield from items
        return
    State.busy, width, following = True, 0, monotonic() + QUIET_SECONDS
    try:
        for done, item in enumerate(items):
            if monotonic() >= following:
                line, following = f"{what}: {done} of {total}", monotonic() + SECONDS_BETWEEN
                sys.stderr.write("\r" + line.ljust(width))
                sys.stderr.flush()
                width = len(line)
            yield item
    finally:
        State.busy = False
        if width:
            sys.stderr.write("\r" + " " * width + "\r")
            sys.stderr.flush()
