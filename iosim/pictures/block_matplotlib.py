"""Pictures of the contents of SRAM (occupancy.py), drawn by matplotlib as PNG or PDF."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .block_svg import TIMELINE_NOTE, footprint_svg, timeline_svg
from .chart import GREY, INK, ink_on, number, round_steps, size, tensor_colours
from .draw import write_svg
from .matplotlib_chart import RC_PARAMS, format_of, pyplot, save
from .occupancy import Footprint, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def blocks_svg(found: Footprint | Timeline) -> str:
    """The picture as the text of an SVG file."""
    return footprint_svg(found) if isinstance(found, Footprint) else timeline_svg(found)


def draw_blocks(found: Footprint | Timeline, path: str) -> None:
    """Draw the picture to a file. The file's name gives the format, and only PNG and PDF need matplotlib."""
    kind = format_of(path)
    if kind == "svg":
        write_svg(blocks_svg(found), path)
        return
    plt = pyplot()
    with plt.rc_context(RC_PARAMS):
        figure = footprint_figure(found) if isinstance(found, Footprint) else timeline_figure(found)
        save(figure, path, kind)
        plt.close(figure)


def footprint_figure(found: Footprint) -> Figure:
    """Bars of the bytes of each block, one for each schedule, and M as a line across them."""
    palette = tensor_colours(dict.fromkeys(name for bar in found.bars for name, _ in bar.parts))
    high = 1.3 + 0.55 * len(found.bars)
    figure, axes = pyplot().subplots(figsize=(7.2, high))
    figure.subplots_adjust(left=0.02, right=0.76, top=1 - 0.85 / high, bottom=0.4 / high)
    for k, bar in enumerate(found.bars):
        start = 0.0
        for name, part in bar.parts:
            wide = min(float(part), found.longest - start)
            axes.barh(k, wide, left=start, height=0.45, color=palette[name], edgecolor="white", linewidth=0.5)
            if wide > 0.03 * found.longest:
                axes.text(start + wide / 2, k, name, ha="center", va="center", color=ink_on(palette[name]))
            start += wide
        axes.text(0, k - 0.3, bar.name, va="bottom", fontweight="bold", fontsize=8.5)
        cut = " (cut off)" if bar.bytes > found.longest else ""
        axes.text(start + 0.01 * found.longest, k, found.note(bar) + cut, va="center", fontsize=8.5)
    if found.limit is not None:
        axes.axvline(found.limit, color=INK, linewidth=1, linestyle=":")
        axes.text(found.limit, len(found.bars) - 0.45, f"M = {size(found.limit)}", ha="center", va="top")
    axes.set_xlim(0, found.longest)
    axes.set_ylim(len(found.bars) - 0.5, -0.7)
    axes.axis("off")
    figure.text(0.02, 1 - 0.3 / high, found.title, fontsize=10.5, fontweight="bold")
    legend(figure, palette, 1 - 0.4 / high)
    return figure


def timeline_figure(found: Timeline) -> Figure:
    """A panel for each schedule, with the same axes: words in SRAM, stacked by block, against the words moved."""
    palette = tensor_colours(dict.fromkeys(name for run in found.runs for name in run.words))
    high = 1.65 + 1.7 * len(found.runs)
    figure, grid = pyplot().subplots(len(found.runs), 1, figsize=(7.2, high), squeeze=False)
    figure.subplots_adjust(left=0.11, right=0.96, top=1 - 0.95 / high, bottom=0.85 / high, hspace=0.55)
    for axes, run in zip(grid.flat, found.runs, strict=True):
        stacked = [[*words, words[-1]] for words in run.words.values()]
        axes.stackplot(run.x, stacked, colors=[palette[name] for name in run.words], step="post", linewidth=0)
        axes.set_title(f"{run.name}: {run.x[-1]} words moved", fontsize=9, fontweight="bold", loc="left")
        frame(axes, found)
    grid.flat[-1].set_xlabel("words moved")
    figure.text(0.02, 1 - 0.3 / high, found.title, fontsize=10.5, fontweight="bold")
    figure.text(
        0.02,
        0.12 / high,
        TIMELINE_NOTE.replace("that of the next one, ", "that of the next one,\n"),
        fontsize=7.5,
        color=GREY,
    )
    legend(figure, palette, 1 - 0.4 / high)
    return figure


def frame(axes: Axes, found: Timeline) -> None:
    """Set the axes of a panel, which are the same in all panels, and draw M."""
    last = max(run.x[-1] for run in found.runs)
    top = max([*(run.peak for run in found.runs), *([found.limit] if found.limit else [])]) * 1.06
    axes.set_xlim(0, last)
    axes.set_ylim(0, top)
    axes.set_xticks(round_steps(0, last), [number(value) for value in round_steps(0, last)])
    axes.set_yticks(round_steps(0, top)[::2], [number(value) for value in round_steps(0, top)[::2]])
    axes.set_ylabel("words in SRAM", fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if found.limit is not None:
        axes.axhline(found.limit, color=INK, linewidth=1, linestyle=":")
        axes.text(last, found.limit, f"M = {found.limit} words", ha="right", va="bottom", fontsize=8)


def legend(figure: Figure, palette: dict[str, str], top: float) -> None:
    """Draw a coloured square for each block, below `top`."""
    from matplotlib.patches import Patch

    squares = [Patch(color=colour, label=name) for name, colour in palette.items()]
    figure.legend(handles=squares, loc="upper left", bbox_to_anchor=(0.01, top), ncols=len(squares), frameon=False,
                  fontsize=8.5, handlelength=1, columnspacing=1.2)  # fmt: skip
