"""`links` at each point of a sweep."""

from __future__ import annotations

from typing import Never

from ..answer import Column, Columns, Rows
from ..options import COUNT, FLAG, SIZE, TEXT, Kind, Option, one_of
from ..points import Point, Question


def rows(p: Point) -> Rows:
    from .answer import links

    multiple = p.tile_multiple if p.tile_multiple != 1 else None
    return links(paper_model=p.paper_model, tile_multiple=multiple, **p.place, **p.fields, **p.own).to_rows()


def columns() -> Columns[Never]:
    from .answer import OF_GPUS, OF_PAIR, RESULT

    return (Column("schedules", "string"), *OF_GPUS, *RESULT, *OF_PAIR)


PASSES = Kind(one_of("forward", "backward", "step"))
QUESTION = Question(
    rows,
    columns,
    own=(
        Option("ranks", COUNT, "GPUs.", metavar="COUNT"),
        Option("nodes", TEXT, "nodes x GPUs of a node, as 4x8.", metavar="AxB"),
        Option("passes", PASSES, "forward (default), backward or step.", metavar="WHAT", word="pass"),
        Option("link", TEXT, "bytes a second from the GPUs of a node.", metavar="RATE"),
        Option("network", TEXT, "bytes a second from other nodes.", metavar="RATE"),
        Option("memory", SIZE, "memory of a GPU.", metavar="SIZE"),
        Option("detail", FLAG, "a row for each pair of GPUs.", False),
    ),
    decides=("detail",),
    finds_tiles=True,
    names_schedules=True,
)
