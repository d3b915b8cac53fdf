"""`iosim bounds`."""

from __future__ import annotations

from typing import Any

import click

from ..options import counts, memory, memory_options, outputs, problem_options


@click.command("bounds")
@problem_options
@memory_options
@outputs
def command(m: Any, m_elements: Any, hardware: Any, as_json: bool, as_csv: bool, path: Any, **given: Any) -> None:
    """What is proven about the least traffic, with the kind and the validity of each statement."""
    from .. import experiment, report
    from ..output import answer

    values = counts(given)
    size = memory(m, m_elements, hardware)
    chosen = ("standard",) if size is None else ()
    found = experiment.count(M=size, schedules=chosen, **values)
    text = report.header(found) + report.table(report.bounds_table(found.bounds))
    rows = [vars(bound) for bound in found.bounds]
    json = {k: v for k, v in report.report_json(found).items() if k != "results"}
    answer(rows, json, as_json, as_csv, path, text)
