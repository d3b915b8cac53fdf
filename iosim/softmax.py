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


def zeros(o: Array) -> None:
    o[...] = 0


def minus_infinity(m: Array) -> None:
    m[...] = float("-inf")


@flops(lambda s, q, k: (2, *s, q[1]))
def scores(s: Array, q: Array, k: Array) -> None:
    """S = Q K^T / sqrt(d): s (rows, keys), q (rows, d), k (keys, d)."""
    s[...] = q @ k.T * (q.shape[1] ** -0.5)


def hide(s: Array, visible: Array) -> None:
    """-inf wherever the mask does not let a query see a key: before the maximum, never after (SOURCES of NaN)."""
    s[~visible] = float("-inf")


def softmax_rows(s: Array) -> None:
    """P = softmax(S), whole rows; a row that sees nothing becomes zeros."""
    import numpy as np

    m = s.max(axis=1, keepdims=True)
    s[...] = np.exp(s - np.where(np.isneginf(m), 0, m))
    l = s.sum(axis=1, keepdims=True)
    s /= np.where(l == 0, 1, l)


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


@flops(lambda o, p, v: (2, *o, v[0]))
def accumulate(o: Array, p: Array, v: Array) -> None:
    """O += P V: o (rows, dv), p (rows, keys), v (keys, dv)."""
    o += p.astype(o.dtype) @ v.astype(o.dtype)


def normalise(o: Array, l: Array) -> None:
    """O / l; rows that saw nothing stay 0."""
    import numpy as np

    o /= np.where(l == 0, 1, l)[:, None]


def denormalise(o: Array, l: Array) -> None:
    """O * l: undo `normalise` before the next key tile (Dao et al. 2022, Algorithm 1, line 12)."""
    o *= l[:, None]


def log_sum_exp(l: Array, m: Array) -> None:
    """LSE = m + log(l), in the place of l; -inf where nothing was seen."""
    import numpy as np

    with np.errstate(divide="ignore"):
        l[...] = np.log(l) + np.where(np.isneginf(m), 0, m)


def keep(s: Array) -> None:
    """An unfused elementwise pass (a mask, a dropout): reads and writes every score, changes none here."""
