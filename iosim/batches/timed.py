"""The least time of a way on a GPU, and the tiles of least time: timing/bound.py over all requests.

The work of a launch is that of one walk over arrays, as `time_at_least` has it for one problem. Imports NumPy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from ..core.problem import TENSORS, narrowed, with_mask
from ..search.best import footprint
from ..timing.bound import Equal, bound_of, equal_blocks
from ..timing.products import instruction_rows, unit_of
from ..timing.tiles import STAGES, TimedTiles, candidates, in_order, on_chip
from ..timing.work import NUMBERS, Work, work_of
from .launches import in_one_walk, single

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size
    from ..hardware import Hardware
    from ..timing.bound import TimeBound
    from .asked import Batch
    from .launches import Launch
    from .shapes import Shapes

    Timed = tuple[Launch, Attention[Size], Tiling]


def least_time(batch: Batch, found: Sequence[Timed], chip: Hardware) -> TimeBound:
    """The least time of the launches of a way, in one layer: those of a stage at once, and the stages after each other.
    Layers follow each other, and all take as long."""
    works: dict[int, list[Work]] = defaultdict(list)
    equal: dict[int, list[Equal]] = defaultdict(list)
    for launch, problem, tiling in found:
        unit = unit_of(chip, problem.dtype)
        for p, shapes in walks(problem, launch):
            own = narrowed(p, batch=1)
            blocks = equal_blocks(launch.schedule, cast("Attention", own), tiling, unit)
            for stage, work in enumerate(work_of(launch.schedule, own, tiling, unit), launch.stage):
                works[stage].append(summed(work, shapes))
            for stage, (number, work) in enumerate(blocks, launch.stage):
                equal[stage].append(Equal(number * shapes.times, work))
    stages = [once(batch, found, together(works[stage])) for stage in sorted(works)]
    return bound_of(stages, [equal[stage] for stage in sorted(works)], chip, batch.problem.dtype)


def walks(problem: Attention[Size], launch: Launch) -> Iterator[tuple[Attention[Size], Shapes]]:
    """The problems of a launch with their shapes: all in one walk over arrays, or one by one under other masks."""
    if in_one_walk(problem):
        yield problem, launch.shapes
        return
    for k, alone in enumerate(single(problem, len(launch.shapes))):
        yield alone, launch.shapes.picked(np.arange(len(launch.shapes)) == k)


def summed(work: Work, shapes: Shapes) -> Work:
    """The work of all requests, of arrays with that of one of each shape."""
    touched = {key: shapes.sum(many) for key, many in work.touched.items()}
    numbers = {name: shapes.sum(getattr(work, name)) for name in NUMBERS}
    return Work(**numbers, touched=touched, unmarked=work.unmarked)


def together(works: Sequence[Work]) -> Work:
    """The work of launches that run at once."""
    touched = Counter[tuple[str, str]]()
    for work in works:
        touched.update(work.touched)
    return Work(**{name: sum(getattr(work, name) for work in works) for name in NUMBERS}, touched=touched)


def once(batch: Batch, found: Sequence[Timed], work: Work) -> Work:
    """The work of a stage, in which tokens that several requests, or parts of one, have in common move once."""
    apart = (len({*launch.shapes.of.tolist()}) == len(launch.shapes) for launch, *_ in found)
    if not batch.tree.shared and all(apart):
        return work
    p = batch.problem
    most = {name: int(p.in_bytes(TENSORS[name], words)) // batch.layers for name, words in batch.distinct.items()}
    return replace(work, touched={key: min(many, most.get(key[1], many)) for key, many in work.touched.items()})


def fastest(batch: Batch, launch: Launch, problem: Attention[Size], chip: Hardware) -> Tiling | None:
    """The tiles of least time of one launch over all its shapes, as `timing.tiles` chooses them; None if none fits."""
    sizes = {name: int(np.max(cast("Size", getattr(problem, name)))) for name in ("N", "Nk")}
    sizes["register_bytes"] = batch.problem.register_bytes  # those given: on_chip adds the others, and copies ahead
    options = {name: int(np.min(value)) for name, value in launch.options.items()}
    largest = with_mask(cast("Attention", narrowed(problem, **sizes, **options)))
    unit, M_bytes, found = unit_of(chip, problem.dtype), cast("int", batch.M_bytes), list[TimedTiles]()
    for rows in (instruction_rows(chip, problem.dtype), 1):
        for tiling in [] if found else candidates(launch.schedule, largest, M_bytes, batch.multiple, rows):
            need, least = (footprint(launch.schedule, on_chip(largest, chip, n), tiling) for n in (STAGES, 1))
            if need.smem_bytes <= M_bytes:
                bound = least_time(batch, [(launch, problem, tiling)], chip)
                found.append(TimedTiles(tiling, bound, need, least))
    kernels = [one for one in found if one.in_registers(chip)]
    return next((one.tiling for one in in_order(kernels or found, chip, unit)), None)
