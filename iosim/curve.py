"""The least traffic against M, exactly: the breakpoints of the curve, not samples of it. Imports NumPy.

A schedule's dense traffic depends on the number of its outer tiles only, and its footprint grows with both tiles. So
for each number of outer tiles (about 2 sqrt(N) of them differ) one tiling can be best: the smallest outer tile that
gives this number, with the smallest inner tile. Its footprint is the M from which on its traffic is within reach. A
schedule for which this does not hold may state its candidates (candidates.py). One folded walk over arrays counts them
all; the least over all schedules is the lower envelope of these steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from .candidates import cheaper, integers, pairs
from .errors import InputError
from .experiment import measure
from .inner_search import inner_matters
from .problem import DENSE, Attention
from .schedules import Schedule
from .square_tiles import sizes
from .tiling import MOST_MASKED, Tiling, footprint
from .tune_blocks import blocks

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
    options: dict[str, int] = field(default_factory=dict, hash=False)  # of the problem, where `tune` chose them


def exact(schedule: Schedule, p: Attention, least_blocks: int = 1) -> bool:
    """Whether `steps` knows a best tiling for every M: not where a schedule has a search of its own, unless it states
    what its candidates are, which holds without a mask; nor where its inner tile matters and nobody stated how. What a
    schedule states leaves out tilings that move more, though they may give more blocks."""
    p = p.packed
    if least_blocks > 1 and (schedule.masked_candidates if hidden(schedule, p) else schedule.candidates) is not None:
        return False
    if schedule.inner_matters or schedule.candidates is not None:
        return not hidden(schedule, p) or schedule.masked_candidates is not None
    if schedule.search is not None or "ideal" in schedule.rules:
        return schedule.search is None
    return not inner_matters(schedule, p, lambda outer, inner: arranged(schedule, outer, inner))


def hidden(schedule: Schedule, p: Attention) -> bool:
    """Whether a mask changes what the schedule moves."""
    return p.mask is not DENSE and schedule.skips


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


def steps(schedule: Schedule, p: Attention, multiple: int = 1, least_blocks: int = 1) -> list[Step]:
    """What a schedule reaches as M grows, with at least so many blocks; between two steps none of its tilings is
    better."""
    p = p.packed
    if "ideal" in schedule.rules:
        return counted(schedule, p, Tiling(1, 1), least_blocks)
    if hidden(schedule, p):
        tilings = masked_tilings(schedule, p, multiple)
        return [step for tiling in tilings for step in counted(schedule, p, tiling, least_blocks)]
    return counted(schedule, p, dense_tilings(schedule, p, multiple), least_blocks)


def free_steps(
    schedule: Schedule, p: Attention, multiple: int, given: Iterable[str], least_blocks: int = 1
) -> list[Step]:
    """The same over all values of the options that the schedule lets `tune` choose, but for those that are given.
    Values come from the least traffic on: where blocks do not matter, the others are no better."""
    found = []
    for options in choices(schedule, p, multiple, given):
        chosen = replace(p, **options)
        own = steps(schedule, chosen, multiple, least_blocks)
        found += [replace(step, options=options) if options else step for step in own]
        if least_blocks == 1 or own == steps(schedule, chosen, multiple):
            break
    return envelope(found)


def choices(schedule: Schedule, p: Attention, multiple: int, given: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Values of all options that are to be chosen, from the least traffic on."""
    free = {name: values(p, multiple) for name, values in schedule.chosen.items() if name not in given}
    return (dict(zip(free, values, strict=True)) for values in product(*free.values()))


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
    return in_integers(schedule, p, tiling)


def in_integers(schedule: Schedule, p: Attention, tiling: Tiling) -> Tiling:
    """Arrays of the type that holds all counts: the smallest tiles without a mask move most."""
    p = replace(p, mask=DENSE)
    most = measure(schedule, p, replace(tiling, rows_q=1, rows_k=1, rows_o=1, cols_o=1))
    room = footprint(schedule, p, Tiling(p.N, p.Nk)).peak_bytes
    kind = integers(most["total_bytes"], most["flops"], room, (p.N + p.Nk + 2) ** 2)
    fields = {name: value.astype(kind) for name, value in vars(tiling).items() if hasattr(value, "astype")}
    return replace(tiling, **fields)


def masked_tilings(schedule: Schedule, p: Attention, multiple: int) -> list[Tiling]:
    """With a mask of tokens the smallest inner tile is still best, unless the schedule says what is, but every outer
    tile has its own count."""
    if p.mask.tile_units:
        raise InputError(
            "--mask", str(p.mask), "a mask that does not change with the tiles: one in tokens, without b"
        )  # fmt: skip
    if schedule.masked_candidates is not None:
        return schedule.masked_candidates(p, multiple)  # type: ignore[no-any-return]
    units = -(-(p.N if schedule.outer == "queries" else p.Nk) // multiple)
    if p.mask.counts_arrays and units <= MOST_TILES:
        import numpy as np

        outer = np.arange(1, units + 1).astype(object) * multiple
        return [in_integers(schedule, p, arranged(schedule, outer, multiple))]
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


def counted(schedule: Schedule, p: Attention, tiling: Tiling, least_blocks: int = 1) -> list[Step]:
    """One walk over all the tilings, as steps; those that no M needs or that have too few blocks are left out."""
    import numpy as np

    found = measure(schedule, p, tiling)
    tiles = (0, 0) if "ideal" in schedule.rules else (tiling.rows_q, tiling.rows_k)
    columns: Any = np.broadcast_arrays(found["sram_peak_bytes"], *tiles, found["total"], found["total_bytes"])
    columns = np.atleast_1d(*columns)
    if least_blocks > 1:
        enough = np.broadcast_to(blocks(schedule, p, tiling) >= least_blocks, columns[0].shape)
        columns = [column[enough] for column in columns]
        if not enough.any():
            return []
    order = cheaper(columns[0], columns[-1])
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    return [Step(M, schedule.name, Br or None, Bc or None, *words) for M, Br, Bc, *words in rows]
