"""The fields of the problem that a schedule reads, found by a run on a small problem that records each access."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache

from ..core.machine import Machine
from ..core.problem import Attention
from ..core.tiling import Tiling
from ..schedules import Schedule
from ..schedules.registry import narrowed

SMALL, TILES = Attention(4, 2), Tiling(2, 2)
EVERY = frozenset(f.name for f in fields(Attention))


@dataclass(frozen=True)
class Noting(Attention):
    """A problem that records the names of the fields that are read."""

    seen: set[str] = field(default_factory=set, compare=False)

    def __getattribute__(self, name: str) -> object:
        if name in EVERY:
            object.__getattribute__(self, "__dict__").setdefault("seen", set()).add(name)
        return object.__getattribute__(self, name)


@cache
def fields_read(schedule: Schedule) -> frozenset[str]:
    """The fields that the schedule's text reads, and `count_init` if the host fills tensors for it.

    A schedule that cannot be run on a small problem counts as one that reads every field.
    """
    seen = {"count_init"} if schedule.initialised else set()
    try:
        for given in (False, True):  # a text may read a field only if another one is given
            seen |= looked_at(schedule, schedule.about(narrowed(SMALL, lse=given, keep_p=given)))
    except Exception:  # the text of a file of --load may raise anything
        return EVERY
    return frozenset(seen) - refused(schedule)


def refused(schedule: Schedule) -> set[str]:
    """The options that may not be given with the schedule."""
    asked = narrowed(SMALL, lse=True, keep_p=True)
    return {name for name in ("lse", "keep_p") if not getattr(schedule.about(asked), name)}


def looked_at(schedule: Schedule, problem: Attention) -> set[str]:
    """The fields that are read in one run."""
    noting = Noting(**{name: getattr(problem, name) for name in EVERY})
    machine = Machine(noting)
    noting.seen.clear()
    machine.run(schedule, TILES)
    return set(noting.seen)
