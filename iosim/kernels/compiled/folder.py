"""Finds the code that Inductor left behind: a file, or a folder of TORCH_COMPILE_DEBUG=1 or of Inductor's cache."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import InputError
from .code import OutputCode, read_code

OPTION = "--inductor"
NAME = "output_code.py"
ALLOWED = f"a file {NAME}, or a folder with such files: that of TORCH_COMPILE_DEBUG=1, or Inductor's cache"
MARK = "async_compile"


def codes_of(path: str) -> list[tuple[OutputCode, str]]:
    """(the launches of a graph, its place) for each graph of a file or a folder, in the order of their names."""
    if "\0" in path or not Path(path).exists():
        raise InputError(OPTION, path, ALLOWED, "there is no such file or folder")
    found = []
    for file in files_of(Path(path)):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(OPTION, str(file), ALLOWED, str(error)) from None
        if file.name == NAME or (MARK in text and "def call(" in text):
            found.append((read_code(text, str(file)), str(file)))
    if not found:
        raise InputError(OPTION, path, ALLOWED, "it has no code of Inductor")
    return found


def files_of(path: Path) -> list[Path]:
    """The file itself, or the files of a folder: those called output_code.py if there are any, else all of Python."""
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob(NAME), key=natural) or sorted(path.rglob("*.py"), key=natural)
    return [file for file in files if file.is_file()]


def natural(path: Path) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]
