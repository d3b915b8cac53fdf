"""Code of a user: the text of its errors, and a limit of its time."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


def fault(error: BaseException, path: Path) -> str:
    """An error with the line of the user's file, and that of a package which it calls, if the error is from there."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno} `{(error.text or '').strip()}`: {error.msg}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((OWN, "<"))]
    own = [f"line {f.lineno} `{f.line}`: " for f in frames if f.filename == str(path)][-1:]
    last = [f" ({Path(f.filename).name}, line {f.lineno} `{f.line}`)" for f in frames[-1:] if f.filename != str(path)]
    return "".join([*own, f"{type(error).__name__}: {error}".removesuffix(": "), *(last if own else [])])


OWN = str(Path(__file__).parents[2])  # iosim's files
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
