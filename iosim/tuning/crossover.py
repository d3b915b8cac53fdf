"""The M from which on one choice of schedule and tiles moves less than another, exact to the byte.

The traffic of a choice never grows with M: it is a falling staircase. Two staircases are compared on an interval of M.
If its two ends do not decide the comparison for the whole interval, the interval is halved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import TYPE_CHECKING, cast

from ..core.problem import Attention
from ..core.tiling import Tiling, paper_tiles
from ..counting.count import measure
from ..errors import InputError
from ..schedules import SCHEDULES, Schedule, find_all, require
from ..search.best import best_tiles, footprint
from . import curve

if TYPE_CHECKING:
    from ..tables import Row

LeastBytes = Callable[[int], float]
"""Returns the least bytes moved at an M in bytes; inf if nothing fits."""


@dataclass(frozen=True)
class Question:
    """The question from which M on `below` moves less than `above`. Each is (names of schedules, tile rule).

    `label` names the question in tables, JSON and CSV. `one` and `other` are the names that sentences give to the two
    sides.
    """

    label: str
    one: str
    other: str
    below: tuple[tuple[str, ...], str]
    above: tuple[tuple[str, ...], str]

    @property
    def text(self) -> str:
        """The statement that the answer makes true: `flash2 moves less than standard`."""
        return f"{self.one} moves less than {self.other}"

    @property
    def of_one_sram(self) -> bool:
        """Whether best tiles are known for one SRAM only, without registers and stages."""
        return any(SCHEDULES[name].candidates is not None for name in (*self.below[0], *self.above[0]))


ALGORITHM_0 = (("standard",), "ideal")
QUESTIONS = (
    Question(
        "Algorithm 1 with paper tiles (fit or not) below Algorithm 0",
        "Algorithm 1 with paper tiles (fit or not)",
        "Algorithm 0",
        (("flash1",), "paper"),
        ALGORITHM_0,
    ),
    Question(
        "flash1, best tiles, below Algorithm 0",
        "flash1 (best tiles)",
        "Algorithm 0",
        (("flash1",), "best"),
        ALGORITHM_0,
    ),
    Question(
        "flash2, best tiles, below Algorithm 0",
        "flash2 (best tiles)",
        "Algorithm 0",
        (("flash2",), "best"),
        ALGORITHM_0,
    ),
    Question(
        "flash2 below standard-tiled, best tiles",
        "flash2",
        "standard-tiled (best tiles)",
        (("flash2",), "best"),
        (("standard-tiled",), "best"),
    ),
    Question(
        "flash2 below small-cache, best tiles",
        "flash2",
        "small-cache (best tiles)",
        (("flash2",), "best"),
        (("small-cache",), "best"),
    ),
    Question(
        "flash2 below small-cache and small-cache-q, best tiles",
        "flash2",
        "small-cache and small-cache-q (best tiles)",
        (("flash2",), "best"),
        (("small-cache", "small-cache-q"), "best"),
    ),
)


@dataclass(frozen=True)
class Crossover:
    """The answer to a question: the least M such that `below` moves less at it and at every larger M; None if there is
    none.

    `below_bytes` and `above_bytes` are the bytes that both move at that M. `above_bytes` is None if nothing of `above`
    fits. `smaller_M_bytes` is the largest M below it, or of all if it is None, at which `below` moves less.
    """

    question: str
    problem: Attention
    M_bytes: int | None
    below_bytes: int | None = None
    above_bytes: int | None = None
    smaller_M_bytes: int | None = None


def questions_of(names: Sequence[str]) -> list[Question]:
    """Two questions: from which M on each of two schedules moves less than the other, with best tiles. Without names,
    all QUESTIONS.

    Raises InputError unless there are two names, of schedules of one family.
    """
    if not names:
        return list(QUESTIONS)
    chosen = find_all(names)
    if len(chosen) != 2:
        raise InputError("--schedule", ", ".join(s.name for s in chosen), "two schedules, as flash2,standard")
    one, other = chosen
    if one.family != other.family:
        families = f"{one.name} ({one.family}), {other.name} ({other.family})"
        raise InputError("--schedule", families, "two schedules of one family, because others compute something else")
    sides = [((s.name,), "ideal" if "ideal" in s.rules else "best") for s in chosen]
    labels = [names[0] + (" (fits or not)" if rule == "ideal" else "") for names, rule in sides]
    return [
        Question(f"{labels[a]} below {labels[b]}", labels[a], labels[b], sides[a], sides[b])
        for a, b in ((0, 1), (1, 0))
    ]


def crossovers(problem: Attention, multiple: int = 1) -> list[Crossover]:
    """The answers to all QUESTIONS whose schedules are registered, for one dense problem."""
    return [
        crossover_of(question, problem, multiple)
        for question in QUESTIONS
        if all(name in SCHEDULES for name in (*question.below[0], *question.above[0]))
    ]


def crossover_of(question: Question, p: Attention, multiple: int = 1) -> Crossover:
    """The answer to a question for one problem."""
    for name in (*question.below[0], *question.above[0]):
        require(SCHEDULES[name], p)
    below, most_below = traffic_against_M(*question.below, p, multiple)
    above, most_above = traffic_against_M(*question.above, p, multiple)
    most = max(most_below, most_above)
    M = first_below(below, above, most)
    if M is None:
        return Crossover(question.label, p, None, smaller_M_bytes=last_below(below, above, most))
    left, right = below(M), above(M)
    smaller = last_below(below, above, M - 1)
    return Crossover(question.label, p, M, int(left), None if right == inf else int(right), smaller)


def first_below(below: LeastBytes, above: LeastBytes, most: int) -> int | None:
    """The least M such that below(M) < above(M) there and at every larger M; None if it does not hold at `most`.

    Neither function changes beyond `most`, and both fall with M. So below(M) < above(M) in a whole interval if `below`
    at its start is less than `above` at its end.
    """
    if below(most) >= above(most):
        return None

    def last_failure(low: int, high: int) -> int:
        """The last M of the interval at which below(M) >= above(M); 0 if there is none."""
        if below(low) < above(high):
            return 0
        if below(high) >= above(high):
            return high
        middle = (low + high) // 2
        return last_failure(middle + 1, high) or last_failure(low, middle)

    return last_failure(1, most) + 1


def last_below(below: LeastBytes, above: LeastBytes, most: int) -> int | None:
    """The last M up to `most` at which below(M) < above(M); None if there is none. Both functions fall with M."""

    def last(low: int, high: int) -> int | None:
        if low > high or below(high) >= above(low):
            return None
        if below(high) < above(high):
            return high
        middle = (low + high) // 2
        return last(middle + 1, high) or last(low, middle)

    return last(1, most)


def traffic_against_M(names: Sequence[str], rule: str, p: Attention, multiple: int) -> tuple[LeastBytes, int]:
    """The least bytes of any of the schedules as a function of M, and an M beyond which this function is constant."""
    schedules = [SCHEDULES[name] for name in names]
    p = p.packed
    if rule == "ideal":
        moved = measure(schedules[0], p, Tiling(1, 1))["total_bytes"]
        return lambda M: moved, 1
    if rule == "paper":
        found = curve.envelope(step for s in schedules for step in paper_steps(s, p))
    elif all(curve.exact(s, p) for s in schedules):
        found = curve.curve(schedules, p, multiple)
    else:
        return traffic_by_search(schedules, p, multiple)

    def staircase(M: int) -> float:
        step = curve.step_at(found, M)
        return inf if step is None else step.total_bytes

    return staircase, found[-1].M_bytes


def paper_steps(schedule: Schedule, p: Attention) -> list[curve.CurveStep]:
    """The steps of the paper's tiles as M grows. M is what the rule is given, even if the tiles do not fit in it.

    Bc = ceil(M / 4d) is b from M = 4d (b - 1) + 1 words on. The traffic of the schedule must depend on Bc alone, as
    that of Algorithm 1 does.
    """
    p = p.packed
    M_words = [4 * p.d * (size - 1) + 1 for size in curve.smallest_tile_sizes(p.Nk)]
    tilings = [paper_tiles(p, words) for words in M_words]
    found = [step for tiling in tilings for step in curve.counted_steps(schedule, p, tiling)]
    return [replace(step, M_bytes=words * p.word_bytes) for words, step in zip(M_words, found, strict=True)]


def traffic_by_search(schedules: Sequence[Schedule], p: Attention, multiple: int) -> tuple[LeastBytes, int]:
    """The result of `traffic_against_M` for best tiles of schedules without candidates. It searches at each M."""

    @cache
    def moved(M: int) -> float:
        tilings = [(s, best_tiles(s, p, M, multiple)) for s in schedules]
        return min((measure(s, p, t)["total_bytes"] for s, t in tilings if t is not None), default=inf)

    whole = Tiling(p.N, p.Nk)
    return moved, max(cast("int", footprint(s, p, whole).peak_bytes) for s in schedules)


def crossover_rows(found: Sequence[Crossover]) -> list[Row]:
    """One flat row for each answer. M stands in bytes, in words, and in units of d^2 words."""
    rows = []
    unusual = dict.fromkeys(name for c in found for name in unusual_fields(c.problem))
    for c in found:
        p, M = c.problem, c.M_bytes
        words = None if M is None else M // p.word_bytes
        row: Row = {"question": c.question, **{n: getattr(p, n) for n in ("N", "Nk", "d", "dtype", "acc_dtype")}}
        row |= {"M_bytes": M, "M_words": words, "M_over_d2": None if words is None else round(words / p.d**2, 4)}
        moved = {"below_bytes": c.below_bytes, "above_bytes": c.above_bytes}
        rows.append({**row, **moved, **{name: str(getattr(p, name)) for name in unusual}})
    return rows


def unusual_fields(p: Attention) -> list[str]:
    """The options of a problem that are not at their defaults, without its lengths and types."""
    return [name for name in p.unusual() if name not in ("N", "d", "Nk", "dtype", "acc_dtype")]
