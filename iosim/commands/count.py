"""`iosim count`."""

from __future__ import annotations

from dataclasses import replace

from ..counting.given import Asked
from .answer import Output, answer_all
from .command import M_OR_TILES, D, N, named_command
from .options import (
    PLACES,
    chip_options,
    flag_option,
    memory_options,
    outputs,
    problem_asked,
    problem_options,
    tile_options,
    variant_options,
)


@named_command(
    "count",
    needs=(N, D, M_OR_TILES),
    axes=PLACES,
    usual="core",
    first="heads kv_heads causal mask hardware schedules tiles",
)
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@flag_option("--detail", "Also show the words of each tensor and each launch; with --csv a row for each.")
@outputs
@problem_asked
def command(asked: Asked, detail: bool, output: Output) -> None:
    """Words and bytes for each schedule, per tensor, with fit, ratios and bounds.

    Example: iosim count --N 8192 --d 128 --M 100KB
    """
    from ..counting.count import count

    parts = [(place.label, count(**asked.at(place), **asked.fields)) for place in asked.places]
    answer_all([(label, replace(found, detail=detail)) for label, found in parts], output)
