"""The least traffic against M, exactly: the breakpoints of the curve, not samples of it. Imports NumPy.

The dense traffic of a schedule depends only on the number of its outer tiles, and falls with it. Its footprint grows
with both tiles. About 2 sqrt(N) numbers of outer tiles are possible. For each number only one tiling can be best: the
smallest outer tile that gives this number, with the smallest inner tile. Its footprint is the least M at which this
traffic is possible. A schedule for which this does not hold may state its candidates (search/shared_sram_curve.py).

One folded walk over arrays counts all candidates. The lower envelope of their steps is the curve.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..counting.count import measure
from ..errors import InputError
from ..progress import watched
from ..schedules import Schedule
from ..schedules.registry import narrowed
from ..search.best import footprint, last_true
from ..search.inner_tile import inner_matters
from ..search.outer_tile_under_mask import MOST_IN_ARRAYS, MOST_MASKED
from ..search.shared_sram import sizes_by_passes
from ..search.shared_sram_curve import cheaper, integers, pairs
from .thread_blocks import blocks

if TYPE_CHECKING:
    from ..core.typing import Size
    from ..search.shared_sram_curve import SizeArray

MOST_CANDIDATES = 2**18  # candidates of one schedule; they take some seconds
MASKED_AT_ONCE = 2**16  # outer tiles


@dataclass(frozen=True)
class CurveStep:
    """A step of the curve: from `M_bytes` on, `total` words over all heads can be reached with these tiles.

    Br and Bc are None for an ideal schedule, which has no tiles. `options` are those of the problem that `tune` chose.
    `blocks` is None unless a least number of them was asked for.
    """

    M_bytes: int
    schedule: str
    Br: int | None
    Bc: int | None
    total: int
    total_bytes: int
    more_tiles: dict[str, int] = field(default_factory=dict, hash=False)
    options: dict[str, int] = field(default_factory=dict, hash=False)
    blocks: int | None = field(default=None, compare=False)


# ---------------------------------------------------------------- curves


def curve(schedules: Iterable[Schedule], p: Attention, multiple: int = 1) -> list[CurveStep]:
    """The lower envelope of several schedules: a step at every M where the least traffic in bytes falls, in order."""
    return envelope(step for schedule in schedules for step in steps(schedule, p, multiple))


def envelope(candidates: Iterable[CurveStep]) -> list[CurveStep]:
    """The steps that move less than every step that needs as much M or less. Of equal steps the first one is kept."""
    found: list[CurveStep] = []
    for step in sorted(candidates, key=lambda s: (s.M_bytes, s.total_bytes)):
        if not found or step.total_bytes < found[-1].total_bytes:
            found.append(step)
    return found


def step_at(envelope: Sequence[CurveStep], M_bytes: int) -> CurveStep | None:
    """The step of an envelope that applies at an M; None below the first step."""
    index = bisect_right(envelope, M_bytes, key=lambda s: s.M_bytes)
    return envelope[index - 1] if index else None


def steps(schedule: Schedule, p: Attention, multiple: int = 1, least_blocks: int = 1) -> list[CurveStep]:
    """The steps of one schedule as M grows, with at least `least_blocks` blocks. They include those of its envelope."""
    p = p.packed
    return [
        step for t in candidate_tilings(schedule, p, multiple) for step in counted_steps(schedule, p, t, least_blocks)
    ]


def free_steps(
    schedule: Schedule, p: Attention, multiple: int, given: Collection[str], least_blocks: int = 1
) -> list[CurveStep]:
    """The envelope of one schedule, over all values of the options that it lets `tune` choose and that are not given.

    The first values have the least traffic, and later ones may have more blocks. So values are tried in order, up to
    the first with which every tiling has enough blocks.
    """
    found = []
    for options in choices(schedule, p, multiple, given):
        chosen = narrowed(p, **options)
        own = steps(schedule, chosen, multiple, least_blocks)
        found += [replace(step, options=options) if options else step for step in own]
        if least_blocks == 1 or own == steps(schedule, chosen, multiple):
            break
    return envelope(found)


def choices(schedule: Schedule, p: Attention, multiple: int, given: Collection[str]) -> Iterator[dict[str, int]]:
    """The values of all options that `tune` may choose and that are not given. Those of least traffic come first.

    They are found one by one, because a long cache can be split in millions of ways.
    """
    name = next((name for name in schedule.chosen if name not in given), None)
    if name is None:
        yield {}
        return
    for value in schedule.chosen[name](p, multiple):
        for others in choices(schedule, p, multiple, {*given, name}):
            yield {name: value, **others}


def most_blocks(schedule: Schedule, p: Attention, multiple: int, given: Collection[str]) -> int:
    """The most blocks of any candidate with any options, for any M."""
    import numpy as np

    found = [narrowed(p, **options).packed for options in choices(schedule, p, multiple, given)]
    return max(int(np.max(blocks(schedule, q, t))) for q in found for t in candidate_tilings(schedule, q, multiple))


def widened(schedule: Schedule, p: Attention, step: CurveStep, M_bytes: int, multiple: int) -> CurveStep:
    """The step with the largest inner tile that fits, which moves the same words.

    The step is returned as it is where a mask matters, because there a larger inner tile may move more.
    """
    p = narrowed(p, **step.options).packed
    if step.Br is None or step.Bc is None or mask_matters(schedule, p):
        return step
    queries = schedule.outer == "queries"
    outer, length = (step.Br, p.Nk) if queries else (step.Bc, p.N)

    def fits(n: int) -> bool:
        return bool(footprint(schedule, p, arranged(schedule, outer, n * multiple)).smem_bytes <= M_bytes)

    inner = int(last_true(fits, -(-length // multiple))) * multiple
    return replace(step, Bc=inner) if queries else replace(step, Br=inner)


# ---------------------------------------------------------------- where a curve is known


def exact(schedule: Schedule, p: Attention, least_blocks: int = 1) -> bool:
    """Whether `steps` has a best tiling for every M.

    There are three cases in which it has none. The schedule has its own search and states no candidates. Its inner tile
    matters, but it does not say so. A mask matters, and it states `candidates` or `inner_matters`, which hold without a
    mask only, but no `masked_candidates`. Also, stated candidates leave out tilings that move more. These may have more
    blocks, so stated candidates are not enough if a least number of blocks is asked for.
    """
    p = p.packed
    masked = mask_matters(schedule, p)
    if p.divided and (schedule.search is not None or schedule.candidates is not None):
        return False  # both assume one undivided SRAM
    if least_blocks > 1 and (schedule.masked_candidates if masked else schedule.candidates) is not None:
        return False
    if schedule.inner_matters or schedule.candidates is not None:
        return not masked or schedule.masked_candidates is not None
    if schedule.search is not None or "ideal" in schedule.rules:
        return schedule.search is None
    return not inner_matters(schedule, p, lambda outer, inner: arranged(schedule, outer, inner))


def mask_matters(schedule: Schedule, p: Attention) -> bool:
    """Whether a mask changes what the schedule moves."""
    return p.mask is not DENSE and schedule.skips


def require_tokens(p: Attention) -> None:
    """Raise InputError for a mask that changes with the tiles, because it hides other pairs with each tiling."""
    if p.mask.tile_units:
        raise InputError(
            "--mask", str(p.mask), "a mask that does not change with the tiles: one in tokens, without b or file",
            "as causal or window:128; or count it with given tiles: iosim count --tiles 128x64",
        )  # fmt: skip


# ---------------------------------------------------------------- candidates


def candidate_tilings(schedule: Schedule, p: Attention, multiple: int) -> Iterable[Tiling[Size]]:
    """Tilings that include a best one for every M. Their sizes may be arrays."""
    if "ideal" in schedule.rules:
        return [Tiling(1, 1)]
    if mask_matters(schedule, p):
        return masked_tilings(schedule, p, multiple)
    return (in_integers(schedule, p, tiling) for tiling in dense_tilings(schedule, p, multiple))


def dense_tilings(schedule: Schedule, p: Attention, multiple: int) -> Iterable[Tiling[Size]]:
    """The candidates without a mask, as tilings of arrays."""
    import numpy as np

    if schedule.candidates is not None:
        return [schedule.candidates(p, multiple)]
    if schedule.inner_matters:
        return (Tiling(*some) for some in pairs(p.N, p.Nk, multiple))
    length = p.N if schedule.outer == "queries" else p.Nk
    return [arranged(schedule, np.array(smallest_tile_sizes(length, multiple), object), multiple)]


def in_integers(schedule: Schedule, p: Attention, tiling: Tiling[Size]) -> Tiling[Size]:
    """The tiling with arrays of int64 if every count is certain to fit, else of Python integers.

    The smallest tiles without a mask move most, so their counts bound those of all others.
    """
    p = replace(p, mask=DENSE)
    most = measure(schedule, p, replace(tiling, rows_q=1, rows_k=1, rows_o=1, cols_o=1))
    room = int(footprint(schedule, p, Tiling(p.N, p.Nk)).peak_bytes)
    kind = integers(int(most["total_bytes"]), int(most["flops"]), room, (p.N + p.Nk + 2) ** 2)
    fields = {name: value.astype(kind) for name, value in vars(tiling).items() if hasattr(value, "astype")}
    return replace(tiling, **fields)


def masked_tilings(schedule: Schedule, p: Attention, multiple: int) -> Iterable[Tiling[Size]]:
    """The candidates under a mask of tokens.

    The smallest inner tile is still best, unless the schedule states its candidates. But every size of the outer tile
    is a candidate, because each has a different count.
    """
    require_tokens(p)
    if schedule.masked_candidates is not None:
        return schedule.masked_candidates(p, multiple)
    units = -(-(p.N if schedule.outer == "queries" else p.Nk) // multiple)
    most = MOST_IN_ARRAYS if p.mask.counts_at_once else MOST_MASKED
    if units > most:
        raise InputError("--mask", f"{units} outer tiles", f"at most {most} where a mask is counted for each",
                         "give a --tile-multiple")  # fmt: skip
    if not p.mask.counts_arrays:
        return [arranged(schedule, n * multiple, multiple) for n in range(1, units + 1)]
    starts = range(1, units + 1, MASKED_AT_ONCE)
    ends = (min(units + 1, start + MASKED_AT_ONCE) for start in starts)
    parts = watched(list(zip(starts, ends, strict=True)), f"outer tiles of {schedule.name}, in parts", len(starts))
    return (in_integers(schedule, p, outer_tiles(schedule, start, stop, multiple)) for start, stop in parts)


def outer_tiles(schedule: Schedule, start: int, stop: int, multiple: int) -> Tiling[Size]:
    """Outer tiles of `start` to `stop` - 1 multiples beside the smallest inner tile, as a tiling of arrays."""
    import numpy as np

    return arranged(schedule, np.arange(start, stop).astype(object) * multiple, multiple)


def arranged(schedule: Schedule, outer: Size, inner: Size) -> Tiling[Size]:
    """The tiling of an outer and an inner tile."""
    return Tiling(outer, inner) if schedule.outer == "queries" else Tiling(inner, outer)


def smallest_tile_sizes(length: int, multiple: int = 1) -> list[int]:
    """The smallest tile for each number of tiles that an axis can have. It is a multiple of `multiple`."""
    if length // multiple > (MOST_CANDIDATES // 2) ** 2:
        raise InputError("--N", length, f"at most {(MOST_CANDIDATES // 2) ** 2} tiles of --tile-multiple {multiple}")
    return list(sizes_by_passes(length, multiple))


# ---------------------------------------------------------------- counts of candidates


def counted_steps(schedule: Schedule, p: Attention, tiling: Tiling[Size], least_blocks: int = 1) -> list[CurveStep]:
    """The steps of all tilings, from one walk. It leaves out steps that are best at no M and
    steps with too few blocks."""
    columns = step_columns(schedule, p, tiling, least_blocks)
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
        found.append(CurveStep(schedule=schedule.name, more_tiles=more, **row))
    return found


def step_columns(schedule: Schedule, p: Attention, tiling: Tiling[Size], least_blocks: int) -> dict[str, SizeArray]:
    """The fields of a CurveStep and the further tile sizes, as arrays of the same length.

    The arrays of Br, Bc and blocks hold None where a CurveStep has None.
    """
    import numpy as np

    words, ideal = measure(schedule, p, tiling), "ideal" in schedule.rules
    columns = {
        "M_bytes": words["smem_peak_bytes"],
        "Br": None if ideal else tiling.rows_q,
        "Bc": None if ideal else tiling.rows_k,
        "total": words["total"],
        "total_bytes": words["total_bytes"],
        "blocks": blocks(schedule, p, tiling) if least_blocks > 1 else None,
        **{name: size for name in schedule.more_tiles if (size := getattr(tiling, name)) is not None},
    }
    arrays = np.atleast_1d(*np.broadcast_arrays(*columns.values()))
    return dict(zip(columns, arrays, strict=True))
