"""`iosim hardware`."""

from __future__ import annotations

from typing import Any

import click

from ..options import outputs


@click.command("hardware")
@click.argument("name", required=False)
@outputs
def command(name: Any, as_json: bool, as_csv: bool, path: Any) -> None:
    """Hardware presets; with a NAME, every number of one of them with its source."""
    from ..hardware import details, summary
    from ..output import answer

    rows = summary() if name is None else details(name)
    answer(rows, {"hardware": rows}, as_json, as_csv, path)
