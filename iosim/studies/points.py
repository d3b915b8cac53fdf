"""`cache` and `roofline` at each point of a sweep."""

from __future__ import annotations

from typing import Never

from ..answer import Column, Columns, Rows, types_of
from ..errors import InputError
from ..options import FLAG, LISTS, SIZE, Kind, Option, one_of
from ..points import Point, Question
from ..tuning.points import CURVE
from .granularities import GRANULARITIES, POLICIES


def rows_of_cache(p: Point) -> Rows:
    from .cache_answer import cache

    found = (
        (s, cache(M=p.M_bytes, tiles=p.tiles, schedule=s, tile_multiple=p.tile_multiple, **p.fields, **p.own))
        for s in p.schedules or ("flash1",)
    )
    return [{"schedule": name, **row} for name, answer in found for row in answer.to_rows()]


def columns_of_cache() -> Columns[Never]:
    from .cache_answer import RESULTS

    return (Column("schedule", "string"), *RESULTS)


CACHE = Question(
    rows_of_cache,
    columns_of_cache,
    own=(
        CURVE,
        Option("granularity", Kind(one_of(*GRANULARITIES)), "line (default), word or tile.", "line"),
        Option("line", SIZE, "bytes of a line (default: 64).", metavar="SIZE"),
        Option("policy", Kind(one_of(*POLICIES)), "lru, belady or both (default).", "both", metavar="NAME"),
        Option("tensors", LISTS, "only these, as Q,K; semicolons separate lists.", metavar="NAMES"),
    ),
    decides=("curve",),
)


def rows_of_roofline(p: Point) -> Rows:
    from .roofline import roofline

    if p.hardware is None:
        raise InputError("--hardware", "nothing", "a preset, with --what roofline")
    return roofline(
        hardware=p.hardware,
        paper_model=p.paper_model,
        M=p.M_bytes,
        schedules=p.schedules,
        tiles=p.tiles,
        tile_multiple=p.tile_multiple,
        **p.fields,
        **p.own,
    ).to_rows()


def columns_of_roofline() -> Columns[Never]:
    from .roofline import LAUNCH

    return LAUNCH


ROOFLINE = Question(
    rows_of_roofline,
    columns_of_roofline,
    own=(Option("decode", FLAG, "add rows for one query.", False),),
    decides=("decode",),
    later=lambda: types_of(columns_of_roofline()),
    every_M=True,
)
