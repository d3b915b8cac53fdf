"""The picture of words between GPUs: what a GPU receives with each scheme against the number of GPUs, and the floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.problem import Attention
from ..counting.asked import asked
from ..counting.given import Given, counts
from ..counting.sweep_axes import AxisValue, read_axis
from ..drawing.asked import Asked, PictureKind
from ..drawing.chart import Chart, ChartLine
from ..drawing.picture import Picture
from ..drawing.proven import FLOOR
from ..drawing.sheet import Sheet
from ..errors import InputError
from ..units import parse_count
from .answer import links
from .floors import floor_across
from .schedules import find_schemes, splits_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MOST_RANKS = 64  # values of an axis


def links_sheet(ranks: AxisValue, schemes: Sequence[str], options: Mapping[str, AxisValue]) -> Sheet:
    """The sheet of an axis of GPUs. A scheme has points where it can divide the problem. InputError if none has two."""
    if ranks is None:
        raise InputError("--ranks", "nothing", "an axis as in 2:64:x2, with --picture links")
    found = read_axis(ranks, "--ranks", lambda text: parse_count(text, "--ranks")) or []
    if len(found) > MOST_RANKS:
        raise InputError("--ranks", f"{len(found)} values", f"at most {MOST_RANKS}")
    fields = counts(cast("Given", options))
    N, d = fields.pop("N"), fields.pop("d")
    points: dict[str, dict[float, float]] = {}
    floor: dict[float, float] = {}
    chosen, problem = find_schemes(schemes), Attention(N, d, **fields)
    for n in sorted(found):
        possible = [scheme.name for scheme in chosen if splits_of(scheme, problem, n)]
        for result in links(N, d, n, schedules=possible, **fields).results if possible or not chosen else ():
            points.setdefault(result.schedule, {})[n] = float(result.mean_received_words)
        least = floor_across(problem, n)
        if least.received_words:
            floor[n] = float(least.mean_received_words)
    lines = [ChartLine.of(name, line) for name, line in distinct(points).items()]
    proven = [ChartLine.of(FLOOR, floor, "floor")] if floor else []
    title = f"Words that a GPU receives from the others: {asked(problem)}"
    return Sheet(title, [Chart("", "ranks", "mean_received_words", [*lines, *proven])])


def distinct(points: dict[str, dict[float, float]]) -> dict[str, dict[float, float]]:
    """The lines, where schemes that receive the same at all points share one."""
    shared: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for name, found in points.items():
        shared.setdefault(tuple(found.items()), []).append(name)
    return {", ".join(names): dict(found) for found, names in shared.items()}


def of_links(question: Asked) -> Picture:
    """The picture of words between GPUs."""
    return Picture(links_sheet(question.ranks, question.choice.schedules, question.values))


LINKS = PictureKind(of_links, needs=(), ignores=("M", "hardware"))
