"""`iosim mask`."""

from __future__ import annotations

from typing import Any

import click

from ..errors import InputError
from ..options import counts, outputs, problem_options, text_option


@click.command("mask")
@click.argument("expression", required=False)
@problem_options
@text_option("--tiles", "Br x Bc as 32x32.", default="64x64", show_default=True)
@outputs
def command(expression: Any, tiles: str, as_json: bool, as_csv: bool, path: Any, **given: Any) -> None:
    """A picture of a mask, its density, its tile counts, and the formula a paper gives for it.

    Example: iosim mask 'causal&window:64' --N 512 --tiles 32x32
    """
    from ..output import answer
    from ..picture import describe, draw

    option = given.pop("mask")
    if (expression is None) == (option is None):
        raise InputError("--mask", "nothing or two masks", "one mask, as in iosim mask causal --N 512")
    expression = option if expression is None else expression
    values = {k: v for k, v in counts(given, required=("N",)).items() if k in ("N", "Nk")}
    row = describe(expression, tiles, **values)
    picture = draw(row.pop("bound"))
    text = "\n".join([picture, *(f"{name}: {'-' if value is None else value}" for name, value in row.items())])
    answer([row], {**row, "picture": picture.splitlines()}, as_json, as_csv, path, text)
