"""The registry of schedules: a schedule is its text, its formulas by hand, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, suggestion
from ..problem import Tensor
from . import flash, standard


@dataclass(frozen=True, eq=False)
class Schedule:
    """A text and what belongs to it.

    `exact_traffic(p, t)` -> {tensor: (reads, writes)} in words of one head and `footprint(p, t)` in words are derived
    by hand from the source, never from the text. `outer` is the loop that stays ("queries" or "keys"): traffic falls
    with its tile. `rules` are the tile rules shown when none is asked for. `skips` leaves inactive tiles out;
    without it a mask only hides. `initialised` are the tensors that the host fills before the start.
    """

    name: str
    text: Callable[..., None]
    summary: str
    source: str = ""
    outer: str = "queries"
    rules: tuple[str, ...] = ("best",)
    skips: bool = False
    exact_traffic: Callable[..., Mapping[str, tuple[Any, Any]]] | None = None
    footprint: Callable[..., Any] | None = None
    initialised: tuple[str, ...] = ()
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


SCHEDULES: dict[str, Schedule] = {}


def register(schedule: Schedule) -> Schedule:
    """Add a schedule; everything that iosim does works on it from then on."""
    if schedule.name in SCHEDULES:
        raise InputError("register", schedule.name, "a name that is not taken")
    if schedule.outer not in ("queries", "keys"):
        raise InputError("register: outer", schedule.outer, "queries or keys")
    SCHEDULES[schedule.name] = schedule
    return schedule


def find(name: str) -> Schedule:
    """A schedule by name."""
    if name not in SCHEDULES:
        raise InputError("--schedule", name, ", ".join(SCHEDULES), suggestion(name, SCHEDULES))
    return SCHEDULES[name]


FA1, FA2 = "Dao et al. 2022 (arXiv 2205.14135)", "Dao 2023 (arXiv 2307.08691)"
STATE = ("O", "l", "m")

for _schedule in (
    Schedule(
        "standard", standard.ideal, "Algorithm 0 as the paper counts it: each input read once", f"{FA1}, Algorithm 0",
        rules=("ideal",), exact_traffic=standard.ideal_traffic, footprint=standard.ideal_footprint,
    ),
    Schedule(
        "standard-tiled", standard.tiled, "the same three kernels with every tile inside M", f"{FA1}, Algorithm 0",
        exact_traffic=standard.tiled_traffic, footprint=standard.tiled_footprint,
    ),
    Schedule(
        "flash1", flash.keys_outside, "K/V outer: O, l, m go back and forth", f"{FA1}, Algorithm 1", outer="keys",
        rules=("paper", "best"), exact_traffic=flash.keys_outside_traffic, footprint=flash.footprint, initialised=STATE,
    ),
    Schedule(
        "flash2", flash.queries_outside, "Q outer: O, l, m stay on chip", f"{FA2}, Algorithm 1",
        exact_traffic=flash.queries_outside_traffic, footprint=flash.footprint,
    ),
    Schedule(
        "block-sparse", flash.keys_outside, "flash1 that leaves out the tiles that the mask hides",
        f"{FA1}, Algorithm 5", outer="keys", rules=("paper", "best"), skips=True,
        exact_traffic=flash.keys_outside_traffic, footprint=flash.footprint, initialised=STATE,
    ),
    Schedule(
        "block-sparse-q", flash.queries_outside, "flash2 that leaves out the tiles that the mask hides",
        f"{FA2}, Algorithm 1 with a mask", skips=True,
        exact_traffic=flash.queries_outside_traffic, footprint=flash.footprint,
    ),
):  # fmt: skip
    register(_schedule)

CORE = ("standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q")
