"""Inputs and float64 references for matrix products and softmax alone. They use no tile step.

NumPy is loaded inside, so that a schedule can name its oracle without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ..core.problem import Attention
    from ..core.typing import Arrays, Bools


def two_matrices(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random A (N, d) and B (d, Nk), scaled so that the entries of C are mostly below 1 for any d."""
    return {"A": rng.normal(size=(p.N, p.d)), "B": rng.normal(scale=p.d**-0.5 / 4, size=(p.d, p.Nk))}


def matrix_product(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """C = A B, summed along the shared axis element by element."""
    import numpy as np

    a, b = (np.asarray(hbm[name], np.float64) for name in "AB")
    return {"C": np.einsum("nk,kp->np", a, b)}


def unit_inputs(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random Q, K, V of variance 1. Larger scores would be less exact, because a narrow accumulator rounds each
    partial sum."""
    shapes = {"Q": (p.N, p.d), "K": (p.Nk, p.d), "V": (p.Nk, p.dv)}
    arrays: Arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {**arrays, "V": arrays["K"][:, : p.dv].copy()} if p.latent else arrays


def score_matrix(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random scores (N, Nk)."""
    return {"S": rng.normal(scale=3, size=(p.N, p.Nk))}


def softmax_of_rows(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """P_xy = 1 / sum_z exp(S_xz - S_xy) over the keys z that x sees; 0 where hidden. No maximum, no shared sum."""
    import numpy as np

    s = np.asarray(hbm["S"], np.float64)
    seen = np.ones(s.shape, bool) if visible is None else visible
    out = np.zeros_like(s)
    with np.errstate(over="ignore"):
        for x, row in enumerate(s):
            keys = np.flatnonzero(seen[x])
            out[x, keys] = 1 / np.exp(row[None, keys] - row[keys, None]).sum(axis=1)
    return {"P": out}
