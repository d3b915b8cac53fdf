"""The allowed error of an output: softmax attention in float64, and a baseline in the precision of the kernel.

The baseline rounds wherever a kernel of its types has to. An output is judged in two ways. Its largest error may be at
most twice that of the baseline. Its bias is the slope of the output against the exact answer, less 1. The bias of the
baseline and chance must explain it: rounding errors go up and down, so over many rows they hardly change the slope.

The functions take an array module (NumPy or CuPy) as first argument, and share nothing with the schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..gpu.arrays import DeviceArray

    Rows = Callable[[int, int], DeviceArray]  # (first row, rows) -> an array (rows, Nk)
    DeviceRounding = Callable[[DeviceArray], DeviceArray]  # to a type and back to float32

TIMES_BASELINE = 2.0
FLOOR = 1e-5  # share of the largest output; float32 sums differ by this much when their order changes
DEVIATIONS = 4.0  # standard errors that a slope may deviate
UNIT = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "fp8": 2.0**-4}
"""The largest relative error of one rounding, by type."""
ROWS_AT_ONCE = 1024  # query rows at a time, so that few scores are in memory


def reference(
    xp: ModuleType, q: DeviceArray, k: DeviceArray, v: DeviceArray, visible: Rows | None = None
) -> DeviceArray:
    """The float64 attention of one head: q (N, d), k (Nk, d), v (Nk, dv)."""
    q, k, v = (x.astype(xp.float64) for x in (q, k, v))
    parts = [_rows(xp, q[x : x + ROWS_AT_ONCE], k, v, _part(visible, x, q)) for x in range(0, len(q), ROWS_AT_ONCE)]
    return xp.concatenate(parts)  # type: ignore[no-any-return]


def _part(visible: Rows | None, x: int, q: DeviceArray) -> DeviceArray | None:
    return None if visible is None else visible(x, min(ROWS_AT_ONCE, len(q) - x))


def _rows(xp: ModuleType, q: DeviceArray, k: DeviceArray, v: DeviceArray, visible: DeviceArray | None) -> DeviceArray:
    weights, total = _weights(xp, q @ k.T * (q.shape[1] ** -0.5), visible)
    return weights @ v / xp.where(total == 0, 1, total)


def _weights(xp: ModuleType, s: DeviceArray, visible: DeviceArray | None) -> tuple[DeviceArray, DeviceArray]:
    """(exponentials of the scores, each less the maximum of its row; their row sums)."""
    if visible is not None:
        s = xp.where(visible, s, -xp.inf)
    top = s.max(axis=1, keepdims=True)
    weights = xp.exp(s - xp.where(xp.isneginf(top), 0, top))
    return weights, weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Rounded:
    """Where a kernel rounds, and to which types."""

    narrow: DeviceRounding
    """To the narrow type: P and the output."""
    accumulate: DeviceRounding
    """To the accumulator's type: scores, sums and O."""
    tile: int
    """The keys of a tile. O is rounded after each."""
    travels: Collection[str] = ()
    """The tensors that the schedule both stores and loads: S, P and O are also rounded to the narrow type if they are
    among them."""
    divided: bool = False
    """Whether each tile of P is divided by the final sums before its product, instead of O after it."""
    held: int | None = None
    """Keys of a tile after which O is rounded as well."""
    sums: int | None = None
    """Keys after which the row sums of a P that travels are rounded."""
    depth: int | None = None
    """Products of a score after which it is rounded as well."""


def baseline(
    xp: ModuleType,
    q: DeviceArray,
    k: DeviceArray,
    v: DeviceArray,
    rounded: Rounded,
    visible: Rows | None = None,
    kept: Rows | None = None,
) -> DeviceArray:
    """The attention of one head with the roundings of a kernel. `kept` gives the factors of dropout."""
    q, k, v = (x.astype(xp.float32) for x in (q, k, v))
    scale, parts = xp.float32(q.shape[1] ** -0.5), []
    accumulate, travels, sums = rounded.accumulate, rounded.travels, rounded.sums
    for x in range(0, len(q), ROWS_AT_ONCE):
        s = accumulate(_scores(q[x : x + ROWS_AT_ONCE], k, accumulate, rounded.depth or q.shape[1]) * scale)
        weights, total = _weights(xp, rounded.narrow(s) if "S" in travels else s, _part(visible, x, q))
        if "P" in travels:  # stored normalised
            total = _sums(xp, weights, accumulate, sums) if sums else total
            weights = weights / xp.where(total == 0, 1, total)
        elif rounded.divided:
            total = _sums(xp, weights, accumulate, rounded.tile)
            weights = accumulate(accumulate(weights) / xp.where(total == 0, 1, total))
        parts.append(rounded.narrow(_product(xp, weights, v, rounded, _part(kept, x, q))))
    return xp.concatenate(parts)  # type: ignore[no-any-return]


def _scores(q: DeviceArray, k: DeviceArray, accumulate: DeviceRounding, depth: int) -> DeviceArray:
    """Q K^T, rounded after each part of `depth` products but the last."""
    s = q[:, :depth] @ k[:, :depth].T
    for c in range(depth, q.shape[1], depth):
        s = accumulate(s) + q[:, c : c + depth] @ k[:, c : c + depth].T
    return s


def _sums(xp: ModuleType, weights: DeviceArray, accumulate: DeviceRounding, tile: int) -> DeviceArray:
    """The sums of rows, rounded after each key tile."""
    sums: DeviceArray = xp.zeros((len(weights), 1), xp.float32)
    for y in range(0, weights.shape[1], tile):
        sums = accumulate(sums + weights[:, y : y + tile].sum(axis=1, keepdims=True))
    return sums


def _product(
    xp: ModuleType, weights: DeviceArray, v: DeviceArray, rounded: Rounded, factors: DeviceArray | None
) -> DeviceArray:
    """P V, summed tile by tile and divided by the sums of rows, unless the `weights` are normalised already. `factors`
    of dropout multiply P before the product."""
    narrow, accumulate, tile = rounded.narrow, rounded.accumulate, rounded.tile
    normalised, held = "P" in rounded.travels or rounded.divided, rounded.held or tile
    kept = weights if factors is None else weights * factors
    o: DeviceArray = xp.zeros((len(weights), v.shape[1]), xp.float32)
    sums: DeviceArray = xp.zeros((len(weights), 1), xp.float32)
    for y in range(0, weights.shape[1], tile):
        part = kept[:, y : y + tile]
        for z in range(0, part.shape[1], held):
            o = accumulate(o + narrow(part[:, z : z + held]) @ v[y + z : y + min(z + held, tile)])
        sums = accumulate(sums + weights[:, y : y + tile].sum(axis=1, keepdims=True))
        if "O" in rounded.travels:
            norm = 1 if normalised else xp.where(sums == 0, 1, sums)
            o = narrow(o / norm) * norm
    return o if normalised else o / xp.where(sums == 0, 1, sums)


def largest_error(xp: ModuleType, found: DeviceArray, expected: DeviceArray) -> float:
    """The largest absolute difference; infinite if one is NaN."""
    return _finite(float(xp.max(xp.abs(found.astype(xp.float64) - expected))))


def bias(xp: ModuleType, found: DeviceArray, expected: DeviceArray) -> tuple[float, float]:
    """(slope of `found` on `expected`, through zero, less 1; its standard error).

    Errors within a row may be correlated. Those of two rows are assumed to be independent. The bias is infinite if a
    value is NaN, and 0 if all expected values are 0.
    """
    expected = expected.astype(xp.float64)
    error = (found - expected) * expected
    square = expected * expected
    if len(found) > 1:  # a row may be a number, as of the gradients of gates
        error, square = (each.reshape(len(each), -1).sum(axis=1) for each in (error, square))
    total = float(square.sum())
    if not total > 0:
        return 0.0, 0.0
    slope = _finite(float(error.sum()) / total)
    if slope == float("inf"):
        return slope, 0.0
    rest = error - square * slope
    return slope, float((rest * rest).sum()) ** 0.5 / total


def allowed_error(baseline_error: float, largest_output: float) -> float:
    """The largest error that an output may have."""
    return TIMES_BASELINE * baseline_error + FLOOR * largest_output


def _finite(value: float) -> float:
    return value if value == value else float("inf")


class Judge:
    """The errors found in the heads of an output, and those that are allowed.

    `dtype` is the type of the output. `cut` is a further bias that is allowed if the hardware may truncate sums
    toward zero instead of rounding them.
    """

    def __init__(self, xp: ModuleType, dtype: str, cut: float = 0.0) -> None:
        self.xp, self.dtype, self.cut = xp, dtype, cut
        self.error = self.bias = self.largest = 0.0
        self.baseline_error = self._baseline_bias = self._deviation = 0.0

    def add(self, found: DeviceArray, same: DeviceArray, expected: DeviceArray) -> None:
        """Add a head: the output, the same from `baseline`, and the answer in float64. All are (N, dv)."""
        xp = self.xp
        self.error = max(self.error, largest_error(xp, found, expected))
        self.baseline_error = max(self.baseline_error, largest_error(xp, same, expected))
        self.largest = max(self.largest, float(xp.max(xp.abs(expected))))
        self.bias = max(self.bias, abs(bias(xp, found, expected)[0]))
        slope, deviation = bias(xp, same, expected)
        self._baseline_bias = max(self._baseline_bias, abs(slope))
        self._deviation = max(self._deviation, deviation)

    @property
    def allowed_error(self) -> float:
        """The largest error that the output may have."""
        return allowed_error(self.baseline_error, self.largest)

    @property
    def allowed_bias(self) -> float:
        """The largest bias that the output may have, in either direction."""
        chance = DEVIATIONS * self._deviation + UNIT[self.dtype] / 2 + FLOOR
        return TIMES_BASELINE * self._baseline_bias + chance + self.cut
