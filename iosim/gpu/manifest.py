"""The wing gpu: generated CUDA, verify and profile."""

from ..wings import Wing

WING = Wing(
    commands={
        "On a GPU": {
            "verify": "Runs against the model: output, words and SRAM on the CPU; on a GPU also bytes and time.",
            "profile": "The schedule and tiles that explain an attention kernel which somebody else wrote.",
        }
    },
    names={
        "verify": "ask",
        "Checks": "cpu_runs",
        "Verdicts": "verify_run",
        "profile": "ask",
        "Explanations": "profile.run",
    },
    points={"check": "points:CHECK"},
    offers={
        "missing_of_gpu": "ask:without_gpu",
        "why_not_generated": "cuda.machine:why_not",
    },
    page="hardware/words-and-bytes.md",
)
