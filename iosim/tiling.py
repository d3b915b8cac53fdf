"""Tile sizes, the published rule that chooses them, and the search for the best that really fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .elementwise import anywhere, choose, larger, smaller
from .errors import InputError
from .folded import Folded
from .inner_search import inner_matters, least_of_both, one_by_one
from .masked_search import MOST_MASKED as MOST_MASKED
from .masked_search import least_traffic
from .problem import DENSE, Attention
from .units import LARGEST_COUNT, parse_count
from .watchers import Capacity


@dataclass(frozen=True)
class Tiling:
    """Br = rows_q query rows and Bc = rows_k key rows a tile; rows_s score rows in a softmax over whole rows.

    `depth`: positions of the axis that a matrix product sums over. `rows_o` x `cols_o`: the tile of the output where
    it is not Br x Bc (None).
    """

    rows_q: Any
    rows_k: Any
    rows_s: Any = 1
    depth: Any = 1
    rows_o: Any = None
    cols_o: Any = None


def parse_tiles(text: str, where: str = "--tiles", more: tuple[str, ...] = (), rules: bool = False) -> Tiling:
    """`128x64` is Br x Bc, query rows first. After a slash, as in `128x64/depth=8`, the sizes that `more` names. With
    `rules` a message says that paper and best are allowed too."""
    first, *others = str(text).lower().split("/")
    parts = first.split("x")
    if len(parts) != 2:
        raise InputError(where, text, "paper, best, or " * rules + "Br x Bc as in 128x64 (query rows first)")
    rows = [parse_count(part, f"{where} {text}", most=LARGEST_COUNT) for part in parts]
    sizes = dict(other.partition("=")[::2] for other in others)
    if not set(sizes) <= set(more) or len(sizes) < len(others):
        raise InputError(where, text, "Br x Bc" + "".join(f" and /{name}=SIZE" for name in more))
    extra = {name: parse_count(size, f"{where} {text}", most=LARGEST_COUNT) for name, size in sizes.items()}
    return Tiling(*rows, **extra)


def paper_tiles(problem: Attention, M_words: Any) -> Tiling:
    """Bc = ceil(M / 4d), Br = min(Bc, d). Dao et al. 2022, Algorithm 1, line 1. They do not fit in most cases."""
    rows_k = -(-M_words // (4 * problem.d))
    return Tiling(smaller(rows_k, problem.d), rows_k)


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
