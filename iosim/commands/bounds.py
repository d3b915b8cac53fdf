"""`iosim bounds`."""

from __future__ import annotations

import click

from ..given import counts, memory
from ..options import memory_options, outputs, problem_options
from ..output import Output, answer


@click.command("bounds")
@problem_options
@memory_options
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, output: Output, **given: str | bool | None
) -> None:  # fmt: skip
    """What is proven about the least traffic, with the kind and the validity of each statement."""
    from .. import experiment, report

    values = counts(given)
    size = memory(m, m_elements, hardware)
    chosen = ("standard",) if size is None else ()
    found = experiment.count(M=size, schedules=chosen, **values)
    text = report.header(found) + report.table(report.bounds_table(found.bounds))
    rows = [vars(bound) for bound in found.bounds]
    json = {k: v for k, v in report.report_json(found).items() if k != "results"}
    answer(rows, json, output, text)
