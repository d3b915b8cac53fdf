"""What is read from a measurement's CSVs, and how it is written on a page."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

Row = dict[str, str]


def read(folder: Path, name: str) -> list[Row]:
    path = folder / name
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    if not rows:
        return "(not measured)"
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(cell(row.get(name, "")) for name in names) + " |" for row in rows)])


def cell(value: Any) -> str:
    return str(value).replace("|", "\\|")  # a mask may have one


def mega(text: str | None) -> str:
    return f"{float(text) / 1e6:,.1f}" if text else ""


def shown(text: str | None, digits: int = 3) -> str:
    return f"{float(text):.{digits}f}" if text else ""
