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
from .bounds import floor_of
from .floors import held_words, seen_by_group
from .forms import AROUND, COARSE, FIRST, PARTS, STEP, STEPS, WHOLE, nearly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ..core.typing import Size

    Floats = NDArray[np.float64]
    Whole = NDArray[np.int64]

ERROR = 4e-15  # the share of a value by which float64 may have rounded it up


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


def one_by_one(problem: Attention[Size], M_bytes: Size | None, family: str, rows: Size, length: int) -> Floats:
    """The floor of attention with a state at each grid point, for chunks of `rows` tokens: that of `count`."""
    sizes = {name: broadcast(getattr(problem, name), length) for name in NUMBERS}
    M, chunks = (broadcast(0 if each is None else each, length) for each in (M_bytes, rows))
    found = np.full(length, np.nan)
    for i in range(length):
        one = narrowed(cast("Attention", problem), **{name: int(each[i]) for name, each in sizes.items()})
        words = floor_of(one, None if M_bytes is None else int(M[i]), family, int(chunks[i]))
        found[i] = np.nan if words is None else words
    return found


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
        (cubes(P * s, d, M), fewer - P),
        *((cubes(P * (s - lam2 / 2), lam2 / 2, M), fewer) for lam2 in tops),
    ]
    return greatest(values)


def backward_floors(seen: SeenAt, d: Floats, dv: Floats, M: Floats) -> Floats:
    """The floor of one instance of the gradients at each grid point, in words."""
    P, rows, keys = seen.pairs, seen.rows, seen.keys
    writes = d * (rows + keys) + dv * seen.any_keys
    fewer = dv * (seen.any_keys - keys)
    values = [
        (d * (rows + keys) + dv * (keys + seen.any_rows), writes),
        (squares(P, pairs_of_gradients(d, dv), M), fewer),
    ]
    for less, price in ((0, P), (1, np.zeros_like(P))):
        for Z, lam in (gradients_work(d, dv, M, less), weighted_work(d, dv, M, less)):
            values.append((cubes(P * np.maximum(0, Z), lam, M), fewer - price))
    return greatest(values)


def pairs_of_gradients(d: Floats, dv: Floats) -> Floats:
    """`pairs_of_gradients` of forms.py."""
    return np.where(dv <= 2 * d, 8 * (d + dv) * (2 * d + dv), 4 * (4 * d * dv + (2 * d + dv) ** 2))


def gradients_work(d: Floats, dv: Floats, M: Floats, less: int) -> tuple[Floats, Floats]:
    """Z of a pair and lambda, of form I' (`less` is 1) or II' (0), with the h of `best_part` in forms.py."""
    near, most = np.zeros_like(M), np.full_like(M, -np.inf)

    def at(h: Floats) -> tuple[Floats, Floats]:
        s = h / PARTS
        lam = d * (1 - s * s)
        return np.sqrt(2) * dv + 2 * d * s - less * lam, lam

    for first, steps in ((0, range(0, PARTS, COARSE)), (1, range(1 - COARSE, COARSE))):
        middle = near * first
        for step in steps:
            h = np.clip(middle + step, 0, PARTS - 1)
            value = for_one_pair(*at(h), M)
            near, most = np.where(value > most, h, near), np.maximum(value, most)
    return at(near)


def for_one_pair(Z: Floats, lam: Floats, M: Floats) -> Floats:
    """`for_one_pair` of forms.py at each grid point."""
    X = np.maximum(1, np.minimum(np.maximum(lam * lam * 256 / 27, 2 * M), 3 * M))
    return (X - M) * Z * np.minimum(16 * lam / (X * X), np.sqrt(27) / (X * np.sqrt(X)))


NU = np.array([nearly(h) for h in range(PARTS)]) / PARTS  # nu of each h


def weighted_work(d: Floats, dv: Floats, M: Floats, less: int) -> tuple[Floats, Floats]:
    """Z of a pair and lambda, of form I'' (`less` is 1) or II'' (0), with the weights of `best_weights` in forms.py."""
    wide, start = dv >= d, np.sqrt(54 * M / 256)
    most, h, k = np.zeros_like(M), np.full_like(M, PARTS - 1), np.full_like(M, WHOLE)

    def at(h: Floats, k: Floats) -> tuple[Floats, Floats]:
        y, z = np.where(wide, k / WHOLE, 1.0), np.where(wide, 1.0, k / WHOLE)
        lam = np.minimum(NU[h.astype(int)] * d / y, dv / z)
        return (y + z) * dv + 2 * z * (h / PARTS) * d - less * lam * z * z, lam

    def tried(step: tuple[int, int]) -> Iterator[tuple[Floats, Floats]]:
        for x, y in AROUND if step[0] else ():
            yield np.clip(h + step[0] * x, 1, PARTS - 1), np.clip(k + step[1] * y, 1, WHOLE)
        for first in () if step[0] else range(FIRST, PARTS, STEP):
            each = NU[first] * d
            top, one = np.where(wide, dv, each), np.where(wide, each, dv)
            for lam in (top, (dv + 2 * first / PARTS * d) / 2, start, start * 1.11, start * np.sqrt(1.5)):
                least = np.maximum(np.minimum(lam, top), one / WHOLE)  # so that M = 0 divides nothing by 0
                yield np.full_like(M, first), np.clip(np.floor(WHOLE * one / least), 1, WHOLE)

    for step in ((0, 0), *STEPS):
        for x, y in [*tried(step)]:
            value = for_one_pair(*at(x, y), M)
            better = value > most
            most, h, k = np.maximum(value, most), np.where(better, x, h), np.where(better, y, k)
    return at(h, k)


def greatest(values: list[tuple[Floats, Floats]]) -> Floats:
    """The largest of several sums. Each is given as (a number to round up, an integer to add)."""
    totals = [np.ceil(number * (1 - ERROR)) + whole for number, whole in values]
    return np.maximum.reduce([np.where(total < 2**53, total, total * (1 - ERROR)) for total in totals])


def latent_floors(seen: SeenAt, d: Floats, dv: Floats, M: Floats) -> Floats:
    """The floor of one instance of latent attention at each grid point, in words."""
    P, norm, writes = seen.pairs, d * d + dv * dv, dv * seen.any_rows
    fewer = dv * (seen.any_rows - seen.rows)
    reads = d * (seen.rows + seen.keys) + dv * (seen.any_keys - seen.keys)
    second = account(P * norm, norm / (16 * d * d), norm / 27, 3, np.floor(256 * d**4 / (27 * norm)), M)
    return greatest([(reads, writes), (squares(P, 4 * d * (d + dv), M), fewer), (second, fewer - P)])


def cubes(Z: Floats, lam: Floats, M: Floats) -> Floats:
    """The account of a form with G(lambda)."""
    return account(Z, 1 / (16 * lam), np.full_like(M, 1 / 27), 3, np.floor(256 * lam * lam / 27), M)


def squares(P: Floats, cross: Floats, M: Floats) -> Floats:
    """The account of a form whose g is the larger of X^2 / `cross` and X."""
    return account(P, 1 / cross, np.ones_like(M), 2, cross, M)


def account(Z: Floats, square: Floats, factor: Floats, power: int, cross: Floats, M: Floats) -> Floats:
    """The least R for the work Z, before it is rounded up: `best` of a Form, with its `square`, `other` and `cross`."""

    def g(X: Floats) -> Floats:
        return np.maximum(square * X * X, np.sqrt(factor * X**power))

    sizes = [np.maximum(X, M + 1) for X in (2 * M, 3 * M, cross, cross + 1)]
    most = np.maximum.reduce([(X - M) / g(X) for X in sizes])
    middle = np.maximum.reduce([np.where((X - M) / g(X) == most, X, 0) for X in sizes])
    K = np.floor(Z / g(middle))

    def reached(K: Floats) -> Floats:
        each = Z / K
        low = np.floor(np.minimum(np.sqrt(each / square), np.power(each * each / factor, 1 / power)))
        step = g(low + 1) - g(low)  # 0 where float64 has no room for one word more
        part = np.divide(each - g(low), step, out=np.zeros_like(each), where=step > 0)
        return K * (low + part) - (K - 1) * M

    return np.maximum(reached(np.maximum(1, K)), reached(K + 1))


FLOOR_BY_FAMILY = {"attention": forward_floors, "selected": forward_floors, "backward": backward_floors}
ONE_BY_ONE = ("state",)
"""Families whose floors are computed for one grid point after the other."""
