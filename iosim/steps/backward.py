"""The named tile steps of the backward passes. Each writes into its first arguments. Letters are those of the papers.

dO, dV, dP, dS, dQ, dK are gradients of a scalar loss. D is rowsum(dO * O) (Dao et al. 2022, Appendix B.2). NumPy is
imported inside the steps, so that a schedule can name them without loading it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .softmax import Operands, flops, work

if TYPE_CHECKING:
    from .softmax import Array


@work(exps=lambda s, l, m: [s], other=lambda s, l, m: [(2, *s)])
@Operands()
def probabilities(s: Array, l: Array, m: Array) -> None:
    """P = diag(l)^-1 exp(S - m) in the place of S; s (rows, keys), l and m (rows,). Dao et al. 2022, Alg. 4, line 13.

    A row that saw nothing (l = 0, m = -inf) becomes zeros.
    """
    import numpy as np

    s[...] = np.exp(s - np.where(np.isneginf(m), 0, m)[:, None])
    s /= np.where(l == 0, 1, l)[:, None]


@work(exps=lambda s, lse: [s], other=lambda s, lse: [s])
@Operands()
def probabilities_from_lse(s: Array, lse: Array) -> None:
    """P = exp(S - LSE) in the place of S; s (rows, keys), lse (rows,). Dao 2023, Algorithm 2, line 11."""
    import numpy as np

    s[...] = np.exp(s - np.where(np.isneginf(lse), 0, lse)[:, None])


@work()
@Operands()
def clear(s: Array, visible: Array) -> None:
    """0 wherever the mask does not let a query see a key: s and visible (rows, keys), visible of booleans.

    For words of P and dS in HBM that nobody wrote, in tiles that other launches left out.
    """
    s[~visible] = 0


@work(other=lambda delta, do, o: [(2, *do)])
@Operands()
def row_dots(delta: Array, do: Array, o: Array) -> None:
    """D = rowsum(dO * O): delta (rows,), do and o (rows, dv). Dao et al. 2022, Algorithm 4, line 19."""
    delta[...] = (do * o).sum(axis=1)


@work(other=lambda delta, do, o: [(2, *do), delta])
@Operands()
def add_row_dots(delta: Array, do: Array, o: Array) -> None:
    """D += rowsum(dO * O) over some columns: delta (rows,), do and o (rows, c)."""
    delta += (do * o).sum(axis=1)


@work()
@flops(lambda dp, do, v: (2, *dp, do[1]))
@Operands(reads_whole=(2,))
def probability_gradients(dp: Array, do: Array, v: Array) -> None:
    """dP = dO V^T: dp (rows, keys), do (rows, dv), v (keys, dv)."""
    dp[...] = do @ v.T


@work(other=lambda dp, p, delta: [(2, *dp)])
@Operands()
def score_gradients(dp: Array, p: Array, delta: Array) -> None:
    """dS = P * (dP - D) in the place of dP: dp and p (rows, keys), delta (rows,)."""
    dp -= delta[:, None]
    dp *= p


@work(other=lambda dp, p: [(4, *dp)])
@Operands()
def score_gradients_of_rows(dp: Array, p: Array) -> None:
    """dS = P * (dP - D) in the place of dP, whole rows: D = rowsum(P * dP). Dao et al. 2022, Algorithm 3, line 3."""
    dp -= (p * dp).sum(axis=1)[:, None]
    dp *= p


@work()
@flops(lambda dv, p, do: (2, *dv, p[0]))
@Operands(reads_whole=(1, 2))
def add_value_gradients(dv: Array, p: Array, do: Array) -> None:
    """dV += P^T dO: dv (keys, dv), p (rows, keys), do (rows, dv)."""
    dv += p.T.astype(dv.dtype) @ do.astype(dv.dtype)


@work(other=lambda dk, ds, q: [dk])
@flops(lambda dk, ds, q: (2, *dk, ds[0]))
@Operands(reads_whole=(1, 2))
def add_key_gradients(dk: Array, ds: Array, q: Array) -> None:
    """dK += dS^T Q / sqrt(d): dk (keys, d), ds (rows, keys), q (rows, d)."""
    dk += ds.T.astype(dk.dtype) @ q.astype(dk.dtype) * (q.shape[1] ** -0.5)


@work(other=lambda dq, ds, k: [dq])
@flops(lambda dq, ds, k: (2, *dq, k[0]))
@Operands(reads_whole=(2,))
def add_query_gradients(dq: Array, ds: Array, k: Array) -> None:
    """dQ += dS K / sqrt(d): dq (rows, d), ds (rows, keys), k (keys, d)."""
    dq += ds.astype(dq.dtype) @ k.astype(dq.dtype) * (k.shape[1] ** -0.5)
