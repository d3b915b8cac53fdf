"""The wing pictures: plot, the player and the page."""

from ..files import PAGE, PICTURE
from ..wings import Wing

WING = Wing(
    commands={
        "Start here": {"report": "One self-contained HTML page about a problem; --open shows it in a browser."},
        "Many answers": {"plot": "Pictures: traffic against M or N, columns of a sweep, a mask."},
    },
    names={"plot": "plot", "report": "report"},
    pictures={
        "traffic": "traffic:TRAFFIC",
        "gap": "tune_curve:GAP",
        "mask": "mask:MASK",
        "race": "race:RACE",
        "ring": "ring:RING",
    },
    forms={"report": PAGE, "plot": {**PICTURE, "json": ("json",), "csv": ("csv",)}},
    page="gallery.md",
)
