"""`iosim schedules`."""

from __future__ import annotations

import click

from ..options import outputs
from ..output import Output, answer


@click.command("schedules")
@click.argument("name", required=False)
@outputs
def command(name: str | None, output: Output) -> None:
    """The schedules there are; with a NAME, all about one of them: source, formula, state, options, tensors.

    Formulas are the dense traffic in words of one head: R read, W written. Options are those that change what it moves.
    """
    from .. import catalogue, report

    if name is None and not output.as_json and not output.as_csv:
        rows = catalogue.listed(narrow=output.on_terminal)
        answer(rows, {}, output, report.table(rows))
        return
    rows = catalogue.rows(name)
    answer(rows, {"schedules": rows}, output, catalogue.text_of(rows[0]))
