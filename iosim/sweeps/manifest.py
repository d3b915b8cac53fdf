"""The wing sweep: grids of counts."""

from ..wings import Wing

WING = Wing(
    commands={
        "Many answers": {
            "sweep": "A grid of counts, one row for each, as CSV, JSON lines or Parquet.",
            "gather": "The parts of a sweep in a folder, as one file.",
        }
    },
    names={"sweep": "run"},
    page="scale.md",
)
