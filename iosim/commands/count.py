"""`iosim count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..counting.given import counts, memories
from .answer import Output, Part, answer_all, say
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
@flag_option("--detail", "Words of each tensor and each launch as well; with --csv a row for each.")
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
    answer_all([part_of(p.label, r, output, detail) for p, r in zip(places, reports, strict=True)], output)


def part_of(label: Mapping[str, object], found: Report, output: Output, detail: bool) -> Part:
    """A report as a part of an answer."""
    from ..counting import report

    say(report.notes_on_mask(found))
    json = report.report_json(found) if output.as_json else None
    rows = report.detail_rows(found) if detail else report.report_rows(found)
    return Part(label, rows, json, report.report_pieces(found, detail))
