"""The wing sweep: grids of counts."""

from ..wings import Wing

ROWS = {"csv": ("csv", "txt"), "jsonl": ("jsonl", "ndjson", "json"), "parquet": ("parquet",)}

WING = Wing(
    commands={
        "Many answers": {
            "sweep": "A grid of counts, one row for each, as CSV, JSON lines or Parquet.",
            "gather": "The parts of a sweep in a folder, as one file.",
        }
    },
    names={"sweep": "run"},
    forms={"sweep": ROWS, "gather": ROWS},
    page="scale.md",
)
