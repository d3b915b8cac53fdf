"""Where a statement about M or N is true: its intervals, exactly, and a few stretches of them for a sentence.

Two falling staircases cross many times where they are close. A stretch has gaps that are short beside the intervals
that they part. So a sentence can say `from M = 1,030 B on, but for the gap from 1,544 to 1,547`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import NamedTuple

from ..answer import Row, numbered

SHORT = 4  # a gap is at most 1 / SHORT as long as each of the two intervals that it parts


class Interval(NamedTuple):
    """Whole numbers from `first` to `last`, both included."""

    first: int
    last: int


class Stretch(NamedTuple):
    """An interval with few gaps: the intervals inside it in which the statement is not true."""

    whole: Interval
    gaps: tuple[Interval, ...] = ()


Decided = Callable[[int, int], bool | None]
"""Returns whether a statement is true in a whole interval: True or False for all of it, None if its ends do not say. It
decides an interval of one number."""
Length = Callable[[Interval], float]
"""Returns the length of an interval, to compare it with others."""


def where(decided: Decided, most: int) -> Where:
    """Where a statement is true, of every M in bytes. Nothing changes beyond M = `most`."""
    return Where(intervals(decided, 1, most), most)


def where_on_axis(true: Sequence[bool], axis: Sequence[int]) -> Where:
    """Where a statement is true, of the N of an axis."""
    return Where(united(Interval(k, k) for k, one in enumerate(true) if one), len(axis) - 1, axis)


def intervals(decided: Decided, first: int, last: int) -> list[Interval]:
    """The intervals from `first` to `last` in which a statement is true, in order. What is not decided is halved."""
    answer = decided(first, last)
    if answer is None:
        middle = (first + last) // 2
        return united([*intervals(decided, first, middle), *intervals(decided, middle + 1, last)])
    return [Interval(first, last)] if answer else []


def united(parts: Iterable[Interval]) -> list[Interval]:
    """Intervals in order, of which those that touch are one."""
    found: list[Interval] = []
    for part in parts:
        if found and found[-1].last == part.first - 1:
            part = Interval(found.pop().first, part.last)
        found.append(part)
    return found


def octaves(most: int) -> Length:
    """The length of an interval of M, in doublings. Nothing changes beyond M = `most`, so an interval that reaches it
    has no end, and counts up to twice that M."""

    def length(one: Interval) -> float:
        last = 2 * most if one.last == most else one.last
        return log2((last + 1) / one.first)

    return length


def stretches(found: Sequence[Interval], length: Length) -> list[Stretch]:
    """The stretches of intervals that are in order, longest first."""
    parts: list[Stretch] = []
    for one in found:
        part = Stretch(one)
        if parts:
            before, gaps = parts[-1]
            between = Interval(before.last + 1, one.first - 1)
            if SHORT * length(between) <= min(length(before), length(one)):
                parts.pop()
                part = Stretch(Interval(before.first, one.last), (*gaps, between))
        parts.append(part)
    return sorted(parts, key=lambda part: -length(part.whole))


@dataclass(frozen=True)
class Where:
    """Where a statement is true: intervals of M in bytes, or of places on an axis of N."""

    places: list[Interval]
    """The intervals, in order: of M, or of places on the axis from 0."""
    most: int
    """The last number: an M beyond which nothing changes, or the last place of the axis."""
    axis: Sequence[int] = ()
    """The N of each place. Without any a place is an M."""

    @property
    def unit(self) -> str:
        """What the numbers are, in the names of keys."""
        return "N" if self.axis else "M_bytes"

    def of(self, one: Interval) -> Interval:
        """An interval of places in numbers."""
        return Interval(self.axis[one.first], self.axis[one.last]) if self.axis else one

    @property
    def intervals(self) -> list[Interval]:
        """The intervals of M or N, in order."""
        return [self.of(one) for one in self.places]

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The stretches of these intervals: of most doublings of M first, or of most N."""
        length: Length = (lambda one: one.last - one.first + 1) if self.axis else octaves(self.most)
        return [Stretch(self.of(whole), tuple(map(self.of, gaps))) for whole, gaps in stretches(self.places, length)]

    def end_of(self, one: Interval) -> int | None:
        """The last number of an interval; None if it has no end."""
        return None if not self.axis and one.last == self.most else one.last

    @property
    def always_from(self) -> int | None:
        """The least number such that the statement is true at it and at every larger one; None if there is none."""
        return self.intervals[-1].first if self.places and self.places[-1].last == self.most else None

    def longest_row(self) -> Row:
        """The ends of the longest stretch and the number of its gaps, as cells of a row."""
        return self.row(self.stretches[0]) if self.places else self.row(None)

    def row(self, part: Stretch | None) -> Row:
        """The ends of a stretch and the number of its gaps; None in each cell without one."""
        names = (f"from_{self.unit}", f"to_{self.unit}", "gaps")
        cells = (None,) * 3 if part is None else (part.whole.first, self.end_of(part.whole), len(part.gaps))
        return dict(zip(names, cells, strict=True))

    def rows(self) -> list[Row]:
        """All intervals, as JSON has them."""
        return [{f"from_{self.unit}": one.first, f"to_{self.unit}": self.end_of(one)} for one in self.intervals]

    def text(self, size: Callable[[int], str] = "{:,}".format) -> str:
        """The predicate that says where: the longest stretch, its gaps, and the number of the others. `size` writes
        the number at which it begins."""
        name = self.unit[0]
        if not self.places:
            return f"at no {name}" + (f" up to {self.axis[-1]:,}" if self.axis else "")
        (whole, gaps), *others = self.stretches
        last, start = self.end_of(whole), f"{name} = {size(whole.first)}"
        text = f"from {start} on" if last is None else f"from {start} to {last:,}"
        if last == whole.first:
            text = f"at {start}"
        if gaps:
            first, last = max(gaps, key=lambda one: one.last - one.first)
            which = f"{len(gaps)} gaps, the longest" if len(gaps) > 1 else "the gap"
            text += f", but for {which} from {first:,} to {last:,}"
        shorter = f"{len(others)} shorter stretch{'es' * (len(others) != 1)}"
        return text + (f", and in {shorter}" if others else ", and nowhere else")

    def brief(self) -> str:
        """The stretches in a few words, longest first: `from 18,124 on; 1,030 to 16,383; 1 more`."""
        shown = self.stretches[:1] if self.stretches and self.stretches[0].gaps else self.stretches[:2]
        parts = [self.brief_part(part) for part in shown]
        more = len(self.stretches) - len(shown)
        return "; ".join([*parts, *([f"{more} more"] if more else [])]) or "nowhere"

    def brief_part(self, part: Stretch) -> str:
        """A stretch in a few words, with the number of its gaps."""
        first, last = part.whole.first, self.end_of(part.whole)
        text = f"from {first:,} on" if last is None else f"{first:,}" + f" to {last:,}" * (last != first)
        return text + (f", {numbered(len(part.gaps), 'gap')}" if part.gaps else "")
