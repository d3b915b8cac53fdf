"""`iosim count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..counting.given import counts, memories
from .answer import Output, Part, answer_all, part_of
from .options import (
    M_OR_TILES,
    SIZES,
    D,
    N,
    chip_options,
    flag_option,
    memory_options,
    named_command,
    outputs,
    problem_options,
    tile_options,
    variant_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..counting.count import Report


@named_command("count", needs=(N, D, M_OR_TILES), axes=SIZES, usual="core")
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@flag_option("--detail", "Also show the words of each tensor and each launch; with --csv a row for each.")
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, output: Output, detail: bool, **given: str | bool | None,
) -> None:  # fmt: skip
    """Words and bytes for each schedule, per tensor, with fit, ratios and bounds.

    Example: iosim count --N 8192 --d 128 --M 100KB
    """
    from ..counting import count
    from ..units import parse_count

    values = counts(given)
    places = memories(given, m, m_elements, hardware)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    reports = [
        count.count(M=place.M, schedules=schedules, tiles=tiles, tile_multiple=multiple, **values) for place in places
    ]
    part = part_with_details if detail else part_of
    answer_all([part(place.label, found, output) for place, found in zip(places, reports, strict=True)], output)


def part_with_details(label: Mapping[str, object], found: Report, output: Output) -> Part:
    """The part of an answer that holds a report with the words of each tensor and each launch."""
    from ..counting import report

    pieces = report.report_pieces(found, detail=True)
    return part_of(label, found, output)._replace(rows=report.detail_rows(found), text=pieces)
