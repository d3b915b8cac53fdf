"""The text of an error in a user's file."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path


def fault(error: BaseException, path: Path) -> str:
    """An error with the line of the user's file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno} `{(error.text or '').strip()}`: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"line {lines[-1]} `{linecache.getline(str(path), lines[-1] or 0).strip()}`: " if lines else ""
    return f"{where}{type(error).__name__}: {error}"
