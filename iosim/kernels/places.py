"""Places in the user's file, with the text of the line, and faults of the file in one message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from linecache import getline
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction

MOST_SHOWN = 600  # characters of a fault


class Fault(InputError):
    """An error in the user's file. It shows a compiler's message in full, which an InputError would cut."""

    def __init__(self, where: str, found: str, allowed: str, hint: str = ""):
        super().__init__(where, found, allowed, hint)
        shown = found if len(found) <= MOST_SHOWN else found[: MOST_SHOWN - 3] + "..."
        self.args = (f"{where}: found {shown!r}; allowed: {allowed}" + (f"; {hint}" if hint else ""),)


def place(file: str, line: int) -> str:
    """A line of a file, with its text: `kernels.py, line 3 `x = y``."""
    text = getline(file, line).strip()
    return f"{file}, line {line}" + (f" `{text}`" if text else "")


def first_line(function: JITFunction) -> int:
    """The line of a function's `def`, below its decorators."""
    lines = enumerate(function.raw_src)
    start: int = function.starting_line_number
    return start + next((k for k, line in lines if line.lstrip().startswith("def ")), 0)


def file_of(function: JITFunction) -> str:
    """The file that a function stands in."""
    return str(function.fn.__code__.co_filename)


def definition(function: JITFunction, parameter: str | None = None) -> str:
    """The line of a function's `def`, or the line with its `parameter`."""
    line = first_line(function)
    if parameter is not None:
        (tree,) = ast.parse(function.src).body
        assert isinstance(tree, ast.FunctionDef)
        line += next((a.lineno for a in tree.args.args if a.arg == parameter), 1) - 1
    return place(file_of(function), line)


def function_of(function: JITFunction, source: str) -> JITFunction | None:
    """The function with this source: a kernel, or a function that it calls."""
    return next((each for each in called(function) if each.src == source), None)


def of_triton(function: JITFunction) -> bool:
    """Whether a function is one of Triton's own, such as `tl.sum`."""
    return str(getattr(function.fn, "__module__", "")).partition(".")[0] == "triton"


def called(function: JITFunction) -> Iterator[JITFunction]:
    """A function, and the functions of `@triton.jit` that it may call, at any depth."""
    from triton.runtime.jit import JITFunction

    seen: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or not isinstance(one, JITFunction):
            continue
        seen.add(id(one))
        yield one
        names = getattr(one.fn, "__globals__", {})
        for node in ast.walk(ast.parse(one.src)):
            if isinstance(node, ast.Name):
                waiting.append(names.get(node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                waiting.append(getattr(names.get(node.value.id), node.attr, None))


def names_on(source: str, number: int) -> set[str]:
    """The names on a line of a text of Python, or in the statement that begins there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or 0):
            simple = not hasattr(node, "body")
            if simple:
                return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return set()
