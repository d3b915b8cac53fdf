"""Code of a user: the text of its errors, and a limit of its time."""

from __future__ import annotations

import linecache
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


def fault(error: BaseException, path: Path) -> str:
    """An error with the line of the user's file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno} `{(error.text or '').strip()}`: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"line {lines[-1]} `{linecache.getline(str(path), lines[-1] or 0).strip()}`: " if lines else ""
    return f"{where}{type(error).__name__}: {error}"


AGAIN_SECONDS = 0.5  # a second signal follows, should the first one be caught


class Overtime(BaseException):
    """The end of code that takes too long. It is no Exception, which the code might catch."""


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """A context that ends with Overtime after so many seconds. Without a main thread or without signals there is no
    limit."""
    if seconds is None or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise Overtime

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
