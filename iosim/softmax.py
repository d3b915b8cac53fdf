"""The named tile steps: each writes into its first arguments, arrays of the shapes given. The paper's letters.

NumPy is imported inside the steps that need it, so that a text can name steps without loading it. `flops` gives the
factors of the floating-point operations of a matrix product from the shapes of its arguments.
"""

from collections.abc import Callable
from typing import Any

Array = Any


def flops(factors: Callable[..., tuple[Any, ...]]) -> Callable[[Any], Any]:
    """Say how many floating-point operations a step costs: a product of factors, from its arguments' shapes."""

    def mark(step: Any) -> Any:
        step.flops = factors
        return step

    return mark


def nothing(*shapes: Any) -> list[Any]:
    return []


def work(exps: Callable[..., list[Any]] = nothing, other: Callable[..., list[Any]] = nothing) -> Callable[[Any], Any]:
    """Say what a step does beside matrix products, as lists of products of factors: exponentials (and logarithms), and
    other operations, each addition, multiplication, comparison or division of two numbers being one."""

    def mark(step: Any) -> Any:
        step.work = exps, other
        return step

    return mark


@work()
def zeros(o: Array) -> None:
    o[...] = 0


@work()
def minus_infinity(m: Array) -> None:
    m[...] = float("-inf")


@work(other=lambda s, q, k: [s])
@flops(lambda s, q, k: (2, *s, q[1]))
def scores(s: Array, q: Array, k: Array) -> None:
    """S = Q K^T / sqrt(d): s (rows, keys), q (rows, d), k (keys, d)."""
    s[...] = q @ k.T * (q.shape[1] ** -0.5)


@work()
def hide(s: Array, visible: Array) -> None:
    """-inf wherever the mask does not let a query see a key: before the maximum, never after (SOURCES of NaN)."""
    s[~visible] = float("-inf")


@work(exps=lambda s: [s], other=lambda s: [(4, *s)])
def softmax_rows(s: Array) -> None:
    """P = softmax(S), whole rows; a row that sees nothing becomes zeros."""
    import numpy as np

    m = s.max(axis=1, keepdims=True)
    s[...] = np.exp(s - np.where(np.isneginf(m), 0, m))
    l = s.sum(axis=1, keepdims=True)
    s /= np.where(l == 0, 1, l)


@work(exps=lambda s, m, l, o: [s, m], other=lambda s, m, l, o: [(3, *s), (4, *m), o])
def online_softmax(s: Array, m: Array, l: Array, o: Array) -> None:
    """One step of online softmax: s becomes exp(s - new maximum), and m, l, o move to the new maximum.

    s (rows, keys), m and l (rows,), o (rows, dv), not normalised. Dao 2023, Algorithm 1, lines 9 and 10.
    """
    import numpy as np

    new = np.maximum(m, s.max(axis=1))
    safe = np.where(np.isneginf(new), 0, new)  # a row that has seen nothing keeps l = 0 and o = 0
    s[...] = np.exp(s - safe[:, None])
    factor = np.exp(m - safe)
    l[...] = l * factor + s.sum(axis=1)
    o *= factor[:, None]
    m[...] = new


@work()
@flops(lambda o, p, v: (2, *o, v[0]))
def accumulate(o: Array, p: Array, v: Array) -> None:
    """O += P V: o (rows, dv), p (rows, keys), v (keys, dv)."""
    o += p.astype(o.dtype) @ v.astype(o.dtype)


@work(other=lambda o, l: [o])
def normalise(o: Array, l: Array) -> None:
    """O / l; rows that saw nothing stay 0."""
    import numpy as np

    o /= np.where(l == 0, 1, l)[:, None]


@work(other=lambda o, l: [o])
def denormalise(o: Array, l: Array) -> None:
    """O * l: undo `normalise` before the next key tile (Dao et al. 2022, Algorithm 1, line 12)."""
    o *= l[:, None]


@work(exps=lambda l, m: [l], other=lambda l, m: [l])
def log_sum_exp(l: Array, m: Array) -> None:
    """LSE = m + log(l), in the place of l; -inf where nothing was seen."""
    import numpy as np

    with np.errstate(divide="ignore"):
        l[...] = np.log(l) + np.where(np.isneginf(m), 0, m)


@work(exps=lambda m, l, o, part, lse: [m, m], other=lambda m, l, o, part, lse: [(5, *m), (3, *o)])
def merge(m: Array, l: Array, o: Array, part: Array, lse: Array) -> None:
    """Add a partial result: part (rows, dv) is normalised, lse (rows,) its log-sum-exp, -inf where nothing was seen.

    m, l (rows,) and o (rows, dv) move to the new maximum; `normalise` follows the last part. Dao et al. 2023,
    Flash-Decoding, step 3.
    """
    import numpy as np

    new = np.maximum(m, lse)
    safe = np.where(np.isneginf(new), 0, new)  # rows that saw nothing keep l = 0 and o = 0
    old, weight = np.exp(m - safe), np.exp(lse - safe)
    l[...] = l * old + weight
    o[...] = o * old[:, None] + part * weight[:, None]
    m[...] = new


@work(other=lambda s, factors: [s])
def drop(s: Array, factors: Array) -> None:
    """Dropout, after the row sums: s and factors (rows, keys), each factor 0 or 1 / (1 - probability)."""
    s *= factors.astype(s.dtype)


@work()
def keep(s: Array) -> None:
    """An unfused elementwise pass (a mask, a dropout): reads and writes every score, changes none here."""
