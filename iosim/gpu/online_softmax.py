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

TEN = (
    0.59885727, 4.17296555, 9.17626131, 8.75696076, 1.12491781, 4.37783372, 1.52455393, 2.9992116, 8.44856526,
    2.23537473,
)  # fmt: skip
PIECE: Columns[Row] = (Column("piece", "string"), Column("value", "string"), Column("ok", "boolean"))


def blockwise_softmax(x: Sequence[float], block: int, rescale_sum: bool = True, rescale_earlier: bool = True) -> Vector:
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


def merged(x: Vector, v: Vector, cuts: Sequence[int], rescale: bool = True) -> tuple[float, float, float]:
    """(maximum, sum of exponentials, softmax(x) . v) in one pass over blocks, each with its own statistics. `cuts` are
    where blocks begin but the first. Without `rescale`, earlier blocks keep their old maximum, which is a mistake."""
    m, l, o = -np.inf, 0.0, 0.0
    for part, values in zip(np.split(x, cuts), np.split(v, cuts), strict=True):
        new = max(m, part.max())
        factor, own, weights = np.exp(m - new) if rescale else 1.0, np.exp(part.max() - new), np.exp(part - part.max())
        m, l, o = new, l * factor + weights.sum() * own, o * factor + weights @ values * own
    return float(m), float(l), float(o / l)


def piece(name: str, value: str, ok: bool | np.bool) -> Row:
    """A row: the name of a piece, the value found, and whether it is as it must be."""
    return {"piece": name, "value": value, "ok": bool(ok)}


def passes(x: Vector, block: int = 3) -> list[Row]:
    """Softmax of numbers in slow memory, in three passes (the maximum, the sum, the quotients), in two (both together,
    online), and in one, which holds the whole row on chip."""
    m, exact = x.max(), np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    found = {3: (m, np.exp(x - m).sum()), 2: merged(x, x, range(block, len(x), block))[:2], 1: (m, np.exp(x - m).sum())}
    return [
        piece(
            f"{times}-pass softmax, n = {len(x)}",
            f"{times * len(x)} reads, {len(x)} writes",
            np.allclose(np.exp(x - top) / total, exact, rtol=1e-14),
        )
        for times, (top, total) in found.items()
    ]


def softmax_pieces() -> list[Row]:
    """A row for each piece."""
    x = np.random.default_rng(1).normal(size=10)
    error = abs(merged(x, x, [4])[1] - np.exp(x - x.max()).sum())
    values = np.array([0.0, 1, 2]), np.array([-10.0, 0, 10])
    good, wrong = (merged(*values, [2], rescale)[2] for rescale in (True, False))
    s, hidden = np.array([0.0, 2000.0]), np.array([False, True])
    with np.errstate(invalid="ignore", under="ignore"):
        late = np.where(hidden, 0, np.exp(s - s.max()))
        late = late / late.sum()
    return [
        *passes(x),
        piece("merge of two blocks", f"error {error:.1e}", error < 1e-13),
        piece("rescale forgotten (must be wrong)", f"{wrong:.4f} instead of {good:.4f}", abs(wrong - good) > 1),
        piece("mask after the maximum (must be wrong)", f"{late[0]} instead of 1.0", late[0] != 1.0),
        *demos(),
    ]


def demos() -> list[Row]:
    """Blocks together, forgotten rescalings, and exponentials in fp16. Two outputs o, each normalised by its own sum Z,
    are merged as o = (o1 Z1 + o2 Z2) / (Z1 + Z2)."""
    s, v = np.random.default_rng(2).normal(size=(2, 10))
    weights = np.exp(s - s.max())
    halves = [(weights[part].sum(), weights[part] @ v[part]) for part in (slice(4), slice(4, None))]
    error = abs(sum(Z * (o / Z) for Z, o in halves) / sum(Z for Z, _ in halves) - weights @ v / weights.sum())
    right, wrong = blockwise_softmax(TEN, 3), blockwise_softmax(TEN, 3, rescale_sum=False, rescale_earlier=False).sum()
    exact = np.exp(np.array(TEN) - max(TEN))
    with np.errstate(over="ignore"):
        finite, infinite = np.exp(np.array([11.08, 11.1], np.float16))
    edge = f"inf above ln 65504 = {np.log(float(np.finfo(np.float16).max)):.4f}"
    sums = np.allclose(right, exact / exact.sum(), rtol=1e-13)
    return [
        piece("merge of two outputs", f"error {error:.1e}", error < 1e-13),
        piece("online softmax, both rescalings", f"sums to {right.sum():.4f}", sums),
        piece("both rescalings forgotten (must be wrong)", f"sums to {wrong:.4f}", abs(wrong - 1) > 0.1),
        piece("exp in fp16 without the maximum (must overflow)", edge, np.isfinite(finite) and np.isinf(infinite)),
    ]
