"""`iosim count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..given import counts, memory
from ..options import memory_options, outputs, problem_options, tile_options, variant_options
from ..output import Output, answer, show

if TYPE_CHECKING:
    from ..experiment import Report


@click.command("count")
@problem_options
@memory_options
@tile_options
@variant_options
@click.option("--detail", is_flag=True, help="Words for each tensor and each step as well; with --csv a row for each.")
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, output: Output, detail: bool, **given: str | bool | None,
) -> None:  # fmt: skip
    """Words and bytes for each schedule, per tensor, with fit, ratios and bounds.

    Example: iosim count --N 8192 --d 128 --M 100KB
    """
    from .. import experiment
    from ..units import parse_count

    values = counts(given)
    size = memory(m, m_elements, hardware)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    found = experiment.count(M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, **values)
    show_report(found, output, detail)


def show_report(found: Report, output: Output, detail: bool) -> None:
    from .. import report

    if output.as_json or output.as_csv or not output.on_terminal:
        text = report.report_text(found) + ("\n\n" + report.table(report.detail_table(found)) if detail else "")
        json = report.report_json(found) if output.as_json else None
        rows = report.detail_rows(found) if detail else report.report_rows(found)
        answer(rows, json, output, text)
        return
    show(report.header(found))
    report.print_rich(report.narrow_table(found))
    if detail:
        show("")
        report.print_rich(report.detail_table(found))
    show("")
    report.print_rich(report.bounds_table(found.bounds))
    show("\n".join(report.notes(found)))
