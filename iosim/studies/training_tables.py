"""Tables, CSV rows and JSON of `training`: like tables.py it only reads results."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..counting.report import header, problem_row
from ..tables import Rows, ratio, table
from ..units import format_megabytes

FIELDS = (
    "combination", "tiling", "fits", "recomputed", "stored_bytes", "reads", "writes", "total", "dropout_mask_bytes",
    "total_bytes", "flops", "ratio_to_standard",
)  # fmt: skip
PARTS = ("schedule", "Br", "Bc", "fits", "sram_peak_bytes", "reads", "writes", "total_bytes")


def training_json(found: Any) -> dict[str, Any]:
    return {
        "problem": problem_row(found.problem),
        "sram": {"M_bytes": found.M_bytes, "M_words": found.M_words},
        "results": [asdict(step) for step in found.steps],
    }


def training_rows(found: Any) -> Rows:
    """One flat row a combination and tiling."""
    problem = {**problem_row(found.problem), "M_bytes": found.M_bytes, "M_words": found.M_words}
    rows = []
    for step in found.steps:
        parts = {
            f"{side}_{name}": getattr(getattr(step, side), name) for side in ("forward", "backward") for name in PARTS
        }
        row = {**problem, **{name: getattr(step, name) for name in FIELDS}, "unfused": ",".join(step.unfused)}
        rows.append({**row, "stored": "+".join(step.stored), **parts})
    return rows


def training_text(found: Any) -> str:
    rows = [
        {
            "combination": step.combination,
            "forward": side(step.forward),
            "backward": side(step.backward),
            "fits": {True: "yes", False: "NO", None: "-"}[step.fits],
            "stored": ", ".join(step.stored) or "nothing",
            "stored bytes": step.stored_bytes,
            "forward bytes": bytes_of(step.forward) + (" twice" if step.recomputed else ""),
            "backward bytes": bytes_of(step.backward),
            "total bytes": None if step.total_bytes is None else format_megabytes(step.total_bytes),
            "GFLOP": None if step.flops is None else f"{step.flops / 1e9:.1f}",
            "x standard": ratio(step.ratio_to_standard),
        }
        for step in found.steps
    ]
    return "\n".join([header(found), table(rows), *notes(found)])


def side(result: Any) -> str:
    return result.schedule + (f" {result.Br}x{result.Bc}" if result.Br else "")


def bytes_of(result: Any) -> str:
    return "nothing fits" if result.total_bytes is None else format_megabytes(result.total_bytes)


def notes(found: Any) -> list[str]:
    """What the totals hold beside the two passes."""
    lines = [
        f"{step.combination}: unfused {', '.join(step.unfused)}"
        + (f"; dropout masks {format_megabytes(step.dropout_mask_bytes)} more" if step.dropout_mask_bytes else "")
        for step in found.steps
        if step.unfused
    ]
    return ["", *lines] if lines else []
