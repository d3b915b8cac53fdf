"""The tiles of least traffic that fit in M, and the SRAM that a schedule needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, overload

from ..core.arrays import anywhere, choose, larger
from ..core.folded import Unsummed
from ..core.problem import DENSE, Attention, with_mask
from ..core.tiling import Tiling
from ..core.watchers import Capacity, Footprint
from ..errors import InputError
from .inner_tile import inner_matters, least_of_both, one_by_one
from .outer_tile_under_mask import least_traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.typing import ScheduleLike, ScheduleText, Size, Test
    from ..schedules import Schedule


NEWTON_STEPS = 4


def footprint(schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]) -> Footprint:
    """The space that a schedule needs on the chip, without its mask. Only `smem_bytes` must fit in M."""
    if problem.divided:
        from ..core.placement import placed

        return placed(schedule, with_mask(problem), tiling)
    capacity = Capacity()
    Unsummed(with_mask(problem), capacity).run(schedule, tiling)
    return footprint_of(capacity)


def footprint_of(capacity: Capacity) -> Footprint:
    """The footprint in one undivided SRAM, from what was measured in a walk."""
    peak = capacity.peak_bytes
    return Footprint(capacity.peak_words, peak, peak, 0, peak)


def require_search(schedule: ScheduleLike, problem: Attention[Size]) -> None:
    """Raise InputError for a schedule whose own search knows only one undivided SRAM, if the problem divides the
    chip."""
    if problem.divided and getattr(schedule, "search", None) is not None:
        raise InputError("--registers, --stages", f"best tiles of {getattr(schedule, 'name', 'a schedule')}",
                         "a schedule without a search of its own", "iosim count --tiles counts given ones")  # fmt: skip


def best_tiles(schedule: Schedule, problem: Attention, M_bytes: int, multiple: int = 1) -> Tiling | None:
    """The tiles of least traffic in bytes that fit, exactly; None if nothing fits.

    A schedule declares its outer loop, and its dense traffic falls as the outer tile grows. If dense traffic depends on
    the inner tile too, both sizes are searched (search/inner_tile.py). Otherwise only the outer size is searched.

    If only the outer size is searched, the inner tile is the largest that fits without a mask. With a mask of tokens it
    is the smallest, because a whole tile is read if any of it is seen. The outer tile is the smallest of those that
    give the fewest tiles. With a mask it is the smallest of those of least traffic.
    """
    if schedule.search is not None:
        require_search(schedule, problem)
        return schedule.search(schedule, problem, M_bytes, multiple)
    tiling, found = search(schedule, problem, M_bytes, multiple)
    return cast("Tiling", tiling) if found else None


def search(
    schedule: ScheduleLike, problem: Attention[Size], M_bytes: Size, multiple: int = 1
) -> tuple[Tiling[Size], Test]:  # fmt: skip
    """(tiles, whether any fit), as numbers or as arrays. A schedule's own `search` is not used."""
    outer_is_q = schedule.outer == "queries"
    outer_length, inner_length = (problem.N, problem.Nk) if outer_is_q else (problem.Nk, problem.N)

    def tiling(outer: Size, inner: Size) -> Tiling[Size]:
        return Tiling(outer, inner) if outer_is_q else Tiling(inner, outer)

    def needed(outer: Size, inner: Size) -> Size:
        return footprint(schedule, problem, tiling(outer, inner)).smem_bytes

    largest = last_within(lambda n: needed(n * multiple, multiple), M_bytes, -(-outer_length // multiple))
    found, largest = largest > 0, larger(largest, 1)
    if anywhere(found) and inner_matters(schedule, problem, tiling, multiple):
        if not isinstance(largest, int):
            return one_by_one(search, schedule, problem, M_bytes, multiple)

        def largest_inner(n: int) -> int:
            bytes_of = lambda k: needed(n * multiple, k * multiple)  # noqa: E731
            return cast("int", last_within(bytes_of, M_bytes, -(-inner_length // multiple)))

        return least_of_both(schedule, problem, tiling, largest, largest_inner, multiple), found
    if problem.mask is not DENSE and getattr(schedule, "skips", True) and anywhere(found):
        return tiling(least_traffic(schedule, problem, tiling, largest, multiple) * multiple, multiple), found
    count = -(-outer_length // (largest * multiple))
    rows = -(-outer_length // count)
    outer = -(-rows // multiple) * multiple
    inner = last_within(lambda n: needed(outer, n * multiple), M_bytes, -(-inner_length // multiple))
    return tiling(outer, larger(inner, 1) * multiple), found


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


@overload
def last_true(test: Callable[[int], bool], most: int) -> int: ...


@overload
def last_true(test: Callable[[Size], Test], most: Size) -> Size: ...


def last_true(test: Callable[..., Test], most: Size) -> Size:  # type: ignore[explicit-any]
    """The largest n from 1 to `most` for which a test holds; 0 if there is none. The test must hold up to some n, and
    fail after it. If `most` is an array, so is n."""
    low, high = 0 * most, most
    while anywhere(low < high):
        middle = larger((low + high + 1) // 2, 1)  # an element whose search is over tests its answer again
        holds = test(middle)
        low, high = choose(holds, middle, low), choose(holds, high, larger(middle - 1, low))
    return low
