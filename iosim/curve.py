"""The least traffic against M, exactly: the breakpoints of the curve, not samples of it. Imports NumPy.

A schedule's dense traffic depends on the number of its outer tiles only, and its footprint grows with both tiles. So
for each number of outer tiles (about 2 sqrt(N) of them differ) one tiling can be best: the smallest outer tile that
gives this number, with the smallest inner tile. Its footprint is the M from which on its traffic is within reach. A
schedule for which this does not hold may state its candidates (candidates.py). One folded walk over arrays counts them
all; the least over all schedules is the lower envelope of these steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .candidates import cheaper, integers, pairs
from .errors import InputError
from .experiment import measure
from .inner_search import inner_matters
from .problem import DENSE, Attention
from .schedules import Schedule
from .square_tiles import sizes
from .tiling import MOST_MASKED, Tiling, footprint

MOST_TILES = 2**18  # candidates of one schedule: some seconds


@dataclass(frozen=True)
class Step:
    """From M_bytes on, `total` words (over all heads) are within reach with these tiles; None: ideal, without any."""

    M_bytes: int
    schedule: str
    Br: int | None
    Bc: int | None
    total: int
    total_bytes: int


def exact(schedule: Schedule, p: Attention) -> bool:
    """Whether `steps` knows a best tiling for every M: not where a schedule has a search of its own, unless it states
    what its candidates are, which holds without a mask; nor where its inner tile matters and nobody stated how."""
    if schedule.inner_matters or schedule.candidates is not None:
        return p.mask is DENSE or not schedule.skips
    if schedule.search is not None or "ideal" in schedule.rules:
        return schedule.search is None
    return not inner_matters(schedule, p.packed, lambda outer, inner: arranged(schedule, outer, inner))


def curve(schedules: Iterable[Schedule], p: Attention, multiple: int = 1) -> list[Step]:
    """The lower envelope of several schedules: each M_bytes at which the least traffic in bytes falls, in order."""
    return envelope(step for schedule in schedules for step in steps(schedule, p, multiple))


def envelope(candidates: Iterable[Step]) -> list[Step]:
    """What is below everything that needs no more M; among equals the first one given."""
    found: list[Step] = []
    for step in sorted(candidates, key=lambda s: (s.M_bytes, s.total_bytes)):
        if not found or step.total_bytes < found[-1].total_bytes:
            found.append(step)
    return found


def least(envelope: Sequence[Step], M_bytes: int) -> Step | None:
    """The step that an M stands on; None below the first."""
    index = bisect_right(envelope, M_bytes, key=lambda s: s.M_bytes)
    return envelope[index - 1] if index else None


def steps(schedule: Schedule, p: Attention, multiple: int = 1) -> list[Step]:
    """What a schedule reaches as M grows; between two steps none of its tilings is better."""
    p = p.packed
    if "ideal" in schedule.rules:
        return counted(schedule, p, Tiling(1, 1))
    if p.mask is not DENSE and schedule.skips:
        return [step for tiling in masked_tilings(schedule, p, multiple) for step in counted(schedule, p, tiling)]
    return counted(schedule, p, dense_tilings(schedule, p, multiple))


def dense_tilings(schedule: Schedule, p: Attention, multiple: int) -> Tiling:
    """The candidates without a mask, as arrays; of Python integers unless int64 holds every count for certain."""
    import numpy as np

    if schedule.candidates is not None:
        tiling = schedule.candidates(p, multiple)
    elif schedule.inner_matters:
        tiling = Tiling(*pairs(p.N, p.Nk, multiple))
    else:
        length = p.N if schedule.outer == "queries" else p.Nk
        tiling = arranged(schedule, np.array(tile_sizes(length, multiple), object), multiple)
    most = measure(schedule, p, replace(tiling, rows_q=1, rows_k=1, rows_o=1, cols_o=1))
    room = footprint(schedule, p, Tiling(p.N, p.Nk)).peak_bytes
    kind = integers(most["total_bytes"], most["flops"], room)
    fields = {name: value.astype(kind) for name, value in vars(tiling).items() if hasattr(value, "astype")}
    return replace(tiling, **fields)


def masked_tilings(schedule: Schedule, p: Attention, multiple: int) -> list[Tiling]:
    """With a mask of tokens the smallest inner tile is still best, but every outer tile has its own count."""
    if p.mask.tile_units:
        raise InputError(
            "--mask", str(p.mask), "a mask that does not change with the tiles: one in tokens, without b"
        )  # fmt: skip
    units = -(-(p.N if schedule.outer == "queries" else p.Nk) // multiple)
    if units > MOST_MASKED:
        raise InputError("--mask", f"{units} outer tiles", f"at most {MOST_MASKED} where a mask is counted for each",
                         "give a --tile-multiple")  # fmt: skip
    return [arranged(schedule, n * multiple, multiple) for n in range(1, units + 1)]


def arranged(schedule: Schedule, outer: Any, inner: Any) -> Tiling:
    return Tiling(outer, inner) if schedule.outer == "queries" else Tiling(inner, outer)


def tile_sizes(length: int, multiple: int = 1) -> list[int]:
    """For each number of tiles that an axis can have, the smallest tile (a multiple of `multiple`) that gives it."""
    if length // multiple > (MOST_TILES // 2) ** 2:
        raise InputError("--N", length, f"at most {(MOST_TILES // 2) ** 2} tiles of --tile-multiple {multiple}")
    return list(sizes(length, multiple))


def counted(schedule: Schedule, p: Attention, tiling: Tiling) -> list[Step]:
    """One walk over all the tilings, as steps; those that no M needs are left out."""
    import numpy as np

    found = measure(schedule, p, tiling)
    tiles = (0, 0) if "ideal" in schedule.rules else (tiling.rows_q, tiling.rows_k)
    columns = np.broadcast_arrays(found["sram_peak_bytes"], *tiles, found["total"], found["total_bytes"])
    order = cheaper(*np.atleast_1d(columns[0], columns[-1]))
    rows = zip(*(np.atleast_1d(c)[order].tolist() for c in columns), strict=True)
    return [Step(M, schedule.name, Br or None, Bc or None, *words) for M, Br, Bc, *words in rows]
