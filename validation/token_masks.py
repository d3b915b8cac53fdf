"""Masks as functions of a file, whose bits generated kernels read from HBM (shapes.py, `token_masks`)."""


def band(b, h, q_idx, kv_idx):
    """A query sees its own key and 64 before it."""
    return (q_idx >= kv_idx) & (q_idx - kv_idx <= 64)


def near(b, h, q_idx, kv_idx):
    """A query sees the keys at most 40 positions away."""
    return (q_idx - kv_idx <= 40) & (kv_idx - q_idx <= 40)
