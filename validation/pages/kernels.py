"""The parts of other-peoples-kernels.md: PyTorch's kernels explained; speed of the tuned ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from validation.pages import speeds
from validation.pages.text import Row, about, by, explained, extent, link, others, read, table

PASSES = ("S = Q K^T", "P = softmax(S)", "O = P V")


def claim(folder: Path) -> str:
    """The claim, of every GPU that was measured."""
    return "\n".join(f"- {claim_of(one)}" for one in (folder, *others(folder)))


def claim_of(folder: Path) -> str:
    rows = explained(folder)
    good = sum(r["explains"] == "True" for r in rows)
    off = max(abs(float(r["read_ratio"]) - 1) for r in rows)
    return (f"**{about(folder)['name']}, {len(rows)} launches of fused kernels.** A schedule predicts the bytes "
            f"read in {good} of them, with an error of at most {off:.2%}.")  # fmt: skip


def fused(folder: Path) -> str:
    """A row a kernel and the schedule that explains it."""
    rows: list[dict[str, object]] = []
    for (kernel, schedule), found in pairs(explained(folder)).items():
        tiles = ", ".join(dict.fromkeys(r["tiles"].partition("/")[0] for r in found))
        rows.append({"kernel": kernel, "explained by": schedule, "tiles": tiles, "shapes": len(found),
                     "read, measured / predicted": ratios(found, "read_ratio"),
                     "written, measured / predicted": ratios(found, "write_ratio"),
                     "DRAM read / compulsory": ratios(found, "dram_ratio", ".2f")})  # fmt: skip
    return table(rows)


def pairs(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["kernel"], row["schedule"]), []).append(row)
    return found


def ratios(rows: list[Row], name: str, form: str = ".4f") -> str:
    return extent((float(r[name]) for r in rows if r[name]), form)


def math(folder: Path) -> str:
    """A row a pass of PyTorch's attention without a fused kernel."""
    found = by((r for r in read(folder, "math_rows.csv") if r["explains"] == "True"), "pass")
    return table([{"pass": name, "explained by": found[name][0]["schedule"], "shapes": len(found[name]),
                   "read, measured / predicted": ratios(found[name], "read_ratio"),
                   "written, measured / predicted": ratios(found[name], "write_ratio"),
                   "DRAM read / compulsory": ratios(found[name], "dram_ratio", ".2f")}
                  for name in PASSES if name in found])  # fmt: skip


def outside(folder: Path) -> str:
    """The share of a call's bytes that the three passes do not move, over the shapes that were explained."""
    calls: dict[tuple[str, ...], list[Row]] = {}
    for r in read(folder, "math_rows.csv"):
        if r["best"] == "True" and r["pass"]:
            calls.setdefault(tuple(r[name] for name in ("N", "d", "heads", "inputs", "mask")), []).append(r)
    passes = {name: [r for r in rows if r["explains"] == "True"] for name, rows in calls.items()}
    shares = [1 - sum(map(moved, passes[name])) / sum(map(moved, rows)) for name, rows in calls.items()]
    return f"The other kernels of a call move {extent(shares, '.0%')} of its bytes."


def moved(r: Row) -> int:
    return int(r["read_measured"]) + int(r["write_measured"])


def spilled(folder: Path) -> str:
    """A row a mask and d of what FlashAttention-2 spills."""
    found: dict[tuple[str, str], list[Row]] = {}
    for r in explained(folder):
        if int(r["spilled_bytes"] or 0) and r["kernel"] == "torch-flash":
            found.setdefault((r["mask"], r["d"]), []).append(r)
    return table([{"mask": mask, "d": d, "shapes": len({(r["N"], r["heads"]) for r in rows}),
                   "spilled, MB": extent((float(r["spilled_bytes"]) / 1e6 for r in rows), ".0f"),
                   "DRAM read / compulsory": ratios(rows, "dram_ratio", ".2f")}
                  for (mask, d), rows in found.items()])  # fmt: skip


def rows(folder: Path) -> str:
    launches, math_launches, ours, times = (
        link(folder, f"{name}.csv") for name in ("torch_rows", "math_rows", "rows", "tuned_time")
    )
    return (f"Every launch has a row in {launches} or {math_launches}; times of the tuned kernels are in {ours} and "
            f"{times}.")  # fmt: skip


PARTS: dict[str, Callable[[Path], str]] = {
    "claim": claim, "fused": fused, "math": math, "outside": outside, "spills": spilled, "attention": speeds.attention,
    "passes": speeds.passes, "three": speeds.three_passes, "rows": rows,
}  # fmt: skip
