"""The tiles of least traffic where traffic depends on the inner tile too. A larger tile must never move more words.

Each outer tile is paired with the largest inner tile that fits beside it. The inner tile shrinks as the outer tile
grows. Take a range of outer tiles. Its largest outer tile with the inner tile of its smallest one moves no more than
any pair of the range. This is a lower bound for the range. Ranges are halved until their bound is no better than the
best pair found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, cast

from ..core.arrays import anywhere
from ..core.problem import DENSE, Attention
from ..errors import InputError
from .outer_tile_under_mask import MOST_MASKED, moved_bytes

if TYPE_CHECKING:
    from ..core.tiling import Tiling
    from ..core.typing import ScheduleLike, Size, Test, Tiles

    ArraySearch = Callable[[ScheduleLike, Attention[Size], int, int], tuple[Tiling[Size], Test]]


def inner_matters(schedule: ScheduleLike, problem: Attention[Size], tiling: Tiles, multiple: int = 1) -> bool:
    """Whether dense traffic depends on the inner tile. If the schedule does not declare it, the smallest and the
    largest inner tile are compared, beside the smallest outer tile and beside the largest."""
    if (declared := getattr(schedule, "inner_matters", None)) is not None:
        return bool(declared)
    outer, inner = (problem.N, problem.Nk) if schedule.outer == "queries" else (problem.Nk, problem.N)
    dense = problem if problem.mask is DENSE else replace(problem, mask=DENSE)
    return any(
        anywhere(
            moved_bytes(schedule, dense, tiling(size, multiple)) != moved_bytes(schedule, dense, tiling(size, inner))
        )
        for size in (multiple, outer)
    )


def least_dense(move: Callable[[int, int], int], largest_inner: Callable[[int], int], most: int) -> tuple[int, int]:
    """The pair (outer, inner) of least `move(outer, inner)`, for outer tiles from 1 to `most`. Sizes are counted in
    multiples."""
    inner, move = cache(largest_inner), cache(move)
    best = min((move(n, inner(n)), n) for n in {1, most})
    ranges = [(1, most)]
    while ranges:
        low, high = ranges.pop()
        if low > high or move(high, inner(low)) >= best[0]:
            continue
        middle = (low + high) // 2
        best = min(best, (move(middle, inner(middle)), middle))
        ranges += [(low, middle - 1), (middle + 1, high)]
    return best[1], inner(best[1])


def least_of_both(
    schedule: ScheduleLike, problem: Attention[Size], tiling: Tiles, largest: int, largest_inner: Callable[[int], int],
    multiple: int,
) -> Tiling[Size]:  # fmt: skip
    """The tiling of least traffic, for outer tiles of 1 to `largest` multiples, each with any inner tile that fits."""
    if problem.mask is not DENSE and getattr(schedule, "skips", True):
        pairs = ((n, k) for n in range(1, largest + 1) for k in range(1, largest_inner(n) + 1))
        some = islice(pairs, MOST_MASKED + 1)
        return least_masked(schedule, problem, [tiling(n * multiple, k * multiple) for n, k in some])
    dense = problem if problem.mask is DENSE else replace(problem, mask=DENSE)

    def move(n: int, k: int) -> int:
        return cast("int", moved_bytes(schedule, dense, tiling(n * multiple, k * multiple)))

    n, k = least_dense(move, largest_inner, largest)
    return tiling(n * multiple, k * multiple)


def one_by_one(
    search: ArraySearch, schedule: ScheduleLike, problem: Attention[Size], M_bytes: Size, multiple: int
) -> tuple[Tiling[Size], Test]:  # fmt: skip
    """The arrays (tiles, whether any fit), found by calling `search` for one problem at a time."""
    import numpy as np

    names = ("N", "Nk", "d", "dv", "batch", "heads", "kv_heads")
    columns = np.broadcast_arrays(M_bytes, *(getattr(problem, name) for name in names))
    found = []
    for M, *sizes in zip(*(column.ravel().tolist() for column in columns), strict=True):
        point = replace(problem, **dict(zip(names, sizes, strict=True)))
        found.append(search(schedule, point, M, multiple))
    kind = columns[1].dtype
    rows_q, rows_k = (np.array([getattr(t, name) for t, _ in found], kind) for name in ("rows_q", "rows_k"))
    return replace(found[0][0], rows_q=rows_q, rows_k=rows_k), np.array([fits for _, fits in found])


def least_masked(schedule: ScheduleLike, problem: Attention[Size], tilings: list[Tiling[Size]]) -> Tiling[Size]:
    """The tiling of least traffic under a mask of tokens. Larger tiles may move more there, so all are counted."""
    if problem.mask.tile_units:
        raise InputError(
            "--tiles", "best", f"a mask that does not change with the tiles (--mask {problem.mask} counts tiles)",
            "give --tiles as 128x64, or the mask in tokens",
        )  # fmt: skip
    if len(tilings) > MOST_MASKED:
        raise InputError(
            "--tiles", f"best among more than {MOST_MASKED} tilings", "fewer where a mask is counted for each",
            "give --tiles as 128x64, or a --tile-multiple",
        )  # fmt: skip
    return min(tilings, key=lambda tiling: cast("int", moved_bytes(schedule, problem, tiling)))
