"""`iosim hardware`."""

from __future__ import annotations

import click

from .answer import Output, answer_all
from .command import named_command
from .options import outputs


@named_command("hardware")
@click.argument("name", required=False)
@outputs
def command(name: str | None, output: Output) -> None:
    """Hardware presets; with a NAME, every number of one of them with its source."""
    from ..hardware import numbers, presets

    answer_all([({}, presets() if name is None else numbers(name))], output)
