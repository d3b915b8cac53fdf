"""Charts, masks and bars as SVG text for a page, written without a library. The page's style sheet may set colours."""

from __future__ import annotations

from html import escape
from math import log10
from typing import TYPE_CHECKING

from .chart import COLOURS, Chart, ChartLine, colours, spread_labels

if TYPE_CHECKING:
    from ..masks.picture import TileMap

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 218, 14, 46
LINE_GAP = 15


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
    """A chart as SVG, with a label at the end of each line. `mark` is (value, name) of a vertical line."""
    across, up = Scale(chart, "x", LEFT, WIDTH - RIGHT), Scale(chart, "y", HEIGHT - BOTTOM, TOP)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<clipPath id="inside"><rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}"/></clipPath>'
    ]
    for value, text in chart.ticks("x"):
        x = across(value)
        parts.append(segment(x, TOP, x, bottom, "grid") + label(x, bottom + 17, text, "middle"))
    for value, text in chart.ticks("y"):
        parts.append(segment(LEFT, up(value), right, up(value), "grid") + label(LEFT - 7, up(value) + 4, text, "end"))
    parts.append(label((LEFT + right) / 2, HEIGHT - 8, chart.x_label, "middle"))
    parts.append(label(LEFT, TOP - 2, chart.y_label, "start"))
    if mark and chart.limits("x")[0] <= mark[0] <= chart.limits("x")[1]:
        x = across(mark[0])
        parts.append(segment(x, TOP, x, bottom, "mark") + label(x + 4, TOP + 12, mark[1], "start"))
    drawn = list(zip(chart.lines, colours(chart.lines), strict=True))
    parts += [line_svg(line, colour, across, up) for line, colour in drawn]
    parts += labels_at_ends([line for line in drawn if line[0].kind != "order"], across, up, bottom, right)
    return svg_frame(WIDTH, HEIGHT, chart.title, "".join(parts))


def line_svg(line: ChartLine, colour: str, across: Scale, up: Scale) -> str:
    """A line as SVG. If it does not fit everywhere, it is dashed, and the stretches that fit are drawn over it."""
    points = [(across(x), up(y)) for x, y in zip(line.x, line.y, strict=True)]
    if line.kind != "data":
        if line.kind == "floor":
            return polyline(points, MUTED, 1.3)
        seen = [point for point in points if min(up.start, up.stop) <= point[1] <= max(up.start, up.stop)] or points
        x, y = seen[len(seen) // 2]  # its end may lie outside the picture, so its label stands on the line
        return polyline(points, MUTED, 1.3, "2 4") + label(x - 6, y + 12, line.label, "end", MUTED)
    drawn = polyline(points, colour, 1.2, "5 4") if not all(line.fits) else ""
    stretch: list[tuple[float, float]] = []
    for point, fits in [*zip(points, line.fits, strict=True), ((0.0, 0.0), False)]:
        if fits:
            stretch.append(point)
        elif stretch:
            drawn += polyline(stretch, colour, 2.2)
            stretch = []
    return drawn


def labels_at_ends(
    drawn: list[tuple[ChartLine, str]], across: Scale, up: Scale, bottom: float, right: float
) -> list[str]:
    """Labels to the right of a chart, moved apart, each with a leader to the end of its line."""
    ends = [(across(line.x[-1]), min(max(up(line.y[-1]), TOP), bottom)) for line, _ in drawn]
    placed = spread_labels([y for _, y in ends], LINE_GAP, TOP, bottom)
    found = []
    for (line, colour), (x, y), place in zip(drawn, ends, placed, strict=True):
        leader = f'<path d="M{x + 2:.1f} {y:.1f}L{right + 14} {place:.1f}" stroke="{colour}" stroke-width="0.7"/>'
        found.append(leader + label(right + 18, place + 4, line.label, "start", colour))
    return found


def polyline(points: list[tuple[float, float]], colour: str, width: float, dashes: str = "") -> str:
    """A line through points, cut off at the edge of the chart."""
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    cap = 'stroke-linejoin="round" stroke-linecap="round" clip-path="url(#inside)"'
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


def label(x: float, y: float, text: str, anchor: str, colour: str = "") -> str:
    """A text at a place; `anchor` is start, middle or end."""
    fill = f' fill="{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(text)}</text>'


def svg_frame(width: float, height: float, title: str, inside: str) -> str:
    """An SVG picture of this size, in pixels, around its content."""
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" style="max-width:{width:g}px"'
    font = 'font-family="sans-serif" font-size="12" fill="currentColor"'
    return f"<svg {box} {font}><title>{escape(title)}</title>{inside}</svg>"


def bars_svg(rows: list[tuple[str, list[tuple[str, int]], str]], limit: int, limit_name: str) -> str:
    """Stacked bars as SVG, one for each row (name, [(part, bytes)], note), and a mark at `limit` bytes. Parts of the
    same name have the same colour in all bars."""
    widest = max([limit, *(sum(size for _, size in parts) for _, parts, _ in rows)])
    left, width, height = 205, 410, 34
    scale, palette = width / widest, part_colours(rows)
    found = []
    for k, (name, parts, note) in enumerate(rows):
        y, x = 22 + k * height, float(left)
        found.append(label(left - 8, y + 15, name, "end"))
        for piece, size in parts:
            title = f"<title>{escape(piece)}: {size} B</title>"
            box = f'x="{x:.1f}" y="{y}" width="{size * scale:.1f}" height="22" fill="{palette[piece]}"'
            found.append(f'<rect class="part" {box}>{title}</rect>')
            if size * scale > 9 * len(piece) + 4:
                found.append(label(x + size * scale / 2, y + 15, piece, "middle", "#fff"))
            x += size * scale
        found.append(label(x + 8, y + 15, note, "start"))
    end = 22 + len(rows) * height
    mark = left + limit * scale
    found.append(segment(mark, 14, mark, end, "mark") + label(mark, 11, limit_name, "middle"))
    return svg_frame(WIDTH, end + 6, "SRAM at its fullest, by block", "".join(found))


def part_colours(rows: list[tuple[str, list[tuple[str, int]], str]]) -> dict[str, str]:
    """The colour of each part, by its name."""
    pieces = dict.fromkeys(piece for _, parts, _ in rows for piece, _ in parts)
    return {piece: COLOURS[k % len(COLOURS)] for k, piece in enumerate(pieces)}


def tiles_svg(tiles: TileMap) -> str:
    """A mask as SVG, tile by tile. The more of a tile is visible, the darker it is. Runs of equal small tiles are one
    rectangle."""
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
                    look = f'height="{height - gap:.1f}" opacity="{0.35 + 0.65 * line[start]:.2f}"'
                    found.append(f'<rect class="tile" {PLAIN["tile"]} {box} {look}/>')
                start = j
    return svg_frame(columns * width, rows * height, tiles.title, "".join(found))
