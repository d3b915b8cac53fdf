"""The outer tile of least traffic under a mask: candidates are counted one by one, or all in one walk over arrays.

Every outer tile is a candidate, because a larger one may move more. A larger tile loads rows that smaller tiles would
leave out, where the mask hides all of a smaller tile. It also stores more of P: each of its rows for every key that
any of them sees.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ..core.folded import Folded
from ..core.problem import DENSE, Attention
from ..core.watchers import Traffic
from ..errors import InputError
from ..progress import watched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.tiling import Tiling
    from ..core.typing import ScheduleLike, ScheduleText, Size, Tiles

MOST_MASKED = 2**14  # outer tiles that may be counted one by one, which takes some seconds
MOST_IN_ARRAYS = 2**20  # outer tiles that may be counted in arrays: up to 20 s, and 2 s in a closed form
WORTH_NUMPY = 1024  # outer tiles; to count so many one by one takes as long as to import NumPy
CANDIDATES_AT_ONCE = 2**17  # some hundred MB


def least_traffic(
    schedule: ScheduleLike, problem: Attention[Size], tiling: Tiles, largest: Size, multiple: int
) -> Size:  # fmt: skip
    """The n from 1 to `largest` for which the tiles `tiling(n * multiple, multiple)` move the fewest bytes.

    Among equal n it is the smallest. Sizes and `largest` are numbers, or arrays if the mask can be counted for arrays.
    """
    if problem.mask.tile_units:
        raise InputError(
            "--tiles", "best", f"a mask that does not change with the tiles (--mask {problem.mask} counts tiles)",
            "give --tiles as 128x64, or the mask in tokens",
        )  # fmt: skip
    single = largest if isinstance(largest, int) else None
    arrays = problem.mask.counts_arrays and (single is None or worth_arrays(single))
    most = MOST_IN_ARRAYS if arrays and problem.mask.counts_at_once else MOST_MASKED
    highest = int(largest.max()) if not isinstance(largest, int) else largest
    if highest > most:
        raise InputError(
            "--tiles", f"best among {highest} outer tiles", f"at most {most} where a mask is counted for each",
            "give --tiles as 128x64, or a --tile-multiple",
        )  # fmt: skip
    if arrays:
        found = least_in_arrays(schedule, problem, tiling, largest, multiple)
        return found if single is None else int(found[0])
    outer = watched(range(1, highest + 1), "outer tiles", highest)
    return min(outer, key=lambda n: cast("int", moved_bytes(schedule, problem, tiling(n * multiple, multiple))))


def worth_arrays(largest: int) -> bool:
    """Whether one walk over arrays is faster than counting `largest` tiles one by one."""
    return "numpy" in sys.modules or largest > WORTH_NUMPY


def moved_bytes(schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]) -> Size:
    """The bytes that one head moves. Words are not compared: some tensors have wider ones than others."""
    watcher = Traffic()
    machine = Folded(problem, watcher).run(schedule, tiling)
    width = {name: problem.hbm_bytes(machine.tensors[name]) for name in watcher.tensors}
    return sum((reads + writes) * width[name] for name, (reads, writes) in watcher.tensors.items())


def least_in_arrays(
    schedule: ScheduleLike, problem: Attention[Size], tiling: Tiles, largest: Size, multiple: int
) -> NDArray[np.int64]:
    """The n from 1 to `largest` with the least bytes moved, for all problems at once. The candidates of all problems
    stand one after another in one array. Each walk counts a chunk of that array."""
    import numpy as np

    names = ("N", "Nk", "d", "dv")
    kind = np.int64 if costs_fit_int64(schedule, problem, tiling(1, 1)) else object
    sizes = [np.asarray(getattr(problem, name), kind) for name in names]
    *sizes, counts = np.broadcast_arrays(*map(np.atleast_1d, (*sizes, largest)))
    counts = counts.astype(np.int64)
    found = np.empty(len(counts), np.int64)
    parts = list(candidate_chunks(np.cumsum(counts)))
    for part in watched(parts, "outer tiles, in parts", len(parts)):
        row = np.repeat(np.arange(part.start, part.stop), counts[part])
        starts = np.cumsum(counts[part]) - counts[part]
        n = (np.arange(len(row)) - starts[row - part.start] + 1).astype(kind)
        picked = dict(zip(names, (size[row] for size in sizes), strict=True))
        point = replace(problem, **picked, batch=1, heads=1, kv_heads=1)  # type: ignore[arg-type]
        total = moved_bytes(schedule, point, tiling(n * multiple, multiple))
        least = np.flatnonzero(total == np.minimum.reduceat(total, starts)[row - part.start])
        found[part] = n[least[np.unique(row[least], return_index=True)[1]]]
    return found


def candidate_chunks(ends: NDArray[np.int64]) -> Iterator[slice[int, int, None]]:
    """Slices of rows that have at most CANDIDATES_AT_ONCE candidates together, or of one row."""
    start = done = 0
    while start < len(ends):
        stop = max(start + 1, int(ends.searchsorted(done + CANDIDATES_AT_ONCE, side="right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])


def costs_fit_int64(schedule: ScheduleLike, problem: Attention[Size], one_row: Tiling[Size]) -> bool:
    """Whether every count fits an int64. The largest sizes, without a mask and in tiles of one row, bound all counts;
    that bound is counted in Python integers."""
    import numpy as np

    largest = {name: int(np.max(getattr(problem, name))) for name in ("N", "Nk", "d", "dv")}
    worst = replace(problem, **largest, batch=1, heads=1, kv_heads=1, mask=DENSE)  # type: ignore[arg-type]
    return bool(8 * max(cast("int", moved_bytes(schedule, worst, one_row)), (worst.N + worst.Nk + 2) ** 2) < 2**63)
