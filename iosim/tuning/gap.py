"""The gap between the least traffic and the floor at every M, and a sentence on where it is largest.

The least traffic is a staircase, and the floor falls with M. So the gap of a step is largest at its last byte of M.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from ..counting.bounds import floor_of
from ..counting.sentence import joined

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .curve import CurveStep
    from .least import Curve

STRETCHES = {  # ranges of M in words; the best loop order changes at about 0.17 d^2 and at d^2
    "from d to d^2/2 words": (lambda d: d, lambda d: d * d / 2),
    "from d^2/2 to 4 d^2 words": (lambda d: d * d / 2, lambda d: 4 * d * d),
    "above 4 d^2 words": (lambda d: 4 * d * d, lambda d: inf),
}


@dataclass(frozen=True)
class Gap:
    """The least traffic beside the floor at one M: `words` moved by `schedule`, and the floor in words."""

    M_bytes: int
    schedule: str
    words: int
    floor_words: int

    @property
    def ratio(self) -> float:
        """The words moved over the floor."""
        return self.words / self.floor_words


def gaps(found: Curve) -> list[Gap]:
    """The gap at the last byte of each step of a curve, in the order of M. The last step has no end and no gap.

    The list is empty for a family without a floor, and under a mask for which the floor cannot be counted.
    """
    family, lines = found.space[0].family, []
    for step, after in zip(found.steps, found.steps[1:], strict=False):
        least = floor_of(found.problem, after.M_bytes - 1, family)
        if least:
            lines.append(Gap(after.M_bytes - 1, step.schedule, step.total, least))
    return lines


def ratio_to_floor(p: Attention, step: CurveStep, family: str) -> tuple[int | None, float | None]:
    """(the floor in words at the M of a step, the words of the step over it); None where there is no floor."""
    least = floor_of(p, step.M_bytes, family)
    return least, step.total / least if least else None


def answer_lines(found: Curve) -> list[str]:
    """The sentence about a curve: where the gap to the floor is largest, in each range of M."""
    p, known = found.problem, gaps(found)
    stretches = {
        name: [gap for gap in known if low(p.d) <= gap.M_bytes // p.word_bytes < high(p.d)]
        for name, (low, high) in STRETCHES.items()
    }
    largest = [
        f"{gap.ratio:.3f} times the floor for M {name} ({gap.schedule} at {place(p, gap)})"
        for name, some in stretches.items()
        if (gap := worst(some))
    ]
    if not largest:
        return [
            "No gap is known: there is no floor here, or no step of the curve in the range where it means something."
        ]
    return [f"The least traffic is at most {joined(largest)}."]


def worst(some: Sequence[Gap]) -> Gap | None:
    """The largest gap; None if there is none."""
    return max(some, key=lambda gap: gap.ratio, default=None)


def place(p: Attention, gap: Gap) -> str:
    """The M of a gap: `M = 31431 B = 0.959 d^2 words`."""
    return f"M = {gap.M_bytes} B = {gap.M_bytes // p.word_bytes / p.d**2:.3g} d^2 words"
