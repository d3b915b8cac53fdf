"""`iosim roofline`."""

from __future__ import annotations

from ..commands.answer import Output, answer_all, exit_if_impossible
from ..commands.command import D, Need, named_command
from ..commands.options import (
    PLACES,
    chip_options,
    claim_option,
    hardware_option,
    model_option,
    outputs,
    own_option,
    problem_asked,
    problem_options,
    sram_option,
    tile_options,
    variant_options,
)
from ..counting.given import Asked, counts, memories, names_of


@named_command(
    "roofline",
    needs=(Need("N", ("decode",)), D, Need("hardware")),
    axes=PLACES,
    usual="core",
    first="heads kv_heads causal M schedules tiles decode",
)
@problem_options
@model_option
@sram_option
@hardware_option("Peaks and M of a preset, as h100, or a FILE.toml; see iosim hardware.")
@tile_options
@variant_options
@chip_options
@own_option("decode", "Add rows for one query over the same keys. With --rule or --Nk needs no --N.")
@claim_option("; with --decode, of the one query")
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

    lengths = [asked.given.get(name) for name in ("N", "Nk", "rule")]
    alone = decode and lengths[0] is None and lengths != [None] * 3  # one query over given keys, or behind a state
    fields, choice = {"N": 1, **counts(asked.given, ("d",))} if alone else asked.fields, asked.choice
    if choice.hardware is None:
        raise InputError("--hardware", "nothing", "a preset: see iosim hardware", "as --hardware h100")
    fields |= choice._replace(M=None, hardware=None)._asdict()
    names, parts = names_of(choice.hardware), []
    for name, place in product(names, memories(asked.given, choice.M, None)):
        found = roofline.roofline(**{**fields, "hardware": name, "M": place.M}, decode=decode, claim=claim)
        parts.append(({**({"hardware": name} if len(names) > 1 else {}), **place.label}, found))
    answer_all(parts, output)
    exit_if_impossible(found.claim for _, found in parts)
