"""Softmax attention in a few lines of float64, to judge outputs. It shares no code with steps/softmax.py.

NumPy is loaded inside, so that a schedule can name its oracle without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ..core.problem import Attention
    from ..core.typing import Array, Arrays, Bools


def attention(q: Array, k: Array, v: Array, visible: Bools | None = None, kept: Array | None = None) -> Array:
    """softmax(q k^T / sqrt(d)) v for q (N, d), k (Nk, d), v (Nk, dv). Rows that see no key give zeros.

    `kept` (N, Nk) holds the factors of dropout on the probabilities. None means no dropout.
    """
    import numpy as np

    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    s = np.einsum("nd,kd->nk", q, k) / np.sqrt(q.shape[1])
    if visible is None:
        visible = np.ones(s.shape, bool)
    top = np.max(s, axis=1, keepdims=True, where=visible, initial=-1e300)
    weights = np.where(visible, np.exp(np.minimum(s - top, 0)), 0.0)
    total = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return (weights if kept is None else weights * kept) @ v


def queries_keys_values(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random Q, K, V of one head as stored in HBM: latent rows of K hold V, and values with scales are small."""
    shapes = {"Q": (p.N, p.d), "K": (p.Nk, p.k_words), "V": (p.Nk, p.dv)}
    arrays: Arrays = {name: rng.normal(scale=2, size=shape) for name, shape in shapes.items()}
    if p.rope_apart:
        arrays["Krope"] = rng.normal(scale=2, size=(p.Nk, p.rope_words))
    if p.latent:
        arrays["V"] = arrays["K"][:, : p.dv].copy()
    if p.kv_scales != "none":
        for name, scales in (("Kscale", p.k_scales), ("Vscale", p.v_scales)):
            arrays[name] = rng.uniform(0.25, 1.5, size=(p.scale_rows, scales))
    return arrays


def plain_inputs(hbm: Arrays, p: Attention) -> Arrays:
    """Q, K and V as attention uses them: scales applied, the parts of K joined, and V taken from latent rows."""
    import numpy as np

    found = dict(hbm)
    for name in ("K", "V") if p.kv_scales != "none" else ():
        rows = np.asarray(hbm[name], np.float64)
        factors = np.repeat(np.asarray(hbm[name + "scale"], np.float64), p.scale_words or rows.shape[1], axis=1)
        found[name] = rows * factors[:, : rows.shape[1]]
    if p.rope_apart:
        found["K"] = np.concatenate([found["K"], hbm["Krope"]], axis=1)
    return {**found, "V": found["K"][:, : p.dv]} if p.latent else found


def attention_output(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """{"O": the output that a schedule of softmax attention must leave in HBM}."""
    kept = None if p.dropout is None else p.dropout.factors(range(p.N), range(p.Nk))
    plain = plain_inputs(hbm, p)
    return {"O": attention(plain["Q"], plain["K"], plain["V"], visible, kept)}
