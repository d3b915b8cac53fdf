"""`iosim count`."""

from __future__ import annotations

from dataclasses import replace

from ..counting.given import counts, memories
from .answer import Output, answer_all
from .command import M_OR_TILES, D, N, named_command
from .options import (
    PLACES,
    chip_options,
    flag_option,
    memory_options,
    outputs,
    problem_options,
    tile_options,
    variant_options,
)


@named_command("count", needs=(N, D, M_OR_TILES), axes=PLACES, usual="core")
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@flag_option("--detail", "Also show the words of each tensor and each launch; with --csv a row for each.")
@outputs
def command(
    M: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, output: Output, detail: bool, **given: str | bool | None,
) -> None:  # fmt: skip
    """Words and bytes for each schedule, per tensor, with fit, ratios and bounds.

    Example: iosim count --N 8192 --d 128 --M 100KB
    """
    from ..counting import count
    from ..units import parse_count

    values = counts(given)
    places = memories(given, M, hardware)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    asked = {"schedules": schedules, "tiles": tiles, "tile_multiple": multiple, **values}
    reports = [replace(count.count(M=place.M, **asked), detail=detail) for place in places]
    answer_all([(place.label, found) for place, found in zip(places, reports, strict=True)], output)
