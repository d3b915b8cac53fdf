"""`iosim hardware`."""

from __future__ import annotations

import click

from ..errors import InputError
from ..options import ANSWER
from .answer import Output, answer_all, emit
from .command import named_command
from .options import flag_option, outputs


@named_command("hardware")
@click.argument("name", required=False)
@flag_option("--toml", "The preset as a file for --hardware FILE.toml, on stdout.", ANSWER)
@outputs
def command(name: str | None, toml: bool, output: Output) -> None:
    """Hardware presets; with a NAME or FILE.toml, every number of one GPU with its source.

    Another GPU is a file. Begin with that of a preset: iosim hardware h100 --toml > mine.toml
    """
    from ..hardware import hardware, toml_of

    if not toml:
        answer_all([({}, hardware(name))], output)
        return
    if name is None:
        raise InputError("--toml", "no name", "one preset", "as in iosim hardware h100 --toml")
    if output != Output():
        raise InputError(
            "--toml", "another form or place as well", "stdout", f"iosim hardware {name} --toml > FILE.toml"
        )
    emit(toml_of(name), None)
