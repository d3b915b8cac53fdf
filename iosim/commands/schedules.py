"""`iosim schedules`."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..options import outputs


@click.command("schedules")
@click.argument("name", required=False)
@outputs
def command(name: Any, as_json: bool, as_csv: bool, path: Any) -> None:
    """The schedules there are; with a NAME, all about one of them: source, formula, state, options, tensors.

    Formulas are the dense traffic in words of one head: R read, W written.
    """
    from .. import catalogue, report
    from ..output import answer

    rows = catalogue.rows(name)
    shown = catalogue.LIST[:2] if path in (None, "-") and sys.stdout.isatty() else catalogue.LIST
    text = catalogue.text_of(rows[0]) if name else report.table([{key: row[key] for key in shown} for row in rows])
    answer(rows, {"schedules": rows}, as_json, as_csv, path, text)
