"""Charts and masks drawn by matplotlib (extra `plot`), as PNG, SVG or PDF."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import MissingError
from ..files import form_of, written_whole
from .chart import Chart, ChartLine, colours, spread_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..masks.picture import TileMap

INK = "#333333"
RC_PARAMS = {
    "font.family": "sans-serif", "font.size": 9, "axes.edgecolor": "#888888", "axes.labelcolor": INK,
    "text.color": INK, "xtick.color": INK, "ytick.color": INK, "svg.fonttype": "none", "svg.hashsalt": "iosim",
}  # fmt: skip


MISSING = "pictures need matplotlib: pip install 'iosim[plot]'; iosim report works without it"


def pyplot(missing: str = MISSING) -> ModuleType:
    """The module matplotlib.pyplot, set to draw to files without a display. MissingError with the message `missing` if
    matplotlib is not installed."""
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
    """Write a figure to the file that `option` names, whole or not at all. No date is in it, so that equal pictures are
    equal files."""
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with written_whole(path, option) as temporary:
        figure.savefig(temporary, format=kind, dpi=160, metadata=stamp)


def draw_chart(chart: Chart, path: str) -> None:
    """Draw a chart to a file, whose name gives the format."""
    kind = format_of(path)
    plt = pyplot()
    with plt.rc_context(RC_PARAMS):
        figure, axes = plt.subplots(figsize=(8.4, 4.8))
        figure.subplots_adjust(left=0.095, right=0.735, top=0.9, bottom=0.115)
        style_axes(axes, chart)
        lines = list(zip(chart.lines, colours(chart.lines), strict=True))
        for line, colour in lines:
            draw_line(axes, line, colour, "steps-post" if chart.steps else "default")
        label_lines(axes, [(line, colour) for line, colour in lines if line.kind != "order"])
        figure.text(0.012, 0.955, chart.title, fontsize=10.5, fontweight="bold", ha="left")
        if not all(all(line.fits) for line in chart.lines):
            figure.text(0.99, 0.02, "dashed: needs more SRAM than M", fontsize=8, ha="right")
        save(figure, path, kind)
        plt.close(figure)


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


def draw_line(axes: Axes, line: ChartLine, colour: str, style: str) -> None:
    """Draw a line: solid where it fits, dashed where it needs more SRAM than there is. Floors and orders are thin.

    `style` is matplotlib's style of drawing: `default`, or `steps-post` for a staircase.
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
    marker = "o" if len(line.x) <= 16 else None
    axes.plot(
        line.x,
        line.y,
        color=colour,
        linewidth=1.1,
        linestyle=(0, (3, 2)),
        drawstyle=style,
        marker=marker,
        markersize=3,
        clip_on=False,
    )
    inside = [y if fits else float("nan") for y, fits in zip(line.y, line.fits, strict=True)]
    axes.plot(line.x, inside, color=colour, linewidth=2, drawstyle=style, marker=marker, markersize=4, clip_on=False)


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
