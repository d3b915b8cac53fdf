"""The picture of `iosim tune --curve`: the least traffic against M, with bounds and published tiles.

It is not a `Chart`: it has up to twenty staircases, points with letters, and a legend that explains the letters.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING

from ..counting.bounds import APART, compulsory_words, order_words
from ..errors import InputError
from .chart import COLOURS
from .matplotlib_chart import RC_PARAMS, pyplot, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from ..core.problem import Attention
    from ..counting.count import Result
    from ..tuning.curve import CurveStep
    from ..tuning.least import Curve, PublishedTiles

    Published = tuple[PublishedTiles, int | None, Result, CurveStep | None]  # as in Curve.published

PICTURE_KINDS = (".png", ".svg")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)))  # a palette's second and third turn


def check_name(path: str) -> None:
    """Raise InputError for a file of another kind or in a folder that is not there, before anything is counted."""
    file = Path(path)
    if file.suffix.lower() not in PICTURE_KINDS:
        raise InputError("--plot", path, "a file that ends in .png or .svg")
    if not file.parent.is_dir():
        raise InputError("--plot", path, "a file in a folder that exists")


def draw_curve(found: Curve, path: str) -> None:
    """Draw a curve to a PNG or SVG file. Both axes are logarithmic: M in KiB, traffic in words."""
    check_name(path)
    if not found.steps:
        raise InputError("--plot", path, "a curve with steps", "fewer --least-blocks")
    plt = pyplot("--plot needs matplotlib: pip install 'iosim[plot]'")
    with plt.rc_context({**RC_PARAMS, "font.size": 10, "savefig.bbox": "tight"}):
        figure, axes = plt.subplots(figsize=(9, 6))
        draw_lines(axes, found)
        draw_published(axes, found.published)
        label_axes(axes, found)
        try:
            save(figure, path, Path(path).suffix[1:].lower(), "--plot")
        finally:
            plt.close(figure)


def draw_lines(axes: Axes, found: Curve) -> None:
    """Draw a staircase for each schedule, that of the least traffic, and the bounds where they hold."""
    last = max([2 * found.steps[-1].M_bytes, *(result.smem_peak_bytes or 0 for _, _, result, _ in found.published)])
    for number, schedule in enumerate(found.space):
        turn, place = divmod(number, len(COLOURS))
        style = DASHES[turn % len(DASHES)]
        axes.step(*staircase(found.own[schedule.name], last), where="post", label=schedule.name, linewidth=1.2,
                  color=COLOURS[place], linestyle=style)  # fmt: skip
    axes.step(*staircase(found.steps, last), where="post", label="least", color="black", linewidth=2.5, zorder=5,
              alpha=0.6)  # fmt: skip
    if found.space[0].family not in APART:
        draw_bounds(axes, found.problem, found.steps[0].M_bytes, last)


def staircase(steps: Sequence[CurveStep], last: int) -> tuple[list[float], list[int]]:
    """(M in KiB, words) of the steps up to `last` bytes, and of a last point there."""
    shown = [step for step in steps if step.M_bytes <= last]
    M = [step.M_bytes / 1024 for step in shown] + [last / 1024] * bool(shown)
    return M, [step.total for step in shown] + [step.total for step in shown[-1:]]


def draw_bounds(axes: Axes, p: Attention, first: int, last: int) -> None:
    """Draw the orders and the floor, from `first` to `last` bytes of M."""
    ends = [first, last]
    order = [order_words(p, M / p.word_bytes) for M in ends]
    kib = [M / 1024 for M in ends]
    axes.plot(kib, order, "--", color="grey", label="N$^2$d$^2$/M (an order, constant unknown)")
    with suppress(InputError):  # a mask of tiles shows other inputs with every tile
        axes.plot(kib, [compulsory_words(p)] * 2, ":", color="black", label="compulsory (a floor)")
    edge = p.d**2 * p.word_bytes
    if first < edge:
        M = [first, min(edge, last)]
        saha = [p.instances * p.N * p.Nk * p.d / (m / p.word_bytes) ** 0.5 for m in M]
        axes.plot([m / 1024 for m in M], saha, "-.", color="grey", label="N$^2$d/$\\sqrt{M}$, M < d$^2$ (an order)")


def draw_published(axes: Axes, published: Sequence[Published]) -> None:
    """Draw published tiles, each at the M that it needs: a letter on the point, and its meaning in the legend."""
    labels = list(dict.fromkeys(tiles.label for tiles, *_ in published))
    shapes = dict(zip(labels, "osD^v", strict=False))
    for letter, (tiles, given, result, _) in zip(ascii_letters, published, strict=False):
        point = ((result.smem_peak_bytes or 0) / 1024, result.total or 0)
        name = f"{result.schedule} {result.Br}x{result.Bc}" + ("" if given is None else f" (M = {given // 1024} KiB)")
        axes.plot(*point, shapes[tiles.label], color="black", markerfacecolor="white", markersize=10, zorder=6,
                  linestyle="none", label=f"{letter}: {tiles.label}, {name}")  # fmt: skip
        axes.annotate(letter, point, fontsize=6, ha="center", va="center_baseline", zorder=7)


def label_axes(axes: Axes, found: Curve) -> None:
    """Set scales, names, title, grid and legend."""
    p = found.problem
    axes.set(xscale="log", yscale="log", xlabel="M / KiB", ylabel="words moved, over all heads")
    many = f", at least {found.least_blocks} blocks (but for published tiles)" if found.least_blocks > 1 else ""
    axes.set_title(f"Least traffic against M: N = {p.N}, Nk = {p.Nk}, d = {p.d}, {p.dtype}, mask {p.mask}{many}",
                   fontsize="medium", wrap=True)  # fmt: skip
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), markerscale=0.6)
