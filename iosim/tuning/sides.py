"""Two sides, each a choice of schedules and tiles: from which M or N on one of them moves less, exact to the byte.

The traffic of a side never grows with M: it is a falling staircase. Two staircases are compared on an interval of M.
If its two ends do not decide the comparison for the whole interval, the interval is halved (stretches.py). Traffic need
not fall or grow with N in a regular way, so every N of an axis is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..core.arrays import last_true
from ..core.tiling import Tiling, paper_tiles
from ..counting.count import measure
from ..counting.sweep import part_of, points_of_chunk, problems_of, run_all
from ..errors import InputError
from ..schedules import SCHEDULES, Schedule, require
from ..search.best import best_tiles, footprint, sizes_by_passes
from . import curve
from .stretches import Interval, Stretch, intervals, octaves, stretches, united

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.problem import Attention
    from ..core.tiling import RuleName
    from ..core.typing import Size
    from ..counting.sweep_axes import Runs

LeastBytes = Callable[[int], float]
"""Returns the least bytes moved at an M in bytes; inf if nothing fits."""


class Side(NamedTuple):
    """A choice of tiles for some schedules, of which the one that moves least counts."""

    name: str
    """Its name in sentences."""
    schedules: tuple[Schedule, ...]
    """The schedules."""
    rule: RuleName
    """The rule for their tiles: `ideal` for a schedule without tiles."""

    @property
    def each(self) -> list[str]:
        """Its schedules, each with the rule for its tiles if that is not the best: `flash2`, `flash1 paper`."""
        rule = "" if self.rule == "best" else f" {self.rule}"
        return [schedule.name + rule for schedule in self.schedules]

    @property
    def brief(self) -> str:
        """Its name in a table of few columns."""
        return ", ".join(self.each)


class Question(NamedTuple):
    """The question from where on one side moves less than the other."""

    label: str
    """Its name in tables, JSON and CSV."""
    below: Side
    """The side that moves less."""
    above: Side
    """The side that moves more."""

    @property
    def text(self) -> str:
        """The statement that the answer makes true: `flash2 moves less than standard`."""
        return f"{self.below.name} moves less than {self.above.name}"

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of both sides."""
        return (*self.below.schedules, *self.above.schedules)

    @property
    def of_one_sram(self) -> bool:
        """Whether best tiles are known for one SRAM only, without registers and stages."""
        return any(bool(schedule.candidates is not None or schedule.sizes) for schedule in self.schedules)


def questions_of_papers() -> list[Question]:
    """The questions of a crossover that names no schedules."""
    algorithm_0 = side_of("Algorithm 0", "standard", rule="ideal")
    by_paper = side_of("Algorithm 1 with paper tiles (fit or not)", "flash1", rule="paper")
    flash2 = side_of("flash2", "flash2")
    tiled = side_of("standard-tiled (best tiles)", "standard-tiled")
    small = side_of("small-cache (best tiles)", "small-cache")
    both_small = side_of("small-cache and small-cache-q (best tiles)", "small-cache", "small-cache-q")
    return [
        Question("Algorithm 1 with paper tiles (fit or not) below Algorithm 0", by_paper, algorithm_0),
        Question("flash1, best tiles, below Algorithm 0", side_of("flash1 (best tiles)", "flash1"), algorithm_0),
        Question("flash2, best tiles, below Algorithm 0", side_of("flash2 (best tiles)", "flash2"), algorithm_0),
        Question("flash2 below standard-tiled, best tiles", flash2, tiled),
        Question("flash2 below small-cache, best tiles", flash2, small),
        Question("flash2 below small-cache and small-cache-q, best tiles", flash2, both_small),
    ]


def side_of(name: str, *schedules: str, rule: RuleName = "best") -> Side:
    """The side of these schedules."""
    return Side(name, tuple(SCHEDULES[schedule] for schedule in schedules), rule)


def questions_about(chosen: Sequence[Schedule]) -> list[Question]:
    """Two questions: from where on each of two schedules moves less than the other, with best tiles.

    Raises InputError unless there are two schedules of one family.
    """
    if len(chosen) != 2:
        raise InputError("--schedule", ", ".join(s.name for s in chosen), "two schedules, as flash2,standard")
    one, other = chosen
    if one.family != other.family:
        families = f"{one.name} ({one.family}), {other.name} ({other.family})"
        raise InputError("--schedule", families, "two schedules of one family, because others compute something else")
    sides = [
        Side(f"{s.name} (fits or not)", (s,), "ideal") if "ideal" in s.rules else Side(s.name, (s,), "best")
        for s in chosen
    ]
    return [Question(f"{below.name} below {above.name}", below, above) for below, above in (sides, sides[::-1])]


@dataclass(frozen=True)
class OverM:
    """The answer to a question about one problem: every M at which `below` moves less."""

    question: Question
    problem: Attention
    intervals: list[Interval]
    """The intervals of M in bytes at which it does, in order."""
    most: int
    """An M in bytes beyond which nothing changes. An interval that reaches it has no end."""
    below_bytes: int | None = None
    """The bytes that `below` moves at `M_bytes`."""
    above_bytes: int | None = None
    """The bytes that `above` moves there; None if nothing of it fits."""
    above_from: int = 1
    """The least M in bytes in which anything of `above` fits."""

    @property
    def stretches(self) -> list[Stretch]:
        """The stretches of these intervals, longest first."""
        return stretches(self.intervals, octaves(self.most))

    def end_of(self, one: Interval) -> int | None:
        """The last M of an interval; None if it has no end."""
        return None if one.last == self.most else one.last

    @property
    def M_bytes(self) -> int | None:
        """The least M such that `below` moves less at it and at every larger M; None if there is none."""
        return first_of_last(self.intervals, self.most)

    @property
    def M_words(self) -> int | None:
        """That M in words of the problem's `dtype`."""
        return None if self.M_bytes is None else self.M_bytes // self.problem.word_bytes

    @property
    def M_over_d2(self) -> float | None:
        """That M in units of d^2 words."""
        return None if self.M_words is None else round(self.M_words / self.problem.d**2, 4)


@dataclass(frozen=True)
class OverN:
    """The answer to a question at one M: every N of an axis at which `below` moves less."""

    question: Question
    problem: Attention
    """The problem of the first N of the axis."""
    M_bytes: int
    N_last: int
    """The last N of the axis."""
    intervals: list[Interval]
    """The intervals of the axis at which it does, in order, by their first and last N."""
    stretches: list[Stretch]
    """The stretches of these intervals, those of most N first."""
    below_bytes: int | None = None
    """The bytes that `below` moves at `N`."""
    above_bytes: int | None = None
    """The bytes that `above` moves there; None if nothing of it fits."""
    hardware: str | None = None
    """The preset whose SRAM M is, where several are asked about."""

    @property
    def N(self) -> int | None:
        """The first N such that `below` moves less at it and at every larger N of the axis; None if there is none."""
        return first_of_last(self.intervals, self.N_last)

    def end_of(self, one: Interval) -> int | None:
        """The last N of an interval."""
        return one.last


def first_of_last(found: Sequence[Interval], end: int) -> int | None:
    """The first number of the last interval if that reaches the end; else None."""
    return found[-1].first if found and found[-1].last == end else None


# ---------------------------------------------------------------- against M


def over_M(question: Question, p: Attention, multiple: int = 1) -> OverM:
    """The answer to a question for one problem."""
    for schedule in question.schedules:
        require(schedule, p)
    below, most_below = traffic_against_M(question.below, p, multiple)
    above, most_above = traffic_against_M(question.above, p, multiple)
    most = max(most_below, most_above)

    def less(low: int, high: int) -> bool | None:
        if below(low) < above(high):
            return True
        return False if below(high) >= above(low) else None

    nothing = last_true(lambda M: above(M) == inf, most)
    found = OverM(question, p, intervals(less, 1, most), most, above_from=nothing + 1)
    M = found.M_bytes
    return found if M is None else replace(found, below_bytes=if_any(below(M)), above_bytes=if_any(above(M)))


def if_any(moved: float) -> int | None:
    """The bytes moved; None if nothing fits."""
    return None if moved == inf else int(moved)


def traffic_against_M(side: Side, p: Attention, multiple: int) -> tuple[LeastBytes, int]:
    """The least bytes of a side as a function of M, and an M beyond which this function is constant."""
    p = p.packed
    if side.rule == "ideal":
        moved = measure(side.schedules[0], p, Tiling(1, 1))["total_bytes"]
        return lambda M: moved, 1
    if side.rule == "paper":
        found = curve.envelope(step for s in side.schedules for step in paper_steps(s, p))
    elif all(curve.exact(s, p) for s in side.schedules):
        found = curve.curve(side.schedules, p, multiple)
    else:
        return traffic_by_search(side.schedules, p, multiple)

    def staircase(M: int) -> float:
        step = curve.step_at(found, M)
        return inf if step is None else step.total_bytes

    return staircase, found[-1].M_bytes


def paper_steps(schedule: Schedule, p: Attention) -> list[curve.CurveStep]:
    """The steps of the paper's tiles as M grows. M is what the rule is given, even if the tiles do not fit in it.

    Bc = ceil(M / 4d) is b from M = 4d (b - 1) + 1 words on. The traffic of the schedule must depend on Bc alone, as
    that of Algorithm 1 does.
    """
    M_words = [4 * p.d * (size - 1) + 1 for size in sizes_by_passes(p.Nk, 1)]
    tilings = [paper_tiles(p, words) for words in M_words]
    found = [step for tiling in tilings for step in curve.counted_steps(schedule, p, tiling)[0]]
    return [replace(step, M_bytes=words * p.word_bytes) for words, step in zip(M_words, found, strict=True)]


def traffic_by_search(schedules: Sequence[Schedule], p: Attention, multiple: int) -> tuple[LeastBytes, int]:
    """The result of `traffic_against_M` for best tiles of schedules whose curve is not known. It searches at each M."""

    @cache
    def moved(M: int) -> float:
        tilings = [(s, best_tiles(s, p, M, multiple)) for s in schedules]
        return min((measure(s, p, t)["total_bytes"] for s, t in tilings if t is not None), default=inf)

    whole = Tiling(p.N, p.Nk)
    return moved, max(cast("int", footprint(s, p, whole).peak_bytes) for s in schedules)


# ---------------------------------------------------------------- against N


def over_N(questions: Sequence[Question], p: Attention[Size], M_bytes: int, multiple: int = 1) -> list[OverN]:
    """The answer to each question at an M, for a problem whose N is an array in rising order."""
    lengths = cast("NDArray[np.int64]", p.N).tolist()
    (first,) = problems_of(part_of(p, slice(0, 1)), 1)

    @cache
    def moved(schedules: tuple[Schedule, ...], rule: RuleName) -> list[float]:
        return traffic_against_N([(schedule, rule) for schedule in schedules], p, M_bytes, multiple)

    def answered(question: Question) -> OverN:
        below, above = (moved(side.schedules, side.rule) for side in (question.below, question.above))
        places = united(Interval(k, k) for k, (one, other) in enumerate(zip(below, above, strict=True)) if one < other)
        parts = [stretch_of_axis(part, lengths) for part in stretches(places, lambda one: one.last - one.first + 1)]
        found = OverN(question, first, M_bytes, lengths[-1], [of_axis(one, lengths) for one in places], parts)
        if found.N is None:
            return found
        k = places[-1].first
        return replace(found, below_bytes=if_any(below[k]), above_bytes=if_any(above[k]))

    return list(map(answered, questions))


def of_axis(places: Interval, lengths: Sequence[int]) -> Interval:
    """The first and the last N at these places of an axis."""
    return Interval(lengths[places.first], lengths[places.last])


def stretch_of_axis(places: Stretch, lengths: Sequence[int]) -> Stretch:
    """The stretch of N at these places of an axis."""
    return Stretch(of_axis(places.whole, lengths), tuple(of_axis(one, lengths) for one in places.gaps))


def traffic_against_N(runs: Runs, p: Attention[Size], M_bytes: int, multiple: int) -> list[float]:
    """The least bytes that any schedule moves with its tile rule, at each N; inf where nothing fits."""
    length, points = np.size(p.N), points_of_chunk(p.mask, runs)
    found: list[float] = []
    for part in (slice(start, min(start + points, length)) for start in range(0, length, points)):
        count = part.stop - part.start
        cells = run_all(part_of(p, part), np.full(count, M_bytes), runs, multiple, count, with_floor=False)
        columns = [np.broadcast_to(np.asarray(one["total_bytes"], object), (count,)) for one in cells]
        found += [min(inf if moved is None else int(moved) for moved in row) for row in zip(*columns, strict=True)]
    return found
