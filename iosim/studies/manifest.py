"""The wing studies: roofline, memory, cache and trace."""

from ..files import EVENTS
from ..wings import Wing

WING = Wing(
    commands={
        "What is possible": {
            "memory": "Bytes of scores, inputs and KV cache; the largest N for a memory budget.",
            "cache": "A schedule's accesses through a cache: LRU and Belady's optimum.",
        },
        "On a GPU": {
            "roofline": "The least time on a GPU and what binds, beside kept measurements; is a claimed time possible?"
        },
        "Look inside": {
            "trace": "Every load, step and store of a run: CSV, JSON lines, Parquet, Perfetto.",
        },
    },
    names={
        "roofline": "roofline",
        "Roofline": "roofline",
        "memory": "memory",
        "trace": "events",
        "Events": "events",
        "cache": "cache_answer",
    },
    pictures={
        "roofline": "roofline_picture:ROOFLINE",
        "time": "roofline_picture:TIME",
    },
    points={"cache": "points:CACHE", "roofline": "points:ROOFLINE"},
    offers={
        "roofline_section": "roofline_picture:roofline_section",
    },
    forms={"trace": EVENTS},
    page="roofline.md",
)
