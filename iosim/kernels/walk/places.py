"""Places in the user's file, with the text of the line, and the errors that name them."""

from __future__ import annotations

from linecache import checkcache, getline
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    from .code import Operation


def place(file: str, line: int) -> str:
    """A line of a file, with its text: `kernels.py, line 3 `x = y``."""
    checkcache(file)
    text = getline(file, line).strip()
    return f"{file}, line {line}" + (f" `{text}`" if text else "")


class Fault(InputError):
    """An error in the user's file. It shows more of a compiler's message than an InputError would."""

    most_shown = 600


class Refusal(InputError):
    """The error for something that cannot be known without running the kernel. It names the line that causes it."""

    def __init__(self, operation: Operation, why: str, hint: str = ""):
        super().__init__(place_of(operation), why, "what follows from sizes, strides and program numbers", hint)


def place_of(operation: Operation) -> str:
    """The line of an operation in the user's file, with its text."""
    if operation.file is None or operation.line is None:
        return f"the kernel, {operation.name}"
    return place(operation.file, operation.line)
