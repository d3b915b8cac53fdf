"""The wing batch: one step of a server."""

from ..files import ANSWER
from ..wings import Wing

WING = Wing(
    commands={
        "Many answers": {"batch": "What one step of a server moves: a batch of unequal requests, by ways to run it."}
    },
    names={"batch": "question", "Batched": "answer", "BatchOfLayers": "layers"},
    forms={"batch": {**ANSWER, "html": ("html", "htm"), "svg": ("svg",), "png": ("png",), "pdf": ("pdf",)}},
    page="batch.md",
)
