"""The wing explain: what a Triton kernel moves."""

from ..wings import Wing

WING = Wing(
    commands={
        "Start here": {
            "explain": "Words that a Triton kernel reads and writes, and its resources, before it runs; needs no GPU."
        }
    },
    names={"explain": "explain", "prune": "prune", "tensor": "read.arguments", "Explained": "explain"},
    page="explain.md",
)
