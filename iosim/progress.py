"""Progress on stderr for work that takes more than a second, on the command line only.

A terminal shows one line, which is updated. Without a terminal, sweeps and other work of minutes write a line every 30
seconds. The first line of work whose length is not known comes after a second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
QUIET_SECONDS, SECONDS_BETWEEN = 1.0, 0.2
SECONDS_BETWEEN_LINES = 30.0


class State:
    """Whether progress is wanted, and whether the line is in use. If work is nested, only the outermost uses it."""

    wanted = False
    busy = False


def want_progress() -> None:
    """Turn on the output of `watched`. The command line calls this; a script does not."""
    State.wanted = True


def watched(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, one after the other. After a second a line says how many of `total` are done; it is erased at the
    end."""
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


def now_and_then() -> Callable[[str], None]:
    """A function that writes a text to stderr as a line: the first after a second, then one every 30 seconds. Errors of
    stderr are ignored."""
    following = monotonic() + QUIET_SECONDS

    def tell(text: str) -> None:
        nonlocal following
        if monotonic() < following:
            return
        following = monotonic() + SECONDS_BETWEEN_LINES
        with suppress(OSError):
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    return tell


class Meter:
    """Progress of a known number of rows, or of another `unit`: rows done, rows a second, and the time left.

    Call `advance` with the number of rows just done. Call `skip` with the number of rows that an earlier run did, which
    do not count for the rate. With `quiet` nothing is written.
    """

    def __init__(self, total: int, quiet: bool = False, unit: str = "rows"):
        self.total, self.quiet, self.unit, self.done, self.skipped, self.width = total, quiet, unit, 0, 0, 0
        self.on_terminal = sys.stderr.isatty()
        self.begun = monotonic()
        self.following = self.begun + (QUIET_SECONDS if self.on_terminal else SECONDS_BETWEEN_LINES)

    def skip(self, rows: int) -> None:
        """Count rows that an earlier run did."""
        self.skipped += rows
        self.advance(rows)

    def advance(self, rows: int) -> None:
        """Count rows that are done, and write progress if it is due."""
        self.done += rows
        now = monotonic()
        if now < self.following or self.quiet:
            return
        self.following = now + (SECONDS_BETWEEN if self.on_terminal else SECONDS_BETWEEN_LINES)
        self.write(self.line(now - self.begun))

    def line(self, seconds: float) -> str:
        """The text of the progress after `seconds`."""
        rate = (self.done - self.skipped) / seconds
        left = f", {time_text((self.total - self.done) / rate)} left" if rate else ""
        shown = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
        return f"{self.done} of {self.total} {self.unit}, {shown} {self.unit}/s{left}"

    def write(self, line: str) -> None:
        """Write a line, on a terminal over the last one. Errors of stderr are ignored."""
        with suppress(OSError):
            sys.stderr.write("\r" + line.ljust(self.width) if self.on_terminal else line + "\n")
            sys.stderr.flush()
        self.width = len(line)

    def close(self) -> None:
        """Erase the line on a terminal."""
        if self.on_terminal and self.width:
            self.write("")
            self.write("")


def time_text(seconds: float) -> str:
    """Seconds as `42 s`, `3 min 5 s` or `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
