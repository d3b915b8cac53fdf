"""The tiles of least traffic that really fit, and what a text keeps in SRAM."""

from __future__ import annotations

from typing import Any

from .elementwise import anywhere, choose, larger
from .folded import Folded
from .inner_search import inner_matters, least_of_both, one_by_one
from .masked_search import least_traffic
from .problem import DENSE, Attention
from .tiling import Tiling
from .watchers import Capacity


def footprint(schedule: Any, problem: Attention, tiling: Tiling) -> Capacity:
    """What a text keeps in SRAM, measured without the mask: `peak_words` and `peak_bytes`."""
    from dataclasses import replace

    dense = problem if problem.mask is DENSE else replace(problem, mask=DENSE)
    capacity = Capacity()
    Folded(dense, capacity).run(schedule, tiling)
    return capacity


def best_tiles(schedule: Any, problem: Attention, M_bytes: int, multiple: int = 1) -> Tiling | None:
    """The tiles of least traffic that fit, exactly; None where nothing fits.

    A schedule declares its outer loop. Its dense traffic falls with the outer tile. Where it depends on the inner one
    too, both are searched (inner_search.py). Else the search goes along one axis: without a mask the inner tile is as
    large as fits; with a mask of tokens traffic is least for the smallest one, because a tile's keys are read when any
    is seen. Among equals it takes the smallest outer tile; under a mask of those that masked_search.py counts.
    """
    if getattr(schedule, "search", None):
        return schedule.search(schedule, problem, M_bytes, multiple)  # type: ignore[no-any-return]
    tiling, found = search(schedule, problem, M_bytes, multiple)
    return tiling if found else None


def search(schedule: Any, problem: Attention, M_bytes: Any, multiple: int = 1) -> tuple[Tiling, Any]:
    """The search without one of the schedule's own, for numbers or arrays of them: the tiles, and whether any fit."""
    outer_is_q = schedule.outer == "queries"
    outer_length, inner_length = (problem.N, problem.Nk) if outer_is_q else (problem.Nk, problem.N)

    def tiling(outer: Any, inner: Any) -> Tiling:
        return Tiling(outer, inner) if outer_is_q else Tiling(inner, outer)

    def fits(outer: Any, inner: Any) -> Any:
        return footprint(schedule, problem, tiling(outer, inner)).peak_bytes <= M_bytes

    largest = last_true(lambda n: fits(n * multiple, multiple), -(-outer_length // multiple))
    found, largest = largest > 0, larger(largest, 1)
    if anywhere(found) and inner_matters(schedule, problem, tiling, multiple):
        if not isinstance(largest, int):
            return one_by_one(search, schedule, problem, M_bytes, multiple)

        def largest_inner(n: int) -> int:
            return int(last_true(lambda k: fits(n * multiple, k * multiple), -(-inner_length // multiple)))

        return least_of_both(schedule, problem, tiling, largest, largest_inner, multiple), found
    if problem.mask is not DENSE and getattr(schedule, "skips", True) and anywhere(found):
        return tiling(least_traffic(schedule, problem, tiling, largest, multiple) * multiple, multiple), found
    count = -(-outer_length // (largest * multiple))
    rows = -(-outer_length // count)
    outer = -(-rows // multiple) * multiple
    inner = last_true(lambda n: fits(outer, n * multiple), -(-inner_length // multiple))
    return tiling(outer, larger(inner, 1) * multiple), found


def last_true(test: Any, most: Any) -> Any:
    """The largest n from 1 to `most` for which a test holds that is true up to some n; 0 if for none. Or arrays."""
    low, high = 0 * most, most
    while anywhere(low < high):
        middle = larger((low + high + 1) // 2, 1)  # where the search is over, the answer is asked for again
        holds = test(middle)
        low, high = choose(holds, middle, low), choose(holds, high, larger(middle - 1, low))
    return low
