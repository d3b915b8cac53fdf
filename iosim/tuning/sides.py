"""Sides, each a schedule with its tiles: where each moves less than all others, at every M or at every N of an axis.

The traffic of a side never grows with M: it is a falling staircase. Two staircases are compared on an interval of M by
its two ends. Traffic need not fall or grow with N in a regular way, so every N of an axis is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import TYPE_CHECKING, NamedTuple, cast

from ..answer import Column, Columns, Row, Table
from ..core.tiling import Tiling, paper_tiles, read_tiles, tiles_text
from ..counting.run import measure
from ..errors import InputError
from ..schedules import Schedule, find
from ..search.best import best_tiles, footprint, sizes_by_passes
from ..verdict import joined
from . import curve
from .where import Where, where

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.tiling import Rule
    from ..schedules.registry import SchedulesAsked

LeastBytes = Callable[[int], float]
"""Returns the least bytes moved at an M in bytes; inf if nothing fits."""


class Side(NamedTuple):
    """A schedule and the rule for its tiles: `ideal` for a schedule without tiles, which is counted fit or not."""

    schedule: Schedule
    rule: Rule

    @property
    def name(self) -> str:
        """Its name: `flash2`, `flash1:paper`, `flash2:128x64`."""
        return self.schedule.name + ("" if self.rule in ("best", "ideal") else f":{tiles_text(self.rule)}")

    @property
    def text(self) -> str:
        """Its name in sentences, which says where tiles need not fit."""
        return self.name + " (fits or not)" * (self.rule in ("ideal", "paper"))


def sides_of(asked: SchedulesAsked) -> list[Side]:
    """The sides of a text as `flash1:paper,standard`, or of several such texts or Schedules; each side once."""
    some = ([asked] if asked else []) if isinstance(asked, str | Schedule) else asked
    parts = [part for one in some for part in ([one] if isinstance(one, Schedule) else str(one).split(","))]
    return list(dict.fromkeys(map(side_of, parts)))


def side_of(part: str | Schedule) -> Side:
    """The side of a schedule or of a text as `flash1:paper`, `flash2:128x64` or `standard`."""
    name, _, tiles = (part, "", "") if isinstance(part, Schedule) else part.partition(":")
    schedule = find(name)
    rule = read_tiles(tiles or None, "--schedule") or ("ideal" if "ideal" in schedule.rules else "best")
    if isinstance(rule, str) and rule not in schedule.rules:
        raise InputError("--schedule", f"{name}:{rule}", f"tiles of {name}", f"as {name}, or {name}:128x64")
    return Side(schedule, rule)


@dataclass(frozen=True)
class MovesLess:
    """Where a side moves less than each of the others."""

    side: Side
    others: tuple[Side, ...]
    where: Where
    below_bytes: int | None = None
    """The bytes that it moves at the number from which on it always moves less."""
    above_bytes: int | None = None
    """The least bytes that another one moves there; None if none fits."""

    @property
    def statement(self) -> str:
        """What is true there: `flash2 moves less than flash1`."""
        return f"{self.side.text} moves less than {joined([side.text for side in self.others])}"

    def row(self) -> Row:
        """Its row: both sides, the longest stretch, and from where on it always moves less."""
        names = {"schedule": self.side.name, "than": ",".join(side.name for side in self.others)}
        moved = {"below_bytes": self.below_bytes, "above_bytes": self.above_bytes}
        return {**names, **self.where.longest_row(), self.where.unit: self.where.always_from, **moved}

    def to_dict(self) -> Row:
        """Its row as JSON, with all intervals."""
        return {**self.row(), "intervals": self.where.rows()}


def moves_less(
    sides: Sequence[Side], where_of: Callable[[Side, tuple[Side, ...]], Where], moved: Callable[[Side, int], float]
) -> list[MovesLess]:
    """For each side, where it moves less than all others. `moved(side, number)` are its bytes at an M or N."""
    found = []
    for side in sides:
        others = tuple(other for other in sides if other is not side)
        one = MovesLess(side, others, where_of(side, others))
        if (at := one.where.always_from) is not None:
            least = min(moved(other, at) for other in others)
            one = replace(one, below_bytes=int(moved(side, at)), above_bytes=None if least == inf else int(least))
        found.append(one)
    return found


def lead_of(found: Sequence[MovesLess], size: Callable[[int], str] = "{:,}".format, about: str = "") -> str:
    """The sentence about the side that moves less at every number that is large enough; if there is none, about the
    first that does somewhere."""
    somewhere = [one for one in found if one.where.places]
    first = next((one for one in somewhere if one.where.always_from), [*somewhere, found[0]][0])
    return f"{first.statement} {first.where.text(size)}{about}."


def table_of(found: Sequence[MovesLess]) -> Table:
    """A line for each side: the others, and where it moves less than all of them."""
    columns: Columns[MovesLess] = (
        Column("schedule", "string", "moves less", of=lambda one: one.side.name),
        Column("than", "string", "than", of=lambda one: ", ".join(side.name for side in one.others), folds=True),
        Column("where", None, f"{found[0].where.unit[0]}, longest first", lambda one: one.where.brief(), folds=True),
    )
    return Table(columns, found, tall=True)


# ---------------------------------------------------------------- against M


def over_M(
    sides: Sequence[Side], p: Attention, multiple: int, own: Mapping[str, Sequence[curve.CurveStep]]
) -> list[MovesLess]:
    """For each side, every M at which it moves less than all others. `own` are steps of schedules with best tiles."""
    stairs = {side: against_M(side, p.packed, multiple, own) for side in sides}
    most = max(last for _, last in stairs.values())

    def where_of(side: Side, others: tuple[Side, ...]) -> Where:
        below, above = stairs[side][0], [stairs[other][0] for other in others]

        def less(low: int, high: int) -> bool | None:
            if below(low) < min(other(high) for other in above):
                return True
            return False if below(high) >= min(other(low) for other in above) else None

        return where(less, most)

    return moves_less(sides, where_of, lambda side, M: stairs[side][0](M))


def against_M(
    side: Side, p: Attention, multiple: int, own: Mapping[str, Sequence[curve.CurveStep]]
) -> tuple[LeastBytes, int]:
    """The least bytes of a side as a function of M, and an M beyond which this function is constant."""
    schedule, rule = side
    if rule == "best" and schedule.name not in own:
        return by_search(schedule, p, multiple)
    if rule == "ideal":
        found = [replace(one, M_bytes=1) for one in curve.counted_steps(schedule, p, Tiling(1, 1))[0]]
    elif rule == "paper":
        found = paper_steps(schedule, p)
    else:
        found = [*own[schedule.name]] if rule == "best" else curve.counted_steps(schedule, p, cast("Tiling", rule))[0]
    steps = curve.envelope(found)

    def staircase(M: int) -> float:
        step = curve.step_at(steps, M)
        return inf if step is None else step.total_bytes

    return staircase, steps[-1].M_bytes


def paper_steps(schedule: Schedule, p: Attention) -> list[curve.CurveStep]:
    """The steps of the paper's tiles as M grows. M is what the rule is given, even if the tiles do not fit in it.

    Bc = ceil(M / 4d) is b from M = 4d (b - 1) + 1 words on. The traffic of the schedule must depend on Bc alone, as
    that of Algorithm 1 does.
    """
    M_words = [4 * p.d * (size - 1) + 1 for size in sizes_by_passes(p.Nk, 1)]
    found = [step for words in M_words for step in curve.counted_steps(schedule, p, paper_tiles(p, words))[0]]
    return [replace(step, M_bytes=words * p.word_bytes) for words, step in zip(M_words, found, strict=True)]


def by_search(schedule: Schedule, p: Attention, multiple: int) -> tuple[LeastBytes, int]:
    """The result of `against_M` for best tiles of a schedule whose curve is not known. It searches at each M."""

    @cache
    def moved(M: int) -> float:
        tiling = best_tiles(schedule, p, M, multiple)
        return inf if tiling is None else measure(schedule, p, tiling)["total_bytes"]

    return moved, cast("int", footprint(schedule, p, Tiling(p.N, p.Nk)).peak_bytes)
