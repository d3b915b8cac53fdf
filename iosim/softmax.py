"""The tile steps of `iosim.steps.softmax`, for files written for iosim 0.1. New files import them from there."""

from .steps.softmax import (
    Cost,
    accumulate,
    denormalise,
    drop,
    flops,
    hide,
    keep,
    log_sum_exp,
    merge,
    minus_infinity,
    normalise,
    online_softmax,
    rescale,
    scores,
    scores_apart,
    softmax_rows,
    work,
    zeros,
)

__all__ = [
    "Cost", "accumulate", "denormalise", "drop", "flops", "hide", "keep", "log_sum_exp", "merge", "minus_infinity",
    "normalise", "online_softmax", "rescale", "scores", "scores_apart", "softmax_rows", "work", "zeros",
]  # fmt: skip
