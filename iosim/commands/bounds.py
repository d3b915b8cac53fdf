"""`iosim bounds`."""

from __future__ import annotations

import click

from ..counting.given import counts, memory
from .answer import Output, answer
from .options import memory_options, outputs, problem_options


@click.command("bounds")
@problem_options
@memory_options
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, output: Output, **given: str | bool | None
) -> None:  # fmt: skip
    """What is proven about the least traffic, with the kind and the validity of each statement."""
    from .. import tables
    from ..counting import count
    from ..counting.report import bound_rows, bounds_table, header, report_json

    values = counts(given)
    size = memory(m, m_elements, hardware)
    chosen = ("standard",) if size is None else ()
    found = count.count(M=size, schedules=chosen, **values)
    text = header(found) + tables.table(bounds_table(found.bounds))
    rows = bound_rows(found.bounds)
    json = {k: v for k, v in report_json(found).items() if k != "results"}
    answer(rows, json, output, text)
