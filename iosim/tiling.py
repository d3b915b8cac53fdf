"""Tile sizes, the published rule that chooses them, and the search for the best that really fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import InputError
from .folded import Folded
from .problem import DENSE, Attention
from .units import LARGEST_COUNT, parse_count
from .watchers import Capacity, Traffic

MOST_MASKED = 2**14  # outer tiles that a search with a mask looks at: some seconds


@dataclass(frozen=True)
class Tiling:
    """Br = rows_q query rows and Bc = rows_k key rows a tile; rows_s score rows in a softmax over whole rows."""

    rows_q: Any
    rows_k: Any
    rows_s: Any = 1


def parse_tiles(text: str, where: str = "--tiles") -> Tiling:
    """`128x64` is Br x Bc, query rows first."""
    parts = str(text).lower().split("x")
    if len(parts) != 2:
        raise InputError(where, text, "paper, best, or Br x Bc as in 128x64 (query rows first)")
    rows = [parse_count(part, f"{where} {text}", most=LARGEST_COUNT) for part in parts]
    return Tiling(rows[0], rows[1])


def paper_tiles(problem: Attention, M_words: Any) -> Tiling:
    """Bc = ceil(M / 4d), Br = min(Bc, d). Dao et al. 2022, Algorithm 1, line 1. They do not fit in most cases."""
    from .folded import smaller

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

    A schedule declares its outer loop. Its dense traffic falls with the outer tile and does not depend on the inner
    one; with a mask of tokens it is least for the smallest inner tile, because a tile's keys are read when any is
    seen. So the search goes along one axis; among equals it takes the smallest outer tile, then the largest inner.
    """
    if getattr(schedule, "search", None):
        return schedule.search(schedule, problem, M_bytes, multiple)  # type: ignore[no-any-return]
    outer_is_q = schedule.outer == "queries"
    outer_length, inner_length = (problem.N, problem.Nk) if outer_is_q else (problem.Nk, problem.N)

    def tiling(outer: int, inner: int) -> Tiling:
        return Tiling(outer, inner) if outer_is_q else Tiling(inner, outer)

    def fits(outer: int, inner: int) -> bool:
        return footprint(schedule, problem, tiling(outer, inner)).peak_bytes <= M_bytes

    largest = last_true(lambda n: fits(n * multiple, multiple), -(-outer_length // multiple))
    if largest == 0:
        return None
    if problem.mask is not DENSE and getattr(schedule, "skips", True):
        return _least_masked(schedule, problem, tiling, largest, multiple)
    count = -(-outer_length // (largest * multiple))
    rows = -(-outer_length // count)
    outer = -(-rows // multiple) * multiple
    inner = last_true(lambda n: fits(outer, n * multiple), -(-inner_length // multiple)) * multiple
    return tiling(outer, inner)


def _least_masked(schedule: Any, problem: Attention, tiling: Any, largest: int, multiple: int) -> Tiling:
    if problem.mask.tile_units:
        raise InputError(
            "--tiles", "best", f"a mask that does not change with the tiles (--mask {problem.mask} counts tiles)",
            "give --tiles as 128x64, or the mask in tokens",
        )  # fmt: skip

    if largest > MOST_MASKED:
        raise InputError(
            "--tiles", f"best among {largest} outer tiles", f"at most {MOST_MASKED} where a mask is counted for each",
            "give --tiles as 128x64, or a --tile-multiple",
        )  # fmt: skip

    def traffic(n: int) -> Any:
        watcher = Traffic()
        Folded(problem, watcher).run(schedule, tiling(n * multiple, multiple))
        return watcher.total

    return tiling(min(range(1, largest + 1), key=traffic) * multiple, multiple)


def last_true(test: Any, most: int) -> int:
    """The largest n from 1 to `most` for which a test holds that is true up to some n; 0 if for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if test(middle) else (low, middle - 1)
    return low
