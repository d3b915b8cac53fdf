"""Small demonstrations of online softmax beside `check.pieces`: mistakes that must show, and merges that must not."""

from __future__ import annotations

from typing import Any

import numpy as np

Row = dict[str, Any]
TEN = (
    0.59885727, 4.17296555, 9.17626131, 8.75696076, 1.12491781, 4.37783372, 1.52455393, 2.9992116, 8.44856526,
    2.23537473,
)  # fmt: skip


def online_softmax(x: Any, block: int, rescale_sum: bool = True, rescale_earlier: bool = True) -> Any:
    """softmax of n numbers, block by block. The factors that may be left out: exp(block maximum - new maximum) of a
    block's sum, and the step from the old maximum and sum to the new ones for what was already written."""
    m, l = -np.inf, 0.0
    parts: list[Any] = []
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


def merged_output_error(n: int = 10, cut: int = 4) -> float:
    """o of two blocks, each normalised by its own sum Z, put together: o = (o1 Z1 + o2 Z2) / (Z1 + Z2)."""
    s, v = np.random.default_rng(2).normal(size=(2, n))
    m = s.max()
    weights = np.exp(s - m)
    halves = [(weights[part].sum(), weights[part] @ v[part]) for part in (slice(cut), slice(cut, None))]
    normalised = [(Z, weighted / Z) for Z, weighted in halves]
    together = sum(Z * o for Z, o in normalised) / sum(Z for Z, _ in normalised)
    return float(abs(together - weights @ v / weights.sum()))


def demos() -> list[Row]:
    """Rows as of `check.pieces`."""
    wrong = online_softmax(TEN, 3, rescale_sum=False, rescale_earlier=False).sum()
    right, error = online_softmax(TEN, 3), merged_output_error()
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
