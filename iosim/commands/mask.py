"""`iosim mask`."""

from __future__ import annotations

import click

from ..counting.given import Asked, counts
from ..errors import InputError
from .answer import Output, answer_all
from .command import N, named_command
from .options import outputs, problem_asked, problem_options, tiles_option


@named_command("mask", needs=(N,), first="Nk causal tiles")
@click.argument("expression", required=False)
@problem_options
@tiles_option("Br x Bc as 32x32.", default="64x64")
@outputs
@problem_asked
def command(expression: str | None, mask: str | None, tiles: str, asked: Asked, output: Output) -> None:
    """A picture of a mask, its density, its tile counts, and the formula a paper gives for it.

    Example: iosim mask 'causal&window:64' --N 512 --tiles 32x32
    """
    from ..masks import picture

    text = mask if expression is None else expression
    if text is None:
        raise InputError("--mask", "nothing", "a mask, as in iosim mask causal --N 512")
    if expression is not None and mask is not None:
        raise InputError("--mask", f"{mask} beside {expression}", "one mask, as in iosim mask causal --N 512")
    values = {name: value for name, value in counts(asked.given, required=("N",)).items() if name in ("N", "Nk")}
    answer_all([({}, picture.mask(text, tiles=tiles, **values))], output)
