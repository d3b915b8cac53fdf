"""The plots of validation/README.md, from the CSVs of a measurement. Needs matplotlib; see summary.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from summary import ROOT, groups, read

COLOURS = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#9498a0", "#2f7d4f", "#97bbf5", "#a463f2", "#3b3b3b",
    "#ff8ab7", "#b8b08d", "#00a0b0", "#d62f8c", "#7a5c00", "#86c200", "#4b3c8f", "#ff5e5b",
)  # fmt: skip


def draw(folder: Path) -> None:
    predictions(folder, ROOT / "validation" / "predictions.png")
    sweep(folder, ROOT / "validation" / "sweep.png")


def predictions(folder: Path, path: Path) -> None:
    """Measured against predicted, for bytes of the SMs, of DRAM, and time."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 5.6))
    axis_of = {"SM read (bytes)": sm, "DRAM (bytes)": dram, "time (seconds)": time}
    for axis, (title, pick) in zip(axes, axis_of.items(), strict=True):
        low, high = float("inf"), 0.0
        for colour, (name, rows) in zip(COLOURS, groups(folder).items(), strict=True):
            pairs = [pair for pair in map(pick, rows) if pair]
            if pairs:
                axis.scatter(*zip(*pairs, strict=True), s=16, color=colour, label=name, alpha=0.8)
                low, high = min(low, *map(min, pairs)), max(high, *map(max, pairs))
        axis.plot([low, high], [low, high], color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=title, xlabel="predicted", ylabel="measured")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=7, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))  # below: the legend, which would hide points
    figure.savefig(path, dpi=90)


def pair(predicted: str | None, measured: str | None) -> tuple[float, float] | None:
    return (float(predicted), float(measured)) if predicted and measured and float(measured) > 0 else None


def sm(row: dict[str, Any]) -> Any:
    return pair(
        row.get("sm_read_bytes") or row.get("read_predicted"), row.get("hw_read_bytes") or row.get("read_measured")
    )


def dram(row: dict[str, Any]) -> Any:
    if "dram_predicted" in row:
        return pair(row["dram_predicted"], row["dram_measured"])
    if not row["dram_read_predicted"] or not row["dram_read_bytes"]:
        return None
    return tuple(float(row[f"dram_read_{x}"]) + float(row[f"dram_write_{x}"]) for x in ("predicted", "bytes"))


def time(row: dict[str, Any]) -> Any:
    return pair(row["seconds_predicted"], row["seconds"])


def sweep(folder: Path, path: Path) -> None:
    """SM bytes against M on log axes: simulated as lines, measured as points."""
    rows = read(folder, "sweep_rows.csv")
    if not rows:
        return
    figure, axis = plt.subplots(figsize=(7.5, 5))
    for colour, name in zip(COLOURS, dict.fromkeys(r["schedule"] for r in rows), strict=False):
        mine = [r for r in rows if r["schedule"] == name]
        size = [int(r["M_bytes"]) for r in mine]
        axis.plot(size, [int(r["sm_read_bytes"]) + int(r["sm_write_bytes"]) for r in mine], color=colour)
        measured = [int(r["hw_read_bytes"]) + int(r["hw_write_bytes"]) for r in mine]
        axis.scatter(size, measured, color=colour, label=f"{name}: line simulated, points measured")
    axis.set(xscale="log", yscale="log", xlabel="M (bytes of shared memory)", ylabel="SM bytes, read plus written")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)
