"""The answer of a comparison in at most three sentences: what is best, how far from the floor, and what comes next.

Every command that compares ways to do one thing uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .tables import excess
from .units import binary_unit

NEAR = 1.01  # ways that cost up to this factor more are named together with the best


class Way(NamedTuple):
    """One way to do it, with its cost."""

    name: str
    """How sentences call it: `flash2 196x1`."""
    cost: float
    """What is compared: bytes, or seconds. The least is best."""
    fits: bool | None = True
    """Whether it fits; None if that is not known. What does not fit is never best."""
    needs: int = 0
    """The bytes of memory that it needs."""
    over_floor: float | None = None
    """The cost over the least that is possible; None if no floor is known."""
    floor: str = ""
    """The floor after `can move`: `less than 162 MiB`, or `fewer than 9 words`."""
    shown: str = ""
    """The cost for people; without it, the cost as bytes."""
    none: str = ""
    """The class of the floor, as the subject of its sentence; without it, every exact algorithm, of its class."""


def best_of(ways: Iterable[Way]) -> Way | None:
    """The way of least cost that fits, or that may fit; None if none does. Of equal ways, the first."""
    return min((way for way in ways if way.fits is not False), key=lambda way: way.cost, default=None)


def verdict(
    ways: Sequence[Way],
    verb: str = "move",
    memory: int | None = None,
    baseline: Way | None = None,
    why: Callable[[Way, Way], str] = lambda best, other: "",
) -> list[str]:
    """What costs least and how far that is from the floor; then the baseline beside it, and what is next.

    `memory` is the bytes that there are, if they are given. `why` says why a way costs more than the best one.
    """
    best = best_of(ways)
    if best is None:
        return [nothing_fits(ways, memory)]
    rest = sorted((way for way in ways if way is not best and way.fits is not False), key=lambda way: way.cost)
    near = [way for way in rest if way.cost <= NEAR * best.cost]
    after = next((way for way in rest if way not in near), None)
    if baseline is None and not rest:
        baseline = next((way for way in ways if way is not best), None)
    lines = [lead(best, verb, memory)]
    if baseline is not None and all(baseline is not way for way in (best, after, *near)):
        room = f", which needs {times(baseline.needs, memory)} times this memory," if unfit(baseline, memory) else ""
        because = reason(why(best, baseline)) if baseline.cost > best.cost else ""
        lines.append(f"{baseline.name}{room} {verb}s {as_much(best, baseline)}{because}.")
    return [*lines, *follows(best, near, after, verb, why)]


def lead(way: Way, verb: str = "move", memory: int | None = None) -> str:
    """What a way costs beside the floor: `flash2 196x1 moves 172 MiB; no exact algorithm of its class can move less
    than 162 MiB: 6 % above.`"""
    text, share = f"{way.name} {verb}s {way.shown or about(way.cost)}", way.over_floor
    which = way.none or ("no exact algorithm" if memory is None else "no exact algorithm of its class")
    if share is None:
        return text + "."
    if share == 1:
        return f"{text}, and {which} can {verb} less."
    return f"{text}; {which} can {verb} {way.floor or 'less than ' + about(way.cost / share)}: {above(share)}."


def class_line(lines: Iterable[str]) -> list[str]:
    """The line below a table that says what a sentence calls `its class`, that of docs/floors.md; none without it."""
    said = any("of its class" in line for line in lines)
    return ["Its class: exact results by standard products, in any order, recomputation allowed."] if said else []


def follows(best: Way, near: Sequence[Way], after: Way | None, verb: str, why: Callable[[Way, Way], str]) -> list[str]:
    """The sentence on the ways that cost as much, or nearly so, and on the next one; none if there are no others."""
    parts = []
    if near:
        most, same = as_much(best, near[-1]), as_much(best, near[0]) == as_much(best, near[-1])
        names = joined(way.name for way in near)
        parts.append(f"{names} {verb}{'s' * (len(near) == 1)} {'' if same else 'up to '}{most}")
    if after is not None:
        parts.append(f"{after.name} is next, with {as_much(best, after)}{reason(why(best, after))}")
    return ["; ".join(parts) + "."] if parts else []


def nothing_fits(ways: Sequence[Way], memory: int | None) -> str:
    """The sentence for the case that no way fits: the least memory that any of them needs."""
    if not ways or not memory:
        return "Nothing that was counted fits in this memory."
    least = min(ways, key=lambda way: way.needs)
    return f"Nothing that was counted fits: {least.name} needs least, {times(least.needs, memory)} times this memory."


def unfit(way: Way, memory: int | None) -> bool:
    """Whether it is known that a way does not fit."""
    return way.fits is False and bool(memory)


def reason(text: str) -> str:
    """A reason after a colon; nothing if there is none."""
    return f": {text}" if text else ""


def as_much(best: Way, other: Way) -> str:
    """The cost of a way beside that of the best: `1.5 times as much`. Beside a cost of 0 it is the cost itself."""
    if not best.cost:
        return other.shown or about(other.cost)
    return "as much" if other.cost == best.cost else f"{times(other.cost, best.cost)} times as much"


# ---------------------------------------------------------------- words


def times(large: float, small: float | None) -> str:
    """large / small in three digits, or in more if three would show 1."""
    return excess(large / (small or 1))


def about(size: float) -> str:
    """Bytes in the largest binary unit, in three digits: `162 MiB`."""
    unit, factor = binary_unit(size)
    share = size / factor  # from 1,000 on, three digits would be written as 1.00e+03
    digits = f"{share:,.0f}" if size % factor == 0 or share >= 999.5 else f"{share:#.3g}".rstrip(".")
    return f"{digits} {unit}"


def above(share: float) -> str:
    """A ratio above 1 in words: `6 % above`, or `this is 2.5 times that`."""
    if share >= 2:
        return f"this is {excess(share)} times that"
    percent = 100 * (share - 1)
    if percent < 0.01:
        return "less than 0.01 % above"
    return f"{percent:.0f} % above" if percent >= 1 else f"{percent:.1g} % above"


def joined(parts: Iterable[str]) -> str:
    """Texts as a list in a sentence: `a, b and c`."""
    *first, last = list(parts)
    if any("," in part or " and " in part for part in (*first, last)):
        return ", and ".join([*first, last])
    return f"{', '.join(first)} and {last}" if first else last
