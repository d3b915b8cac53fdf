"""`links` at each point of a sweep."""

from __future__ import annotations

from typing import Never

from ..answer import Column, Columns, Rows
from ..options import COUNT, FLAG, SIZE, Kind, Option, one_of
from ..points import Point, Question
from ..units import parse_rate


def rows(p: Point) -> Rows:
    from .answer import links

    multiple = p.tile_multiple if p.tile_multiple != 1 else None
    return links(paper_model=p.paper_model, tile_multiple=multiple, **p.place, **p.fields, **p.own).to_rows()


def columns() -> Columns[Never]:
    from .answer import OF_GPUS, OF_PAIR, RESULT

    return (Column("schedules", "string"), *OF_GPUS, *RESULT, *OF_PAIR)


def read_nodes(value: str | int, option: str) -> str | int:
    """The value itself, if it says how GPUs stand."""
    from .answer import machines_of

    machines_of(None, str(value))
    return value


def read_rate(value: str | int, option: str) -> str | int:
    """The value itself, if it is a rate."""
    parse_rate(value, option)
    return value


PASSES, NODES, RATE = Kind(one_of("forward", "backward", "step")), Kind(read_nodes), Kind(read_rate)
GPUS = ("gpus", "world-size", "world", "devices", "cp", "cp-size", "context-parallel-size", "num-gpus", "ngpus")
OWN = (
    Option("ranks", COUNT, "GPUs.", metavar="COUNT", also=GPUS),
    Option("nodes", NODES, "nodes x GPUs of a node, as 4x8.", metavar="AxB"),
    Option("passes", PASSES, "forward (default), backward or step.", "forward", metavar="WHAT", word="pass"),
    Option("link", RATE, "bytes a second from the GPUs of a node.", metavar="RATE",
           also=("link-bandwidth", "nvlink", "bandwidth")),
    Option("network", RATE, "bytes a second from other nodes.", metavar="RATE",
           also=("network-bandwidth", "inter-node-bandwidth")),
    Option("memory", SIZE, "memory of a GPU.", metavar="SIZE", also=("hbm", "device-memory", "gpu-memory")),
    Option("detail", FLAG, "a row for each pair of GPUs.", False),
)  # fmt: skip
QUESTION = Question(rows, columns, OWN, decides=("detail",), finds_tiles=True, names_schedules=True)
