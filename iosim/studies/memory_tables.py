"""The answer of `iosim memory` as a table. It only reads rows."""

from __future__ import annotations

from ..grid import Grid
from ..tables import Rows
from ..units import binary

LESS_IMPORTANT = ("score traffic share", "Nk", "score traffic")  # left out first to last


def memory_grid(rows: Rows) -> Grid:
    """A table of the rows; bytes in the largest unit that fits, shares in percent."""
    return Grid([{title(name): cell(name, value) for name, value in row.items()} for row in rows], LESS_IMPORTANT)


def title(name: str) -> str:
    """The head of a column."""
    return name.removesuffix("_bytes").replace("_", " ")


def cell(name: str, value: object) -> object:
    """A value of the column `name` as the table shows it."""
    if isinstance(value, int) and name.endswith("bytes"):
        return binary(value)
    return f"{100 * value:.1f} %" if isinstance(value, float) and name.endswith("share") else value
