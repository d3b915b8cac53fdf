"""The N from which on one choice of schedule and tiles moves less than another, at one M.

Traffic need not fall or grow with N in a regular way, so every N of an axis is counted. Imports NumPy and pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

from ..counting.given import Given, problem
from ..counting.sweep import chunks
from ..counting.sweep_file import sweep_of
from ..units import parse_bytes
from .crossover import unusual_fields

if TYPE_CHECKING:
    from ..tables import Row
    from .crossover import Question

Moved = dict[int, int | None]
"""The least bytes moved at each N in order; None where nothing fits."""


class OverN(NamedTuple):
    """The answer to a question at one M.

    `N` in the row is the first N of the axis such that `below` moves less at it and at every larger one; None if there
    is none. `N_last` is the last N of the axis. `below_bytes` and `above_bytes` are the bytes that both move at N.

    `text` is the statement that the answer makes true. `first` is the first N of the axis. `earlier` is the largest N
    below the answer, or of all if there is none, at which `below` moves less.
    """

    row: Row
    text: str
    first: int
    earlier: int | None


def answers_over_N(given: Given, M: str, asked: Sequence[Question], multiple: int) -> list[OverN]:
    """The answer to each question. `given` are options of a command line, and `N` among them is the axis."""
    p = problem({**given, "N": "1"})

    @cache
    def side(names: tuple[str, ...], rule: str) -> Moved:
        options = {**given, "tiles": None if rule == "ideal" else rule}
        return least_bytes(options, M, names, multiple)

    found: list[OverN] = []
    for question in asked:
        below, above = side(*question.below), side(*question.above)
        N = first_below(below, above)
        earlier = [n for n in below if moves_less(below[n], above[n]) and (N is None or n < N)]
        about: Row = {"question": question.label, "N": N, "N_last": max(below), "d": p.d}
        about |= {"dtype": p.dtype, "acc_dtype": p.acc_dtype, "M_bytes": parse_bytes(M, p.word_bytes)}
        moved = {"below_bytes": None if N is None else below[N], "above_bytes": None if N is None else above[N]}
        row: Row = {**about, **moved, **{name: str(getattr(p, name)) for name in unusual_fields(p)}}
        found.append(OverN(row, question.text, min(below), max(earlier, default=None)))
    return found


def first_below(below: Moved, above: Moved) -> int | None:
    """The first N from which on `below` is less than `above` at every N; None if it is not less at the last one."""
    found = None
    for N in sorted(below, reverse=True):
        if not moves_less(below[N], above[N]):
            break
        found = N
    return found


def moves_less(one: int | None, other: int | None) -> bool:
    """Whether one number of bytes is less than another. None is that of a schedule that does not fit, which is more
    than any number."""
    return one is not None and (other is None or one < other)


def least_bytes(given: Given, M: str, names: tuple[str, ...], multiple: int) -> Moved:
    """The least bytes that any of the schedules moves, at each N."""
    found: Moved = {}
    plan = sweep_of(None, {**given, "columns": "N,total_bytes"}, M, names, str(multiple), ())
    for part in chunks(plan):
        known = part["total_bytes"].notna()
        for N, moved, fits in zip(part["N"], part["total_bytes"], known, strict=True):
            least = found.get(int(N))
            found[int(N)] = min(x for x in (least, int(moved)) if x is not None) if fits else least
    return cast("Moved", found)
