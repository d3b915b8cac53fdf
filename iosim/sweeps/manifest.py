"""The wing sweep: grids of counts."""

from ..wings import Wing

ROWS = {"csv": ("csv", "txt"), "jsonl": ("jsonl", "ndjson", "json"), "parquet": ("parquet",)}

WING = Wing(
    commands={
        "Many answers": {
            "sweep": "A grid of counts, one row for each, as CSV, JSON lines or Parquet.",
        }
    },
    names={"sweep": "run"},
    forms={"sweep": ROWS},
    page="scale.md",
)
