"""Rows of answers as JSON and CSV, and ratios as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from math import isfinite

from .version import __version__

Row = dict[str, object]
"""Cells by the names of their columns."""
Rows = Sequence[Mapping[str, object]]
"""Rows of a table; all have the columns of the first."""


def to_json(value: Mapping[str, object], argv: list[str]) -> str:
    """The JSON text of an answer: schema, version and `argv` (the command line), then the answer's keys. Infinities and
    NaN become null."""
    import json

    whole = {"schema": 1, "iosim": __version__, "argv": argv, **value}
    try:
        return json.dumps(whole, indent=1, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(finite(whole), indent=1, allow_nan=False) + "\n"


def finite(value: object) -> object:
    """The value with None for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def to_csv(rows: Rows, columns: tuple[str, ...] | None = None) -> str:
    """The CSV text of rows. It has all columns of the first row, unless `columns` names some."""
    import csv
    import io

    names = list(columns or (rows[0] if rows else ()))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: csv_cell(v) for k, v in row.items()} for row in rows)
    return out.getvalue()


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a text that a spreadsheet computes or runs


def csv_cell(value: object) -> object:
    """A value as a cell of CSV, empty for None. A text that looks like a formula gets an apostrophe before it."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return "'" + value
    return "" if value is None else value


def ratio(value: float | None) -> str:
    """A ratio as tables show it."""
    return "-" if value is None else f"{value:.3f}"


def excess(share: float) -> str:
    """A number above 1 with three digits, or with more if three would show 1."""
    if share >= 999.5:
        return f"{share:,.0f}"
    return next((text for digits in range(3, 17) if (text := f"{share:.{digits}g}") != "1"), "more than 1")


def at_most(share: float) -> str:
    """A ratio with the decimals of tables, or a little more: if these are below the ratio, there is a fourth, rounded
    up. So the text is never below the ratio."""
    text = ratio(share)
    if float(text) >= share:
        return text
    return next(f"{n / 10**4:.4f}" for n in count(int(share * 10**4)) if n / 10**4 >= share)
