"""`iosim roofline`."""

from __future__ import annotations

import sys

from ..commands.answer import Output, answer_all
from ..commands.command import D, N, Need, named_command
from ..commands.options import (
    PLACES,
    chip_options,
    hardware_option,
    outputs,
    own_option,
    problem_asked,
    problem_options,
    sram_option,
    text_option,
    tile_options,
    variant_options,
)
from ..counting.given import Asked, memories, names_of

CLAIM = "Is this possible: a time as 215us, or a rate as 3.5TB/s or 700TFLOP/s; with --decode, of the one query."
INSTEAD = {"--predict": "times are bounds now, of data-sheet rates: leave it out"}


@named_command(
    "roofline",
    needs=(N, D, Need("hardware")),
    instead=INSTEAD,
    axes=PLACES,
    usual="core",
    first="heads kv_heads causal M schedules tiles decode",
)
@problem_options
@sram_option
@hardware_option("Peaks and M of a preset, as h100, or a FILE.toml; see iosim hardware.")
@tile_options
@variant_options
@chip_options
@own_option("decode", "Add rows for one query over the same keys.")
@text_option("--claim", CLAIM, metavar="CLAIM")
@outputs
@problem_asked
def command(asked: Asked, decode: bool, claim: str | None, output: Output) -> None:
    """The least time on a GPU and what binds, launch by launch: HBM, the L2, shared memory, matrix products or
    exponentials.

    It is a bound, at the rates of the data sheet. Kept measurements of PyTorch's kernels stand beside it where there
    are some. M is what one block of the --hardware may use, unless it is given. With --claim the answer begins with
    whether a time or a rate is possible; the exit code is 1 if it is not.

    Example: iosim roofline --N 8192 --d 128 --heads 32 --hardware H100 --decode;
    iosim roofline --N 8192 --d 128 --heads 32 --hardware H100 --claim 215us
    """
    from itertools import product

    from ..errors import InputError
    from . import roofline

    fields, choice = asked.fields, asked.choice
    if choice.hardware is None:
        raise InputError("--hardware", "nothing", "a preset: see iosim hardware", "as --hardware h100")
    fields |= choice._replace(M=None, hardware=None)._asdict()
    names, parts = names_of(choice.hardware), []
    for name, place in product(names, memories(asked.given, choice.M, None)):
        found = roofline.roofline(**{**fields, "hardware": name, "M": place.M}, decode=decode, claim=claim)
        parts.append(({**({"hardware": name} if len(names) > 1 else {}), **place.label}, found))
    answer_all(parts, output)
    if any(found.claim is not None and not found.claim.possible for _, found in parts):
        sys.exit(1)
