"""The M from which on one choice of schedule and tiles moves less than another, exact to the byte.

What a choice moves never grows with M: it is a falling staircase. Two staircases are compared by halving an interval
until it is decided as a whole, from its ends alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

from ..core.problem import Attention
from ..core.tiling import Tiling, paper_tiles
from ..counting.count import measure
from ..schedules import SCHEDULES, Schedule
from ..search.best import best_tiles, footprint
from . import curve

Least = Callable[[int], float]  # M in bytes -> bytes moved; inf where nothing fits


@dataclass(frozen=True)
class Question:
    """From which M does `below` move less than `above`? Each is (schedules, rule); no names: all the others."""

    text: str
    below: tuple[tuple[str, ...], str]
    above: tuple[tuple[str, ...], str]


ALGORITHM_0 = (("standard",), "ideal")
QUESTIONS = (
    Question("Algorithm 1 with paper tiles (fit or not) below Algorithm 0", (("flash1",), "paper"), ALGORITHM_0),
    Question("flash1, best tiles, below Algorithm 0", (("flash1",), "best"), ALGORITHM_0),
    Question("flash2, best tiles, below Algorithm 0", (("flash2",), "best"), ALGORITHM_0),
    Question("flash2 below standard-tiled, best tiles", (("flash2",), "best"), (("standard-tiled",), "best")),
    Question("flash2 below small-cache, best tiles", (("flash2",), "best"), (("small-cache",), "best")),
    Question(
        "flash2 below small-cache and small-cache-q, best tiles",
        (("flash2",), "best"),
        (("small-cache", "small-cache-q"), "best"),
    ),
)


@dataclass(frozen=True)
class Crossover:
    """`M_bytes`: the least M such that `below` moves less at it and at every larger one; None if there is none."""

    question: str
    problem: Attention
    M_bytes: int | None
    below_bytes: int | None = None
    above_bytes: int | None = None


def crossovers(problem: Attention, multiple: int = 1) -> list[Crossover]:
    """All questions whose schedules are registered, for one dense problem."""
    return [
        answer(question, problem, multiple)
        for question in QUESTIONS
        if all(name in SCHEDULES for name in (*question.below[0], *question.above[0]))
    ]


def answer(question: Question, p: Attention, multiple: int = 1) -> Crossover:
    below, most_below = side(*question.below, p, multiple)
    above, most_above = side(*question.above, p, multiple)
    M = first_below(below, above, max(most_below, most_above))
    if M is None:
        return Crossover(question.text, p, None)
    left, right = below(M), above(M)
    return Crossover(question.text, p, M, int(left), None if right == inf else int(right))


def first_below(below: Least, above: Least, most: int) -> int | None:
    """The least M from which on below(M) < above(M); neither changes beyond `most`. None where it does not hold there.

    Both fall with M, so on an interval all is decided when the worst of `below` is under the best of `above`.
    """
    if below(most) >= above(most):
        return None

    def last_failure(low: int, high: int) -> int:
        if below(low) < above(high):
            return 0
        if below(high) >= above(high):
            return high
        middle = (low + high) // 2
        return last_failure(middle + 1, high) or last_failure(low, middle)

    return last_failure(1, most) + 1


def side(names: Sequence[str], rule: str, p: Attention, multiple: int) -> tuple[Least, int]:
    """What a choice moves at an M, and an M beyond which nothing changes."""
    schedules = [SCHEDULES[name] for name in names]
    if rule == "ideal":
        moved = measure(schedules[0], p.packed, Tiling(1, 1))["total_bytes"]
        return lambda M: moved, 1
    if rule == "paper":
        found = curve.envelope(step for s in schedules for step in paper_steps(s, p))
    elif all(curve.exact(s, p) for s in schedules):
        found = curve.curve(schedules, p, multiple)
    else:
        return searched(schedules, p, multiple)

    def staircase(M: int) -> float:
        step = curve.least(found, M)
        return inf if step is None else step.total_bytes

    return staircase, found[-1].M_bytes


def paper_steps(schedule: Schedule, p: Attention) -> list[curve.Step]:
    """The paper's rule as M grows: Bc = ceil(M / 4d) is first b at M = 4d (b - 1) + 1 words. Whether they fit is not
    asked. For a schedule whose traffic depends on Bc alone, as Algorithm 1's does."""
    p = p.packed
    M_words = [4 * p.d * (size - 1) + 1 for size in curve.tile_sizes(p.Nk)]
    tilings = [paper_tiles(p, words) for words in M_words]
    found = [step for tiling in tilings for step in curve.counted(schedule, p, tiling)]
    named = zip(M_words, found, strict=True)
    return [curve.Step(words * p.word_bytes, *list(vars(step).values())[1:]) for words, step in named]


def searched(schedules: Sequence[Schedule], p: Attention, multiple: int) -> tuple[Least, int]:
    """Schedules without candidates: one search an M."""

    @cache
    def moved(M: int) -> float:
        tilings = [(s, best_tiles(s, p, M, multiple)) for s in schedules]
        return min((measure(s, p, t)["total_bytes"] for s, t in tilings if t is not None), default=inf)

    whole: Any = Tiling(p.N, p.Nk)
    return moved, max(int(footprint(s, p, whole).peak_bytes) for s in schedules)


def rows(found: Sequence[Crossover]) -> list[dict[str, Any]]:
    """One flat row an answer; M in units of d^2 words as well."""
    out = []
    for c in found:
        p, M = c.problem, c.M_bytes
        words = None if M is None else M // p.word_bytes
        row = {"question": c.question, **{n: getattr(p, n) for n in ("N", "Nk", "d", "dtype", "acc_dtype")}}
        row |= {"M_bytes": M, "M_words": words, "M_over_d2": None if words is None else round(words / p.d**2, 4)}
        out.append({**row, "below_bytes": c.below_bytes, "above_bytes": c.above_bytes})
    return out
