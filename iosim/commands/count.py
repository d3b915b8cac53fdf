"""`iosim count`."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..options import counts, memory, memory_options, outputs, problem_options, tile_options, variant_options


@click.command("count")
@problem_options
@memory_options
@tile_options
@variant_options
@click.option("--detail", is_flag=True, help="Words for each tensor and each step as well; with --csv a row for each.")
@outputs
def command(m: Any, m_elements: Any, hardware: Any, schedules: Any, tiles: Any, tile_multiple: Any, as_json: bool,
          as_csv: bool, path: Any, detail: bool, **given: Any) -> None:  # fmt: skip
    """Words and bytes for each schedule, per tensor, with fit, ratios and bounds.

    Example: iosim count --N 8192 --d 128 --M 100KB
    """
    from .. import experiment, report
    from ..units import parse_count

    values = counts(given)
    size = memory(m, m_elements, hardware)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    answer_report = experiment.count(M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, **values)
    show_report(answer_report, as_json, as_csv, path, detail, report)


def show_report(found: Any, as_json: bool, as_csv: bool, path: Any, detail: bool, report: Any) -> None:
    from ..output import answer, show

    terminal = sys.stdout.isatty() and path in (None, "-")
    if as_json or as_csv or not terminal:
        text = report.report_text(found) + ("\n\n" + report.table(report.detail_table(found)) if detail else "")
        json = report.report_json(found) if as_json else None
        rows = report.detail_rows(found) if detail else report.report_rows(found)
        answer(rows, json, as_json, as_csv, path, text)
        return
    show(report.header(found))
    report.print_rich(report.narrow_table(found))
    if detail:
        show("")
        report.print_rich(report.detail_table(found))
    show("")
    report.print_rich(report.bounds_table(found.bounds))
    show("\n".join(report.notes(found)))
