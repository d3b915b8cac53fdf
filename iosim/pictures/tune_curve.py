"""The picture of `tune --curve`: least traffic against M, with bounds and published tiles. Imports matplotlib."""

from __future__ import annotations

from pathlib import Path
from string import ascii_letters
from typing import Any

from ..counting.bounds import APART, compulsory_words, order_words
from ..errors import InputError, MissingError

KINDS = (".png", ".svg")


def check_name(path: str) -> None:
    """The file's kind and folder, before anything is counted."""
    file = Path(path)
    if file.suffix.lower() not in KINDS:
        raise InputError("--plot", path, "a file that ends in .png or .svg")
    if not file.parent.is_dir():
        raise InputError("--plot", path, "a file in a folder that exists")


def draw(found: Any, path: str) -> None:
    """Write a PNG or SVG of a Curve (see tuning/least.py); both axes are logarithmic, in KiB and in words."""
    check_name(path)
    if not found.steps:
        raise InputError("--plot", path, "a curve with steps", "fewer --least-blocks")
    try:
        import matplotlib
    except ImportError:
        raise MissingError("--plot needs matplotlib: pip install 'iosim[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6))
    axes.set_prop_cycle(color=[pyplot.get_cmap("tab20")(k) for k in range(20)])
    last = max([2 * found.steps[-1].M_bytes, *(result.sram_peak_bytes for _, _, result, _ in found.published)])
    for schedule in found.space:
        line(axes, found.own[schedule.name], last, label=schedule.name, linewidth=1)
    line(axes, found.steps, last, label="least", color="black", linewidth=2.5, zorder=5, alpha=0.6)
    if found.space[0].family not in APART:
        bound_lines(axes, found.problem, found.steps[0].M_bytes, last)
    markers(axes, found.published)
    p = found.problem
    axes.set(xscale="log", yscale="log", xlabel="M / KiB", ylabel="words moved, over all heads")
    many = f", at least {found.least_blocks} blocks (but for published tiles)" if found.least_blocks > 1 else ""
    axes.set_title(f"Least traffic against M: N = {p.N}, Nk = {p.Nk}, d = {p.d}, {p.dtype}, mask {p.mask}{many}",
                   fontsize="medium", wrap=True)  # fmt: skip
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), markerscale=0.6)
    try:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    except OSError as error:
        raise InputError("--plot", path, "a file that can be written", error.strerror or "") from None
    finally:
        pyplot.close(figure)


def line(axes: Any, own: list[Any], last: int, **style: Any) -> None:
    """A staircase, level from its last step to the right edge."""
    shown = [step for step in own if step.M_bytes <= last]
    M = [step.M_bytes / 1024 for step in shown] + [last / 1024] * bool(shown)
    axes.step(M, [step.total for step in shown] + [step.total for step in shown[-1:]], where="post", **style)


def bound_lines(axes: Any, p: Any, first: int, last: int) -> None:
    ends = [first, last]
    order = [order_words(p, M / p.word_bytes) for M in ends]
    kib = [M / 1024 for M in ends]
    axes.plot(kib, order, "--", color="grey", label="N$^2$d$^2$/M (an order, constant unknown)")
    axes.plot(kib, [compulsory_words(p)] * 2, ":", color="black", label="compulsory (a floor)")
    edge = p.d**2 * p.word_bytes
    if first < edge:
        M = [first, min(edge, last)]
        saha = [p.instances * p.N * p.Nk * p.d / (m / p.word_bytes) ** 0.5 for m in M]
        axes.plot([m / 1024 for m in M], saha, "-.", color="grey", label="N$^2$d/$\\sqrt{M}$, M < d$^2$ (an order)")


def markers(axes: Any, published: list[Any]) -> None:
    """Published tiles, each at the M that it needs; a letter on the point, and what it means in the legend."""
    labels = list(dict.fromkeys(choice.label for choice, *_ in published))
    shapes = dict(zip(labels, "osD^v", strict=False))
    for letter, (choice, given, result, _) in zip(ascii_letters, published, strict=False):
        point = (result.sram_peak_bytes / 1024, result.total)
        name = f"{result.schedule} {result.Br}x{result.Bc}" + ("" if given is None else f" (M = {given // 1024} KiB)")
        axes.plot(*point, shapes[choice.label], color="black", markerfacecolor="white", markersize=10, zorder=6,
                  linestyle="none", label=f"{letter}: {choice.label}, {name}")  # fmt: skip
        axes.annotate(letter, point, fontsize=6, ha="center", va="center_baseline", zorder=7)
