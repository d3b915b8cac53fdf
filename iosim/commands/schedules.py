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

    Formulas are the dense traffic in words of one head: R read, W written. Options are those that change what it moves.
    """
    from .. import catalogue, report
    from ..output import answer

    if name is None and not as_json and not as_csv:
        rows = catalogue.listed(narrow=path in (None, "-") and sys.stdout.isatty())
        answer(rows, {}, as_json, as_csv, path, report.table(rows))
        return
    rows = catalogue.rows(name)
    answer(rows, {"schedules": rows}, as_json, as_csv, path, catalogue.text_of(rows[0]))
