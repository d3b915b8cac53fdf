"""The file and line of an error in a schedule's own Python code, and a description of the error."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from ..errors import IosimError, ScheduleError, suggestion

C = TypeVar("C")
P = TypeVar("P")
T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]


def read_text(text: Callable[[C, P, T], None], chip: C, p: P, tiling: T) -> None:
    """Call a schedule's function. If it is not part of iosim, its errors become ScheduleErrors with file and line."""
    try:
        text(chip, p, tiling)
    except Exception as error:
        if ours(text) or (isinstance(error, IosimError) and not isinstance(error, ScheduleError)):
            raise
        raise as_schedule_error(error, text) from error


def ours(text: object) -> bool:
    """Whether a schedule's function is part of iosim. Its errors are then bugs of iosim, and are not converted."""
    return str(getattr(text, "__module__", "")).startswith(f"{PACKAGE}.")


def line_of(error: BaseException, files: Collection[str]) -> str:
    """The text `FILE, line N (code): ` of the innermost call in one of the files; empty if there is none."""
    from traceback import extract_tb

    for frame in reversed(extract_tb(error.__traceback__)):
        if frame.filename in files:
            return f"{frame.filename}, line {frame.lineno} ({frame.line}): "
    return ""


def file_of(text: object) -> tuple[str, ...]:
    """The file that defines a schedule's function, as a tuple; empty if it is not a Python function."""
    code = getattr(text, "__code__", None)
    return () if code is None else (code.co_filename,)


def error_text(error: Exception) -> str:
    """The name and message of an exception, with a suggestion for a misspelt attribute or name."""
    known = dir(error.obj) if isinstance(error, AttributeError) and error.obj is not None else ()
    name = getattr(error, "name", None)
    hint = suggestion(name, known) if isinstance(name, str) else ""
    message = f"{type(error).__name__}: {error}"
    return f"{message}; {hint}" if hint else message


def as_schedule_error(error: Exception, text: object) -> Exception:
    """A ScheduleError that names the line of the schedule which failed. A subclass of ScheduleError keeps its class."""
    where = line_of(error, file_of(text)) or f"schedule function {getattr(text, '__name__', text)}: "
    if isinstance(error, ScheduleError):
        return type(error)(where + str(error))
    return ScheduleError(where + error_text(error))
