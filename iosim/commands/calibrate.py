"""`iosim calibrate`."""

from __future__ import annotations

from typing import Any

import click

from ..options import file_option, form, json_option


@click.command("calibrate")
@json_option
@file_option
def command(as_json: bool, path: Any) -> None:
    """Measure this GPU (memory, L2, arithmetic, launches, limits) into a hardware file, for --hardware FILE.toml.

    Example: iosim calibrate -o h200.toml
    """
    import sys

    from ..gpu.calibrate import measure_all, toml
    from ..output import emit
    from ..report import to_json

    found = measure_all()
    as_json = form(path, as_json, as_csv=False)["as_json"]
    emit(to_json({"measured": found}, sys.argv[1:]) if as_json else toml(found), path)
