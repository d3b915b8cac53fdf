"""`iosim schedules`."""

from __future__ import annotations

from typing import Any

import click

from ..options import outputs


@click.command("schedules")
@outputs
def command(as_json: bool, as_csv: bool, path: Any) -> None:
    """The schedules there are."""
    from ..output import answer
    from ..schedules import SCHEDULES

    rows = [
        {"schedule": s.name, "outer": s.outer, "tiles": ", ".join(s.rules), "skips tiles": "yes" if s.skips else "no",
         "summary": s.summary, "source": s.source}
        for s in SCHEDULES.values()
    ]  # fmt: skip
    answer(rows, {"schedules": rows}, as_json, as_csv, path)
