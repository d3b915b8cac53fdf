"""Pictures of the contents of SRAM (occupancy.py) as the text of SVG files, written without a library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .chart import INK, ink_on, number, round_steps, size, tensor_colours
from .svg_chart import MUTED, SHEET_WIDTH, broken, head_svg, label, segment, svg_file, text_width

if TYPE_CHECKING:
    from .occupancy import Bar, Footprint, Run, Timeline

LEFT, RIGHT = 66, 22
TIMELINE_NOTE = (
    "Height: words in SRAM. Width: words moved. Between the start of a load or store and that of the next one, SRAM is "
    "shown at its fullest."
)
CUT_NOTE = "a bar with a jagged end is cut off"
BAR, GAP = 26, 36
HIGH, BETWEEN = 130, 40


def footprint_svg(found: Footprint) -> str:
    """Bars of the bytes of each block, one for each schedule, and M as a line across them."""
    palette = tensor_colours(dict.fromkeys(name for bar in found.bars for name, _ in bar.parts))
    parts, top = head_svg(found.title)
    keys, top = legend(palette, top)
    parts += keys
    room = SHEET_WIDTH - 28 - max(text_width(found.note(bar)) for bar in found.bars) - 12
    scale = room / found.longest
    for k, bar in enumerate(found.bars):
        parts += bar_svg(bar, found.note(bar), 14, top + 34 + k * (BAR + GAP), scale, room, palette)
    bottom = top + 24 + len(found.bars) * (BAR + GAP)
    if found.limit is not None:
        x = 14 + found.limit * scale
        text = f"M = {size(found.limit)}"
        place = min(max(x, 14 + text_width(text) / 2), SHEET_WIDTH - 14 - text_width(text) / 2)
        parts.append(segment(x, top + 16, x, bottom, "mark") + label(place, bottom + 16, text, "middle", INK))
    notes = [CUT_NOTE] * any(bar.bytes > found.longest for bar in found.bars)
    parts += [label(14, bottom + 38, note, "start", MUTED) for note in notes]
    return svg_file(SHEET_WIDTH, bottom + 26 + 20 * len(notes), found.title, "".join(parts))


def bar_svg(
    bar: Bar, note: str, x: float, y: float, scale: float, room: float, palette: dict[str, str]
) -> list[str]:  # fmt: skip
    """A bar with its name above it and its note on the right. It is cut off after `room` pixels."""
    found, start = [label(x, y - 6, bar.name, "start", INK, bold=True)], x
    for name, part in bar.parts:
        wide = min(part * scale, x + room - start)
        if wide > 0:
            found.append(f'<rect x="{start:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}" fill="{palette[name]}" '
                         f'stroke="#fff" stroke-width="0.8"><title>{name}: {part} B</title></rect>')  # fmt: skip
            if wide > text_width(name) + 6:
                found.append(label(start + wide / 2, y + 17, name, "middle", ink_on(palette[name]), bold=True))
        start += max(wide, 0.0)
    if bar.bytes * scale > room + 0.5:
        edge = "".join(f"L{start - 5 * (k % 2):.1f} {y + BAR * k / 6:.1f}" for k in range(7))
        found.append(f'<path d="M{start + 1:.1f} {y}{edge}L{start + 1:.1f} {y + BAR}Z" fill="#fff"/>')
    return [*found, label(start + 8, y + 17, note, "start", INK)]


def legend(palette: dict[str, str], top: float) -> tuple[list[str], float]:
    """(a coloured square for each block below `top`, the lower edge of the legend)."""
    found, x, y = list[str](), 14.0, top + 6
    for name, colour in palette.items():
        if x + 40 + text_width(name) > SHEET_WIDTH - 14:
            x, y = 14.0, y + 20
        found.append(f'<rect x="{x:.1f}" y="{y}" width="12" height="12" fill="{colour}"/>')
        found.append(label(x + 17, y + 11, name, "start", INK))
        x += 34 + text_width(name)
    return found, y + 14


def timeline_svg(found: Timeline) -> str:
    """A panel for each schedule, with the same axes: words in SRAM, stacked by block, against the words moved."""
    palette = tensor_colours(dict.fromkeys(name for run in found.runs for name in run.words))
    parts, top = head_svg(found.title)
    keys, top = legend(palette, top)
    parts += keys
    last = max(run.x[-1] for run in found.runs)
    high = max([*(run.peak for run in found.runs), *([found.limit] if found.limit else [])]) * 1.06
    for k, run in enumerate(found.runs):
        y = top + 34 + k * (HIGH + BETWEEN)
        parts += panel(run, y, last, high, palette, found.limit, k == len(found.runs) - 1)
    bottom = top + 34 + len(found.runs) * (HIGH + BETWEEN) + 16
    notes = broken(TIMELINE_NOTE, SHEET_WIDTH - 28)
    parts += [label(14, bottom + 16 * k, line, "start", MUTED) for k, line in enumerate(notes)]
    return svg_file(SHEET_WIDTH, bottom + 16 * len(notes), found.title, "".join(parts))


def panel(
    run: Run, top: float, last: int, high: float, palette: dict[str, str], limit: int | None, lowest: bool
) -> list[str]:  # fmt: skip
    """The panel of one run, whose axes end at `last` words moved and `high` words in SRAM."""
    bottom, right = top + HIGH, SHEET_WIDTH - RIGHT
    across, up = (right - LEFT) / last, HIGH / high
    found = [label(LEFT, top - 8, f"{run.name}: {run.x[-1]} words moved", "start", INK, bold=True)]
    for value in round_steps(0, high)[::2]:
        y = bottom - value * up
        found.append(segment(LEFT, y, right, y, "grid") + label(LEFT - 7, y + 4, number(value), "end"))
    found += areas(run, LEFT, bottom, across, up, palette)
    if limit is not None:
        y = bottom - limit * up
        found.append(segment(LEFT, y, right, y, "mark") + label(right, y - 4, f"M = {limit} words", "end", INK))
    for value in round_steps(0, last):
        text = number(value)
        place = min(LEFT + value * across, right + RIGHT - 2 - text_width(text) / 2)
        found.append(label(place, bottom + 16, text, "middle"))
    return found + [label((LEFT + right) / 2, bottom + 32, "words moved", "middle")] * lowest


def areas(
    run: Run, x0: float, y0: float, across: float, up: float, palette: dict[str, str]
) -> list[str]:  # fmt: skip
    """An area for each block, stacked on the blocks before it."""
    found, names, floor = list[str](), list[str](), [0] * (len(run.x) - 1)
    places = [x0 + x * across for x in run.x]
    for name, words in run.words.items():
        roof = [low + more for low, more in zip(floor, words, strict=True)]
        upper = corners(places, [y0 - value * up for value in roof])
        lower = corners(places, [y0 - value * up for value in floor])
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        look = f'fill="{palette[name]}" stroke="#fff" stroke-width="0.6"'
        found.append(f'<polygon points="{where}" {look}><title>{name}</title></polygon>')
        names += name_in_area(name, places, list(zip(floor, roof, strict=True)), y0, up, ink_on(palette[name]))
        floor = roof
    return found + names


def name_in_area(
    name: str, places: Sequence[float], edges: Sequence[tuple[int, int]], y0: float, up: float, ink: str
) -> list[str]:  # fmt: skip
    """The name of a block in the widest part of its area that has room for it; empty if none has."""
    stretches: list[tuple[float, float, int, int]] = []
    for (low, high), left, right in zip(edges, places, places[1:], strict=False):
        if stretches and stretches[-1][1:] == (left, low, high):
            stretches[-1] = (stretches[-1][0], right, low, high)
        else:
            stretches.append((left, right, low, high))
    fitting = [x for x in stretches if (x[3] - x[2]) * up >= 14 and x[1] - x[0] >= text_width(name) + 4]
    if not fitting:
        return []
    left, right, low, high = max(fitting, key=lambda x: x[1] - x[0])
    return [label((left + right) / 2, y0 - (low + high) / 2 * up + 4, name, "middle", ink, bold=True)]


def corners(places: Sequence[float], heights: Iterable[float]) -> list[tuple[float, float]]:
    """The corners of stairs whose height is the k-th one from the k-th place to the next."""
    found: list[tuple[float, float]] = []
    for left, right, y in zip(places, places[1:], heights, strict=False):
        if found and found[-1][1] == y:
            found[-1] = (right, y)
        else:
            found += [(left, y), (right, y)]
    return found
