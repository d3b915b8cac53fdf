"""The wing gpu: generated CUDA, verify and profile."""

from ..wings import Wing

WING = Wing(
    commands={
        "On a GPU": {
            "verify": "On a GPU: words, hardware bytes, DRAM, time and output against the model.",
            "profile": "The schedule and tiles that explain an attention kernel which somebody else wrote.",
            "calibrate": "Measure this GPU into a hardware file.",
        }
    },
    page="hardware/words-and-bytes.md",
)
