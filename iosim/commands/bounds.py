"""`iosim bounds`."""

from __future__ import annotations

from ..counting.given import counts, memories
from .answer import Output, Part, answer_all
from .options import SIZES, D, N, memory_options, named_command, outputs, problem_options


@named_command("bounds", needs=(N, D), axes=SIZES)
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

    values, parts = counts(given), []
    for label, size in memories(given, m, m_elements, hardware):
        chosen = ("standard",) if size is None else ()
        found = count.count(M=size, schedules=chosen, **values)
        text = header(found) + tables.table(bounds_table(found.bounds))
        json = {k: v for k, v in report_json(found).items() if k != "results"}
        parts.append(Part(label, bound_rows(found.bounds), json, text))
    answer_all(parts, output)
