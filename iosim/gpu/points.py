"""`check` at each point of a sweep: the run of `iosim verify` on the CPU."""

from __future__ import annotations

from typing import Never

from ..answer import Columns, Rows
from ..options import SEED, Kind, Option
from ..points import Point, Question


def rows_of_check(p: Point) -> Rows:
    from .ask import verify

    return verify(tiles=p.tiles, schedules=p.schedules, cpu=True, **p.fields, **p.own).to_rows()


def columns_of_check() -> Columns[Never]:
    from .judged_runs import TOLERANCE, check_columns

    return [column for dtype in TOLERANCE for column in check_columns(dtype)]


def read_chance(value: str | int, option: str) -> float | None:
    """The probability of dropout that a text stands for."""
    from ..masks.dropout import parse_dropout

    found = parse_dropout(str(value), "0")
    return found.probability if found else None


CHECK = Question(
    rows_of_check,
    columns_of_check,
    own=(
        Option("seed", SEED, "seed of random inputs (default: 0).", "0", metavar="COUNT"),
        Option("dropout", Kind(read_chance, "number"), "probability that an element of P is dropped.", metavar="P"),
    ),
)
