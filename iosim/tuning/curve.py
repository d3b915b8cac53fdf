"""The least traffic against M, exactly: the breakpoints of the curve, not samples of it. Imports NumPy.

A schedule's dense traffic depends on the number of its outer tiles only, and its footprint grows with both tiles. So
for each number of outer tiles (about 2 sqrt(N) of them differ) one tiling can be best: the smallest outer tile that
gives this number, with the smallest inner tile. Its footprint is the M from which on its traffic is within reach. A
schedule for which this does not hold may state its candidates (search/shared_sram_curve.py). One folded walk over arrays counts them
all; the least over all schedules is the lower envelope of these steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..counting.count import measure
from ..errors import InputError
from ..schedules import Schedule
from ..search.best import footprint, last_true
from ..search.inner_tile import inner_matters
from ..search.outer_tile_under_mask import MOST_MASKED
from ..search.shared_sram import sizes
from ..search.shared_sram_curve import cheaper, integers, pairs
from .thread_blocks import blocks

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
    more_tiles: dict[str, int] = field(default_factory=dict, hash=False)
    options: dict[str, int] = field(default_factory=dict, hash=False)  # of the problem, where `tune` chose them
    blocks: int | None = field(default=None, compare=False)  # where some number of them was asked for


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
    return [step for t in tilings(schedule, p, multiple) for step in counted(schedule, p, t, least_blocks)]


def tilings(schedule: Schedule, p: Attention, multiple: int) -> list[Tiling]:
    """All candidates; sizes may be arrays."""
    if "ideal" in schedule.rules:
        return [Tiling(1, 1)]
    return masked_tilings(schedule, p, multiple) if hidden(schedule, p) else [dense_tilings(schedule, p, multiple)]


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


def most_blocks(schedule: Schedule, p: Attention, multiple: int, given: Iterable[str]) -> int:
    """The most blocks that any candidate has, with any options, however much M it needs."""
    import numpy as np

    found = [replace(p, **options).packed for options in choices(schedule, p, multiple, given)]
    return max(int(np.max(blocks(schedule, q, t))) for q in found for t in tilings(schedule, q, multiple))


def widened(schedule: Schedule, p: Attention, step: Step, M_bytes: int, multiple: int) -> Step:
    """The same step with the largest inner tile that fits: it moves no other words. Under a mask it may, and stays."""
    options: dict[str, Any] = step.options
    p = replace(p, **options).packed
    if step.Br is None or step.Bc is None or hidden(schedule, p):
        return step
    queries = schedule.outer == "queries"
    outer, length = (step.Br, p.Nk) if queries else (step.Bc, p.N)

    def fits(n: int) -> bool:
        return bool(footprint(schedule, p, arranged(schedule, outer, n * multiple)).peak_bytes <= M_bytes)

    inner = int(last_true(fits, -(-length // multiple))) * multiple
    return replace(step, Bc=inner) if queries else replace(step, Br=inner)


def choices(schedule: Schedule, p: Attention, multiple: int, given: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Values of all options that are to be chosen, from the least traffic on."""
    free = {name: values(p, multiple) for name, values in schedule.chosen.items() if name not in given}
    return (dict(zip(free, values, strict=True)) for values in product(*free.values()))


def dense_tilings(schedule: Schedule, p: Attention, multiple: int) -> Tiling:
    """The candidates without a mask, as arrays; of Python integers unless int64 holds every count for certain."""
    import numpy as np

    if schedule.candidates is not None:
        tiling: Any = schedule.candidates(p, multiple)
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
    room = int(footprint(schedule, p, Tiling(p.N, p.Nk)).peak_bytes)
    kind = integers(most["total_bytes"], most["flops"], room, (p.N + p.Nk + 2) ** 2)
    fields = {name: value.astype(kind) for name, value in vars(tiling).items() if hasattr(value, "astype")}
    return replace(tiling, **fields)


def masked_tilings(schedule: Schedule, p: Attention, multiple: int) -> list[Tiling]:
    """With a mask of tokens the smallest inner tile is still best, unless the schedule says what is, but every outer
    tile has its own count."""
    require_tokens(p)
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


def require_tokens(p: Attention) -> None:
    """InputError for a mask that tiles would change: no tiling of it can be called better than another."""
    if p.mask.tile_units:
        raise InputError(
            "--mask", str(p.mask), "a mask that does not change with the tiles: one in tokens, without b or file",
            "as causal or window:128; or count it with given tiles: iosim count --tiles 128x64",
        )  # fmt: skip


def arranged(schedule: Schedule, outer: Any, inner: Any) -> Tiling:
    return Tiling(outer, inner) if schedule.outer == "queries" else Tiling(inner, outer)


def tile_sizes(length: int, multiple: int = 1) -> list[int]:
    """For each number of tiles that an axis can have, the smallest tile (a multiple of `multiple`) that gives it."""
    if length // multiple > (MOST_TILES // 2) ** 2:
        raise InputError("--N", length, f"at most {(MOST_TILES // 2) ** 2} tiles of --tile-multiple {multiple}")
    return list(sizes(length, multiple))


def counted(schedule: Schedule, p: Attention, tiling: Tiling, least_blocks: int = 1) -> list[Step]:
    """One walk over all the tilings, as steps; those that no M needs or that have too few blocks are left out."""
    columns = columns_of(schedule, p, tiling, least_blocks)
    if least_blocks > 1:
        enough = columns["blocks"] >= least_blocks
        if not enough.any():
            return []
        columns = {name: column[enough] for name, column in columns.items()}
    order = cheaper(columns["M_bytes"], columns["total_bytes"])
    found = []
    for values in zip(*(column[order].tolist() for column in columns.values()), strict=True):
        row = dict(zip(columns, values, strict=True))
        more = {name: row.pop(name) for name in schedule.more_tiles if name in row}
        found.append(Step(schedule=schedule.name, more_tiles=more, **row))
    return found


def columns_of(schedule: Schedule, p: Attention, tiling: Tiling, least_blocks: int) -> dict[str, Any]:
    """What a Step has, and the further tile sizes, as arrays of the same length."""
    import numpy as np

    words, ideal = measure(schedule, p, tiling), "ideal" in schedule.rules
    columns = {
        "M_bytes": words["sram_peak_bytes"],
        "Br": None if ideal else tiling.rows_q,
        "Bc": None if ideal else tiling.rows_k,
        "total": words["total"],
        "total_bytes": words["total_bytes"],
        "blocks": blocks(schedule, p, tiling) if least_blocks > 1 else None,
        **{name: size for name in schedule.more_tiles if (size := getattr(tiling, name)) is not None},
    }
    arrays = np.atleast_1d(*np.broadcast_arrays(*columns.values()))
    return dict(zip(columns, arrays, strict=True))
