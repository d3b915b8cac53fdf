"""Tile steps of softmax in several passes, of products in parts, and of rows of a cache.

As in steps/softmax.py, each step writes into its first arguments, and NumPy is imported inside the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .softmax import Operands, flops, work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .softmax import Array

    Size = int | NDArray[np.int64]

    class Starts(Protocol):
        """A tile."""

        @property
        def start(self) -> int: ...


@dataclass(frozen=True)
class Number:
    """A number of the problem, as an input of a step."""

    value: Size | float

    def array(self) -> Array:
        import numpy as np

        return np.array(self.value)


@dataclass(frozen=True)
class Place:
    """The first position of a tile, counted from that of a tile which it lies in, as an input of a step."""

    tile: Starts
    within: Starts | None = None

    def array(self) -> Array:
        import numpy as np

        return np.array(self.tile.start - (self.within.start if self.within else 0))


# ---------------------------------------------------------------- scores in parts


@work()
@flops(lambda s, q, k: (2, *s, q[1]))
@Operands(reads_whole=(2,))
def add_scores(s: Array, q: Array, k: Array) -> None:
    """S += Q K^T over some columns of the head dimension: s (rows, keys), q (rows, c), k (keys, c)."""
    s += q.astype(s.dtype) @ k.astype(s.dtype).T


@work()
@flops(lambda s, q, k: (2, *s, k[1]))
@Operands(reads_whole=(2,))
def add_scores_from(s: Array, q: Array, k: Array, first: Array) -> None:
    """S += Q K^T over the columns of Q from `first` on that K has: s (rows, keys), q (rows, d), k (keys, c)."""
    columns = slice(int(first), int(first) + k.shape[1])
    s += q[:, columns].astype(s.dtype) @ k.astype(s.dtype).T


@work()
@flops(lambda o, p, v: (2, o[0], *v[::-1]))
@Operands(reads_whole=(2,))
def accumulate_columns(o: Array, p: Array, v: Array, first: Array) -> None:
    """O += P V in the columns of O from `first` on that V has: o (rows, d), p (rows, keys), v (keys, c)."""
    o[:, int(first) : int(first) + v.shape[1]] += p.astype(o.dtype) @ v.astype(o.dtype)


@work()
@flops(lambda o, p, v: (2, o[0], *v[::-1]))
@Operands(reads_whole=(1, 2))
def accumulate_transposed(o: Array, p: Array, v: Array, first: Array) -> None:
    """O += P^T V in the columns of O from `first` on that V has: o (keys, d), p (rows, keys), v (rows, c)."""
    o[:, int(first) : int(first) + v.shape[1]] += p.T.astype(o.dtype) @ v.astype(o.dtype)


@work(other=lambda s, d: [s])
@Operands()
def scale(s: Array, d: Array) -> None:
    """S = S / sqrt(d), after all columns are added."""
    s *= float(d) ** -0.5


# ---------------------------------------------------------------- an index of keys


@work(other=lambda r, s, w: [(2, *s)])
@Operands(reads_whole=(1, 2))
def weighted_sums(r: Array, s: Array, w: Array) -> None:
    """The sum over all rows of w max(S, 0): r (1, keys), s (rows, keys), w (rows,)."""
    import numpy as np

    r[...] = (np.maximum(s, 0) * w[:, None]).sum(axis=0)


@work(other=lambda index, s: [s])
@Operands()
def largest(index: Array, s: Array) -> None:
    """The positions of the k largest words of each row, largest first: index (rows, k), s (rows, keys), k <= keys."""
    index[...] = (-s).argsort(axis=1, kind="stable")[:, : index.shape[1]]


# ---------------------------------------------------------------- rows of a cache

LARGEST_FP8 = 448.0  # E4M3


@work()
@Operands(reads_whole=(1,))
def copied(y: Array, x: Array) -> None:
    """Y = X, in the type of Y: both of any shape."""
    y[...] = x


@work(other=lambda s, x, words: [x, s])
@Operands(reads_whole=(1,))
def block_scales(s: Array, x: Array, words: Array) -> None:
    """The scale of each `words` columns of X: their largest absolute value over 448, the largest number of FP8 (E4M3);
    1 for zeros. s (rows, ceil(d / words)), x (rows, d)."""
    import numpy as np

    step = int(words)
    for block in range(s.shape[1]):
        s[:, block] = np.abs(x[:, block * step : (block + 1) * step]).max(axis=1) / LARGEST_FP8
    s[s == 0] = 1


@work(other=lambda y, x, scales, words: [y])
@Operands(reads_whole=(1, 2))
def quantised(y: Array, x: Array, scales: Array, words: Array) -> None:
    """Y = X / scales: y and x (rows, d), scales (rows, ceil(d / words)) or one row for all; each is for `words`
    columns."""
    import numpy as np

    y[...] = x / scales[:, np.arange(x.shape[1]) // int(words)]


# ---------------------------------------------------------------- softmax in passes: s (rows, keys), m and l (rows,)


@work(other=lambda m, s: [s, m])
@Operands()
def add_maximum(m: Array, s: Array) -> None:
    """m = the larger of m and the maximum of its row of S."""
    import numpy as np

    np.maximum(m, s.max(axis=1), out=m)


@work(exps=lambda s, m: [s], other=lambda s, m: [s])
@Operands()
def exponentials(s: Array, m: Array) -> None:
    """S = exp(S - m); a row that sees nothing (m = -inf) becomes zeros."""
    import numpy as np

    s[...] = np.exp(s - np.where(np.isneginf(m), 0, m)[:, None])


@work(other=lambda l, p: [p, l])
@Operands()
def add_sum(l: Array, p: Array) -> None:
    """l += the sum of its row of P."""
    l += p.sum(axis=1)


@work(exps=lambda m, l, s: [s, m], other=lambda m, l, s: [(3, *s), (4, *m)])
@Operands()
def add_maximum_and_sum(m: Array, l: Array, s: Array) -> None:
    """One step of the online normaliser: m becomes the new maximum, l is rescaled, new sums are added.

    Milakov and Gimelshein 2018, Algorithm 3, lines 4 and 5.
    """
    import numpy as np

    new = np.maximum(m, s.max(axis=1))
    safe = np.where(np.isneginf(new), 0, new)
    l[...] = l * np.exp(m - safe) + np.exp(s - safe[:, None]).sum(axis=1)
    m[...] = new
