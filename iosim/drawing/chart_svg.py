"""A chart as SVG text: its axes, its lines with their marks, and labels at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import NamedTuple

from .chart import SHAPES, Chart, ChartLine, colours, shapes, spread_labels, stride_apart, tints
from .colours import GREY
from .svg import LINE_GAP, Stroke, label, polyline, segment, svg_frame, text_width, thinned

WIDTH, HEIGHT = 860, 420
LEFT, TOP, BOTTOM = 62, 14, 46
SHADE = "#F5D28A"
NAMED_ON = ("order", "roof")  # kinds of lines whose names stand on them
MOST_MARKS = 12  # on a line
Mark = tuple[float, str]
"""(value, name) of a vertical line within the x axis."""


def chart_svg(chart: Chart, mark: Mark | None = None) -> str:
    """A chart as SVG for a page, with a label at the end of each line."""
    clip = f"inside-{chart.x_name}-{chart.y_name}"  # a page has several charts
    panel = Panel(chart, looks(chart.lines), Room(WIDTH, HEIGHT, room_for(chart.lines)), clip)
    return svg_frame(WIDTH, HEIGHT, chart.title, "".join([*panel.axes(mark), *panel.lines(), *panel.labels_at_ends()]))


class Look(NamedTuple):
    """The look of a line: its colour, its opacity, and the shape of its marks (empty: no marks)."""

    colour: str
    tint: float
    shape: str = ""


def looks(lines: Sequence[ChartLine], marked: bool = False) -> dict[str, Look]:
    """The look of each label. With `marked`, lines have marks, so that they are told apart without colours."""
    names = shapes(lines) if marked else {}
    known = zip(lines, colours(lines), tints(lines), strict=True)
    return {line.label: Look(colour, tint, names.get(line.label, "")) for line, colour, tint in known}


class Room(NamedTuple):
    """The room of a chart in pixels, and the part of its width that labels to its right take."""

    width: float
    height: float
    labels: float


def room_for(lines: Sequence[ChartLine]) -> float:
    """The width in pixels of the labels of lines, to the right of a chart."""
    return 34 + max((text_width(line.label) for line in lines if line.kind not in NAMED_ON), default=0.0)


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


class Panel:
    """A chart in its place. `clip` names the place inside its axes, where lines are drawn."""

    def __init__(self, chart: Chart, look: dict[str, Look], room: Room, clip: str):
        self.chart, self.look, self.room, self.clip = chart, look, room, clip
        self.bottom, self.right = room.height - BOTTOM, room.width - room.labels
        self.across, self.up = Scale(chart, "x", LEFT, self.right), Scale(chart, "y", self.bottom, TOP)

    def axes(self, mark: Mark | None = None) -> list[str]:
        """The grid, the ticks, the names of the axes, and the vertical line of `mark`."""
        bottom, right, name = self.bottom, self.right, self.chart.y_label
        inside = f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT:.1f}" height="{bottom - TOP:.1f}"/>'
        parts = [f'<clipPath id="{self.clip}">{inside}</clipPath>']
        for value, text in self.ticks_apart():
            x = self.across(value)
            parts.append(segment(x, TOP, x, bottom, "grid") + label(x, bottom + 17, text, "middle"))
        for value, text in self.chart.ticks("y"):
            y = self.up(value)
            parts.append(segment(LEFT, y, right, y, "grid") + label(LEFT - 7, y + 4, text, "end"))
        parts.append(label((LEFT + right) / 2, self.room.height - 8, self.chart.x_label, "middle"))
        parts.append(label(max(2.0, min(LEFT, self.room.width - 4 - text_width(name))), TOP - 2, name, "start"))
        if mark:
            x = self.across(mark[0])
            beyond = x + 4 + text_width(mark[1]) > right
            side = label(x - 4, TOP + 12, mark[1], "end") if beyond else label(x + 4, TOP + 12, mark[1], "start")
            parts.append(segment(x, TOP, x, bottom, "mark") + side)
        return parts

    def ticks_apart(self) -> list[tuple[float, str]]:
        """The ticks of x, or every second or third of them, so that no text touches the text before."""
        ticks = self.chart.ticks("x")
        halves = [(self.across(value), text_width(text) / 2) for value, text in ticks]
        return ticks[:: stride_apart([(x - half, x + half) for x, half in halves], 6)]

    def places(self, line: ChartLine) -> list[tuple[float, float]]:
        """The points of a line in pixels."""
        return [(self.across(x), self.up(y)) for x, y in zip(line.x, line.y, strict=True)]

    def lines(self) -> list[str]:
        """The lines, and the shade between two of them."""
        parts = [self.shade(*self.chart.shaded)] if self.chart.shaded else []
        for line in self.chart.lines:
            look = self.look[line.label]
            parts.append(self.line(line, look) if line.kind == "data" else self.proven(line, look))
            marked = look.shape or self.chart.seen_points or self.chart.x_name == "intensity"
            if line.kind == "data" and len(line.x) > 1 and marked:
                parts += self.marks(line, look)
        return parts

    def shade(self, upper: str, lower: str) -> str:
        """The area between the lines of two labels."""
        above, below = (thinned(self.places(self.chart.line(name))) for name in (upper, lower))
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in above + below[::-1])
        look = f'fill="{SHADE}" fill-opacity="0.4" clip-path="url(#{self.clip})"'
        return f'<polygon class="shade" points="{where}" {look}/>'

    def proven(self, line: ChartLine, look: Look) -> str:
        """The line of a floor; or that of an order or a roof, whose label stands on it as its end may lie outside."""
        points = self.places(line)
        if line.kind == "roof":
            name = label(points[-1][0], points[-1][1] - 5, line.label, "end", GREY)
            return polyline(points, Stroke(GREY, 1.6, "", look.tint, self.clip)) + name
        if line.kind == "floor":
            return polyline(points, Stroke(GREY, 1.6, "", look.tint, self.clip))
        seen = [point for point in points if TOP <= point[1] <= self.bottom] or points
        x, y = seen[len(seen) // 2]
        name = label(max(x - 6, LEFT + 4 + text_width(line.label)), y + 12, line.label, "end", GREY)
        return polyline(points, Stroke(GREY, 1.3, "2 4", clip=self.clip)) + name

    def line(self, line: ChartLine, look: Look) -> str:
        """A line of data. If it does not fit everywhere, it is dashed, with solid lines over the parts that fit."""
        points, steps = self.places(line), self.chart.steps
        if len(points) == 1:
            fill = look.colour if line.fits[0] else "#fff"
            style = f'fill="{fill}" fill-opacity="{look.tint:g}" stroke="{look.colour}"'
            return f'<circle cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="4.5" {style}/>'
        dashed = Stroke(look.colour, 1.2, "5 4", look.tint, self.clip)
        drawn = "" if all(line.fits) else polyline(points, dashed, steps)
        stretch: list[tuple[float, float]] = []
        for point, fits in [*zip(points, line.fits, strict=True), ((0.0, 0.0), False)]:
            if fits:
                stretch.append(point)
            elif stretch:
                drawn += polyline(stretch, Stroke(look.colour, 2.2, "", look.tint, self.clip), steps)
                stretch = []
        return drawn

    def marks(self, line: ChartLine, look: Look) -> list[str]:
        """The marks of a line, on at most MOST_MARKS of its points; hollow where it does not fit."""
        points = list(zip(self.places(line), line.fits, strict=True))[:: -(-len(line.x) // MOST_MARKS)]
        return [mark_svg(look.shape or SHAPES[0], x, y, look.colour, fits) for (x, y), fits in points]

    def labels_at_ends(self) -> list[str]:
        """Labels to the right of the chart, moved apart, each with a leader to the end of its line."""
        lines = [line for line in self.chart.lines if line.kind not in NAMED_ON]
        ends = [(self.across(line.x[-1]), min(max(self.up(line.y[-1]), TOP), self.bottom)) for line in lines]
        placed = spread_labels([y for _, y in ends], LINE_GAP, TOP, self.bottom)
        found = []
        for line, (x, y), place in zip(lines, ends, placed, strict=True):
            colour = self.look[line.label].colour
            leader = f"M{x + 2:.1f} {y:.1f}L{self.right + 14:.1f} {place:.1f}"
            found.append(f'<path d="{leader}" stroke="{colour}" stroke-width="1.4"/>')
            found.append(label(self.right + 18, place + 4, line.label, "start"))
        return found


OUTLINES = {  # of marks, around 0 0; a circle is drawn as one
    "square": "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "triangle": "M0 -4L3.8 3H-3.8Z",
    "diamond": "M0 -4.4L4.4 0L0 4.4L-4.4 0Z",
    "down": "M0 4L3.8 -3H-3.8Z",
    "plus": "M-4 0H4M0 -4V4",
    "cross": "M-3.2 -3.2L3.2 3.2M-3.2 3.2L3.2 -3.2",
    "bar": "M-1.4 -4.4H1.4V4.4H-1.4Z",
}


def mark_svg(shape: str, x: float, y: float, colour: str, filled: bool = True) -> str:
    """A mark of one of the SHAPES."""
    look = f'fill="{colour if filled else "#fff"}" stroke="{colour}" stroke-width="1.3"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" {look}/>'
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{OUTLINES[shape]}" {look}/>'
