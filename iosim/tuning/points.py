"""`tune` at each point of a sweep."""

from __future__ import annotations

from typing import Never

from ..answer import Columns, Rows
from ..errors import InputError
from ..options import COUNT, FACTOR, FLAG, SIZE, Option
from ..points import Point, Question

CURVE = Option("curve", FLAG, "show every M at which the answer changes.", False)


def rows(p: Point) -> Rows:
    """The rows of `tune`, of its curve, or of the M of a goal."""
    from . import least
    from .inverse import GOALS, check_goal, least_M

    own = {**p.own}
    curve = own.pop("curve", False)
    searched = {"schedules": p.schedules, "tile_multiple": p.tile_multiple, **p.fields, **own}
    if {*own} & {*GOALS}:
        M = p.M_bytes if p.hardware is None else None
        check_goal([name for name in GOALS if name in own], {"--M": M, "--curve": curve or None})
        return least_M(hardware=p.hardware, paper_model=p.paper_model, **searched).to_rows()
    if not curve:
        return least.tune(**p.place, paper_model=p.paper_model, **searched).to_rows()
    if p.M_bytes is not None:
        raise InputError("--M", p.M_bytes, "nothing with --curve, which goes over every M", "leave out one of the two")
    return least.curve(**searched).to_rows()


def columns() -> Columns[Never]:
    from .best import ENTRY, OF_RESULT
    from .every_M import OF_SCHEDULE, STEP
    from .inverse import REACHED, STRETCH

    return (*ENTRY, *OF_RESULT, *STEP, *REACHED, *STRETCH, *OF_SCHEDULE)


TUNE = Question(
    rows,
    columns,
    own=(
        Option("least_blocks", COUNT, "least number of thread blocks.", metavar="COUNT"),
        CURVE,
        Option("at_most", SIZE, "the least M at which at most so many bytes move.", metavar="SIZE"),
        Option("x_floor", FACTOR, "the M at which the least is within a factor of the floor.", metavar="FACTOR"),
    ),
    decides=("least_blocks", "curve", "at_most", "x_floor"),
    later=lambda: ("blocks", "options", "more_tiles"),
    finds_tiles=True,
    points_of_part=128,
)
