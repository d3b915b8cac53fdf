"""`iosim schedules`."""

from __future__ import annotations

import click

from .answer import Output, answer
from .options import named_command, outputs


@named_command("schedules")
@click.argument("name", required=False)
@outputs
def command(name: str | None, output: Output) -> None:
    """All schedules; with a NAME, all about one of them: source, formula, state, options, tensors.

    Formulas are the dense traffic in words of one head: R read, W written. Options are those that change
    the words that it moves. Those that it ignores may be given, and change nothing.
    """
    from ..grid import Grid
    from ..studies import about_schedules

    if name is None and not output.as_json and not output.as_csv:
        rows = about_schedules.overview()
        answer(rows, {}, output, [Grid(rows, ("formula", "source", "state"))])
        return
    rows = about_schedules.schedule_rows(name)
    answer(rows, {"schedules": rows}, output, about_schedules.text_of(rows[0]))
