"""A sheet of charts, in rows of so many columns: what `plot` draws for traffic, rows, rooflines and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .chart import Chart, ChartLine
from .chart_svg import HEIGHT, LEFT, TOP, Look, Panel, Room, looks, mark_svg, room_for
from .colours import GREY, INK
from .svg import LINE_GAP, SHEET_WIDTH, Stroke, broken, head_svg, label, polyline, svg_file, text_width

if TYPE_CHECKING:
    from ..tables import Row


@dataclass(frozen=True)
class Sheet:
    """Charts on one sheet, in rows of so many columns. In several columns they have the same axes and one legend."""

    title: str
    charts: list[Chart]
    columns: int = 1

    @classmethod
    def of(cls, chart: Chart) -> Sheet:
        """A sheet with one chart."""
        return cls(chart.title, [chart])

    @property
    def framed(self) -> list[Chart]:
        """The charts, with the same axes if they stand in several columns."""
        if self.columns == 1:
            return self.charts
        whole = replace(self.charts[0], lines=self.lines, frame=None)
        frame = {axis: whole.limits(axis) for axis in ("x", "y")}
        return [replace(chart, frame=frame) for chart in self.charts]

    @property
    def lines(self) -> list[ChartLine]:
        """The lines of all charts."""
        return [line for chart in self.charts for line in chart.lines]

    @property
    def legend(self) -> list[ChartLine]:
        """A line for each label, in their order."""
        return list({line.label: line for line in self.lines}.values())

    @property
    def notes(self) -> list[str]:
        """The lines of text below the charts: what a shade and dashes mean."""
        found = ["shaded: the gap between the least traffic found and the floor"] * any(c.shaded for c in self.charts)
        unfit = [line for line in self.lines if not all(line.fits)]
        look = "hollow" if all(len(line.x) == 1 for line in unfit) else "dashed"
        return found + [f"{look}: needs more SRAM than M"] * bool(unfit)

    def rows(self) -> list[Row]:
        """A row for each point of each line."""
        return [
            {
                "chart": chart.title,
                "line": line.label,
                "kind": line.kind,
                chart.x_name: x,
                chart.y_name: y,
                "fits": fits,
            }
            for chart in self.charts
            for line in chart.lines
            for x, y, fits in zip(line.x, line.y, line.fits, strict=True)
        ]

    def svg(self) -> str:
        """The text of an SVG file: the title, a legend if there are several columns, the charts, and notes."""
        several = self.columns > 1
        wide, high = SHEET_WIDTH / self.columns, HEIGHT if len(self.charts) == 1 else 300
        heads = [chart_head(chart.title, wide) if several else [] for chart in self.charts]
        more = LINE_GAP * (max(map(len, heads)) - 1) if several else 0  # pixels for more lines of a title
        between = 20 + more if several else 4
        look = looks(self.lines, marked=several)
        parts, top = head_svg(self.title)
        if several:
            legend, top = legend_svg(self.legend, look, top)
            parts += legend
        room = Room(wide, high, 24 if several else room_for(self.lines))
        for k, chart in enumerate(self.framed):
            panel = Panel(chart, look, room, f"inside{k}")
            x, y = wide * (k % self.columns), top + 18 + more + (high + between) * (k // self.columns)
            inside = [*heads[k], *panel.axes(), *panel.lines(), *([] if several else panel.labels_at_ends())]
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{"".join(inside)}</g>')
        bottom = top + 18 + more + (high + between) * -(-len(self.charts) // self.columns)
        notes = [line for note in self.notes for line in broken(note, SHEET_WIDTH - 28)]
        parts += [label(14, bottom + 14 + 16 * k, note, "start", GREY) for k, note in enumerate(notes)]
        return svg_file(SHEET_WIDTH, bottom + 10 + 16 * len(notes), self.title, "".join(parts))


def chart_head(title: str, width: float) -> list[str]:
    """The title of a chart that shares its row with others, above its axes, in as many lines as it needs."""
    lines = broken(title, width - LEFT, 12)
    left = max(2.0, min(LEFT, width - max(map(text_width, lines)) - 4))
    above = [TOP - 17 - LINE_GAP * k for k in reversed(range(len(lines)))]
    return [label(left, y, line, "start", INK, 12, bold=True) for line, y in zip(lines, above, strict=True)]


def legend_svg(lines: Sequence[ChartLine], look: Mapping[str, Look], top: float) -> tuple[list[str], float]:
    """The legend of a sheet with several columns: a stroke, a mark and a label for each line, in rows below `top`. It
    is returned with its lower edge."""
    found, x, y = list[str](), 14.0, top + 14
    for line in lines:
        colour, tint, shape = look[line.label]
        wide = 52 + text_width(line.label)
        if x > 14 and x + wide > SHEET_WIDTH - 14:
            x, y = 14.0, y + 20
        dashes = "2 4" if line.kind == "order" else ""
        found.append(polyline([(x, y), (x + 24, y)], Stroke(colour, 2.2, dashes, tint)))
        found += [mark_svg(shape, x + 12, y, colour)] * bool(shape)
        found.append(label(x + 30, y + 4, line.label, "start", INK))
        x += wide
    return found, y + 10
