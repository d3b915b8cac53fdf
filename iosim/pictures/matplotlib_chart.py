"""Charts and masks drawn by matplotlib (extra `plot`), as PNG, SVG or PDF."""

from __future__ import annotations

from textwrap import wrap
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import MissingError
from ..files import form_of, written_whole
from .chart import GREY, INK, Chart, ChartLine, Sheet, colours, shapes, spread_labels, stride_apart, tints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..masks.picture import TileMap

SHADE = "#F5D28A"
NOTE_INCHES, HEAD_INCHES = 0.17, 0.2  # of a line of notes, and of a title
RC_PARAMS = {
    "font.family": "sans-serif", "font.size": 9, "axes.edgecolor": "#888888", "axes.labelcolor": INK,
    "text.color": INK, "xtick.color": INK, "ytick.color": INK, "svg.fonttype": "none", "svg.hashsalt": "iosim",
}  # fmt: skip


MISSING = "pictures need matplotlib: pip install 'iosim[plot]'; iosim report works without it"


def pyplot(missing: str = MISSING) -> ModuleType:
    """The module matplotlib.pyplot, set to draw to files without a display. Raises MissingError with the message
    `missing` if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise MissingError(missing) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def format_of(path: str | None) -> str:
    """The format that a file's name asks for; InputError for any other name."""
    return form_of(path, "plot", required=True)


def save(figure: Figure, path: str, kind: str, option: str = "-o") -> None:
    """Write a figure to the file that `option` names, whole or not at all. It holds no date, so equal pictures are
    equal files."""
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with written_whole(path, option) as temporary:
        figure.savefig(temporary, format=kind, dpi=160, metadata=stamp)


def draw_sheet(sheet: Sheet, path: str, kind: str, option: str = "-o") -> None:
    """Draw a sheet to the file that `option` names, in a format."""
    plt = pyplot()
    with plt.rc_context(RC_PARAMS):
        figure = figure_of(sheet)
        save(figure, path, kind, option)
        plt.close(figure)


def figure_of(sheet: Sheet) -> Figure:
    """The figure of a sheet: its title, its charts, a legend or labels at the ends of lines, and notes below."""
    columns, rows = sheet.columns, -(-len(sheet.charts) // sheet.columns)
    wide, high = (8.4 if columns > 1 else 7.6, 3.9 if len(sheet.charts) == 1 else 3.0)
    title = wrap(sheet.title, int(11 * wide))
    heads = [wrap(chart.title, 72 // columns) for chart in sheet.charts] if columns > 1 else []
    more = HEAD_INCHES * (max(map(len, heads), default=1) - 1)  # for more lines of a chart's title
    figure, grid = pyplot().subplots(rows, columns, squeeze=False)
    labels = [line.label for line in (sheet.lines if columns == 1 else sheet.legend) if line.kind != "order"]
    widest = max([text_inches(figure, label, 8.5) for label in labels], default=0)
    abreast = max(1, int((wide - 0.3) / (widest + 0.55)))  # labels of a row of the legend
    legend = 0.35 + HEAD_INCHES * -(-len(labels) // abreast) if columns > 1 else 0.0
    head = 0.55 + HEAD_INCHES * (len(title) - 1) + legend + more
    room = (high + more) * rows - more + head + NOTE_INCHES * (len(sheet.notes) + 1)
    figure.set_size_inches(wide, room)
    bottom, top = (0.55 + NOTE_INCHES * len(sheet.notes)) / room, 1 - head / room
    right = 0.96 if columns > 1 else 1 - (widest + 0.45) / wide
    figure.subplots_adjust(left=0.095, right=right, top=top, bottom=bottom, hspace=0.42 + more / 2, wspace=0.3)
    look = dict(zip([line.label for line in sheet.lines],
                    zip(colours(sheet.lines), tints(sheet.lines), strict=True), strict=True))  # fmt: skip
    names = shapes(sheet.lines) if columns > 1 else {}
    for k, (axes, chart) in enumerate(zip(grid.flat, sheet.framed, strict=False)):
        fill_axes(axes, chart, look, names)
        if columns > 1:
            lighten(axes, first=k % columns == 0)
            axes.set_title("\n".join(heads[k]), fontsize=9, loc="right")
        else:
            label_lines(axes, [(line, look[line.label][0]) for line in chart.lines if line.kind != "order"])
    for axes in grid.flat[len(sheet.charts) :]:
        axes.set_visible(False)
    if columns > 1:
        draw_legend(figure, sheet, look, names, abreast, 1 - (head - legend - more) / room)
    below = head - legend - more - 0.25
    figure.text(0.012, 1 - below / room, "\n".join(title), fontsize=10.5, fontweight="bold", ha="left")
    for k, note in enumerate(reversed(sheet.notes)):
        figure.text(0.012, (0.06 + NOTE_INCHES * k) / room, note, fontsize=7.5, color=GREY)
    return figure


def text_inches(figure: Figure, text: str, size: float) -> float:
    """The width of a text in inches."""
    artist = figure.text(0, 0, text, fontsize=size)
    width = artist.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi  # type: ignore[attr-defined]
    artist.remove()
    return float(width)


def fill_axes(axes: Axes, chart: Chart, look: dict[str, tuple[str, float]], names: dict[str, str]) -> None:
    """Draw the axes, the shade, the lines and the points of a chart. `names` are the shapes of marks by label."""
    style_axes(axes, chart)
    if chart.shaded:
        upper, lower = (chart.line(name) for name in chart.shaded)
        axes.fill_between(upper.x, upper.y, lower.y, color=SHADE, alpha=0.4, linewidth=0)
    for line in chart.lines:
        style = "steps-post" if chart.steps else "default"
        draw_line(axes, line, *look[line.label], style, MARKERS[names.get(line.label, "circle")])
    draw_points(axes, chart)


MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "down": "v", "plus": "P", "cross": "X", "bar": "d",
}  # fmt: skip


def lighten(axes: Axes, first: bool) -> None:
    """Simplify a chart that shares its row with others. It has only so many ticks that their texts keep apart, and only
    the first chart of the row names its y axis."""
    axes.figure.canvas.draw()
    texts = axes.get_xticklabels()
    places = [(box.x0, box.x1) for box in (text.get_window_extent() for text in texts)]
    kept = texts[:: stride_apart(places, 0.08 * axes.figure.dpi)]
    axes.set_xticks([text.get_position()[0] for text in kept], [text.get_text() for text in kept])
    axes.set_ylabel(axes.get_ylabel() if first else "")


def draw_points(axes: Axes, chart: Chart) -> None:
    """Draw numbered points: a small circle each, and its number at the top with a leader."""
    if not chart.points:
        return
    axes.figure.canvas.draw()
    box, points = axes.get_window_extent(), 72 / axes.figure.dpi
    places = [(axes.transData.transform((point.x, point.y))[0] - box.x0) * points for point in chart.points]
    heads = spread_labels(places, 12, 6, box.width * points - 6)
    leader = {"arrowstyle": "-", "linewidth": 0.5, "color": GREY, "shrinkA": 0, "shrinkB": 2}
    for k, (point, head) in enumerate(zip(chart.points, heads, strict=True), 1):
        axes.plot(point.x, point.y, "o", markersize=4, markerfacecolor="white", color=INK, zorder=6)
        axes.annotate(str(k), (point.x, point.y), (head, box.height * points - 6), textcoords="axes points",
                      fontsize=7.5, ha="center", va="center", arrowprops=leader)  # fmt: skip


def draw_legend(
    figure: Figure, sheet: Sheet, look: dict[str, tuple[str, float]], names: dict[str, str], abreast: int, top: float
) -> None:
    """Draw one legend for all charts, above them, with so many labels abreast. `top` is its upper edge."""
    from matplotlib.lines import Line2D

    strokes = [Line2D([], [], color=look[line.label][0], alpha=look[line.label][1], linewidth=2,
                      linestyle=":" if line.kind == "order" else "-", marker=MARKERS.get(names.get(line.label, "")),
                      markersize=5) for line in sheet.legend]  # fmt: skip
    labels = [line.label for line in sheet.legend]
    figure.legend(strokes, labels, loc="upper left", bbox_to_anchor=(0.008, top), frameon=False, fontsize=8.5,
                  handlelength=1.4, borderaxespad=0, ncols=abreast, columnspacing=1.2)  # fmt: skip


def style_axes(axes: Axes, chart: Chart) -> None:
    """Set scales, ticks with units and labels of both axes, with a light grid and without a box."""
    for axis, name in (("x", chart.x_label), ("y", chart.y_label)):
        if chart.is_log(axis):
            getattr(axes, f"set_{axis}scale")("log")
        getattr(axes, f"set_{axis}lim")(*chart.limits(axis))
        places, texts = zip(*chart.ticks(axis), strict=True)
        getattr(axes, f"set_{axis}ticks")(places, texts)
        getattr(axes, f"set_{axis}label")(name)
    axes.minorticks_off()
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw_line(axes: Axes, line: ChartLine, colour: str, tint: float, style: str, shape: str = "o") -> None:
    """Draw a line: solid where it fits, dashed where it needs more SRAM than there is. Floors and orders are thin.

    `style` is matplotlib's style of drawing: `default`, or `steps-post` for a staircase. `shape` is its marker.
    """
    if line.kind != "data":
        axes.plot(line.x, line.y, color=colour, linewidth=1.2, linestyle=":" if line.kind == "order" else "-")
        if line.kind == "order":  # its end may lie outside the picture, so its label stands on the line
            low, high = axes.get_ylim()
            seen = [k for k, y in enumerate(line.y) if low <= y <= high] or [0]
            at = seen[len(seen) // 2]
            rises = line.y[-1] > line.y[0]
            axes.annotate(line.label, (line.x[at], line.y[at]), (5 if rises else -5, -3), textcoords="offset points",
                          color=colour, fontsize=8.5, ha="left" if rises else "right", va="top")  # fmt: skip
        return
    if len(line.x) == 1:
        fill = colour if line.fits[0] else "white"
        axes.plot(line.x, line.y, "o", color=colour, alpha=tint, markerfacecolor=fill, markersize=6)
        return
    marker = shape if len(line.x) <= 16 else None
    if not all(line.fits):
        axes.plot(line.x, line.y, color=colour, alpha=tint, linewidth=1.1, linestyle=(0, (3, 2)), drawstyle=style,
                  marker=marker, markersize=3)  # fmt: skip
    inside = [y if fits else float("nan") for y, fits in zip(line.y, line.fits, strict=True)]
    axes.plot(line.x, inside, color=colour, alpha=tint, linewidth=2, drawstyle=style, marker=marker, markersize=4)


def label_lines(axes: Axes, lines: list[tuple[ChartLine, str]]) -> None:
    """Write each line's label to the right of its end. Labels that would overlap are moved apart; a thin leader joins
    each to its line."""
    axes.figure.canvas.draw()
    to_points = 72 / axes.figure.dpi
    box = axes.get_window_extent()
    ends = [axes.transData.transform((line.x[-1], line.y[-1])) for line, _ in lines]
    heights = [(min(max(y, box.y0), box.y1) - box.y0) * to_points for _, y in ends]
    placed = spread_labels(heights, 12, 0, box.height * to_points)
    leader = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
    for (line, colour), (x, _), was, now in zip(lines, ends, heights, placed, strict=True):
        start = ((x - box.x0) * to_points + 3, was)
        axes.annotate(
            line.label, start, (box.width * to_points + 14, now), xycoords="axes points", textcoords="axes points",
            color=colour, va="center", fontsize=8.5, annotation_clip=False,
            arrowprops={**leader, "color": colour},
        )  # fmt: skip


def draw_mask(tiles: TileMap, path: str) -> None:
    """Draw a mask tile by tile, queries down and keys across. The more pairs of a tile are visible, the darker it
    is."""
    kind = format_of(path)
    plt = pyplot()
    with plt.rc_context(RC_PARAMS):
        rows, columns = tiles.shares.shape
        height, width = rows * tiles.rows_q, columns * tiles.rows_k
        figure, axes = plt.subplots(figsize=(6.2, min(9.0, max(2.6, 4.6 * height / width + 1.1))))
        image = axes.imshow(tiles.shares, cmap="Blues", vmin=-0.08, vmax=1.15, interpolation="nearest",
                            extent=(0, width, height, 0))  # fmt: skip
        if max(rows, columns) <= 64:
            axes.set_xticks([k * tiles.rows_k for k in range(1, columns)], minor=True)
            axes.set_yticks([k * tiles.rows_q for k in range(1, rows)], minor=True)
            axes.grid(which="minor", color="white", linewidth=0.7)
            axes.tick_params(which="minor", length=0)
        axes.set_xlabel("keys, tokens")
        axes.set_ylabel("queries, tokens")
        bar = figure.colorbar(
            image, ax=axes, fraction=0.04, pad=0.03, boundaries=[k / 50 for k in range(51)], ticks=[0, 0.5, 1]
        )
        bar.set_label("visible share of a tile's pairs")
        head, _, tail = tiles.title.rpartition(": ")
        axes.set_title(f"{head}\n{tail}", fontsize=9.5, loc="left")
        figure.tight_layout()
        save(figure, path, kind)
        plt.close(figure)
