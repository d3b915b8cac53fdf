"""Tile steps of the gradients of attention with a state, a chunk of tokens at a time.

Letters, shapes and gates are those of steps/state.py, and each step writes into its first arguments. `ds`, (d, dv), is
the gradient of the state after the chunk. `w` holds dO_i . V_j for j <= i, else 0: those of `products` without gates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .softmax import Operands, flops, work
from .state import logs, weighted

if TYPE_CHECKING:
    from .softmax import Array


def to_end(x: Array, g: Array | None) -> Array:
    """The decay from each row of x to the end of the chunk, (rows, 1) or (rows, d)."""
    import numpy as np

    sums = logs(x, g)
    return np.exp(sums[-1:] - sums)


def pairs(w: Array, x: Array, g: Array | None, later: bool) -> Array:
    """For each row, the sum of w X, decayed between the two tokens: of row i with the tokens j <= i, or with `later` of
    row j with the tokens i >= j."""
    import numpy as np

    sums = logs(x, g)
    between = np.exp(np.minimum(sums[:, None, :] - sums[None, :, :], 0))  # [i, j]: above the diagonal w is 0
    if between.shape[2] == 1:
        decayed = w * between[:, :, 0]
        return (decayed.T if later else decayed) @ x
    return np.einsum("ij,im,ijm->jm" if later else "ij,jm,ijm->im", w, x, between)


# ---------------------------------------------------------------- with the state before the chunk


@work(exps=lambda dq, do, state, *g: list(g[:1]), other=lambda dq, do, state, *g: [dq] if g else [])
@flops(lambda dq, do, state, *g: (2, *dq, do[1]))
@Operands(reads_whole=(2, 3))
def read_state_rows(dq: Array, do: Array, state: Array, g: Array | None = None) -> None:
    """dQ = dO S^T, with S decayed up to each token."""
    import numpy as np

    dq[...] = np.exp(logs(dq, g)) * (do @ state.T)


@work(exps=lambda dq, w, k, *g: [w] if g else [], other=lambda dq, w, k, *g: [(2, *w)] if g else [])
@flops(lambda dq, w, k, *g: (2, *dq, w[1]))
@Operands(reads_whole=(2, 3))
def add_earlier(dq: Array, w: Array, k: Array, g: Array | None = None) -> None:
    """dQ_i += the sum of w_ij K_j over the tokens j <= i of the chunk, decayed."""
    dq += pairs(w, k, g, later=False)


# ---------------------------------------------------------------- with the gradient of the state after the chunk


@work(exps=lambda dk, v, ds, *g: list(g[:1]), other=lambda dk, v, ds, *g: [(2, *dk)] if g else [])
@flops(lambda dk, v, ds, *g: (2, *dk, v[1]))
@Operands(reads_whole=(2, 3))
def read_gradient_rows(dk: Array, v: Array, ds: Array, g: Array | None = None) -> None:
    """dK = V dS^T, with dS decayed from the end of the chunk down to each token."""
    dk[...] = to_end(dk, g) * (v @ ds.T)


@work(exps=lambda dk, w, q, *g: [w] if g else [], other=lambda dk, w, q, *g: [(2, *w)] if g else [])
@flops(lambda dk, w, q, *g: (2, *dk, w[0]))
@Operands(reads_whole=(1, 2, 3))
def add_later(dk: Array, w: Array, q: Array, g: Array | None = None) -> None:
    """dK_j += the sum of w_ij Q_i over the tokens i >= j of the chunk, decayed."""
    dk += pairs(w, q, g, later=True)


@work(exps=lambda dv, k, ds, *g: list(g[:1]), other=lambda dv, k, ds, *g: [(2, *k)] if g else [])
@flops(lambda dv, k, ds, *g: (2, *dv, ds[0]))
@Operands(reads_whole=(2, 3))
def read_gradient(dv: Array, k: Array, ds: Array, g: Array | None = None) -> None:
    """dV = K dS, with dS decayed from the end of the chunk down to each token."""
    dv[...] = (k * to_end(k, g)) @ ds


@work(exps=lambda ds, q, do, *g: list(g[:1]), other=lambda ds, q, do, *g: [ds, q] if g else [])
@flops(lambda ds, q, do, *g: (2, *ds, q[0]))
@Operands(reads_whole=(1, 2, 3))
def add_chunk_back(ds: Array, q: Array, do: Array, g: Array | None = None) -> None:
    """dS = the gradient of the state before the chunk: dS decayed over it, and Q^T dO, each decayed down to its
    start."""
    import numpy as np

    sums = logs(q, g)
    ds *= np.exp(sums[-1]).reshape(-1, 1).astype(ds.dtype)
    ds += (q * np.exp(sums)).astype(ds.dtype).T @ do.astype(ds.dtype)


# ---------------------------------------------------------------- gates
# The gradient of the log decay of token t is that of token t + 1, and Q_t dQ_t - K_t dK_t. After the last token it is
# the sum over columns of S_N and the gradient of S_N. If a token has one decay, all words of a key are summed.


def of_gates(x: Array, words: int) -> Array:
    """x (rows, d) as gates: itself, or its sums if a gate has one word for all."""
    return x if words == x.shape[1] else x.sum(axis=1, keepdims=True)


@work(other=lambda e, state, ds: [(2, *ds)])
@Operands(reads_whole=(1, 2))
def state_dots(e: Array, state: Array, ds: Array) -> None:
    """e = the sums of S dS over the columns: e (d,), or (1,) for the sum of all."""
    e[...] = of_gates((state * ds).sum(axis=1)[None, :], len(e))[0]


@work(other=lambda dg, k, dk: [(2, *dk)])
@Operands()
def less_keys(dg: Array, k: Array, dk: Array) -> None:
    """dg = - K dK, in the words of a gate: dg (rows, 1) or (rows, d)."""
    dg[...] = -of_gates(k * dk, dg.shape[1])


@work(other=lambda dg, e, q, dq: [(2, *dq), dg])
@Operands(reads_whole=(0, 1, 2, 3))
def gate_gradients(dg: Array, e: Array, q: Array, dq: Array) -> None:
    """dg = the sums of dg + Q dQ over the tokens from each on, and e. e = those of the first token: e (1,) or (d,)."""
    dg += of_gates(q * dq, dg.shape[1])
    dg[...] = dg[::-1].cumsum(axis=0)[::-1] + e
    e[...] = dg[0]


# ---------------------------------------------------------------- the delta rule
# u_t = b_t r_t with r_t = v_t - (A_t S_(t-1))^T k_t, and dV_t = b_t du_t. n is - dV, and z is n_i . u_j for j < i.


@work(other=lambda v, b, s, k, state, *g: [(3, *v), (*v, s[0])])
@flops(lambda v, b, s, k, state, *g: (2, *v, state[0]))
@Operands(reads_whole=(0, 1, 2, 3, 4, 5))
def delta_rests(v: Array, b: Array, s: Array, k: Array, state: Array, g: Array | None = None) -> None:
    """r_t in the place of v, token by token. s holds the products of `key_products`, and the state is that before the
    chunk."""
    import numpy as np

    before = (k * np.exp(logs(k, g))) @ state
    for t in range(len(v)):
        v[t] -= before[t] + s[t, :t] @ (b[:t, None] * v[:t])


@work(other=lambda u, b, v: [u])
@Operands()
def weigh_rows(u: Array, b: Array, v: Array) -> None:
    """U = b V, row by row: u and v (rows, dv), b (rows,)."""
    u[...] = b[:, None] * v


@work(other=lambda dv, s, b: [(3, *dv), (*dv, s[0])])
@Operands(reads_whole=(0, 1, 2))
def solve_back(dv: Array, s: Array, b: Array) -> None:
    """du in the place of what it is without later tokens of the chunk, from the last token on. s is that of
    `key_products`."""
    for t in reversed(range(len(dv))):
        dv[t] -= (s[t + 1 :, t] * b[t + 1 :]) @ dv[t + 1 :]


@work(other=lambda n, b: [(2, *n)])
@Operands()
def weigh_down(n: Array, b: Array) -> None:
    """n = - b n, row by row: n (rows, dv), b (rows,)."""
    n *= -b[:, None]


@work()
@flops(lambda z, n, u: (2, *z, n[1]))
@Operands(reads_whole=(2,))
def earlier_rows(z: Array, n: Array, u: Array) -> None:
    """z_ij = n_i . u_j for j < i, else 0."""
    z[...] = weighted(n, u, None, 1)


@work(exps=lambda ds, k, n, *g: list(g[:1]), other=lambda ds, k, n, *g: [k] if g else [])
@flops(lambda ds, k, n, *g: (2, *ds, k[0]))
@Operands(reads_whole=(1, 2, 3))
def add_keys_back(ds: Array, k: Array, n: Array, g: Array | None = None) -> None:
    """dS += K^T n, each decayed down to the start of the chunk."""
    import numpy as np

    ds += (k * np.exp(logs(k, g))).T @ n


@work(other=lambda dg, k, dk: [(2, *dk)])
@Operands()
def more_keys(dg: Array, k: Array, dk: Array) -> None:
    """dg += K dK, in the words of a gate."""
    dg += of_gates(k * dk, dg.shape[1])


@work(other=lambda x, y: [x])
@Operands()
def add_rows(x: Array, y: Array) -> None:
    """X += Y: (rows, d)."""
    x += y
