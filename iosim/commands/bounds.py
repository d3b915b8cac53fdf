"""`iosim bounds`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..counting.given import counts, memories
from ..errors import InputError
from .answer import Output, Part, answer_all
from .options import SIZES, D, N, memory_options, named_command, outputs, problem_options

if TYPE_CHECKING:
    from ..counting.count import Report
    from ..counting.given import Fields
    from ..grid import Pieces


@named_command("bounds", needs=(N, D), axes=SIZES)
@problem_options
@memory_options
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, output: Output, **given: str | bool | None
) -> None:  # fmt: skip
    """What is proven about the least traffic, with the kind and the validity of each statement."""
    from ..counting.report import bound_rows, bounds_grid, header, report_json
    from ..counting.sentence import answer_of_bounds

    values, parts = counts(given), []
    for label, size in memories(given, m, m_elements, hardware):
        found = with_bounds(values, size)
        answered = answer_of_bounds(found.bounds)
        text: Pieces = [header(found).removesuffix("\n"), bounds_grid(found.bounds), "", answered]
        json = {k: v for k, v in report_json(found).items() if k not in ("results", "notes")} | {"answer": answered}
        parts.append(Part(label, bound_rows(found.bounds), json, text))
    answer_all(parts, output)


def with_bounds(values: Fields, size: str | int | None) -> Report:
    """A report whose bounds have the least traffic of all schedules and tiles.

    Without M there is none. Under a mask that `tune` refuses, it is the least of what `count` counts.
    """
    from ..counting.count import count
    from ..tuning.least import tune

    found = count(M=size, schedules=("standard",) if size is None else (), **values)
    if size is None:
        return found
    try:
        return replace(found, bounds=tune(M=size, **values).bounds)
    except InputError:
        return found
