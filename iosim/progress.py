"""Progress on stderr for work that takes more than a second, on the command line only.

A terminal shows one line of rich, which is updated. Without a terminal, sweeps and other work of minutes write a line
every 30 seconds. Except for sweeps, the first one comes after five seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock, Timer
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
QUIET_SECONDS, SECONDS_BETWEEN = 1.0, 0.2
QUIET_SECONDS_OF_LINES, SECONDS_BETWEEN_LINES = 5.0, 30.0  # without a terminal


class State:
    """Whether progress is wanted, and whether a line is in use. If work is nested, only the outermost has one."""

    wanted = False
    busy = False


def want_progress() -> None:
    """Turn on the output of `watched`. The command line calls this; a script does not."""
    State.wanted = True


def on_terminal() -> bool:
    """Whether stderr is a terminal on which a line can be erased."""
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


class Line:
    """The text of what is computed now, on stderr. Errors of stderr are ignored.

    A terminal shows it from the first second on, with a bar if there is a `total`, and erases it at the end. Elsewhere
    it is a line after `quiet_seconds`, and another every 30 seconds.
    """

    def __init__(self, total: int | None = None, quiet_seconds: float | None = None, erases: bool = True):
        self.total, self.text, self.done = total, "", 0
        self.on_terminal = erases and on_terminal()
        self.seconds_between = SECONDS_BETWEEN if self.on_terminal else SECONDS_BETWEEN_LINES
        self.quiet_seconds = QUIET_SECONDS if self.on_terminal else quiet_seconds or QUIET_SECONDS_OF_LINES
        self.due = monotonic() + self.quiet_seconds
        self.bar: Progress | None = None
        self.lock = RLock()

    def tell(self, text: str, done: int = 0) -> None:
        """Take a text, and how much of the total is done. They are shown if the last ones are old enough."""
        with self.lock, suppress(OSError):
            self.text, self.done = text, done
            if monotonic() >= self.due:
                self.due = monotonic() + self.seconds_between
                self.show()

    def tell_again(self) -> None:
        """Show the last text if none was shown yet: the next one may be far away."""
        with self.lock:
            if self.text:
                self.tell(self.text, self.done)

    def show(self) -> None:
        """Show the text, on a terminal in place of the last one."""
        if self.on_terminal:
            self.bar = self.bar or new_bar(self.total)
            self.bar.update(self.bar.task_ids[0], description=self.text, completed=self.done, refresh=True)
        else:
            sys.stderr.write(self.text + "\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Erase the line on a terminal."""
        with self.lock, suppress(OSError):
            if self.bar is not None:
                self.bar.stop()


def new_bar(total: int | None) -> Progress:
    """A line of rich on stderr: a bar, if the total is known, and a text."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = [] if total is None else [BarColumn(bar_width=16)]
    bar = Progress(
        *columns,
        TextColumn("{task.description}", markup=False),
        console=Console(file=sys.stderr),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("", total=total)
    bar.start()
    return bar


@contextmanager
def only_line(total: int | None = None, erases: bool = True) -> Iterator[Line]:
    """A line. Nothing else shows progress meanwhile."""
    line, before = Line(total, erases=erases), State.busy
    State.busy = True
    try:
        yield line
    finally:
        State.busy = before
        line.close()


def watched(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, one after the other. After a second a terminal shows how many of `total` are done."""
    if not State.wanted or State.busy or not on_terminal():
        yield from items
        return
    with only_line(total) as line:
        for done, item in enumerate(items):
            line.tell(f"{what}: {done} of {total}", done)
            yield item


@contextmanager
def under_way(quiet: bool = False, erases: bool = True) -> Iterator[Callable[[str], None]]:
    """A function that takes the text of what is computed now. With `quiet` nothing is written. Without `erases` a
    terminal gets whole lines as well, since a user's script writes to it meanwhile."""
    if quiet:
        yield lambda text: None
        return
    with only_line(erases=erases) as line:
        clock = Timer(line.quiet_seconds, line.tell_again)
        clock.daemon = True
        clock.start()
        try:
            yield line.tell
        finally:
            clock.cancel()


class Meter(Line):
    """Progress of a known number of rows, or of another `unit`: rows done, rows a second, and the time left.

    Call `advance` with the number of rows just done. Call `skip` with the number of rows that an earlier run did, which
    do not count for the rate. With `quiet` nothing is written.
    """

    total: int

    def __init__(self, total: int, quiet: bool = False, unit: str = "rows"):
        super().__init__(total, SECONDS_BETWEEN_LINES)
        self.quiet, self.unit, self.skipped, self.begun = quiet, unit, 0, monotonic()

    def skip(self, rows: int) -> None:
        """Count rows that an earlier run did."""
        self.skipped += rows
        self.advance(rows)

    def advance(self, rows: int) -> None:
        """Count rows that are done, and show progress if it is due."""
        self.done += rows
        if not self.quiet:
            self.tell(self.rate(monotonic() - self.begun), self.done)

    def rate(self, seconds: float) -> str:
        """The text of the progress after `seconds`."""
        rate = (self.done - self.skipped) / max(seconds, 1e-9)
        left = f", {time_text((self.total - self.done) / rate)} left" if rate else ""
        shown = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
        return f"{self.done} of {self.total} {self.unit}, {shown} {self.unit}/s{left}"


def time_text(seconds: float) -> str:
    """Seconds as `42 s`, `3 min 5 s` or `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
