"""Gradients of softmax attention in float64, from the chain rule on whole matrices, to judge backward passes.

It shares no code with steps/backward.py. NumPy is loaded inside, so that a schedule can name its oracle without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ..core.problem import Attention
    from ..core.typing import Array, Arrays, Bools


def forward(q: Array, k: Array, v: Array, visible: Bools | None = None, kept: Array | None = None) -> Arrays:
    """P, O and the row statistics m, l, LSE. `kept` (N, Nk) holds the factors of dropout; None means no dropout."""
    import numpy as np

    s = np.asarray(q, np.float64) @ np.asarray(k, np.float64).T / np.sqrt(np.shape(q)[1])
    if visible is not None:
        s = np.where(visible, s, -np.inf)
    m = s.max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        e = np.nan_to_num(np.exp(s - m[:, None]), nan=0.0)
        l = e.sum(axis=1)
        lse = np.where(l > 0, m + np.log(l), -np.inf)
    p = e / np.where(l > 0, l, 1)[:, None]
    used = p if kept is None else p * kept
    return {"P": p, "O": used @ np.asarray(v, np.float64), "m": m, "l": l, "LSE": lse}


def gradients(
    q: Array, k: Array, v: Array, do: Array, visible: Bools | None = None, kept: Array | None = None
) -> Arrays:
    """dQ, dK, dV of the loss sum(dO * O). The Jacobian of softmax in a row is diag(p) - p p^T."""
    import numpy as np

    q, k, v, do = (np.asarray(x, np.float64) for x in (q, k, v, do))
    p = forward(q, k, v, visible)["P"]
    kept = np.ones_like(p) if kept is None else kept
    dp = np.einsum("nv,kv->nk", do, v) * kept
    ds = (p * dp - p * np.einsum("nj,nj->n", p, dp)[:, None]) / np.sqrt(q.shape[1])
    return {
        "dQ": np.einsum("nk,kd->nd", ds, k),
        "dK": np.einsum("nk,nd->kd", ds, q),
        "dV": np.einsum("nk,nv->kv", p * kept, do),
    }


def backward_inputs(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random Q, K, V, dO of one head, and what a forward pass leaves for them: P, O, m, l, LSE."""
    shapes = {"Q": (p.N, p.d), "K": (p.Nk, p.d), "V": (p.Nk, p.dv), "dO": (p.N, p.dv)}
    hbm: Arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {**hbm, **left_by_forward(hbm, p, visible)}


def left_by_forward(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """What a forward pass leaves for a backward pass over these Q, K and V: P, O, m, l, LSE."""
    return forward(hbm["Q"], hbm["K"], hbm["V"], visible, kept_of(p))


def backward_output(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """The tensors that the backward passes must leave in HBM, from Q, K, V and dO alone."""
    return gradients(hbm["Q"], hbm["K"], hbm["V"], hbm["dO"], visible, kept_of(p))


def kept_of(p: Attention) -> Array | None:
    """The factors of a problem's dropout on all probabilities; None without dropout."""
    return p.dropout.factors(range(p.N), range(p.Nk)) if p.dropout is not None else None
