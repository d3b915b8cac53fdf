"""Floors of many problems at once, for the ratios of a sweep. Imports NumPy.

These are the forms of forms.py in float64. They give the exact floor, or less by at most one word an instance
or a share of 2e-14. forms.py cannot serve both: its exact comparison of squares needs integers of hundreds of bits.
No NumPy type holds these, and arrays of Python integers would be slow. A test compares the two files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..core.options import NUMBERS
from ..core.problem import DENSE, Attention, narrowed
from ..errors import InputError
from .floors import held_words, seen_by_group
from .forms import COARSE, PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..core.typing import Size

    Floats = NDArray[np.float64]
    Whole = NDArray[np.int64]

ERROR = 2e-15  # the share of a value by which float64 may have rounded it up


def floor_words(problem: Attention[Size], M_bytes: Size | None, family: str, length: int) -> Floats | None:
    """The floor of each of `length` grid points in words, NaN where there is none; None for a family without floors."""
    if family not in FLOOR_BY_FAMILY:
        return None
    sizes = {name: broadcast(getattr(problem, name), length) for name in NUMBERS}
    M = broadcast(0 if M_bytes is None else held_words(problem, M_bytes), length)
    seen = selected_at(problem, sizes) if family == "selected" else seen_at(problem, sizes)
    seen = seen._replace(pairs=np.where(M > 0, seen.pairs, 0))  # the theorems say nothing about an M of 0 words
    forms = latent_floors if problem.latent and family != "backward" else FLOOR_BY_FAMILY[family]
    words = forms(seen, sizes["d"].astype(float), sizes["dv"].astype(float), M.astype(float))
    words = words * (sizes["batch"] * sizes["kv_heads"]).astype(float)
    return np.where(words > 0, words, np.nan)


def broadcast(value: Size, length: int) -> Whole:
    """A size for each grid point."""
    return np.broadcast_to(np.asarray(value), (length,))


class SeenAt(NamedTuple):
    """The fields of `masks.visible.Visible`, for one KV head at each grid point."""

    pairs: Floats
    rows: Floats
    keys: Floats
    any_rows: Floats
    any_keys: Floats


def seen_at(problem: Attention[Size], sizes: Mapping[str, Whole]) -> SeenAt:
    """What the query heads that share a KV head see at each grid point; NaN where it cannot be counted."""
    if problem.mask is DENSE:
        group = (sizes["heads"] // sizes["kv_heads"]).astype(float)
        return dense_at(sizes["N"].astype(float), sizes["Nk"].astype(float), group)
    shapes = np.stack([sizes["N"], sizes["Nk"], sizes["heads"], sizes["kv_heads"]]).astype(object)
    numbers: dict[tuple[int, ...], tuple[float, ...]] = {}
    for shape in set(map(tuple, shapes.T)):
        N, Nk, heads, kv_heads = map(int, shape)
        try:
            one = cast("Attention", narrowed(problem, N=N, Nk=Nk, heads=heads, kv_heads=kv_heads))
            numbers[shape] = tuple(map(float, seen_by_group(one, None)))
        except InputError:
            numbers[shape] = (np.nan,) * 5
    return SeenAt(*np.array([numbers[shape] for shape in map(tuple, shapes.T)]).T)


def selected_at(problem: Attention[Size], sizes: Mapping[str, Whole]) -> SeenAt:
    """What the query heads that share a KV head see at each grid point, in the blocks that they choose."""
    from ..schedules.selected import KEY_BLOCK, TOP_K

    keys = broadcast(problem[TOP_K] * problem[KEY_BLOCK], len(sizes["N"])).astype(float)
    rows, several = (sizes["N"] * (sizes["heads"] // sizes["kv_heads"])).astype(float), keys > 1
    return SeenAt(several * rows * keys, several * rows, several * keys, rows, keys)


def dense_at(N: Floats, Nk: Floats, group: Floats) -> SeenAt:
    """What the query heads that share a KV head see at each grid point without a mask."""
    several = Nk > 1
    rows = group * N
    return SeenAt(several * rows * Nk, several * rows, several * Nk, rows, Nk)


def forward_floors(seen: SeenAt, d: Floats, dv: Floats, M: Floats) -> Floats:
    """The floor of one instance of attention's forward pass at each grid point, in words."""
    s, P = d + dv, seen.pairs
    inner = np.floor((np.sqrt(27 * M * (27 * M + 768 * s * s)) - 27 * M) / (128 * s))
    tops = [np.maximum(1, np.minimum(lam2, np.minimum(s, 2 * d))) for lam2 in (inner, inner + 1)]
    writes, fewer = dv * seen.any_rows, dv * (seen.any_rows - seen.rows)
    values = [
        (d * (seen.rows + seen.keys) + dv * seen.any_keys, writes),
        (squares(P, 4 * d * s, M), writes),
        (form_one(P, 2 * s, 2 * d, M), fewer - P),
        *((form_one(P, 2 * s - lam2, lam2, M), fewer) for lam2 in tops),
    ]
    return greatest(values)


def backward_floors(seen: SeenAt, d: Floats, dv: Floats, M: Floats) -> Floats:
    """The floor of one instance of the gradients at each grid point, in words."""
    P, rows, keys, columns = seen.pairs, seen.rows, seen.keys, np.minimum(dv, 2 * d)
    writes = d * (rows + keys) + dv * seen.any_keys
    fewer = writes - d * (rows + keys) - dv * keys
    h = [best_part(d, dv, M, less) for less in (0, 1)]
    return greatest(
        [
            (d * (rows + keys) + dv * (keys + seen.any_rows), writes),
            (squares(P, 8 * (d + columns) * (2 * d + columns), M), fewer + (dv - columns) * keys),
            (gradients_form(P, d, dv, M, h[0], 0), fewer - P),
            (gradients_form(P, d, dv, M, h[1], 1), fewer),
        ]
    )


def gradients_form(P: Floats, d: Floats, dv: Floats, M: Floats, h: Floats, less: int) -> Floats:
    """T Z / G(X) + M^2 / X of form I' (`less` is 1) or II' (0) of the gradients."""
    s = h / PARTS
    lam = d * (1 - s * s)
    Z = P * np.maximum(0, np.sqrt(2) * dv + 2 * d * s - less * lam)
    return cubes(16 * lam * Z, np.sqrt(27) * Z, np.floor(256 * lam * lam / 27), M)


def best_part(d: Floats, dv: Floats, M: Floats, less: int) -> Floats:
    """The h of `best_part` in forms.py at each grid point."""
    near, most = np.zeros_like(M), np.full_like(M, -np.inf)
    for first, steps in ((0, range(0, PARTS, COARSE)), (1, range(1 - COARSE, COARSE))):
        middle = near * first
        for step in steps:
            h = np.clip(middle + step, 0, PARTS - 1)
            s = h / PARTS
            lam = d * (1 - s * s)
            Z = np.sqrt(2) * dv + 2 * d * s - less * lam
            X = np.maximum(1, np.minimum(np.maximum(lam * lam * 256 / 27, 2 * M), 3 * M))
            value = (X - M) * Z * np.minimum(16 * lam / (X * X), np.sqrt(27) / (X * np.sqrt(X)))
            near, most = np.where(value > most, h, near), np.maximum(value, most)
    return near


def greatest(values: list[tuple[Floats, Floats]]) -> Floats:
    """The largest of several sums. Each is given as (a number to round up, an integer to add)."""
    totals = [np.ceil(number * (1 - ERROR)) + whole for number, whole in values]
    return np.maximum.reduce([np.where(total < 2**53, total, total * (1 - ERROR)) for total in totals])


def latent_floors(seen: SeenAt, d: Floats, dv: Floats, M: Floats) -> Floats:
    """The floor of one instance of latent attention at each grid point, in words."""
    P, norm, writes = seen.pairs, d * d + dv * dv, dv * seen.any_rows
    fewer = dv * (seen.any_rows - seen.rows)
    reads = d * (seen.rows + seen.keys) + dv * (seen.any_keys - seen.keys)
    second = cubes(16 * d * d * P, np.sqrt(27 * norm) * P, np.floor(256 * d**4 / (27 * norm)), M)
    return greatest([(reads, writes), (squares(P, 4 * d * (d + dv), M), fewer), (second, fewer - P)])


def form_one(P: Floats, factor: Floats, lam2: Floats, M: Floats) -> Floats:
    """T Z / G(X) + M^2 / X of form I or II, with Z = P factor / 2."""
    Z2 = P * factor
    return cubes(4 * lam2 * Z2, np.sqrt(6.75) * Z2, np.floor(64 * lam2 * lam2 / 27), M)


def cubes(first: Floats, second: Floats, cross: Floats, M: Floats) -> Floats:
    """The smaller of T first / X^2 and T second / X^(3/2), which are equal at `cross`, and M^2 / X, at the best T."""
    beyond = (first > M * M) & (second * second > M**3)
    return np.maximum.reduce(
        [
            np.minimum(T * first / (X * X), T * second / X**1.5) + np.where(beyond, M * M / X, 0)
            for T, X in lengths(cross, M)
        ]
    )


def lengths(cross: Floats, M: Floats) -> list[tuple[Floats, Floats]]:
    """T and X = M + T for all T that `Form.lengths` may try."""
    found = [np.where(T >= 1, T, np.maximum(1, M)) for T in (M, 2 * M, cross - M, cross + 1 - M)]
    return [(T, M + T) for T in found]


def squares(P: Floats, cross: Floats, M: Floats) -> Floats:
    """T Z / G(X) + M^2 / X of a form whose G is the larger of a square and a linear function, equal at `cross`."""
    beyond = (cross * P > M * M) & (P > M)
    return np.maximum.reduce(
        [np.minimum(cross * T * P / (X * X), T * P / X) + np.where(beyond, M * M / X, 0) for T, X in lengths(cross, M)]
    )


FLOOR_BY_FAMILY = {"attention": forward_floors, "selected": forward_floors, "backward": backward_floors}
