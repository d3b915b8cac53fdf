"""Progress on stderr for work that takes more than a second, on the command line only.

A terminal shows one line, which is updated. Without a terminal, sweeps and other work of minutes write a line every 30
seconds. Except for sweeps, the first one comes after five seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
QUIET_SECONDS, SECONDS_BETWEEN = 1.0, 0.2
QUIET_SECONDS_OF_LINES, SECONDS_BETWEEN_LINES = 5.0, 30.0  # without a terminal


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


class Now:
    """The text of what is computed now, on stderr. Errors of stderr are ignored.

    On a terminal it is one line, which comes after a second, changes, and is erased at the end. Elsewhere it is a line
    after five seconds, and another every 30 seconds.
    """

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty()
        self.text, self.width, self.written, self.lock = "", 0, False, Lock()
        self.quiet_seconds = QUIET_SECONDS if self.on_terminal else QUIET_SECONDS_OF_LINES
        self.following = monotonic() + self.quiet_seconds

    def tell(self, text: str) -> None:
        """Take the text, and write it if the last one is old enough."""
        with self.lock:
            self.text = text
            if monotonic() >= self.following:
                self.write(text)

    def begin(self) -> None:
        """Write the last text if nothing is written yet: the next one may be far away."""
        with self.lock:
            if self.text and not self.written:
                self.write(self.text)

    def write(self, text: str) -> None:
        """Write a text, on a terminal over the last one."""
        self.written = True
        self.following = monotonic() + (SECONDS_BETWEEN if self.on_terminal else SECONDS_BETWEEN_LINES)
        with suppress(OSError):
            sys.stderr.write("\r" + text.ljust(self.width) if self.on_terminal else text + "\n")
            sys.stderr.flush()
        self.width = len(text)

    def end(self) -> None:
        """Erase the line on a terminal."""
        with self.lock:
            if self.on_terminal and self.width:
                self.write("")
                self.write("")


@contextmanager
def under_way(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A function that takes the text of what is computed now, for stderr. Nothing else shows progress meanwhile. With
    `quiet` nothing is written."""
    if quiet:
        yield lambda text: None
        return
    now, before = Now(), State.busy
    clock = Timer(now.quiet_seconds, now.begin)
    clock.daemon = True
    clock.start()
    State.busy = True
    try:
        yield now.tell
    finally:
        State.busy = before
        clock.cancel()
        now.end()


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
