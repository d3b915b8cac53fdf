"""The answer of a crossover in a sentence: from which M on one schedule wins, by what factor there, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..counting.count import run
from ..counting.result import Result
from ..counting.sentence import comparison, distance_to_floor
from ..schedules import SCHEDULES
from ..units import binary

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .crossover import Crossover, Question
    from .crossover_over_N import OverN

KIB = 1024


def answer_lines(asked: Sequence[Question], found: Sequence[Crossover], multiple: int = 1) -> list[str]:
    """A sentence for each question. For several problems it gives the range of M in units of d^2 words."""
    lines = []
    for question in asked:
        answers = [c for c in found if c.question == question.label]
        if len(answers) == 1:
            lines.append(about_one(question, answers[0], multiple))
        elif answers:
            lines.append(about_several(question, answers))
    return lines


def about_one(question: Question, found: Crossover, multiple: int) -> str:
    """The sentences about one problem: the M at which this is so, and the comparison at the crossover."""
    M, p = found.M_bytes, found.problem
    where = where_in_M(question, found)
    if M is None:
        return where
    below, above = (least_of(p, *side, M, multiple) for side in (question.below, question.above))
    if below is None:
        return where
    distance = distance_to_floor(below.ratio_to_floor, M)
    compared = f"nothing of {question.other} fits." if above is None else comparison(p, below, above, M)
    return " ".join(part for part in (where, f"At M = {M} B {compared}", distance) if part)


def where_in_M(question: Question, found: Crossover) -> str:
    """The sentence that says at which M the statement of a question is true."""
    p, M, smaller = found.problem, found.M_bytes, found.smaller_M_bytes
    if M is None and smaller is None:
        return f"{question.text} at no M."
    if M is None:
        return f"{question.text} at some M, of which {size_of(p, smaller or 0)} is the largest."
    here = f"{question.text} at M = {size_of(p, M)} and at every larger M"
    if smaller is None:
        return f"{here}, but at no smaller one."
    return f"{here}. It does so at some smaller M too, of which {smaller} B is the largest."


def size_of(p: Attention, M_bytes: int) -> str:
    """An M in bytes, words and units of d^2 words: `8640 B (8.44 KiB, 4320 fp16 words, 1.05 d^2)`."""
    words = M_bytes // p.word_bytes
    also = [binary(M_bytes)] if M_bytes >= KIB else []
    return f"{M_bytes} B ({', '.join([*also, f'{words} {p.dtype} words', f'{words / p.d**2:.3g} d^2'])})"


def least_of(p: Attention, names: Sequence[str], rule: str, M_bytes: int, multiple: int) -> Result | None:
    """The result of least bytes of some schedules with a tile rule at an M; None if none has tiles there."""
    results = [run(SCHEDULES[name], rule, p, M_bytes, multiple) for name in names]
    return min((r for r in results if r.total_bytes is not None), key=lambda r: r.total_bytes or 0, default=None)


def about_several(question: Question, found: Sequence[Crossover]) -> str:
    """The sentence about several problems: the range of M over all of them."""
    shares = [c.M_bytes // c.problem.word_bytes / c.problem.d**2 for c in found if c.M_bytes is not None]
    never = len(found) - len(shares)
    if not shares:
        return f"There is no M from which on {question.text}, in any of the {len(found)} problems."
    size = f"M = {min(shares):.3g} d^2 words"
    if max(shares) > min(shares):
        size = f"an M of {min(shares):.3g} to {max(shares):.3g} d^2 words (by problem)"
    text = f"{question.text} at {size} and at every larger M"
    return text + (f"; in {never} of {len(found)} problems there is no such M." if never else ".")


def lines_over_N(found: Sequence[OverN]) -> list[str]:
    """A sentence for each answer of a crossover over N."""
    return [line_over_N(one) for one in found]


def line_over_N(found: OverN) -> str:
    """The sentence about one answer: the N of the axis at which this is so."""
    row, text, first, earlier = found
    start, last = row["N"], row["N_last"]
    about = f"(M = {row['M_bytes']} B, d = {row['d']}, {row['dtype']})"
    if start is None and earlier is None:
        return f"{text} at no N up to {last} {about}."
    if start is None:
        return f"{text} at some N up to {last}, of which {earlier} is the largest {about}."
    if start == first:
        return f"{text} at every N of the axis, from {first} to {last} {about}."
    here = f"{text} at N = {start}" + (", the largest one" if start == last else f" and at every larger N up to {last}")
    if earlier is None:
        return f"{here}, but at no smaller one {about}."
    return f"{here} {about}. It does so at some smaller N too, of which {earlier} is the largest."
