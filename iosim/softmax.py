"""The tile steps of `iosim.steps.softmax`, for files written for iosim 0.1. New files import them from there."""

from .steps.softmax import (
    Operands,
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


def Cost(reads_whole: tuple[int, ...] = (), tensor_inputs: tuple[int, ...] = (), **_: object) -> Operands:
    """The mark `Operands` by its earlier name. Fields that only predictions of time read are left out."""
    return Operands(reads_whole, tensor_inputs)


__all__ = [
    "Cost", "accumulate", "denormalise", "drop", "flops", "hide", "keep", "log_sum_exp", "merge", "minus_infinity",
    "normalise", "online_softmax", "rescale", "scores", "scores_apart", "softmax_rows", "work", "zeros",
]  # fmt: skip
