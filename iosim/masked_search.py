"""The outer tile of least traffic under a mask: candidates are counted one by one, or all in one walk over arrays.

Two outer tiles merged into one move no more than both did: what either of them visits is visited once. So a tile is
no better than its multiples, and only the upper half of the candidates is counted. But where the mask empties whole
outer lines, a larger tile may load rows that nobody looks at: there every candidate is counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .elementwise import choose
from .errors import InputError
from .folded import Folded
from .problem import DENSE, Attention
from .watchers import Traffic

MOST_MASKED = 2**14  # outer tiles that are counted one by one: some seconds
MOST_IN_ARRAYS = 2**18
WORTH_NUMPY = 1024  # outer tiles: importing NumPy takes as long as counting these one by one
CHUNK = 2**15


def least_traffic(schedule: Any, problem: Attention, tiling: Callable, largest: Any, multiple: int) -> Any:
    """n of 1..largest with the least traffic, where `tiling(n * multiple, multiple)` are the tiles; the smallest n
    among equals that were counted. Sizes and `largest` are numbers, or arrays where the mask counts arrays."""
    if problem.mask.tile_units:
        raise InputError(
            "--tiles", "best", f"a mask that does not change with the tiles (--mask {problem.mask} counts tiles)",
            "give --tiles as 128x64, or the mask in tokens",
        )  # fmt: skip
    single = isinstance(largest, int)
    arrays = problem.mask.counts_arrays and (not single or worth_arrays(largest))
    most = MOST_IN_ARRAYS if arrays else MOST_MASKED
    highest = largest if single else int(largest.max())
    if highest > most:
        raise InputError(
            "--tiles", f"best among {highest} outer tiles", f"at most {most} where a mask is counted for each",
            "give --tiles as 128x64, or a --tile-multiple",
        )  # fmt: skip
    first = choose(no_empty_line(schedule, problem, tiling(multiple, multiple)), largest // 2 + 1, 1)
    if arrays:
        found = least_in_arrays(schedule, problem, tiling, first, largest, multiple)
        return int(found[0]) if single else found
    return min(range(first, largest + 1), key=lambda n: words(schedule, problem, tiling(n * multiple, multiple)))


def worth_arrays(largest: int) -> bool:
    return "numpy" in sys.modules or largest > WORTH_NUMPY


def no_empty_line(schedule: Any, problem: Attention, tiling: Any) -> Any:
    """Whether every outer tile has an active tile."""
    bound = problem.mask.bind(problem, tiling)
    if schedule.outer == "queries":
        return bound.rows(False) + bound.rows(True) == bound.Tr
    return bound.cols(False) + bound.cols(True) == bound.Tc


def words(schedule: Any, problem: Attention, tiling: Any) -> Any:
    watcher = Traffic()
    Folded(problem, watcher).run(schedule, tiling)
    return watcher.total


def least_in_arrays(
    schedule: Any, problem: Attention, tiling: Callable, first: Any, largest: Any, multiple: int
) -> Any:
    """The same for all problems at once: their candidates, one after the other, are chunks of a few walks."""
    import numpy as np

    names = ("N", "Nk", "d", "dv")
    kind = np.int64 if fits_int64(schedule, problem, tiling(1, 1)) else object
    sizes = [np.asarray(getattr(problem, name), kind) for name in names]
    *sizes, first, largest = np.broadcast_arrays(*map(np.atleast_1d, (*sizes, first, largest)))
    first, counts = first.astype(np.int64), (largest - first + 1).astype(np.int64)
    found = np.empty(len(counts), np.int64)
    for part in chunks(np.cumsum(counts)):
        row = np.repeat(np.arange(part.start, part.stop), counts[part])
        starts = np.cumsum(counts[part]) - counts[part]
        n = (np.arange(len(row)) - starts[row - part.start] + first[row]).astype(kind)
        picked = dict(zip(names, (size[row] for size in sizes), strict=True))
        point = replace(problem, **picked, batch=1, heads=1, kv_heads=1)
        total = words(schedule, point, tiling(n * multiple, multiple))
        least = np.flatnonzero(total == np.minimum.reduceat(total, starts)[row - part.start])
        found[part] = n[least[np.unique(row[least], return_index=True)[1]]]
    return found


def chunks(ends: Any) -> Iterator[slice]:
    """Slices of rows that have at most CHUNK candidates together, or of one row."""
    start = done = 0
    while start < len(ends):
        stop = max(start + 1, int(ends.searchsorted(done + CHUNK, side="right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])


def fits_int64(schedule: Any, problem: Attention, one_row: Any) -> bool:
    """The largest sizes without a mask and in tiles of one row bound every count, in Python integers."""
    import numpy as np

    largest: Any = {name: int(np.max(getattr(problem, name))) for name in ("N", "Nk", "d", "dv")}
    worst = replace(problem, **largest, batch=1, heads=1, kv_heads=1, mask=DENSE)
    return bool(8 * max(words(schedule, worst, one_row), (worst.N + worst.Nk + 2) ** 2) < 2**63)
