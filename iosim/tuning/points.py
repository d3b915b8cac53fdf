"""`tune` at each point of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never, cast

from ..answer import Answer, Columns, Rows
from ..errors import InputError
from ..options import COUNT, FACTOR, FLAG, SIZE, Kind, Option, flag_of, one_of
from ..points import Point, Question
from ..wings import offered

CURVE = Option("curve", FLAG, "show every M at which the answer changes.", False)


def rows(p: Point) -> Rows:
    """The rows of `tune`, of its curve, or of the M of a goal."""
    from . import least
    from .inverse import GOALS, check_goal, least_M

    own = {**p.own}
    by, curve = own.pop("by", None), own.pop("curve", False)
    if by == "time":
        if own or curve:
            raise InputError("--by", f"time with {flag_of(min(own, default='curve'))}", "one of the two")
        return rows_of_fastest(p)
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


def rows_of_fastest(p: Point) -> Rows:
    """The rows of `tune --by time`."""
    fastest = cast("Callable[..., Answer] | None", offered("fastest"))  # type: ignore[explicit-any]
    if fastest is None:
        raise InputError("--by", "time", "traffic", "time needs the folder iosim/studies")
    if p.hardware is None:
        raise InputError("--by", "time", "with --hardware, as h100: see iosim hardware")
    asked = {"hardware": p.hardware, "schedules": p.schedules, "tile_multiple": p.tile_multiple, **p.fields}
    return fastest(paper_model=p.paper_model, **asked).to_rows()


def columns() -> Columns[Never]:
    from .best import ENTRY, OF_RESULT
    from .every_M import OF_SCHEDULE, STEP
    from .inverse import REACHED, STRETCH

    of_time = cast("Columns[Never]", offered("columns of fastest") or ())
    return (*of_time, *ENTRY, *OF_RESULT, *STEP, *REACHED, *STRETCH, *OF_SCHEDULE)


TUNE = Question(
    rows,
    columns,
    own=(
        Option("by", Kind(one_of("traffic", "time")), "traffic (default) or time.", metavar="WHAT"),
        Option("least_blocks", COUNT, "least number of thread blocks.", metavar="COUNT"),
        CURVE,
        Option("at_most", SIZE, "the least M at which at most so many bytes move.", metavar="SIZE"),
        Option("x_floor", FACTOR, "the M at which the least is within a factor of the floor.", metavar="FACTOR"),
    ),
    decides=("by", "least_blocks", "curve", "at_most", "x_floor"),
    later=lambda: ("blocks", "options", "more_tiles"),
    finds_tiles=True,
    points_of_part=128,
)
