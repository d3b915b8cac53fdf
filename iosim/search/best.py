"""The tiles of least traffic that fit in M, and the SRAM that a schedule needs.

A schedule declares its outer loop, and its dense traffic falls as the outer tile grows. There are three cases:

- Dense traffic does not depend on the inner tile. The largest outer tile that fits is best.
- It depends on the inner tile too. Each outer tile is paired with the largest inner tile that fits beside it. A larger
  tile of either loop must never move more words.
- A mask leaves out tiles. Then a larger outer tile may move more: it loads rows that smaller tiles would leave out, and
  stores more of P. So every outer tile is counted, one by one or in one walk over arrays.

A schedule for which none of this holds states its candidates (search/pairs.py has those of most such schedules).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache, wraps
from itertools import islice
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from ..core.arrays import anywhere, larger, last_true, parts_of
from ..core.folded import Folded, Unsummed
from ..core.options import NUMBERS
from ..core.problem import DENSE, Attention, as_moved, mask_matters, with_mask
from ..core.tiling import Tiling
from ..core.watchers import Capacity, Footprint, Traffic
from ..errors import InputError
from ..progress import watched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.machine import ScheduleLike, ScheduleText
    from ..core.typing import Same, Size, Test
    from ..schedules import Schedule


NEWTON_STEPS = 4
MOST_MASKED = 2**14  # outer tiles that may be counted one by one, which takes some seconds
MOST_IN_ARRAYS = 2**20  # outer tiles that may be counted in arrays: up to 20 s, and 2 s in a closed form
WORTH_NUMPY = 1024  # outer tiles; to count so many one by one takes as long as to import NumPy
CANDIDATES_AT_ONCE = 2**17  # some hundred MB


P = ParamSpec("P")
T = TypeVar("T")


def kept(function: Callable[P, T], most: int = 4096) -> Callable[P, T]:
    """The function, whose last answers about Python's own integers are kept: searches for many M ask the same again."""
    once = lru_cache(maxsize=most)(function)

    @wraps(function)
    def answer(*args: P.args, **options: P.kwargs) -> T:
        if all(in_integers(x) for x in args if isinstance(x, Attention | Tiling)):
            with suppress(TypeError):  # of an option that has no hash
                return once(*args, **options)  # type: ignore[arg-type]
        return function(*args, **options)

    return answer


def in_integers(sizes: Attention[Size] | Tiling[Size]) -> bool:
    """Whether sizes are Python's own integers: neither arrays nor numbers of NumPy, which are equal to integers but not
    exact."""
    names = NUMBERS if isinstance(sizes, Attention) else vars(sizes)
    given = vars(sizes)
    return all(given[name] is None or type(given[name]) is int for name in names)


# ---------------------------------------------------------------- what a tiling needs and moves


def footprint(schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]) -> Footprint:
    """The space that a schedule needs on the chip, without its mask. Only `smem_bytes` must fit in M."""
    return dense_footprint(schedule, with_mask(problem), tiling)


@kept
def dense_footprint(schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]) -> Footprint:
    """The footprint of a problem without a mask."""
    if problem.divided:
        from ..core.placement import placed

        return placed(schedule, problem, tiling)
    capacity = Capacity()
    Unsummed(problem, capacity).run(schedule, tiling)
    return footprint_of(capacity)


def footprint_of(capacity: Capacity) -> Footprint:
    """The footprint in one undivided SRAM, from what was measured in a walk."""
    peak = capacity.peak_bytes
    return Footprint(capacity.peak_words, peak, peak, 0, peak)


@kept
def moved_bytes(schedule: ScheduleLike | ScheduleText, problem: Attention[Same], tiling: Tiling[Same]) -> Same:
    """The bytes that one head moves. Words are not compared: some tensors have wider ones than others."""
    watcher = Traffic()
    machine = Folded(problem, watcher).run(schedule, tiling)
    width = {name: problem.hbm_bytes(machine.tensors[name]) for name in watcher.tensors}
    return cast("Same", sum((reads + writes) * width[name] for name, (reads, writes) in watcher.tensors.items()))


def arranged(schedule: ScheduleLike, outer: Same, inner: Same) -> Tiling[Same]:
    """The tiling of an outer and an inner tile."""
    return Tiling(outer, inner) if schedule.outer == "queries" else Tiling(inner, outer)


def lengths(schedule: Schedule, problem: Attention[Size]) -> tuple[Size, Size]:
    """The lengths of the outer and of the inner loop."""
    keys = schedule.keys_in_a_row(problem)
    return (problem.N, keys) if schedule.outer == "queries" else (keys, problem.N)


# ---------------------------------------------------------------- the best tiling


def best_tiles(schedule: Schedule, problem: Attention, M_bytes: int, multiple: int = 1) -> Tiling | None:
    """The tiles of least traffic in bytes that fit, exactly; None if nothing fits.

    If only the outer size is searched, the inner tile is the largest that fits without a mask. With a mask of tokens it
    is the smallest, because a whole tile is read if any of it is seen. The outer tile is the smallest of those that
    give the fewest tiles. With a mask it is the smallest of those of least traffic.
    """
    if schedule.candidates is None:
        tiling, found = search(schedule, problem, M_bytes, multiple)
        return cast("Tiling", tiling) if found else None
    if problem.divided:
        raise InputError(
            "--registers, --stages",
            f"best tiles of {schedule.name}",
            "a schedule without a search of its own",
            "iosim count --tiles counts given ones",
        )
    from .kept import Kept
    from .pairs import Pairs

    if isinstance(schedule.candidates, Pairs | Kept):
        return schedule.candidates.best(problem, M_bytes, multiple)
    return least_of(schedule, problem, schedule.candidates(problem, multiple), M_bytes)


def least_of(schedule: Schedule, problem: Attention, tilings: Iterable[Tiling[Size]], M_bytes: int) -> Tiling | None:
    """The tiling of least traffic that fits, of tilings whose sizes may be arrays; None if none fits. Of equal ones it
    is one that needs the least SRAM."""
    import numpy as np

    counted = as_moved(schedule, problem)
    found: list[tuple[int, ...]] = []
    for tiling in tilings:
        sizes = {name: size for name, size in vars(tiling).items() if size is not None}
        each = Tiling(**{n: size if isinstance(size, int) else size.astype(object) for n, size in sizes.items()})
        columns = moved_bytes(schedule, counted, each), footprint(schedule, problem, each).smem_bytes, *sizes.values()
        rows = zip(*(column.ravel().tolist() for column in np.broadcast_arrays(*columns)), strict=True)
        found += [row for row in rows if row[1] <= M_bytes]
    return Tiling(**dict(zip(sizes, min(found)[2:], strict=True))) if found else None


def search(schedule: Schedule, problem: Attention[Size], M_bytes: Size, multiple: int = 1) -> tuple[Tiling[Size], Test]:
    """(tiles, whether any fit), as numbers or as arrays, of a schedule that states no candidates."""
    outer_length, inner_length = lengths(schedule, problem)

    def needed(outer: Size, inner: Size) -> Size:
        return footprint(schedule, problem, arranged(schedule, outer, inner)).smem_bytes

    largest = last_within(lambda n: needed(n * multiple, multiple), M_bytes, -(-outer_length // multiple))
    found, largest = largest > 0, larger(largest, 1)
    if anywhere(found) and inner_matters(schedule, problem, multiple):
        if not isinstance(largest, int):
            return one_by_one(schedule, problem, M_bytes, multiple)

        def largest_inner(n: int) -> int:
            bytes_of = lambda k: needed(n * multiple, k * multiple)  # noqa: E731
            return cast("int", last_within(bytes_of, M_bytes, -(-inner_length // multiple)))

        return least_of_both(schedule, problem, largest, largest_inner, multiple), found
    if anywhere(found) and mask_matters(schedule, problem):
        return arranged(schedule, least_outer(schedule, problem, largest, multiple) * multiple, multiple), found
    count = -(-outer_length // (largest * multiple))
    rows = -(-outer_length // count)
    outer = -(-rows // multiple) * multiple
    inner = last_within(lambda n: needed(outer, n * multiple), M_bytes, -(-inner_length // multiple))
    return arranged(schedule, outer, larger(inner, 1) * multiple), found


def last_within(needed: Callable[[Size], Size], M_bytes: Size, most: Size) -> Size:
    """The largest n from 1 to `most` whose need is at most M; 0 if there is none. The need grows with n.

    The need is nearly linear in n. So for numbers a few steps of Newton's method come before the binary search.
    """
    low, high = 0 * most, most
    if isinstance(M_bytes, int) and isinstance(low, int) and isinstance(high, int):
        n = 1
        for _ in range(NEWTON_STEPS):
            if high - low < NEWTON_STEPS or not low < n < high:
                break
            here, there = needed(n), needed(n + 1)
            if here > M_bytes:
                high = n - 1
            elif there <= M_bytes:
                low = n + 1
            else:
                return n
            n = cast("int", n + (M_bytes - here) // (there - here)) if there > here else high - 1
            n = min(max(n, low + 1), high - 1)
    return low + last_true(lambda more: needed(low + more) <= M_bytes, high - low)


# ---------------------------------------------------------------- where the inner tile matters


def inner_matters(schedule: Schedule, problem: Attention[Size], multiple: int = 1) -> bool:
    """Whether dense traffic depends on the inner tile. The smallest and the largest inner tile are compared, beside the
    smallest outer tile and beside the largest."""
    return dense_inner_matters(schedule, with_mask(problem), multiple)


@kept
def dense_inner_matters(schedule: Schedule, dense: Attention[Size], multiple: int) -> bool:
    """`inner_matters` of a problem without a mask."""
    outer, inner = lengths(schedule, dense)
    return any(
        anywhere(
            moved_bytes(schedule, dense, arranged(schedule, size, multiple))
            != moved_bytes(schedule, dense, arranged(schedule, size, inner))
        )
        for size in (multiple, outer)
    )


def least_of_both(
    schedule: ScheduleLike, problem: Attention[Size], largest: int, largest_inner: Callable[[int], int], multiple: int
) -> Tiling[Size]:
    """The tiling of least traffic, for outer tiles of 1 to `largest` multiples, each with any inner tile that fits."""

    def tiling(n: int, k: int) -> Tiling[Size]:
        return arranged(schedule, n * multiple, k * multiple)

    if mask_matters(schedule, problem):
        pairs = ((n, k) for n in range(1, largest + 1) for k in range(1, largest_inner(n) + 1))
        return least_masked(schedule, problem, [tiling(n, k) for n, k in islice(pairs, MOST_MASKED + 1)])
    dense = with_mask(problem)

    def moved(n: int, k: int) -> int:
        return cast("int", moved_bytes(schedule, dense, tiling(n, k)))

    return tiling(*least_dense(moved, largest_inner, largest))


def least_dense(move: Callable[[int, int], int], largest_inner: Callable[[int], int], most: int) -> tuple[int, int]:
    """The pair (outer, inner) of least `move(outer, inner)`, for outer tiles from 1 to `most`, in multiples.

    Each outer tile is paired with the largest inner tile that fits beside it, which shrinks as the outer tile grows.
    Take a range of outer tiles. Its largest outer tile with the inner tile of its smallest one moves no more than any
    pair of the range. This is a lower bound for the range. Ranges are halved until their bound is no better than the
    best pair found.
    """
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


def least_masked(schedule: ScheduleLike, problem: Attention[Size], tilings: list[Tiling[Size]]) -> Tiling[Size]:
    """The tiling of least traffic under a mask of tokens. Larger tiles may move more there, so all are counted."""
    require_tokens(problem)
    if len(tilings) > MOST_MASKED:
        raise InputError(
            "--tiles",
            f"best among more than {MOST_MASKED} tilings",
            "fewer where a mask is counted for each",
            "give --tiles as 128x64, or a --tile-multiple",
        )
    return min(tilings, key=lambda tiling: moved_bytes(schedule, problem, tiling))


def one_by_one(schedule: Schedule, problem: Attention[Size], M_bytes: Size, multiple: int) -> tuple[Tiling[Size], Test]:
    """The arrays (tiles, whether any fit), found by a search for one problem at a time."""
    import numpy as np

    columns = np.broadcast_arrays(M_bytes, *(getattr(problem, name) for name in NUMBERS))
    found = []
    for M, *sizes in zip(*(column.ravel().tolist() for column in columns), strict=True):
        point = replace(problem, **dict(zip(NUMBERS, sizes, strict=True)))
        found.append(search(schedule, point, M, multiple))
    kind = columns[1].dtype
    rows_q, rows_k = (np.array([getattr(t, name) for t, _ in found], kind) for name in ("rows_q", "rows_k"))
    return replace(found[0][0], rows_q=rows_q, rows_k=rows_k), np.array([fits for _, fits in found])


# ---------------------------------------------------------------- outer tiles under a mask


def require_tokens(problem: Attention[Size]) -> None:
    """Raise InputError for a mask that changes with the tiles."""
    if problem.mask.tile_units:
        raise InputError(
            "--tiles",
            "best",
            f"a mask that does not change with the tiles (--mask {problem.mask} counts tiles)",
            "give --tiles as 128x64, or the mask in tokens",
        )


def least_outer(schedule: ScheduleLike, problem: Attention[Size], largest: Size, multiple: int) -> Size:
    """The n from 1 to `largest` for which an outer tile of n multiples, with the smallest inner tile, moves the fewest
    bytes.

    Among equal n it is the smallest. Sizes and `largest` are numbers, or arrays if the mask can be counted for arrays.
    """
    require_tokens(problem)
    single = largest if isinstance(largest, int) else None
    arrays = problem.mask.counts_arrays and (single is None or worth_arrays(single))
    most = MOST_IN_ARRAYS if arrays and problem.mask.counts_at_once else MOST_MASKED
    highest = int(largest.max()) if not isinstance(largest, int) else largest
    if highest > most:
        raise InputError(
            "--tiles",
            f"best among {highest} outer tiles",
            f"at most {most} where a mask is counted for each",
            "give --tiles as 128x64, or a --tile-multiple",
        )
    if arrays:
        found = least_in_arrays(schedule, problem, largest, multiple)
        return found if single is None else int(found[0])

    def moved(n: int) -> int:
        return cast("int", moved_bytes(schedule, problem, arranged(schedule, n * multiple, multiple)))

    return min(watched(range(1, highest + 1), "outer tiles", highest), key=moved)


def worth_arrays(largest: int) -> bool:
    """Whether one walk over arrays is faster than counting `largest` tiles one by one."""
    return "numpy" in sys.modules or largest > WORTH_NUMPY


def least_in_arrays(
    schedule: ScheduleLike, problem: Attention[Size], largest: Size, multiple: int
) -> NDArray[np.int64]:
    """The n from 1 to `largest` with the least bytes moved, for all problems at once. The candidates of all problems
    stand one after another in one array. Each walk counts a chunk of that array."""
    import numpy as np

    names = ("N", "Nk", "d", "dv")
    kind = np.int64 if costs_fit_int64(schedule, problem) else object
    sizes = [np.asarray(getattr(problem, name), kind) for name in names]
    *sizes, counts = np.broadcast_arrays(*map(np.atleast_1d, (*sizes, largest)))
    counts = counts.astype(np.int64)
    found = np.empty(len(counts), np.int64)
    parts = list(parts_of(np.cumsum(counts), CANDIDATES_AT_ONCE))
    for part in watched(parts, "outer tiles, in parts", len(parts)):
        row = np.repeat(np.arange(part.start, part.stop), counts[part])
        starts = np.cumsum(counts[part]) - counts[part]
        n = (np.arange(len(row)) - starts[row - part.start] + 1).astype(kind)
        picked = dict(zip(names, (size[row] for size in sizes), strict=True))
        point = replace(problem, **picked, batch=1, heads=1, kv_heads=1)  # type: ignore[arg-type]
        total = moved_bytes(schedule, point, arranged(schedule, n * multiple, multiple))
        least = np.flatnonzero(total == np.minimum.reduceat(total, starts)[row - part.start])
        found[part] = n[least[np.unique(row[least], return_index=True)[1]]]
    return found


def costs_fit_int64(schedule: ScheduleLike, problem: Attention[Size]) -> bool:
    """Whether every count fits an int64. The largest sizes, without a mask and in tiles of one row, bound all counts;
    that bound is counted in Python integers."""
    import numpy as np

    largest = {name: int(np.max(getattr(problem, name))) for name in ("N", "Nk", "d", "dv")}
    worst = replace(problem, **largest, batch=1, heads=1, kv_heads=1, mask=DENSE)  # type: ignore[arg-type]
    most = moved_bytes(schedule, worst, Tiling(1, 1))
    return bool(8 * max(most, (worst.N + worst.Nk + 2) ** 2) < 2**63)
