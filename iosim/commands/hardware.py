"""`iosim hardware`."""

from __future__ import annotations

import click

from .answer import Output, answer
from .options import named_command, outputs


@named_command("hardware")
@click.argument("name", required=False)
@outputs
def command(name: str | None, output: Output) -> None:
    """Hardware presets; with a NAME, every number of one of them with its source."""
    from ..hardware import number_rows, preset_rows

    rows = preset_rows() if name is None else number_rows(name)
    answer(rows, {"hardware": rows}, output)
