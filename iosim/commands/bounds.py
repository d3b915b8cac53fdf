"""`iosim bounds`."""

from __future__ import annotations

from ..counting.given import Asked
from .answer import Output, answer_all
from .command import D, N, named_command
from .notes import SEARCHED
from .options import (
    PLACES,
    chip_options,
    flag_option,
    memory_options,
    model_option,
    outputs,
    problem_asked,
    problem_options,
    state_options,
)

EVERY = "bounds hold for every schedule: leave it out, or give --backward for those of the backward pass"
INSTEAD = dict.fromkeys(("--schedule", "--family", "--pass"), EVERY)
"""What to do instead of options of other commands."""


@named_command(
    "bounds",
    needs=(N, D),
    axes=PLACES,
    instead=INSTEAD,
    usual=SEARCHED,
    first="Nk heads kv_heads causal mask M hardware backward",
)
@problem_options
@model_option
@memory_options
@state_options
@chip_options
@flag_option("--backward", "Bounds of the backward pass, which computes dQ, dK and dV.", also=("bwd",))
@outputs
@problem_asked
def command(asked: Asked, backward: bool, output: Output) -> None:
    """Proven statements about the least traffic, each with its kind and validity.

    Example: iosim bounds --N 8192 --d 128 --M 100KB
    """
    from ..tuning.proven import bounds

    fields = {"paper_model": asked.choice.paper_model, **asked.fields}
    found = [(place.label, bounds(**place.fields, backward=backward, **fields)) for place in asked.places]
    answer_all(found, output)
