"""The type of every column of a table that iosim writes. A name has one type, in whichever answer it stands."""

from __future__ import annotations

TEXTS = frozenset({
    "N_axis", "acc_dtype", "bound_by", "chosen_by", "class", "combination", "condition", "dtype", "event", "faults",
    "form", "formula", "gqa", "hardware", "ideal_l2_binds", "kind", "kv_dtype", "kv_scales", "label", "launch", "limit",
    "mask", "more_tiles", "name", "options", "policy", "predicted_binds", "binds", "phase", "question", "role",
    "schedule", "source", "stored", "summary", "tiles", "tiling", "unfused", "check",
    "forward_schedule", "backward_schedule",
})  # fmt: skip
TRUTHS = frozenset({
    "backward_fits", "complete", "count_init", "fits", "forward_fits", "keep_p", "latent", "lse", "ok", "recomputed",
    "valid",
})  # fmt: skip
NUMBERS = frozenset({
    "M_over_d2", "T", "allowed_bias", "allowed_error", "bias", "flops_per_byte", "formula_density", "intensity",
    "lambda", "order_words", "ridge", "saha_ye_words", "score_traffic_share", "seconds", "seconds_over_fastest",
    "tile_density", "token_density", "x_scratchpad",
})  # fmt: skip


def type_of(name: str) -> str:
    """The type of a column, as JSON Schema names it: string, boolean, number or integer. Any cell may be empty."""
    if name in TEXTS:
        return "string"
    if name in TRUTHS:
        return "boolean"
    if name in NUMBERS or name.startswith(("ratio", "error_")) or name.endswith("_seconds"):
        return "number"
    return "integer"
