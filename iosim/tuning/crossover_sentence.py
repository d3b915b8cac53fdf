"""The answer of a crossover in a sentence: from which M on one schedule wins, by what factor there, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..counting.count import Result, run
from ..counting.sentence import comparison, distance_to_floor
from ..schedules import SCHEDULES

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..tables import Row
    from .crossover import Crossover, Question


def answer_lines(asked: Sequence[Question], found: Sequence[Crossover], multiple: int = 1) -> list[str]:
    """A sentence for each question. For several problems it gives the range of M in units of d^2 words."""
    lines = []
    for question in asked:
        answers = [c for c in found if c.question == question.text]
        if len(answers) == 1:
            lines.append(about_one(question, answers[0], multiple))
        elif answers:
            lines.append(about_several(question, answers))
    return lines


def about_one(question: Question, found: Crossover, multiple: int) -> str:
    """The sentence about one problem: the comparison at the M of the crossover."""
    M, p = found.M_bytes, found.problem
    if M is None:
        return f"{question.text}: at no M."
    below, above = (least_of(p, *side, M, multiple) for side in (question.below, question.above))
    where = f"From M = {M} B on ({M // p.word_bytes / p.d**2:.3g} d^2 words):"
    if below is None:
        return f"{where} {question.text}."
    distance = distance_to_floor(below.ratio_to_floor, M)
    compared = f"{question.text}, of which nothing fits there." if above is None else comparison(p, below, above, M)
    return " ".join(part for part in (where, compared, distance) if part)


def least_of(p: Attention, names: Sequence[str], rule: str, M_bytes: int, multiple: int) -> Result | None:
    """The result of least bytes of some schedules with a tile rule at an M; None if none has tiles there."""
    results = [run(SCHEDULES[name], rule, p, M_bytes, multiple) for name in names]
    return min((r for r in results if r.total_bytes is not None), key=lambda r: r.total_bytes or 0, default=None)


def about_several(question: Question, found: Sequence[Crossover]) -> str:
    """The sentence about several problems: the range of M over all of them."""
    shares = [c.M_bytes // c.problem.word_bytes / c.problem.d**2 for c in found if c.M_bytes is not None]
    never = len(found) - len(shares)
    if not shares:
        return f"{question.text}: at no M, for all {len(found)} problems."
    text = f"{question.text}: from {min(shares):.3g} d^2 words on"
    if max(shares) > min(shares):
        text = f"{question.text}: from {min(shares):.3g} to {max(shares):.3g} d^2 words on, by problem"
    return text + (f"; at no M for {never} of {len(found)} problems." if never else ".")


def lines_over_N(rows: Sequence[Row]) -> list[str]:
    """A sentence for each row of a crossover over N."""
    return [
        f"{row['question']}: " + (f"at no N up to {row['N_last']}" if row["N"] is None else
                                  f"from N = {row['N']} on, up to the last of them, {row['N_last']}")
        + f" (M = {row['M_bytes']} B, d = {row['d']}, {row['dtype']})."
        for row in rows
    ]  # fmt: skip
