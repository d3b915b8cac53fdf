"""The least traffic against M, exactly: the breakpoints of the curve, not samples of it. Imports NumPy.

The dense traffic of a schedule depends only on the number of its outer tiles, and falls with it. Its footprint grows
with both tiles. About 2 sqrt(N) numbers of outer tiles are possible. For each number only one tiling can be best: the
smallest outer tile that gives this number, with the smallest inner tile. Its footprint is the least M at which this
traffic is possible. A schedule for which this does not hold names its pairs of sizes, or states its candidates
(search/best.py).

One folded walk over arrays counts all candidates. The lower envelope of their steps is the curve.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ..core.arrays import last_true
from ..core.problem import DENSE, Attention, mask_matters, narrowed
from ..core.tiling import Tiling
from ..counting.run import measure
from ..errors import InputError
from ..schedules import Schedule
from ..search.best import candidates, cheaper, footprint, inner_matters, integers, kept, one_by_one, pairs_depend
from ..timing.blocks import blocks

if TYPE_CHECKING:
    from ..core.typing import Size
    from ..search.best import SizeArray


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


def steps_at(envelope: Sequence[CurveStep], M: Sequence[int]) -> list[CurveStep | None]:
    """The step of an envelope that applies at each of many M, as `step_at` says."""
    starts = [step.M_bytes for step in envelope]
    return [envelope[index - 1] if (index := bisect_right(starts, M_bytes)) else None for M_bytes in M]


def steps_within(envelope: Sequence[CurveStep], first: int, last: int) -> list[CurveStep]:
    """The steps of an envelope that apply at some M of a range, in bytes."""
    start = bisect_right(envelope, first, key=lambda s: s.M_bytes)
    end = bisect_right(envelope, last, key=lambda s: s.M_bytes)
    return list(envelope[max(0, start - 1) : end])


def steps(schedule: Schedule, p: Attention, multiple: int = 1) -> list[CurveStep]:
    """The steps of one schedule as M grows. They include those of its envelope."""
    p = p.packed
    return [step for t in candidate_tilings(schedule, p, multiple) for step in counted_steps(schedule, p, t)[0]]


@partial(kept, most=16)  # those of one problem: many M and many goals ask for them again
def free_steps(
    schedule: Schedule, p: Attention, multiple: int, given: Collection[str], least_blocks: int = 1
) -> tuple[CurveStep, ...]:
    """The envelope of one schedule, over all values of the options that it lets `tune` choose and that are not given.

    The first values have the least traffic, and later ones may have more blocks. So values are tried in order, up to
    the first with which every tiling has enough blocks.
    """
    found = []
    for options in choices(schedule, p, multiple, given):
        chosen = narrowed(p, **options).packed
        parts = [
            counted_steps(schedule, chosen, t, least_blocks) for t in candidate_tilings(schedule, chosen, multiple)
        ]
        found += [replace(step, options=options) if options else step for own, _ in parts for step in own]
        if all(every for _, every in parts):
            break
    return tuple(envelope(found))


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
        sizes = (outer, n * multiple) if queries else (n * multiple, outer)
        tiling = Tiling(*sizes, **step.more_tiles)
        return bool(footprint(schedule, p, tiling).smem_bytes <= M_bytes)

    inner = int(last_true(fits, -(-length // multiple))) * multiple
    return replace(step, Bc=inner) if queries else replace(step, Br=inner)


# ---------------------------------------------------------------- where a curve is known


def exact(schedule: Schedule, p: Attention, least_blocks: int = 1) -> bool:
    """Whether `steps` has a best tiling for every M.

    It has none if the inner tile of a schedule without stated candidates matters. Stated candidates hold for one
    undivided SRAM. If a least number of blocks is asked for, they must include those that move more, because these may
    have more blocks.
    """
    p = p.packed
    if schedule.candidates is None and not schedule.sizes:
        return "ideal" in schedule.rules or not inner_matters(schedule, p)
    complete = bool(schedule.sizes) and not schedule.more_tiles and (p.mask is DENSE or not schedule.skips)
    return not p.divided and not pairs_depend(schedule, p) and (least_blocks == 1 or complete)


def require_tokens(p: Attention) -> None:
    """Raise InputError for a mask that changes with the tiles, because it hides other pairs with each tiling."""
    if p.mask.tile_units:
        raise InputError(
            "--mask",
            str(p.mask),
            "a mask that does not change with the tiles: one in tokens, without b or file",
            "as causal or window:128; or count it with given tiles: iosim count --tiles 128x64",
        )


# ---------------------------------------------------------------- candidates


def candidate_tilings(schedule: Schedule, p: Attention, multiple: int) -> Iterable[Tiling[Size]]:
    """Tilings that include a best one for every M. Their sizes may be arrays."""
    if "ideal" in schedule.rules:
        return [Tiling(1, 1)]
    masked, stated = mask_matters(schedule, p), schedule.candidates
    if masked:
        require_tokens(p)
    found = candidates(schedule, p, multiple) if stated is None else stated(p, multiple)
    if masked and not p.mask.counts_arrays:
        return (one for tiling in found for one in one_by_one(tiling))
    return (in_integers(schedule, p, tiling) for tiling in found)


def in_integers(schedule: Schedule, p: Attention, tiling: Tiling[Size]) -> Tiling[Size]:
    """The tiling with arrays of int64 if every count over all heads is certain to fit, else of Python integers.

    The smallest tiles without a mask move most, so their counts bound those of all others.
    """
    arrays = {name: size for name, size in vars(tiling).items() if hasattr(size, "astype")}
    if not arrays:
        return tiling
    p = replace(p, mask=DENSE)
    most = measure(schedule, p, replace(tiling, **dict.fromkeys(arrays, 1)))
    room = int(footprint(schedule, p, Tiling(p.N, p.Nk)).peak_bytes)
    kind = integers(int(most["total_bytes"]), int(most["flops"]), room, (p.N + p.Nk + 2) ** 2)
    return replace(tiling, **{name: size.astype(kind) for name, size in arrays.items()})


# ---------------------------------------------------------------- counts of candidates


def counted_steps(
    schedule: Schedule, p: Attention, tiling: Tiling[Size], least_blocks: int = 1
) -> tuple[list[CurveStep], bool]:
    """(the steps of tilings with enough blocks, whether this left out none that is best at some M), from one walk.

    Steps that are best at no M are left out as well.
    """
    columns = step_columns(schedule, p, tiling, least_blocks)
    order = cheaper(columns["M_bytes"], columns["total_bytes"])
    every = least_blocks == 1 or bool((columns["blocks"][order] >= least_blocks).all())
    if not every:
        enough = columns["blocks"] >= least_blocks
        if not enough.any():
            return [], False
        columns = {name: column[enough] for name, column in columns.items()}
        order = cheaper(columns["M_bytes"], columns["total_bytes"])
    found = []
    for values in zip(*(column[order].tolist() for column in columns.values()), strict=True):
        row = dict(zip(columns, values, strict=True))
        more = {name: row.pop(name) for name in schedule.more_tiles if name in row}
        found.append(CurveStep(schedule=schedule.name, more_tiles=more, **row))
    return found, every


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
