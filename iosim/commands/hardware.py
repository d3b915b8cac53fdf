"""`iosim hardware`."""

from __future__ import annotations

import click

from .answer import Output, answer
from .options import outputs


@click.command("hardware")
@click.argument("name", required=False)
@outputs
def command(name: str | None, output: Output) -> None:
    """Hardware presets; with a NAME, every number of one of them with its source."""
    from ..hardware import details, summary

    rows = summary() if name is None else details(name)
    answer(rows, {"hardware": rows}, output)
