"""The plots of docs/hardware/words-and-bytes.md and of the pages here. Needs matplotlib; see hardware.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

from validation.pages import speeds
from validation.pages.text import Row, about, by, by_schedule, explained, read

matplotlib.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, RED, GREEN, GREY = "#4269d0", "#efb118", "#d1495b", "#2f9e6e", "#9498a0"
DARK = "#4d5563"  # grey text
GIGABYTES = (0.3, 0.6, 1, 2, 3, 5, 10, 20)  # labels of traffic against M
COLOURS = (BLUE, ORANGE, RED, GREEN, GREY)
Point = tuple[float, float]
LATER = "2026-11-23"  # when serving was measured


def draw(folder: Path, docs: Path, where: Path) -> None:
    """All plots of the pages."""
    words_and_bytes(folder, docs / "words-and-bytes.png")
    kernels(folder, where / "other-peoples-kernels.png")
    serving(folder, where / "serving.png")


def saved(figure: Figure, folder: Path, path: Path, date: str = "") -> None:
    gpu = about(folder)
    figure.supxlabel(f"{gpu['name']}, {date or gpu['date']}", x=0.995, ha="right", fontsize=9, color=DARK)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def clean(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(True, color="#e6e6e6", linewidth=0.6)
    axis.set_axisbelow(True)


# ---------------------------------------------------------------- words and bytes


def words_and_bytes(folder: Path, path: Path) -> None:
    """Left: measured over simulated bytes of every shape. Right: bytes against M, and the floor."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    rows = read(folder, "rows.csv")
    points = [bytes_of(r) for r in rows]
    for name, colour, exact in (("exactly as simulated", BLUE, True), ("with partial sectors", ORANGE, False)):
        mine = [p for p in points if (p[1] == 1) == exact]
        left.scatter(*zip(*mine, strict=True), s=14, alpha=0.7, color=colour, label=f"{name}: {len(mine)} shapes")
    left.set(xscale="log", yscale="log", xlabel="simulated bytes between SM and L2", ylabel="measured / simulated",
             title="Bytes of the hardware over simulated bytes", ylim=(0.9, 11))  # fmt: skip
    left.set_yticks([1, 1.5, 2, 3, 4, 6, 8], ["1", "1.5", "2", "3", "4", "6", "8"])
    left.minorticks_off()
    left.legend(frameon=False, loc="upper right")
    swept = by_schedule(read(folder, "sweep_rows.csv"))
    for colour, (name, found) in zip(COLOURS, swept.items(), strict=False):
        size = [int(r["M_bytes"]) / 1024 for r in found]
        right.plot(size, [simulated(r) for r in found], color=colour)
        right.scatter(size, [measured(r) for r in found], color=colour, label=name)
    floor = sorted({int(r["M_bytes"]): int(r["floor_bytes"]) for found in swept.values() for r in found}.items())
    right.plot([M / 1024 for M, _ in floor], [least for _, least in floor], color="black", label="floor")
    right.fill_between([M / 1024 for M, _ in floor], [least for _, least in floor], color="#eeeeee", zorder=-2)
    right.set(xscale="log", yscale="log", xlabel="M, KB of shared memory", ylabel="bytes between SM and L2",
              title="Bytes against M: simulated (lines), measured (points)",
              ylim=(0.9 * min(least for _, least in floor), None))  # fmt: skip
    right.set_yticks([f * 1e9 for f in GIGABYTES], [f"{f} GB" for f in GIGABYTES])
    right.set_xticks([16, 32, 64, 128, 227], ["16", "32", "64", "128", "227"])
    right.minorticks_off()
    right.legend(frameon=False)
    for axis in (left, right):
        clean(axis)
    saved(figure, folder, path)


def bytes_of(r: Row) -> Point:
    return float(simulated(r)), measured(r) / simulated(r)


def simulated(r: Row) -> int:
    return int(r["sm_read_bytes"]) + int(r["sm_write_bytes"])


def measured(r: Row) -> int:
    return int(r["hw_read_bytes"]) + int(r["hw_write_bytes"])


# ---------------------------------------------------------------- other people's kernels


def kernels(folder: Path, path: Path) -> None:
    """Left: measured over counted bytes of PyTorch's kernels. Right: speed of the tuned kernels beside them."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1.15, 1))
    strips(left, folder)
    bars(right, folder)
    saved(figure, folder, path)


def strips(axis: Axes, folder: Path) -> None:
    found = by(explained(folder), "kernel")
    columns = (("read, over what the schedule reads", "read_ratio", BLUE),
               ("read from DRAM, over what is compulsory", "dram_ratio", GREEN))  # fmt: skip
    for place, rows in enumerate(found.values()):
        for shift, (what, column, colour) in enumerate(columns):
            values = [float(r[column]) for r in rows if r[column]]
            height = place + 0.22 * (shift - 0.5)
            label = what if not place else None
            axis.scatter(values, [height] * len(values), s=16, alpha=0.6, color=colour, label=label)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(range(len(found)), [f"{name}\n{len(rows)} launches" for name, rows in found.items()])
    axis.set(xlabel="measured / counted", title="Bytes that PyTorch's kernels read")
    axis.invert_yaxis()
    axis.legend(frameon=False, loc="lower right", fontsize=8)
    clean(axis)


def bars(axis: Axes, folder: Path) -> None:
    """TFLOP/s by shape."""
    found = speeds.beside(folder)
    rates = {"tuned, iosim": [rate(r) for r, _, _ in found],
             "PyTorch's FlashAttention-2": [rate(r) / flash if flash else 0.0 for r, flash, _ in found],
             "cuDNN": [rate(r) / cudnn if cudnn else 0.0 for r, _, cudnn in found]}  # fmt: skip
    for number, (colour, (name, values)) in enumerate(zip((BLUE, GREY, ORANGE), rates.items(), strict=True)):
        places = [n + 0.27 * (number - 1) for n in range(len(values))]
        axis.bar(places, values, 0.25, color=colour, label=name)
        for place in (place for place, value in zip(places, values, strict=True) if not value):
            axis.annotate("not run", (place, 8), fontsize=8, color=DARK, rotation=90, ha="center", va="bottom")
    shown = [f"N {r['N']}\nd {r['d']}\n{r['mask']}" for r, _, _ in found]
    axis.set_xticks(range(len(shown)), shown, fontsize=8)
    highest = max(value for values in rates.values() for value in values)
    axis.set(ylabel="TFLOP/s", title="Speed of attention (fp16)", ylim=(0, 1.28 * highest))
    axis.legend(frameon=False, loc="upper right", ncols=1, fontsize=8)
    clean(axis)


def rate(r: Row) -> float:
    return float(r["flops_per_second"]) / 1e12


def serving(folder: Path, path: Path) -> None:
    """Measured over counted bytes of what servers run: a strip a kernel."""
    found = by(
        (r for r in read(folder, "serving_rows.csv") if r["best"] == "True" and r["explains"] == "True"), "kernel"
    )
    figure, axis = plt.subplots(figsize=(10, 3.6), layout="constrained")
    for place, rows in enumerate(found.values()):
        kinds = (
            ("bytes between SM and L2", "read_ratio", BLUE),
            ("DRAM reads, over the compulsory", "dram_ratio", GREEN),
        )
        for shift, (what, column, colour) in enumerate(kinds):
            values = [float(r[column]) for r in rows if r[column]]
            heights = [place + 0.3 * (shift - 0.5)] * len(values)
            axis.scatter(values, heights, s=18, alpha=0.6, color=colour, label=None if place else what)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(range(len(found)), [f"{name}\n{len(rows)} launches" for name, rows in found.items()])
    axis.set(xlabel="measured / counted")
    axis.invert_yaxis()
    axis.legend(frameon=False, loc="upper right", fontsize=8)
    clean(axis)
    saved(figure, folder, path, LATER)
