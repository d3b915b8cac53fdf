"""The error that an output may have: softmax attention in float64 beside a baseline in the precision of the kernel.

The baseline rounds wherever a kernel of its types has to. A kernel's largest error may be at most twice that of the
baseline. Both functions take an array module (NumPy or CuPy) as first argument, and share nothing with the schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import ModuleType

from .arrays import DeviceArray

TIMES_BASELINE = 2.0
FLOOR = 1e-5  # a share of the largest output: float32 sums differ by as much when their order changes
ROWS_AT_ONCE = 1024  # query rows at a time, so that few scores are kept

VisibleRows = Callable[[int, int], DeviceArray]  # (first row, rows) -> bool (rows, Nk)
DeviceRounding = Callable[[DeviceArray], DeviceArray]  # to a type and back to float32


def reference(
    xp: ModuleType, q: DeviceArray, k: DeviceArray, v: DeviceArray, visible: VisibleRows | None = None
) -> DeviceArray:
    """The float64 attention of one head: q (N, d), k (Nk, d), v (Nk, dv)."""
    q, k, v = (x.astype(xp.float64) for x in (q, k, v))
    parts = [_rows(xp, q[x : x + ROWS_AT_ONCE], k, v, _part(visible, x, q)) for x in range(0, len(q), ROWS_AT_ONCE)]
    return xp.concatenate(parts)  # type: ignore[no-any-return]


def _part(visible: VisibleRows | None, x: int, q: DeviceArray) -> DeviceArray | None:
    return None if visible is None else visible(x, min(ROWS_AT_ONCE, len(q) - x))


def _rows(xp: ModuleType, q: DeviceArray, k: DeviceArray, v: DeviceArray, visible: DeviceArray | None) -> DeviceArray:
    weights, total = _weights(xp, q @ k.T * (q.shape[1] ** -0.5), visible)
    return weights @ v / xp.where(total == 0, 1, total)


def _weights(xp: ModuleType, s: DeviceArray, visible: DeviceArray | None) -> tuple[DeviceArray, DeviceArray]:
    """(exponentials of the scores less the maximum of their row, sums of the rows)."""
    if visible is not None:
        s = xp.where(visible, s, -xp.inf)
    top = s.max(axis=1, keepdims=True)
    weights = xp.exp(s - xp.where(xp.isneginf(top), 0, top))
    return weights, weights.sum(axis=1, keepdims=True)


def baseline(
    xp: ModuleType, q: DeviceArray, k: DeviceArray, v: DeviceArray,
    narrow: DeviceRounding, accumulate: DeviceRounding, tile: int,
    visible: VisibleRows | None = None, travels: Collection[str] = (), divided: bool = False, held: int | None = None,
) -> DeviceArray:  # fmt: skip
    """The attention of one head with the roundings of a kernel.

    Scores, sums and O are rounded to the accumulator's type, P and the output to the narrow type. O is rounded after
    each key tile, or after each `held` keys of a tile. `travels` names the tensors that the schedule both stores and
    loads; S, P and O are also rounded to the narrow type if they are among them. With `divided`, each tile of P is
    divided by the final sums before its product, instead of O after it.
    """
    q, k, v = (x.astype(xp.float32) for x in (q, k, v))
    scale, parts = xp.float32(q.shape[1] ** -0.5), list[DeviceArray]()
    for x in range(0, len(q), ROWS_AT_ONCE):
        s = accumulate(q[x : x + ROWS_AT_ONCE] @ k.T * scale)
        weights, total = _weights(xp, narrow(s) if "S" in travels else s, _part(visible, x, q))
        normalised = "P" in travels or divided
        if "P" in travels:  # stored normalised
            weights = weights / xp.where(total == 0, 1, total)
        elif divided:
            total = _sums(xp, weights, accumulate, tile)
            weights = accumulate(accumulate(weights) / xp.where(total == 0, 1, total))
        keys = tile, held or tile
        parts.append(narrow(_product(xp, weights, v, normalised, narrow, accumulate, keys, "O" in travels)))
    return xp.concatenate(parts)  # type: ignore[no-any-return]


def _sums(xp: ModuleType, weights: DeviceArray, accumulate: DeviceRounding, tile: int) -> DeviceArray:
    """The sums of rows, rounded after each key tile."""
    sums: DeviceArray = xp.zeros((len(weights), 1), xp.float32)
    for y in range(0, weights.shape[1], tile):
        sums = accumulate(sums + weights[:, y : y + tile].sum(axis=1, keepdims=True))
    return sums


def _product(
    xp: ModuleType, weights: DeviceArray, v: DeviceArray, normalised: bool,
    narrow: DeviceRounding, accumulate: DeviceRounding, keys: tuple[int, int], o_travels: bool,
) -> DeviceArray:  # fmt: skip
    """P V, summed tile by tile and divided by the sums of rows, unless `weights` are `normalised` already. `keys` is
    (keys of a tile, keys after which O is rounded)."""
    tile, held = keys
    o: DeviceArray = xp.zeros((len(weights), v.shape[1]), xp.float32)
    sums: DeviceArray = xp.zeros((len(weights), 1), xp.float32)
    for y in range(0, weights.shape[1], tile):
        part = weights[:, y : y + tile]
        for z in range(0, part.shape[1], held):
            o = accumulate(o + narrow(part[:, z : z + held]) @ v[y + z : y + min(z + held, tile)])
        sums = accumulate(sums + part.sum(axis=1, keepdims=True))
        if o_travels:
            norm = 1 if normalised else xp.where(sums == 0, 1, sums)
            o = narrow(o / norm) * norm
    return o if normalised else o / xp.where(sums == 0, 1, sums)


def largest_error(xp: ModuleType, found: DeviceArray, expected: DeviceArray) -> float:
    """The largest absolute difference; infinite where one is NaN."""
    worst = float(xp.max(xp.abs(found.astype(xp.float64) - expected)))
    return worst if worst == worst else float("inf")


def allowed_error(baseline_error: float, largest_output: float) -> float:
    """The largest error that a kernel may have."""
    return TIMES_BASELINE * baseline_error + FLOOR * largest_output
