"""How wrong an output may be: softmax attention in float64, and the same in the precision of the kernel.

Both take an array module (NumPy or CuPy) as first argument, and share nothing with the schedules. A kernel's largest
error may be at most twice that of the baseline, which rounds where any kernel of its types must.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

TIMES_BASELINE = 2.0
FLOOR = 1e-5  # of the largest output: what float32 sums of different order differ by
ROWS = 1024  # query rows at a time: bounds the scores kept


def reference(xp: Any, q: Any, k: Any, v: Any, visible: Callable[[int, int], Any] | None = None) -> Any:
    """float64 attention of one head, q (N, d), k (Nk, d), v (Nk, dv). `visible(first row, rows)` -> bool (rows, Nk)."""
    q, k, v = (x.astype(xp.float64) for x in (q, k, v))
    parts = [_rows(xp, q[x : x + ROWS], k, v, _part(visible, x, q)) for x in range(0, len(q), ROWS)]
    return xp.concatenate(parts)


def _part(visible: Any, x: int, q: Any) -> Any:
    return None if visible is None else visible(x, min(ROWS, len(q) - x))


def _rows(xp: Any, q: Any, k: Any, v: Any, visible: Any) -> Any:
    weights, total = _weights(xp, q @ k.T * (q.shape[1] ** -0.5), visible)
    return weights @ v / xp.where(total == 0, 1, total)


def _weights(xp: Any, s: Any, visible: Any) -> tuple[Any, Any]:
    if visible is not None:
        s = xp.where(visible, s, -xp.inf)
    top = s.max(axis=1, keepdims=True)
    weights = xp.exp(s - xp.where(xp.isneginf(top), 0, top))
    return weights, weights.sum(axis=1, keepdims=True)


def baseline(
    xp: Any, q: Any, k: Any, v: Any, narrow: Any, accumulate: Any, tile: int, visible: Any = None,
    travels: Collection[str] = (), divided: bool = False, held: int | None = None,
) -> Any:  # fmt: skip
    """The same with roundings: scores and sums to the accumulator's type, P to the narrow one, O after each key tile,
    or after as many keys of it as are `held` at a time.

    `narrow` and `accumulate` round an array to a type and back to float32. `travels` names the tensors that the
    schedule both stores and loads: those of S, P and O are kept in HBM in the narrow type between their tiles. With
    `divided` each tile of P is divided by the final sums before its product, instead of O after it.
    """
    q, k, v = (x.astype(xp.float32) for x in (q, k, v))
    scale, parts = xp.float32(q.shape[1] ** -0.5), []
    for x in range(0, len(q), ROWS):
        s = accumulate(q[x : x + ROWS] @ k.T * scale)
        weights, total = _weights(xp, narrow(s) if "S" in travels else s, _part(visible, x, q))
        if "P" in travels:  # stored normalised
            weights, total = weights / xp.where(total == 0, 1, total), None
        elif divided:
            total = _sums(xp, weights, accumulate, tile)
            weights, total = accumulate(accumulate(weights) / xp.where(total == 0, 1, total)), None
        parts.append(narrow(_product(xp, weights, v, total, narrow, accumulate, (tile, held or tile), "O" in travels)))
    return xp.concatenate(parts)


def _sums(xp: Any, weights: Any, accumulate: Any, tile: int) -> Any:
    """Sums of rows, rounded after each key tile."""
    sums = xp.zeros((len(weights), 1), xp.float32)
    for y in range(0, weights.shape[1], tile):
        sums = accumulate(sums + weights[:, y : y + tile].sum(axis=1, keepdims=True))
    return sums


def _product(
    xp: Any, weights: Any, v: Any, total: Any, narrow: Any, accumulate: Any, keys: tuple[int, int], o_travels: bool
) -> Any:  # fmt: skip
    """Normalised P V, key tile after key tile; `total` is None where P is normalised already. `keys`: of a tile, and
    those after which O is rounded."""
    tile, held = keys
    o = xp.zeros((len(weights), v.shape[1]), xp.float32)
    sums = xp.zeros((len(weights), 1), xp.float32)
    for y in range(0, weights.shape[1], tile):
        part = weights[:, y : y + tile]
        for z in range(0, part.shape[1], held):
            o = accumulate(o + narrow(part[:, z : z + held]) @ v[y + z : y + min(z + held, tile)])
        sums = accumulate(sums + part.sum(axis=1, keepdims=True))
        if o_travels:
            norm = 1 if total is None else xp.where(sums == 0, 1, sums)
            o = narrow(o / norm) * norm
    return o if total is None else o / xp.where(sums == 0, 1, sums)


def largest_error(xp: Any, found: Any, expected: Any) -> float:
    """The largest difference; NaN counts as infinite."""
    worst = float(xp.max(xp.abs(found.astype(xp.float64) - expected)))
    return worst if worst == worst else float("inf")


def allowed_error(baseline_error: float, largest_output: float) -> float:
    return TIMES_BASELINE * baseline_error + FLOOR * largest_output
