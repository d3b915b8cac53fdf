"""The named tile steps of softmax attention. Each writes into its first arguments. Letters are those of the papers.

NumPy is imported inside the steps that need it, so that a schedule can name steps without loading it. Three marks
are decorators: `flops` and `work` say what a step computes on any machine, and `Operands` how a kernel reads its
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
BlockShape = tuple[Any, ...]  # tiles and numbers: the axes of a block
Factors = Callable[..., BlockShape]
StepTerms = Callable[..., list[Any]]
AnyStep = TypeVar("AnyStep", bound=Callable[..., None])


def flops(factors: Factors) -> Callable[[AnyStep], AnyStep]:
    """A mark with the floating-point operations of a step that is a matrix product.

    `factors` takes the shapes of the step's blocks and returns factors, as `(2, *s, q[1])`. The number of operations is
    their product.
    """

    def mark(step: AnyStep) -> AnyStep:
        step.__dict__["flops"] = factors
        return step

    return mark


def nothing(*shapes: BlockShape) -> list[Any]:
    """No operations."""
    return []


def work(exps: StepTerms = nothing, other: StepTerms = nothing) -> Callable[[AnyStep], AnyStep]:
    """A mark with what a step computes besides matrix products.

    `exps` counts exponentials and logarithms. `other` counts additions, multiplications, comparisons and divisions of
    two numbers. Each takes the shapes of the arguments and returns a list of tuples of factors. The number of
    operations is the sum of the products of these tuples.
    """

    def mark(step: AnyStep) -> AnyStep:
        step.__dict__["work"] = exps, other
        return step

    return mark


class Operands(NamedTuple):
    """A mark that says how the warps of a kernel read the arguments of a step, numbered from 0. A step without this
    mark may read all rows of each."""

    reads_whole: tuple[int, ...] = ()
    """The arguments of which every warp reads all rows. In the others a warp touches only its own rows."""
    tensor_inputs: tuple[int, ...] = ()
    """Arguments that must be 16-bit inputs for tensor cores. Empty: the step has no version for them."""

    def __call__(self, step: AnyStep) -> AnyStep:
        """The step, marked."""
        step.__dict__["operands"] = self
        return step


@work()
@Operands()
def zeros(o: Array) -> None:
    """0 in every word: o of any shape."""
    o[...] = 0


@work()
@Operands()
def minus_infinity(m: Array) -> None:
    """-inf in every word: m of any shape."""
    m[...] = float("-inf")


@work(other=lambda s, q, k: [s])
@flops(lambda s, q, k: (2, *s, q[1]))
@Operands(reads_whole=(2,), tensor_inputs=(1, 2))
def scores(s: Array, q: Array, k: Array) -> None:
    """S = Q K^T / sqrt(d): s (rows, keys), q (rows, d), k (keys, d)."""
    s[...] = q @ k.T * (q.shape[1] ** -0.5)


@work(other=lambda s, q, k, rope: [s])
@flops(lambda s, q, k, rope: (2, *s, q[1]))
@Operands(reads_whole=(2, 3), tensor_inputs=(1, 2, 3))
def scores_apart(s: Array, q: Array, k: Array, rope: Array) -> None:
    """`scores` for rows of K in two parts: s (rows, keys), q (rows, d), k (keys, c), rope (keys, d - c)."""
    c = k.shape[1]
    s[...] = (q[:, :c] @ k.T + q[:, c:] @ rope.T) * (q.shape[1] ** -0.5)


@work(other=lambda k, scales, words: [k])
@Operands(reads_whole=(1,))
def rescale(k: Array, scales: Array, words: Array) -> None:
    """K * scales: k (keys, d), scales (keys, ceil(d / words)) or one row for all keys; each is for `words` columns."""
    import numpy as np

    k *= scales[:, np.arange(k.shape[1]) // int(words)].astype(k.dtype if k.dtype == np.float64 else np.float32)


@work()
@Operands()
def hide(s: Array, visible: Array) -> None:
    """-inf wherever the mask does not let a query see a key: s and visible (rows, keys), visible of booleans.

    Apply before the row maximum: a hidden score as the maximum gives NaN.
    """
    s[~visible] = float("-inf")


@work(exps=lambda s: [s], other=lambda s: [(4, *s)])
@Operands()
def softmax_rows(s: Array) -> None:
    """P = softmax(S) over whole rows: s (rows, keys). A row that sees nothing becomes zeros."""
    import numpy as np

    m = s.max(axis=1, keepdims=True)
    s[...] = np.exp(s - np.where(np.isneginf(m), 0, m))
    l = s.sum(axis=1, keepdims=True)
    s /= np.where(l == 0, 1, l)


@work(exps=lambda s, m, l, o: [s, m], other=lambda s, m, l, o: [(3, *s), (4, *m), o])
@Operands()
def online_softmax(s: Array, m: Array, l: Array, o: Array) -> None:
    """One step of online softmax.

    m becomes the new maximum. l and o are rescaled to it. s becomes exp(s - m), and its row sums are added to l. s
    (rows, keys), m and l (rows,), o (rows, dv), not yet normalised. Dao 2023, Algorithm 1, lines 9 and 10.
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
@Operands(reads_whole=(2,), tensor_inputs=(2,))
def accumulate(o: Array, p: Array, v: Array) -> None:
    """O += P V: o (rows, dv), p (rows, keys), v (keys, dv). The product has at least the precision of fp32.

    v may have more columns than o: only the first dv count, as in latent rows that hold keys and values.
    """
    import numpy as np

    wide = np.result_type(o.dtype, np.float32)
    o += p.astype(wide, copy=False) @ v[:, : o.shape[1]].astype(wide, copy=False)


@work(other=lambda o, l: [o])
@Operands()
def normalise(o: Array, l: Array) -> None:
    """O / l: o (rows, dv), l (rows,). Rows that saw nothing stay 0."""
    import numpy as np

    o /= np.where(l == 0, 1, l)[:, None]


@work(other=lambda o, l: [o])
@Operands()
def denormalise(o: Array, l: Array) -> None:
    """O * l: o (rows, dv), l (rows,). Undoes `normalise` before the next key tile.

    Dao et al. 2022, Algorithm 1, line 12.
    """
    o *= l[:, None]


@work(exps=lambda l, m: [l], other=lambda l, m: [l])
@Operands()
def log_sum_exp(l: Array, m: Array) -> None:
    """LSE = m + log(l), in the place of l: l and m (rows,). -inf where nothing was seen."""
    import numpy as np

    with np.errstate(divide="ignore"):
        l[...] = np.log(l) + np.where(np.isneginf(m), 0, m)


@work(exps=lambda m, l, o, part, lse: [m, m], other=lambda m, l, o, part, lse: [(5, *m), (3, *o)])
@Operands()
def merge(m: Array, l: Array, o: Array, part: Array, lse: Array) -> None:
    """Add a partial result: part (rows, dv) is normalised; lse (rows,) is its log-sum-exp, -inf where nothing was seen.

    m and l (rows,) and o (rows, dv) are rescaled to the new maximum. `normalise` follows the last part. Dao et al.
    2023, Flash-Decoding, step 3.
    """
    import numpy as np

    new = np.maximum(m, lse)
    safe = np.where(np.isneginf(new), 0, new)  # rows that saw nothing keep l = 0 and o = 0
    old, weight = np.exp(m - safe), np.exp(lse - safe)
    l[...] = l * old + weight
    o[...] = o * old[:, None] + part * weight[:, None]
    m[...] = new


@work(other=lambda s, factors: [s])
@Operands()
def drop(s: Array, factors: Array) -> None:
    """S * factors, after the row sums: s and factors (rows, keys), each factor 0 or 1 / (1 - probability)."""
    s *= factors.astype(s.dtype)


@work()
@Operands()
def keep(s: Array) -> None:
    """Read and write every score and change none: an unfused elementwise pass (mask, dropout) over s (rows, keys)."""
