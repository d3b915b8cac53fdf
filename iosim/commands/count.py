"""`iosim count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..counting.given import counts, memory
from .answer import Output, answer, show
from .options import memory_options, outputs, problem_options, tile_options, variant_options

if TYPE_CHECKING:
    from ..counting.count import Report


@click.command("count")
@problem_options
@memory_options
@tile_options
@variant_options
@click.option("--detail", is_flag=True, help="Words of each tensor and each launch as well; with --csv a row for each.")
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
    size = memory(m, m_elements, hardware)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    found = count.count(M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, **values)
    show_report(found, output, detail)


def show_report(found: Report, output: Output, detail: bool) -> None:
    """Write a report; on a terminal as tables by rich."""
    from .. import tables
    from ..counting.report import (
        bounds_table,
        detail_rows,
        detail_table,
        header,
        narrow_table,
        notes,
        report_json,
        report_rows,
        report_text,
    )

    if output.as_json or output.as_csv or not output.on_terminal:
        text = report_text(found) + ("\n\n" + tables.table(detail_table(found)) if detail else "")
        json = report_json(found) if output.as_json else None
        rows = detail_rows(found) if detail else report_rows(found)
        answer(rows, json, output, text)
        return
    show(header(found))
    tables.print_rich(narrow_table(found))
    if detail:
        show("")
        tables.print_rich(detail_table(found))
    show("")
    tables.print_rich(bounds_table(found.bounds))
    show("\n".join(notes(found)))
