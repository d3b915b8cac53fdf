"""The type of every column of a table that iosim writes. Two columns have another type in some answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answer import Type

TEXTS = frozenset({
    "acc_dtype", "alike", "argument", "backward_schedule", "binds", "bound_by", "by", "check", "chosen_by", "class",
    "combination", "condition", "CUDA", "dtype", "event", "family", "faults", "form", "formula", "forward_schedule",
    "gqa", "granularity", "hardware", "ideal_l2_binds", "ignores", "kernel", "key", "kind", "kv_dtype", "kv_scales",
    "label", "launch", "limit", "mask", "more tiles", "more_tiles", "name", "options", "outer", "phase", "policy",
    "predicted_binds", "question", "role", "says", "schedule", "skips tiles", "source", "state", "stored", "summary",
    "tensors", "tiles", "tiling", "unfused",
})  # fmt: skip
TRUTHS = frozenset({
    "backward_fits", "complete", "count_init", "dram_at_the_edge", "explains", "fits", "forward_fits", "keep_p",
    "latent", "lse", "ok", "recomputed", "valid", "whole_tiles",
})  # fmt: skip
NUMBERS = frozenset({
    "allowed_bias", "allowed_error", "bias", "dropout", "flops_per_byte", "flops_per_second", "formula_density",
    "intensity", "lambda", "M_over_d2", "order_words", "ridge", "saha_ye_words", "score_traffic_share", "seconds",
    "seconds_over_fastest", "seconds_predicted", "sm_bytes_per_second", "T", "tile_density", "times_read",
    "token_density", "x_scratchpad",
})  # fmt: skip


SHARES = ("_seconds", "_ratio", "ratio_to_floor")
OF_ANSWERS: dict[tuple[str, str], Type] = {("bounds", "words"): "number", ("trace", "launch"): "integer"}


def type_of(name: str, command: str = "") -> Type:
    """The type of a column in the rows of a command, as JSON Schema names it: string, boolean, number or integer. Any
    cell may be empty."""
    if (command, name) in OF_ANSWERS:
        return OF_ANSWERS[command, name]
    if name in TEXTS:
        return "string"
    if name in TRUTHS:
        return "boolean"
    if name in NUMBERS or name.startswith(("ratio", "error_")) or name.endswith(SHARES):
        return "number"
    return "integer"
