"""Charts, masks and bars as SVG text for a page, written without a library. The page's style sheet may set colours."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from math import log10
from typing import TYPE_CHECKING

from .chart import (
    INK,
    SHAPES,
    Chart,
    ChartLine,
    Sheet,
    colours,
    ink_on,
    shapes,
    spread_labels,
    stride_apart,
    tensor_colours,
    tints,
)

if TYPE_CHECKING:
    from ..masks.picture import TileMap

WIDTH, HEIGHT = 860, 420
LEFT, TOP, BOTTOM = 62, 14, 46
LINE_GAP = 15
THIN = 0.7  # pixels between points of a line
SHEET_WIDTH = 720  # so that text of 12 pixels is readable on a page that is 500 pixels wide
SHADE = "#F5D28A"
MOST_MARKS = 12  # on a line
Look = tuple[ChartLine, str, float, str]
"""A line with its colour, its opacity, and the shape of its marks (empty: no marks)."""


class Scale:
    """The scale of an axis: from a value to pixels between `start` and `stop`."""

    def __init__(self, chart: Chart, axis: str, start: float, stop: float):
        self.log = chart.is_log(axis)
        low, high = chart.limits(axis)
        self.low, self.high = self.of(low), self.of(high)
        self.start, self.stop = start, stop

    def of(self, value: float) -> float:
        """The value, or its logarithm on a logarithmic axis."""
        return log10(value) if self.log else value

    def __call__(self, value: float) -> float:
        share = (self.of(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def chart_svg(chart: Chart, mark: tuple[float, str] | None = None) -> str:
    """A chart as SVG for a page, with a label at the end of each line. `mark` is (value, name) of a vertical line
    within its x axis."""
    box = Box(WIDTH, HEIGHT, room_for([line.label for line in chart.lines if line.kind != "order"]))
    look = [(*one, "") for one in zip(chart.lines, colours(chart.lines), tints(chart.lines), strict=True)]
    clip = f"inside-{chart.x_name}-{chart.y_name}"  # a page has several charts
    parts = panel(chart, box, clip, mark) + lines_of(chart, box, look, clip) + labels_at_ends(chart, box, look)
    return svg_frame(WIDTH, HEIGHT, chart.title, "".join(parts))


class Box:
    """The place of a chart on a sheet: its width and height, with room for labels on the right."""

    def __init__(self, width: float, height: float, labels: float):
        self.width, self.height = width, height
        self.bottom, self.right = height - BOTTOM, width - labels

    def scales(self, chart: Chart) -> tuple[Scale, Scale]:
        """The scales of both axes."""
        return Scale(chart, "x", LEFT, self.right), Scale(chart, "y", self.bottom, TOP)


def room_for(labels: list[str]) -> float:
    """The width in pixels of labels to the right of a chart."""
    return 34 + max(map(text_width, labels), default=0.0)


def text_width(text: str, size: float = 12) -> float:
    """The width of a text in pixels, with room to spare: fonts differ from viewer to viewer."""
    narrow = sum(letter in " ijlt.,:;|()[]'" for letter in text)
    return size * (0.34 * narrow + 0.62 * (len(text) - narrow))


def panel(chart: Chart, box: Box, clip: str, mark: tuple[float, str] | None = None) -> list[str]:
    """The axes of a chart: grid, ticks, names, and the vertical line of `mark`. `clip` names the place inside."""
    across, up = box.scales(chart)
    bottom, right = box.bottom, box.right
    inside = f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT:.1f}" height="{bottom - TOP:.1f}"/>'
    parts = [f'<clipPath id="{clip}">{inside}</clipPath>']
    for value, text in apart(chart.ticks("x"), across):
        x = across(value)
        parts.append(segment(x, TOP, x, bottom, "grid") + label(x, bottom + 17, text, "middle"))
    for value, text in chart.ticks("y"):
        parts.append(segment(LEFT, up(value), right, up(value), "grid") + label(LEFT - 7, up(value) + 4, text, "end"))
    parts.append(label((LEFT + right) / 2, box.height - 8, chart.x_label, "middle"))
    parts.append(label(max(2.0, min(LEFT, box.width - 4 - text_width(chart.y_label))), TOP - 2, chart.y_label, "start"))
    if mark:
        x = across(mark[0])
        beyond = x + 4 + text_width(mark[1]) > right
        side = label(x - 4, TOP + 12, mark[1], "end") if beyond else label(x + 4, TOP + 12, mark[1], "start")
        parts.append(segment(x, TOP, x, bottom, "mark") + side)
    return parts


def apart(ticks: list[tuple[float, str]], scale: Scale) -> list[tuple[float, str]]:
    """The ticks of an axis, or every second or third of them, so that no text touches the text before."""
    places = [(scale(value) - text_width(text) / 2, scale(value) + text_width(text) / 2) for value, text in ticks]
    return ticks[:: stride_apart(places, 6)]


def lines_of(chart: Chart, box: Box, look: list[Look], clip: str) -> list[str]:
    """The lines of a chart, the shade between two of them, and its numbered points."""
    across, up = box.scales(chart)
    parts = [shade(chart, across, up, clip)] if chart.shaded else []
    for line, colour, tint, shape in look:
        parts.append(line_svg(chart, line, colour, tint, across, up, clip))
        if line.kind == "data" and len(line.x) > 1 and (shape or chart.seen_points):
            parts += marks_of(line, colour, shape or SHAPES[0], across, up)
    places = [(across(point.x), up(point.y)) for point in chart.points]
    heads = spread_labels([x for x, _ in places], 18, LEFT + 10, box.right - 10)
    for k, ((x, y), head) in enumerate(zip(places, heads, strict=True), 1):
        parts.append(f'<path d="M{head:.1f} {TOP + 14}L{x:.1f} {y:.1f}" stroke="{MUTED}" stroke-width="0.6"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="#fff" stroke="{INK}"/>')
        parts.append(label(head, TOP + 11, str(k), "middle", INK, 11))
    return parts


def shade(chart: Chart, across: Scale, up: Scale, clip: str) -> str:
    """The area between two lines."""
    assert chart.shaded is not None
    upper, lower = (chart.line(name) for name in chart.shaded)
    above = [(across(x), up(y)) for x, y in zip(upper.x, upper.y, strict=True)]
    below = [(across(x), up(y)) for x, y in zip(lower.x, lower.y, strict=True)]
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in thinned(above) + thinned(below)[::-1])
    return f'<polygon class="shade" points="{where}" fill="{SHADE}" fill-opacity="0.4" clip-path="url(#{clip})"/>'


def line_svg(
    chart: Chart, line: ChartLine, colour: str, tint: float, across: Scale, up: Scale, clip: str
) -> str:  # fmt: skip
    """A line as SVG. If it does not fit everywhere, it is dashed, with solid lines over the parts that fit."""
    points = [(across(x), up(y)) for x, y in zip(line.x, line.y, strict=True)]
    if line.kind != "data":
        if line.kind == "floor":
            return polyline(points, MUTED, 1.6, clip=clip)
        seen = [point for point in points if min(up.start, up.stop) <= point[1] <= max(up.start, up.stop)] or points
        x, y = seen[len(seen) // 2]  # its end may lie outside the picture, so its label stands on the line
        place = max(x - 6, LEFT + 4 + text_width(line.label))
        return polyline(points, MUTED, 1.3, "2 4", clip=clip) + label(place, y + 12, line.label, "end", MUTED)
    if len(points) == 1:
        fill = f'fill="{colour if line.fits[0] else "#fff"}" fill-opacity="{tint:g}" stroke="{colour}"'
        return f'<circle cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="4.5" {fill}/>'
    drawn = "" if all(line.fits) else polyline(points, colour, 1.2, "5 4", chart.steps, tint, clip)
    stretch: list[tuple[float, float]] = []
    for point, fits in [*zip(points, line.fits, strict=True), ((0.0, 0.0), False)]:
        if fits:
            stretch.append(point)
        elif stretch:
            drawn += polyline(stretch, colour, 2.2, steps=chart.steps, tint=tint, clip=clip)
            stretch = []
    return drawn


def marks_of(line: ChartLine, colour: str, shape: str, across: Scale, up: Scale) -> list[str]:
    """The marks of a line, on at most MOST_MARKS of its points; hollow where it does not fit."""
    points = list(zip(line.x, line.y, line.fits, strict=True))[:: -(-len(line.x) // MOST_MARKS)]
    return [mark_svg(shape, across(x), up(y), colour, fits) for x, y, fits in points]


OUTLINES = {  # of marks, around 0 0; a circle is drawn as one
    "square": "M-3.2 -3.2H3.2V3.2H-3.2Z", "triangle": "M0 -4L3.8 3H-3.8Z", "diamond": "M0 -4.4L4.4 0L0 4.4L-4.4 0Z",
    "down": "M0 4L3.8 -3H-3.8Z", "plus": "M-4 0H4M0 -4V4", "cross": "M-3.2 -3.2L3.2 3.2M-3.2 3.2L3.2 -3.2",
    "bar": "M-1.4 -4.4H1.4V4.4H-1.4Z",
}  # fmt: skip


def mark_svg(shape: str, x: float, y: float, colour: str, filled: bool = True) -> str:
    """A mark of one of the SHAPES."""
    look = f'fill="{colour if filled else "#fff"}" stroke="{colour}" stroke-width="1.3"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" {look}/>'
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{OUTLINES[shape]}" {look}/>'


def labels_at_ends(chart: Chart, box: Box, look: list[Look]) -> list[str]:
    """Labels to the right of a chart, moved apart, each with a leader to the end of its line."""
    across, up = box.scales(chart)
    drawn = [(line, colour) for line, colour, *_ in look if line.kind != "order"]
    ends = [(across(line.x[-1]), min(max(up(line.y[-1]), TOP), box.bottom)) for line, _ in drawn]
    placed = spread_labels([y for _, y in ends], LINE_GAP, TOP, box.bottom)
    found = []
    for (line, colour), (x, y), place in zip(drawn, ends, placed, strict=True):
        leader = (
            f'<path d="M{x + 2:.1f} {y:.1f}L{box.right + 14:.1f} {place:.1f}" stroke="{colour}" stroke-width="0.7"/>'
        )
        found.append(leader + label(box.right + 18, place + 4, line.label, "start", colour))
    return found


def thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, without those close to the last one kept. The first and the last stay."""
    found = points[:1]
    for point in points[1:-1]:
        if max(abs(point[0] - found[-1][0]), abs(point[1] - found[-1][1])) >= THIN:
            found.append(point)
    return found + points[-1:] * (len(points) > 1)


def stairs(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a line that keeps each value until the next x."""
    corners = [(after[0], point[1]) for point, after in pairwise(points)]
    return [one for pair in zip(points, [*corners, points[-1]], strict=True) for one in pair][: 2 * len(points) - 1]


def polyline(
    points: list[tuple[float, float]], colour: str, width: float, dashes: str = "", steps: bool = False,
    tint: float = 1.0, clip: str = "inside",
) -> str:  # fmt: skip
    """A line through points, cut off at the edge of the chart."""
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in thinned(stairs(points) if steps else points))
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    dash += f' stroke-opacity="{tint:g}"' if tint < 1 else ""
    cap = 'stroke-linejoin="round" stroke-linecap="round"' + (f' clip-path="url(#{clip})"' if clip else "")
    return f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{width}"{dash} {cap}/>'


# Attributes for viewers without style sheets; a style sheet overrides them.
PLAIN = {
    "grid": 'stroke="#dcdcdc" stroke-width="0.7"',
    "mark": 'stroke="#555" stroke-width="1.2" stroke-dasharray="2 3"',
    "empty": 'fill="#eef2f5"',
    "tile": 'fill="#0072b2"',
}
MUTED = "#767676"


def segment(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line in a style of PLAIN."""
    return f'<path class="{style}" {PLAIN[style]} d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def label(x: float, y: float, text: str, anchor: str, colour: str = "", size: float = 12, bold: bool = False) -> str:
    """A text at a place; `anchor` is start, middle or end."""
    fill = f' fill="{colour}"' if colour else ""
    fill += (f' font-size="{size:g}"' if size != 12 else "") + (' font-weight="bold"' if bold else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(text)}</text>'


def svg_frame(width: float, height: float, title: str, inside: str) -> str:
    """An SVG picture of this size, in pixels, around its content."""
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" style="max-width:{width:g}px"'
    font = 'font-family="sans-serif" font-size="12" fill="currentColor"'
    return f"<svg {box} {font}><title>{escape(title)}</title>{inside}</svg>"


def sheet_svg(sheet: Sheet) -> str:
    """A sheet as the text of an SVG file: its title, a legend if it has several columns, its charts, and notes."""
    wide = SHEET_WIDTH / sheet.columns
    heads = [chart_head(chart.title, wide) if sheet.columns > 1 else [] for chart in sheet.charts]
    more = LINE_GAP * (max(map(len, heads)) - 1) if sheet.columns > 1 else 0  # pixels for more lines of a title
    high, between = HEIGHT if len(sheet.charts) == 1 else 300, 4 if sheet.columns == 1 else 20 + more
    names = shapes(sheet.lines) if sheet.columns > 1 else {}
    look = {line.label: (line, colour, tint, names.get(line.label, "")) for line, colour, tint in
            zip(sheet.lines, colours(sheet.lines), tints(sheet.lines), strict=True)}  # fmt: skip
    parts, top = head_svg(sheet.title)
    if sheet.columns > 1:
        legend, top = legend_svg([look[line.label] for line in sheet.legend], top)
        parts += legend
    for k, chart in enumerate(sheet.framed):
        x, y = wide * (k % sheet.columns), top + 18 + more + (high + between) * (k // sheet.columns)
        inside = "".join([*heads[k], *chart_on(sheet, chart, k, wide, high, look)])
        parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{inside}</g>')
    bottom = top + 18 + more + (high + between) * -(-len(sheet.charts) // sheet.columns)
    notes = [line for note in sheet.notes for line in broken(note, SHEET_WIDTH - 28)]
    parts += [label(14, bottom + 14 + 16 * k, note, "start", MUTED) for k, note in enumerate(notes)]
    return svg_file(SHEET_WIDTH, bottom + 10 + 16 * len(notes), sheet.title, "".join(parts))


def chart_head(title: str, width: float) -> list[str]:
    """The title of a chart that shares its row with others, above its axes, in as many lines as it needs."""
    lines = broken(title, width - LEFT, 12)
    left = max(2.0, min(LEFT, width - max(map(text_width, lines)) - 4))
    above = [TOP - 17 - LINE_GAP * k for k in reversed(range(len(lines)))]
    return [label(left, y, line, "start", INK, 12, bold=True) for line, y in zip(lines, above, strict=True)]


def svg_file(width: float, height: float, title: str, inside: str) -> str:
    """The text of an SVG file of this size, in pixels, on white."""
    whole = svg_frame(width, height, title, '<rect width="100%" height="100%" fill="#fff"/>' + inside)
    size = f' xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + whole.replace(" viewBox", size + " viewBox", 1) + "\n"


def head_svg(title: str) -> tuple[list[str], float]:
    """The title of a sheet, in as many lines as it needs, and the pixels from the top that it takes."""
    lines = broken(title, SHEET_WIDTH - 28, 14)
    return [label(14, 24 + 18 * k, line, "start", INK, 14, bold=True) for k, line in enumerate(lines)], 12 + 18 * len(
        lines
    )


def broken(text: str, width: float, size: float = 12) -> list[str]:
    """A text broken between words into lines of at most `width` pixels."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def chart_on(sheet: Sheet, chart: Chart, number: int, width: float, height: float, look: dict[str, Look]) -> list[str]:
    """A chart of a sheet."""
    own = [(line, *look[line.label][1:]) for line in chart.lines]
    if sheet.columns > 1:
        box = Box(width, height, 24)
        return [*panel(chart, box, f"inside{number}"), *lines_of(chart, box, own, f"inside{number}")]
    labels = [line.label for one in sheet.charts for line in one.lines if line.kind != "order"]
    box = Box(width, height, room_for(labels))
    axes = panel(chart, box, f"inside{number}")
    return [*axes, *lines_of(chart, box, own, f"inside{number}"), *labels_at_ends(chart, box, own)]


def legend_svg(look: list[Look], top: float) -> tuple[list[str], float]:
    """The legend of a sheet with several columns: a stroke, a mark and a label for each line, in rows below `top`. It
    is returned with its lower edge."""
    found, x, y = list[str](), 14.0, top + 14
    for line, colour, tint, shape in look:
        wide = 52 + text_width(line.label)
        if x > 14 and x + wide > SHEET_WIDTH - 14:
            x, y = 14.0, y + 20
        dash = "2 4" if line.kind == "order" else ""
        found.append(polyline([(x, y), (x + 24, y)], colour, 2.2, dash, tint=tint, clip=""))
        found += [mark_svg(shape, x + 12, y, colour)] * bool(shape)
        found.append(label(x + 30, y + 4, line.label, "start", INK))
        x += wide
    return found, y + 10


def bars_svg(
    rows: list[tuple[str, list[tuple[str, int]], str]], limit: int, limit_name: str,
    title: str = "SRAM at its fullest, by block", unit: str = "B",
) -> str:  # fmt: skip
    """Stacked bars as SVG, one for each row (name, [(part, size)], note), and a mark at `limit`. Parts of the same name
    have the same colour in all bars."""
    widest = max([limit, *(sum(size for _, size in parts) for _, parts, _ in rows)])
    left, width, height = 205, 410, 34
    scale, palette = width / widest, tensor_colours(name for _, parts, _ in rows for name, _ in parts)
    found = []
    for k, (name, parts, note) in enumerate(rows):
        y, x = 22 + k * height, float(left)
        found.append(label(left - 8, y + 15, name, "end"))
        for piece, size in parts:
            tip = f"<title>{escape(piece)}: {size} {unit}</title>"
            box = f'x="{x:.1f}" y="{y}" width="{size * scale:.1f}" height="22" fill="{palette[piece]}"'
            found.append(f'<rect class="part" {box}>{tip}</rect>')
            if size * scale > 9 * len(piece) + 4:
                found.append(label(x + size * scale / 2, y + 15, piece, "middle", ink_on(palette[piece])))
            x += size * scale
        found.append(label(x + 8, y + 15, note, "start"))
    end = 22 + len(rows) * height
    mark = left + limit * scale
    found.append(segment(mark, 14, mark, end, "mark") + label(mark, 11, limit_name, "middle"))
    return svg_frame(WIDTH, end + 6, title, "".join(found))


def tiles_svg(tiles: TileMap) -> str:
    """A mask as SVG for a page, tile by tile."""
    (width, height), found = tile_rects(tiles)
    return svg_frame(width, height, tiles.title, "".join(found))


def mask_svg(tiles: TileMap) -> str:
    """A mask as the text of an SVG file: its title, its tiles, and what its axes and its shades mean."""
    (width, height), rects = tile_rects(tiles)
    left = LEFT + 14
    parts, top = head_svg(tiles.title)
    parts.append(label(left, top + 22, "keys →", "start", INK) + label(left - 7, top + 44, "queries ↓", "end", INK))
    parts.append(f'<g transform="translate({left} {top + 32})">{"".join(rects)}</g>')
    shades = [(left + width + 24, top + 50 + 24 * k, share) for k, share in enumerate((1.0, 0.5, 0.0))]
    for x, y, share in shades:
        look = PLAIN["tile"] + f' opacity="{opacity(share):.2f}"' if share else PLAIN["empty"]
        parts.append(f'<rect {look} x="{x:.1f}" y="{y - 11:.1f}" width="14" height="14"/>')
        parts.append(label(x + 20, y, f"{share:.0%} of the pairs visible" if share else "skipped", "start", INK))
    bottom = top + 32 + max(height, 90) + 16
    return svg_file(SHEET_WIDTH, bottom, tiles.title, "".join(parts))


def opacity(share: float) -> float:
    """The opacity of a tile of which this share is visible."""
    return 0.35 + 0.65 * share


def tile_rects(tiles: TileMap) -> tuple[tuple[float, float], list[str]]:
    """(width, height) of a mask, and its tiles. The more of a tile is visible, the darker it is. Runs of equal small
    tiles are one rectangle."""
    rows, columns = tiles.shares.shape
    scale = 420 / max(rows * tiles.rows_q, columns * tiles.rows_k)
    height, width = scale * tiles.rows_q, scale * tiles.rows_k
    gap = 0.7 if min(height, width) > 4 else 0
    found = [f'<rect class="empty" {PLAIN["empty"]} width="{columns * width:.1f}" height="{rows * height:.1f}"/>']
    for i, line in enumerate(tiles.shares.tolist()):
        start = 0
        for j in range(1, columns + 1):
            if gap or j == columns or line[j] != line[start]:
                if line[start]:
                    box = f'x="{start * width:.1f}" y="{i * height:.1f}" width="{(j - start) * width - gap:.1f}"'
                    look = f'height="{height - gap:.1f}" opacity="{opacity(line[start]):.2f}"'
                    found.append(f'<rect class="tile" {PLAIN["tile"]} {box} {look}/>')
                start = j
    return (columns * width, rows * height), found
