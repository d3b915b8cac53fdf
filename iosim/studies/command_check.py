"""`iosim check`."""

from __future__ import annotations

import sys

from ..commands.answer import Output, answer_all
from ..commands.command import named_command
from ..commands.options import (
    outputs,
    own_option,
    problem_asked,
    problem_options,
    schedule_option,
    tiles_option,
    variant_options,
)
from ..counting.given import Asked, problem


@named_command("check", usual="core", first="N d heads causal mask dtype schedules tiles seed")
@problem_options
@tiles_option("Br x Bc as 48x40 (default: 16x16, or smaller so that each axis has two tiles).")
@schedule_option()
@own_option("seed", "Seed of the random inputs.")
@own_option("dropout", "Probability that an element of P is dropped; --seed decides which ones.")
@variant_options
@outputs
@problem_asked
def command(asked: Asked, seed: str, dropout: str | None, output: Output) -> None:
    """Run schedules numerically on the CPU: output error, counts, SRAM; and the pieces of online softmax.

    error_fp64 and error_TYPE are the largest absolute errors of the outputs. For error_TYPE every load, store and step
    rounds to its type (--dtype, --acc-dtype). bf16 and fp8 (E4M3, saturating) are rounded in float32. The error may be
    at most twice that of a separate softmax attention with the same roundings. bias is the slope of a
    line fitted to the output against the float64 reference, minus 1.
    """
    from ..masks.dropout import parse_dropout
    from ..progress import under_way
    from .check import check_problem

    small = {name: default for name, default in (("N", "96"), ("d", "16")) if asked.given[name] is None}
    p = problem({**asked.given, **small}, dropout=parse_dropout(dropout, seed))
    tiles, schedules = asked.choice.tiles, asked.choice.schedules
    with under_way() as begin:
        found = check_problem(p, tiles, schedules, seed, lambda name: begin(f"checking {name}"))
    answer_all([({}, found)], output)
    if not found.ok:
        sys.exit(1)
