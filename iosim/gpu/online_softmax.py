"""The pieces of online softmax by themselves, as `iosim verify --cpu` shows them below its rows.

Softmax in three, two and one pass must agree, and so must blocks that are merged. Known mistakes must give wrong
results: a forgotten rescaling, a mask after the maximum, an exponential in fp16 without the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..answer import Column, Columns, Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    RowOfNumbers = Sequence[float] | Vector  # of a row

TEN = (
    0.59885727, 4.17296555, 9.17626131, 8.75696076, 1.12491781, 4.37783372, 1.52455393, 2.9992116, 8.44856526,
    2.23537473,
)  # fmt: skip


PIECE: Columns[Row] = (Column("piece", "string"), Column("value", "string"), Column("ok", "boolean"))


def blockwise_softmax(x: RowOfNumbers, block: int, rescale_sum: bool = True, rescale_earlier: bool = True) -> Vector:
    """The softmax of n numbers, computed block by block.

    Without `rescale_sum`, a block's sum is not multiplied by exp(block maximum - new maximum). Without
    `rescale_earlier`, results that were written before are not brought to the new maximum and sum.
    """
    m, l = -np.inf, 0.0
    parts: list[Vector] = []
    for start in range(0, len(x), block):
        part = np.asarray(x[start : start + block], float)
        new = max(m, part.max())
        weights = np.exp(part - part.max())
        moved = np.exp(part.max() - new)
        total = l * np.exp(m - new) + weights.sum() * (moved if rescale_sum else 1.0)
        if rescale_earlier:
            parts = [y * l * np.exp(m - new) / total for y in parts]
        parts.append(weights * moved / total)
        m, l = new, total
    return np.concatenate(parts)


def merged_output_error() -> float:
    """The error of an output merged from two blocks, each normalised by its own sum Z:
    o = (o1 Z1 + o2 Z2) / (Z1 + Z2)."""
    s, v = np.random.default_rng(2).normal(size=(2, 10))
    m = s.max()
    weights = np.exp(s - m)
    halves = [(weights[part].sum(), weights[part] @ v[part]) for part in (slice(4), slice(4, None))]
    normalised = [(Z, weighted / Z) for Z, weighted in halves]
    together = sum(Z * o for Z, o in normalised) / sum(Z for Z, _ in normalised)
    return float(abs(together - weights @ v / weights.sum()))


def demos() -> list[Row]:
    """Rows as `softmax_pieces` has them: blocks together, forgotten rescalings, and exponentials in fp16."""
    wrong = blockwise_softmax(TEN, 3, rescale_sum=False, rescale_earlier=False).sum()
    right, error = blockwise_softmax(TEN, 3), merged_output_error()
    exact = np.exp(np.array(TEN) - max(TEN))
    with np.errstate(over="ignore"):
        finite, infinite = np.exp(np.array([11.08, 11.1], np.float16))
    edge = np.log(float(np.finfo(np.float16).max))
    return [
        {"piece": "merge of two outputs", "value": f"error {error:.1e}", "ok": error < 1e-13},
        {"piece": "online softmax, both rescalings", "value": f"sums to {right.sum():.4f}",
         "ok": bool(np.allclose(right, exact / exact.sum(), rtol=1e-13))},
        {"piece": "both rescalings forgotten (must be wrong)", "value": f"sums to {wrong:.4f}",
         "ok": bool(abs(wrong - 1) > 0.1)},
        {"piece": "exp in fp16 without the maximum (must overflow)", "value": f"inf above ln 65504 = {edge:.4f}",
         "ok": bool(np.isfinite(finite) and np.isinf(infinite))},
    ]  # fmt: skip


def softmax_passes(x: RowOfNumbers, passes: int, block: int = 3) -> tuple[Vector, int, int]:
    """(the softmax of n numbers, reads, writes), where the numbers lie in slow memory and are read in `passes` passes.

    Three passes find the maximum, the sum, the quotients. Two passes find maximum and sum together (online), then the
    quotients. One pass holds the whole row on chip.
    """
    x = np.asarray(x, np.float64)
    n = len(x)
    if passes == 3:
        m = x.max()
        l = np.exp(x - m).sum()
    elif passes == 2:
        m, l = -np.inf, 0.0
        for start in range(0, n, block):
            part = x[start : start + block]
            m, l = merge_statistics(m, l, part.max(), np.exp(part - part.max()).sum())
    else:
        m, l = x.max(), np.exp(x - x.max()).sum()
    return np.exp(x - m) / l, passes * n, n


def merge_statistics(m1: float, l1: float, m2: float, l2: float) -> tuple[float, float]:
    """(maximum, sum of exponentials) of two blocks together, from those of each."""
    m = max(m1, m2)
    return (m, 0.0) if np.isneginf(m) else (m, l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m))


def blockwise_output(s: RowOfNumbers, v: RowOfNumbers, block: int, rescale: bool = True) -> float:
    """softmax(s) . v, computed in one pass over blocks. Without `rescale`, earlier blocks keep their old maximum, which
    is a mistake."""
    m, l, o = -np.inf, 0.0, 0.0
    for start in range(0, len(s), block):
        part, values = np.asarray(s[start : start + block], float), np.asarray(v[start : start + block], float)
        new = max(m, part.max())
        factor = np.exp(m - new) if rescale else 1.0
        weights = np.exp(part - new)
        m, l, o = new, l * factor + weights.sum(), o * factor + weights @ values
    return float(o / l)


def softmax_pieces() -> list[Row]:
    """A row for each piece: its name, the value found, and whether it is as it must be (`ok`)."""
    x = np.random.default_rng(1).normal(size=10)
    e = np.exp(x - x.max())
    rows = []
    for passes in (3, 2, 1):
        result, reads, writes = softmax_passes(x, passes)
        right = bool(np.allclose(result, e / e.sum(), rtol=1e-14))
        value = f"{reads} reads, {writes} writes"
        rows.append({"piece": f"{passes}-pass softmax, n = 10", "value": value, "ok": right})
    halves = [(part.max(), np.exp(part - part.max()).sum()) for part in (x[:4], x[4:])]
    error = abs(merge_statistics(*halves[0], *halves[1])[1] - e.sum())
    rows.append({"piece": "merge of two blocks", "value": f"error {error:.1e}", "ok": bool(error < 1e-13)})
    good, wrong = (
        blockwise_output([0, 1, 2], [-10, 0, 10], 2),
        blockwise_output([0, 1, 2], [-10, 0, 10], 2, rescale=False),
    )
    shown = f"{wrong:.4f} instead of {good:.4f}"
    rows.append({"piece": "rescale forgotten (must be wrong)", "value": shown, "ok": abs(wrong - good) > 1})
    s, hidden = np.array([0.0, 2000.0]), np.array([False, True])
    with np.errstate(invalid="ignore", under="ignore"):
        late = np.where(hidden, 0, np.exp(s - s.max()))
        late = late / late.sum()
    rows.append(
        {
            "piece": "mask after the maximum (must be wrong)",
            "value": f"{late[0]} instead of 1.0",
            "ok": bool(late[0] != 1.0),
        }
    )
    return rows + demos()
