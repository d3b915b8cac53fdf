"""Tile steps of attention with a state: linear attention, decays and the delta rule, a chunk of tokens at a time.

Tokens of a chunk are rows. q and k are (rows, d), v and u (rows, dv), the state is (d, dv), b (rows,). Gates `g` come
last: the sum of log decays from the first token of the chunk on, as `cumulate` leaves them, (rows,) or (rows, d); one
number stands for the log decay of every token; without gates nothing decays. As in steps/softmax.py, each step writes
into its first arguments.
"""

from __future__ import annotations

from math import log1p
from typing import TYPE_CHECKING

from .passes import Number
from .softmax import Operands, flops, work

if TYPE_CHECKING:
    from .softmax import Array


OF_HEAD = Number(log1p(-(2.0**-5)))
"""The log decay of every token where it is a number of the head, as an input of a step: that of RetNet's first head."""


def logs(x: Array, g: Array | None) -> Array:
    """The log decay from the start of the chunk to each row of x, (rows, 1) or (rows, d)."""
    import numpy as np

    if g is None:
        return np.zeros((len(x), 1), x.dtype)
    if g.ndim == 0:
        return (g * np.arange(1, len(x) + 1, dtype=x.dtype))[:, None]
    return g.reshape(len(x), -1)


def weighted(q: Array, k: Array, g: Array | None, least: int) -> Array:
    """q_i . k_j, decayed from token j to token i, for j <= i - least; else 0."""
    import numpy as np

    sums = logs(q, g)
    between = np.minimum(sums[:, None, :] - sums[None, :, :], 0)  # of later tokens, which are hidden, it may be large
    if between.shape[2] == 1:
        found = q @ k.T * np.exp(between[:, :, 0])
    else:
        found = np.einsum("im,jm,ijm->ij", q, k, np.exp(between))
    return np.tril(found, -least)


# ---------------------------------------------------------------- the feature map of linear attention


def feature_map(x: Array) -> Array:
    """phi(x) = elu(x) + 1: x + 1 above 0, exp(x) below. Katharopoulos et al. 2020, equation 7."""
    import numpy as np

    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


@work(exps=lambda x: [x], other=lambda x: [(3, *x)])
@Operands()
def features(x: Array) -> None:
    """phi(x) in the place of x."""
    x[...] = feature_map(x)


@work(exps=lambda y, x: [x], other=lambda y, x: [(3, *y)])
@Operands(reads_whole=(1,))
def more_features(y: Array, x: Array) -> None:
    """Powers of phi(x) in as many columns as y has: y (rows, m), x (rows, d). Column i is phi of word i mod d to the
    power of 1 / (1 + i // d)."""
    import numpy as np

    columns = np.arange(y.shape[1])
    y[...] = feature_map(x)[:, columns % x.shape[1]] ** (1 / (1 + columns // x.shape[1]))


@work(other=lambda z, k: [k, z])
@Operands(reads_whole=(1,))
def add_keys(z: Array, k: Array) -> None:
    """z += the sum of phi(K) over the keys: z (d,)."""
    z += k.sum(axis=0)


@work()
@flops(lambda l, q, z: (2, *l, z[0]))
@Operands(reads_whole=(2,))
def read_normaliser(l: Array, q: Array, z: Array) -> None:
    """l = phi(Q) . z: the number by which a row of O is divided, for each row. q (rows, d), l (rows,)."""
    l[...] = q.astype(l.dtype) @ z.astype(l.dtype)


# ---------------------------------------------------------------- gates, products in a chunk, and the delta rule


@work(other=lambda g: [g])
@Operands(reads_whole=(0,))
def cumulate(g: Array) -> None:
    """Sums over the tokens up to each, in place: g (rows,) or (rows, d)."""
    g[...] = g.cumsum(axis=0)


@work(exps=lambda s, q, k, *g: [s] if g else [], other=lambda s, q, k, *g: [(2, *s)] if g else [])
@flops(lambda s, q, k, *g: (2, *s, q[1]))
@Operands(reads_whole=(2, 3))
def products(s: Array, q: Array, k: Array, g: Array | None = None) -> None:
    """S = Q K^T of tokens that are not later than the query's, decayed; else 0. S (rows, rows)."""
    s[...] = weighted(q, k, g, 0)


@work(exps=lambda s, k, *g: [s] if g else [], other=lambda s, k, *g: [(2, *s)] if g else [])
@flops(lambda s, k, *g: (2, *s, k[1]))
@Operands(reads_whole=(1, 2))
def key_products(s: Array, k: Array, g: Array | None = None) -> None:
    """S = K K^T of tokens that are earlier than the row's, decayed; else 0. S (rows, rows)."""
    s[...] = weighted(k, k, g, 1)


@work(other=lambda v, b, s, k, state, *g: [(3, *v), (*v, s[0])])
@flops(lambda v, b, s, k, state, *g: (2, *v, state[0]))
@Operands(reads_whole=(0, 1, 2, 3, 4, 5))
def delta_values(v: Array, b: Array, s: Array, k: Array, state: Array, g: Array | None = None) -> None:
    """u_t = b_t (v_t - (what the state of the tokens before t answers to k_t)), in the place of v, token by token.

    s holds the products of `key_products`, and the state is that before the chunk.
    """
    import numpy as np

    before = (k * np.exp(logs(k, g))).astype(state.dtype) @ state
    for t in range(len(v)):
        v[t] = b[t] * (v[t] - before[t] - s[t, :t] @ v[:t])


# ---------------------------------------------------------------- the delta rule in passes of their own


@work(other=lambda s, b: [s])
@flops(lambda s, b: (s[0], *s))
@Operands(reads_whole=(0, 1))
def invert(s: Array, b: Array) -> None:
    """A = (1 + diag(b) S)^-1 in the place of S, the products of `key_products`: unit lower triangular."""
    import numpy as np

    inverse = np.eye(len(s), dtype=s.dtype)
    for t in range(1, len(s)):
        inverse[t, :t] = -b[t] * (s[t, :t] @ inverse[:t, :t])
    s[...] = inverse


@work(exps=lambda w, a, k, b, *g: list(g[:1]), other=lambda w, a, k, b, *g: [(2, *k)])
@flops(lambda w, a, k, b, *g: (2, *w, a[1]))
@Operands(reads_whole=(2, 3, 4))
def state_factors(w: Array, a: Array, k: Array, b: Array, g: Array | None = None) -> None:
    """W = A (b K), with K decayed from the start of the chunk: what the state before the chunk is multiplied with."""
    import numpy as np

    w[...] = a @ (b[:, None] * k * np.exp(logs(k, g)))


@work(other=lambda u, a, v, b: [v])
@flops(lambda u, a, v, b: (2, *u, a[1]))
@Operands(reads_whole=(2, 3))
def own_values(u: Array, a: Array, v: Array, b: Array) -> None:
    """U = A (b V): the values of the delta rule if the state before the chunk were 0."""
    u[...] = a @ (b[:, None] * v)


@work(other=lambda u, w, state: [u])
@flops(lambda u, w, state: (2, *u, state[0]))
@Operands(reads_whole=(2,))
def less_state(u: Array, w: Array, state: Array) -> None:
    """U -= W S: the values of the delta rule."""
    u -= w.astype(state.dtype) @ state


# ---------------------------------------------------------------- the state


@work(exps=lambda o, q, state, *g: list(g[:1]), other=lambda o, q, state, *g: [q] if g else [])
@flops(lambda o, q, state, *g: (2, *o, state[0]))
@Operands(reads_whole=(2, 3))
def read_state(o: Array, q: Array, state: Array, g: Array | None = None) -> None:
    """O += Q S, with S decayed up to each token."""
    import numpy as np

    o += (q * np.exp(logs(q, g))).astype(o.dtype) @ state.astype(o.dtype)


@work(exps=lambda state, k, u, *g: list(g[:1]), other=lambda state, k, u, *g: [state, k] if g else [])
@flops(lambda state, k, u, *g: (2, *state, k[0]))
@Operands(reads_whole=(1, 2, 3))
def add_chunk(state: Array, k: Array, u: Array, g: Array | None = None) -> None:
    """S = the state decayed over the chunk, and K^T U with what is left of each at the end of the chunk."""
    import numpy as np

    sums = logs(k, g)
    left = k * np.exp(sums[-1:] - sums)
    state *= np.exp(sums[-1]).reshape(-1, 1).astype(state.dtype)
    state += left.astype(state.dtype).T @ u.astype(state.dtype)


# ---------------------------------------------------------------- a ring of rows k (rows, d) and u (rows, dv)


@work(exps=lambda o, q, state, k, *g: [q] if g else [], other=lambda o, q, state, k, *g: [q] if g else [])
@flops(lambda o, q, state, k, *g: (2, *o, state[0]))
@Operands(reads_whole=(1, 2, 3, 4))
def ring_state(o: Array, q: Array, state: Array, k: Array, g: Array | None = None) -> None:
    """O = q S for one token, with S decayed over all rows k of the ring, of which the last is the token's own."""
    import numpy as np

    o[...] = (q * np.exp(logs(k, g)[-1:])).astype(o.dtype) @ state.astype(o.dtype)


def ring_weights(q: Array, k: Array, g: Array | None) -> Array:
    """q . k_j of one token for each row of the ring, decayed from row j to the last."""
    import numpy as np

    sums = logs(k, g)
    return (k * np.exp(sums[-1:] - sums)) @ q[0]  # type: ignore[no-any-return]


@work(exps=lambda o, q, k, u, v, *g: list(g[:1]), other=lambda o, q, k, u, v, *g: [(2, *u)])
@flops(lambda o, q, k, u, v, *g: (2, *k))
@Operands(reads_whole=(1, 2, 3, 4, 5))
def ring_output(o: Array, q: Array, k: Array, u: Array, v: Array, g: Array | None = None) -> None:
    """O += what the rows of the ring answer to q (1, d). u has their values but for the last row, whose own is v."""
    weights = ring_weights(q, k, g)
    o += weights[:-1] @ u + weights[-1] * v


@work(exps=lambda v, b, o, k, u, *g: list(g[:1]), other=lambda v, b, o, k, u, *g: [(2, *u), (3, *v)])
@flops(lambda v, b, o, k, u, *g: (2, *k))
@Operands(reads_whole=(0, 1, 2, 3, 4, 5))
def ring_delta(v: Array, b: Array, o: Array, k: Array, u: Array, g: Array | None = None) -> None:
    """u = b (v - what the state before the token answers to its key) in the place of v (1, dv).

    o (1, dv) is the answer of the state at the start of the ring, and the last row of k is the token's own.
    """
    v[...] = b[0] * (v - o - ring_weights(k[-1:], k, g)[:-1] @ u)


@work(exps=lambda state, k, u, v, *g: list(g[:1]), other=lambda state, k, u, v, *g: [state, k] if g else [])
@flops(lambda state, k, u, v, *g: (2, *state, k[0]))
@Operands(reads_whole=(1, 2, 3, 4))
def add_ring(state: Array, k: Array, u: Array, v: Array, g: Array | None = None) -> None:
    """`add_chunk` for all rows of a ring. u has their values but for the last row, whose own is v."""
    import numpy as np

    add_chunk(state, k, np.concatenate([u, v]), g)


@work(exps=lambda o, state, k, *g: [k] if g else [])
@flops(lambda o, state, k, *g: (2, *o, state[0]))
@Operands(reads_whole=(1, 2, 3))
def ring_key(o: Array, state: Array, k: Array, g: Array | None = None) -> None:
    """`ring_state` for the token's own key, the last row of k."""
    ring_state(o, k[-1:], state, k, g)
