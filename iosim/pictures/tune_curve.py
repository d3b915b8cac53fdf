"""The picture of a curve: the least traffic and the floor against M, and the gap between them as a ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..drawing.asked import Asked, PictureKind
from ..drawing.chart import INKED, Chart, ChartLine
from ..drawing.picture import Picture
from ..drawing.proven import floor_line, order_line
from ..drawing.sheet import Sheet
from ..errors import InputError
from ..tuning.curve import CurveStep, steps_at
from ..tuning.least import curve

if TYPE_CHECKING:
    from ..tuning.every_M import Curve

LEAST = "least of all schedules"
MOST_SCHEDULES = 5  # schedules with their own line
ALIKE, MOST_OF = 1.05, 0.8  # two schedules share a line if their words differ by at most 1.05 at 80 % of all M
HIGHEST = 8.0  # the highest ratio to the floor that is shown


def curve_sheet(found: Curve) -> Sheet:
    """The sheet of a curve: words against M, and below it their ratio to the floor, if there is a floor. Raises
    InputError for a curve without steps."""
    if not found.steps:
        raise InputError("--picture", "gap", "a curve with steps")
    p, family = found.problem, found.space[0].family
    last = 2 * found.steps[-1].M_bytes
    first = min(max(found.steps[0].M_bytes, p.d * p.word_bytes), last // 4 or 1)
    M = ends_of_steps(found, first, last)
    least = line_at(LEAST, found.steps, M, INKED)
    chosen = [line_at(name, steps, M) for name, steps in shown(found, M).items()]
    places = [(float(place), p, place) for place in M]
    floors = floor_line(places, family)
    size = f"N = {p.N}" + (f", Nk = {p.Nk}" if p.Nk != p.N else "") + f", d = {p.d}, {p.dtype}"
    size += f", mask {p.mask}" if str(p.mask) != "dense" else ""
    title = f"How many words attention moves, and how few it could: {size}"
    if not floors or len(floors[0].x) < len(M):
        return Sheet(title, [Chart("", "M_bytes", "total", [*chosen, least])])
    (floor,) = floors
    lines = [*chosen, *order_line(places, family), floor, least]
    words = Chart("", "M_bytes", "total", lines, shaded=(LEAST, floor.label))
    ratios = [over(line, floor) for line in (*chosen, floor, least)]
    frame = {"x": words.limits("x"), "y": (1.0, HIGHEST)}
    return Sheet(
        title, [words, Chart("", "M_bytes", "ratio_to_floor", ratios, shaded=(LEAST, floor.label), frame=frame)]
    )


def ends_of_steps(found: Curve, first: int, last: int) -> list[int]:
    """The M of a picture: the first and the last byte of each step of every line in it."""
    starts = {step.M_bytes for steps in (found.steps, *found.own.values()) for step in steps}
    within = {M for start in starts for M in (start - 1, start) if first <= M <= last}
    return sorted({first, last, *within})


def line_at(name: str, steps: Sequence[CurveStep], M: Sequence[int], key: str = "") -> ChartLine:
    """The line of a staircase at each M where it has tiles. An ideal schedule also has words below its M, which are
    dashed."""
    known = [*zip(M, steps_at(steps, M), strict=True)]
    if steps[0].Br is None:
        known = [(place, step or steps[0]) for place, step in known]
    drawn = [(place, step) for place, step in known if step is not None]
    fits = [place >= step.M_bytes for place, step in drawn]
    return ChartLine(name, [float(x) for x, _ in drawn], [float(s.total) for _, s in drawn], fits, key=key)


def shown(found: Curve, M: Sequence[int]) -> dict[str, list[CurveStep]]:
    """The schedules with their own line: the first ones that move other words than those before them."""
    chosen: dict[str, list[float]] = {}
    for schedule in found.space:
        steps = found.own[schedule.name]
        words = [step.total if step else math.nan for step in steps_at(steps, M)]
        if steps and len(found.space) > 1 and not any(alike(words, other) for other in chosen.values()):
            chosen[schedule.name] = words
    return {name: found.own[name] for name in [*chosen][:MOST_SCHEDULES]}


def alike(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two staircases move nearly the same words at most M where the first has tiles; NaN where it has none."""
    near = sum([a <= ALIKE * b and b <= ALIKE * a for a, b in zip(one, other, strict=True)])
    return near >= MOST_OF * sum([a == a for a in one])


def over(line: ChartLine, floor: ChartLine) -> ChartLine:
    """The line with its words over the floor at each M."""
    least = dict(zip(floor.x, floor.y, strict=True))
    ratios = [y / least[x] for x, y in zip(line.x, line.y, strict=True)]
    return ChartLine(line.label, line.x, ratios, line.fits, line.kind, line.key)


def of_gap(asked: Asked) -> Picture:
    """The picture of the gap between the least traffic and the floor."""
    return Picture(curve_sheet(curve(schedules=asked.choice.schedules, tile_multiple=asked.multiple, **asked.fields)))


GAP = PictureKind(of_gap, refuses=("M", "hardware", "tiles"))
