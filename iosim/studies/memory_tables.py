"""The answer of `iosim memory` as a table. It only reads rows."""

from __future__ import annotations

from ..tables import Rows, table


def memory_text(rows: Rows) -> str:
    """A table of the rows; bytes in the largest unit that fits, shares in percent."""
    return table([{title(name): cell(name, value) for name, value in row.items()} for row in rows])


def title(name: str) -> str:
    """The head of a column."""
    return name.removesuffix("_bytes").replace("_", " ")


def cell(name: str, value: object) -> object:
    """A value of the column `name` as the table shows it."""
    if isinstance(value, int) and name.endswith("bytes"):
        return binary(value)
    return f"{100 * value:.1f} %" if isinstance(value, float) and name.endswith("share") else value


def binary(size: int) -> str:
    """Bytes in the largest unit of 1024s that is at most the size: `128 MiB`, `1.25 GiB`."""
    for unit, factor in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= factor:
            return f"{size // factor} {unit}" if size % factor == 0 else f"{size / factor:.2f} {unit}"
    return f"{size} B"
