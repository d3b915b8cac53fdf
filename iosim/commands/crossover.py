"""`iosim crossover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answer import Output, answer_all
from .command import D, Need, named_command
from .options import (
    PLACES,
    chip_options,
    flag_option,
    memory_options,
    multiple_option,
    outputs,
    problem_asked,
    problem_options,
    schedule_option,
    variant_options,
)

if TYPE_CHECKING:
    from ..counting.given import Asked, Fields


@named_command(
    "crossover",
    needs=(Need("N", PLACES), D),
    axes=("N", "d", "dtype", *PLACES),
    usual="standard,standard-tiled,flash1,flash2,small-cache,small-cache-q",
    first="heads kv_heads causal mask M hardware schedules detail",
)
@problem_options
@memory_options
@schedule_option("Two schedules, as flash2,standard (default: six questions that papers raise).")
@multiple_option
@variant_options
@chip_options
@flag_option("--detail", "Also show bytes, all columns and why, for each question.")
@outputs
@problem_asked
def command(asked: Asked, detail: bool, output: Output) -> None:
    """The M or the N at which one schedule moves less than another, exact to the byte: the longest stretch first.

    Without --M the answer is about every M, for each head dimension and type given, as --d 64,128 --dtype fp16,fp32.
    With --M or --hardware it is about every N of the axis --N. By default the axis has every N up to 4096, or every
    64th under a mask. Several M, as --M 16KB,64KB, have an answer each.

    Example: iosim crossover --N 8192 --d 64,128,256
    """
    from ..tuning.crossover import crossover

    choice = asked.choice
    given: Fields = {name: text for name, text in asked.given.items() if text is not None}
    given |= {name: value for name, value in choice._asdict().items() if name != "tiles"}
    answer_all([({}, crossover(**given, detail=detail))], output)
