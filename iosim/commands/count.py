"""`iosim count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..counting.given import counts, memories
from .answer import Output, Part, answer_all, show, title
from .options import (
    M_OR_TILES,
    SIZES,
    D,
    N,
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


@named_command("count", needs=(N, D, M_OR_TILES), axes=SIZES)
@problem_options
@memory_options
@tile_options
@variant_options
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
    if output.on_terminal and not output.as_json and not output.as_csv:
        for place, found in zip(places, reports, strict=True):
            show_report(found, title(place.label), detail)
    else:
        answer_all([part_of(p.label, r, output, detail) for p, r in zip(places, reports, strict=True)], output)


def part_of(label: Mapping[str, object], found: Report, output: Output, detail: bool) -> Part:
    """A report as a part of an answer in plain text, JSON or CSV."""
    from .. import tables
    from ..counting.report import detail_rows, detail_table, report_json, report_rows, report_text

    text = report_text(found) + ("\n\n" + tables.table(detail_table(found)) if detail else "")
    json = report_json(found) if output.as_json else None
    return Part(label, detail_rows(found) if detail else report_rows(found), json, text)


def show_report(found: Report, title: str, detail: bool) -> None:
    """Show a report on a terminal, as tables by rich."""
    from .. import tables
    from ..counting.report import bounds_table, detail_table, header, narrow_table, notes

    show(title + header(found))
    tables.print_rich(narrow_table(found))
    if detail:
        show("")
        tables.print_rich(detail_table(found))
    show("")
    tables.print_rich(bounds_table(found.bounds))
    show("\n".join(notes(found)))
