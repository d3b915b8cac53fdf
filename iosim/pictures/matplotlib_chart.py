"""Charts and masks drawn by matplotlib (extra `plot`), as PNG, SVG or PDF."""

from __future__ import annotations

from typing import Any

from ..errors import InputError, MissingError, suggestion
from .chart import Chart, Line, colours, spread

FORMATS = ("png", "svg", "pdf")
INK = "#333333"
STYLE = {
    "font.family": "sans-serif", "font.size": 9, "axes.edgecolor": "#888888", "axes.labelcolor": INK,
    "text.color": INK, "xtick.color": INK, "ytick.color": INK, "svg.fonttype": "none", "svg.hashsalt": "iosim",
}  # fmt: skip


def pyplot() -> Any:
    """matplotlib.pyplot without a display; exit code 3 where it is missing."""
    try:
        import matplotlib
    except ImportError:
        raise MissingError(
            "pictures need matplotlib: pip install 'iosim[plot]'; iosim report works without it"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def format_of(path: str | None) -> str:
    if path in (None, "-"):
        raise InputError("-o", path or "nothing", "a file that ends in .png, .svg or .pdf")
    ending = str(path).rpartition(".")[2].lower()
    if ending not in FORMATS:
        raise InputError("-o", path, "a file that ends in .png, .svg or .pdf", suggestion(ending, FORMATS))
    return ending


def save(figure: Any, path: str, kind: str) -> None:
    """Without a date in it, so that equal pictures are equal files."""
    from ..counting.write_sweep import whole

    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with whole(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=160, metadata=stamp)


def draw_chart(chart: Chart, path: str) -> None:
    kind = format_of(path)
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8.4, 4.8))
        figure.subplots_adjust(left=0.095, right=0.735, top=0.9, bottom=0.115)
        lay_out(axes, chart)
        lines = list(zip(chart.lines, colours(chart.lines), strict=True))
        for line, colour in lines:
            draw_line(axes, line, colour, "steps-post" if chart.steps else "default")
        label_lines(axes, [(line, colour) for line, colour in lines if line.kind != "order"])
        figure.text(0.012, 0.955, chart.title, fontsize=10.5, fontweight="bold", ha="left")
        if not all(all(line.fits) for line in chart.lines):
            figure.text(0.99, 0.02, "dashed: needs more SRAM than M", fontsize=8, ha="right")
        save(figure, path, kind)
        plt.close(figure)


def lay_out(axes: Any, chart: Chart) -> None:
    """Scales, ticks with units, a light grid, no box."""
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


def draw_line(axes: Any, line: Line, colour: str, style: str) -> None:
    """Solid where it fits, dashed where it needs more SRAM than there is; what is proven is thin."""
    if line.kind != "data":
        axes.plot(line.x, line.y, color=colour, linewidth=1.2, linestyle=":" if line.kind == "order" else "-")
        if line.kind == "order":  # it may leave the picture: its name stands on it
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


def label_lines(axes: Any, lines: list[tuple[Line, str]]) -> None:
    """Each line's name at its right end, moved apart where they meet; a leader where it had to move far."""
    axes.figure.canvas.draw()
    to_points = 72 / axes.figure.dpi
    box = axes.get_window_extent()
    ends = [axes.transData.transform((line.x[-1], line.y[-1])) for line, _ in lines]
    heights = [(min(max(y, box.y0), box.y1) - box.y0) * to_points for _, y in ends]
    placed = spread(heights, 12, 0, box.height * to_points)
    leader = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
    for (line, colour), (x, _), was, now in zip(lines, ends, heights, placed, strict=True):
        start = ((x - box.x0) * to_points + 3, was)
        axes.annotate(
            line.label, start, (box.width * to_points + 14, now), xycoords="axes points", textcoords="axes points",
            color=colour, va="center", fontsize=8.5, annotation_clip=False,
            arrowprops={**leader, "color": colour},
        )  # fmt: skip


def draw_mask(tiles: Any, path: str) -> None:
    """Queries down, keys across; the darker, the more pairs of the tile are visible."""
    kind = format_of(path)
    plt = pyplot()
    with plt.rc_context(STYLE):
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
