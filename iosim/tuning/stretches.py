"""Where a statement about M or N is true: its intervals, exactly, and a few stretches of them for a sentence.

Two falling staircases cross many times where they are close. A stretch has gaps that are short beside the intervals
that they part. So a sentence can say `at every M from 1030 B on except for 4 B from 1544 B`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from ..answer import numbered, rounded
from ..counting.sentence import joined
from ..units import binary, format_bytes

if TYPE_CHECKING:
    from ..core.problem import Attention

KIB = 1024

SHORT = 4  # a gap is at most 1 / SHORT as long as each of the two intervals that it parts
MOST_GAPS, MOST_NAMED = 3, 3  # gaps and stretches that a sentence names


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


# ---------------------------------------------------------------- sentences

Text = Callable[[Interval], str]
"""Returns an interval in words, as `from 23304 B to 23517 B`."""


def where_true(first: str, alone: str, found: Sequence[Stretch], brief: Text, gap: Text) -> str:
    """The predicate on where a statement is true, with its full stop: the longest stretch, its gaps, and the others.

    `first` is the longest stretch in words, and `alone` the clause that says that there is no other.
    """
    (_, gaps), others = found[0], found[1:]
    but = f" except for {list_of(gaps, gap)}" if gaps else ""
    same = f" The same holds {places_of(others, brief)}." if others else ""
    return f"{first}{but}{'' if others else alone}.{same}"


def list_of(gaps: Sequence[Interval], gap: Text) -> str:
    """Gaps in words; of many, their number and the longest."""
    if len(gaps) <= MOST_GAPS:
        return joined(map(gap, gaps))
    return f"{len(gaps)} gaps, of which the longest is {gap(max(gaps, key=lambda one: one.last - one.first))}"


def places_of(others: Sequence[Stretch], brief: Text) -> str:
    """The longest of some stretches in words, and the number of the shorter ones."""
    shown = [
        brief(part.whole) + (f" with {numbered(len(part.gaps), 'gap')}" if part.gaps else "")
        for part in others[: MOST_NAMED - 1]
    ]
    shorter = len(others) - len(shown)
    return joined([*shown, *([f"in {shorter} shorter stretch{'es' * (shorter != 1)}"] if shorter else [])])


def where_true_in_M(p: Attention, found: Sequence[Stretch], most: int) -> str:
    """The predicate on the M in bytes at which a statement about a problem is true. Nothing changes beyond `most`."""
    whole = found[0].whole
    size, alone = size_of(p, whole.first), ", and at no other M"
    if whole.last == most:
        first, alone = f"at M = {size} and at every larger M", ", but at no smaller one"
    elif whole.last == whole.first:
        first = f"at M = {size} alone"
    else:
        first = f"from M = {size} to {format_bytes(whole.last)}"
    return where_true(first, alone, found, partial(brief_in_M, most), gap_in_M)


def size_of(p: Attention, M_bytes: int) -> str:
    """An M in bytes, words and units of d^2 words: `8640 B (8.44 KiB, 4320 fp16 words, 1.05 d^2)`."""
    words = M_bytes // p.word_bytes
    also = [binary(M_bytes)] if M_bytes >= KIB else []
    return f"{M_bytes:,} B ({', '.join([*also, f'{words:,} {p.dtype} words', f'{rounded(words / p.d**2)} d^2'])})"


def brief_in_M(most: int, one: Interval) -> str:
    """An interval of M in a few words."""
    first = format_bytes(one.first)
    if one.last == most:
        return f"from {first} on"
    return f"at {first}" if one.last == one.first else f"from {first} to {format_bytes(one.last)}"


def gap_in_M(one: Interval) -> str:
    """A gap by its size: `4 B from 1544 B`."""
    return f"{binary(one.last - one.first + 1)} from {format_bytes(one.first)}"
