"""The wing batch: one step of a server."""

from ..wings import Wing

WING = Wing(
    commands={
        "Many answers": {"batch": "What one step of a server moves: a batch of unequal requests, by ways to run it."}
    },
    names={"batch": "answer", "replay": "answer", "Batched": "answer", "Replayed": "trace_rows"},
    page="batch.md",
)
