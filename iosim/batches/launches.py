"""Launches: one schedule over some shapes of a batch, as machines run it. Imports NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..core.problem import DENSE, Attention, narrowed, packed_rows, skips_tiles
from ..counting.libraries import by_library
from ..counting.run import measure
from ..counting.sweep import as_objects, fits_int64
from ..schedules import SCHEDULES, Schedule
from ..schedules.decode import PAGE_SIZE, share_pages, share_rows

if TYPE_CHECKING:
    from ..core.tiling import Tiling
    from ..core.typing import Size
    from ..counting.typing import Counted as MeasuredOf
    from ..timing.products import MatrixUnit
    from .asked import Batch
    from .shapes import Shapes

    Nested = Any  # type: ignore[explicit-any]  # dicts and lists of numbers, one in the other


@dataclass(frozen=True)
class Launch:
    """One schedule over some shapes. `packs` says whether the query heads of a group share tiles, `options` are those
    of the schedule, each a number or one for each shape. `tiles` are those of a published rule. `sees_all` says that
    all keys lie before all queries, so that no mask hides any."""

    schedule: Schedule
    shapes: Shapes
    packs: bool = False
    options: Mapping[str, Size] = field(default_factory=dict)
    tiles: Tiling | None = None
    sees_all: bool = False
    key_sizes: Callable[[Attention[Size], int], Sequence[int]] | None = None
    """`key_sizes(p, multiple)`: the key tiles of which one is best under a mask, if it may not be the smallest."""
    stage: int = 0
    """Launches of one stage run at once, and those of the next one after them."""
    of_library: bool = False
    """Whether a library runs it, as its own code says and not as --visit-all and --short-tile do."""
    share: Callable[[Attention[Size]], Attention[Size]] | None = None
    """The part of a problem that its largest block has, if blocks share the keys and not the queries."""


class Counted(NamedTuple):
    """The counts of one launch: what `measure` says, with an array of values for its shapes."""

    launch: Launch
    problem: Attention[Size]
    tiling: Tiling
    of: MeasuredOf[Size]

    def sum(self, values: Size) -> int:
        """The sum of a number of each shape over all requests."""
        return self.launch.shapes.sum(values)


def counts_of(
    launch: Launch, problem: Attention[Size], tiling: Tiling, unit: MatrixUnit | None = None
) -> MeasuredOf[Size]:
    """The counts of a launch for a problem, whose sizes may be arrays."""
    if in_one_walk(problem):
        return measure(launch.schedule, problem, cast("Tiling[Size]", tiling), unit)
    each = [measure(launch.schedule, one, tiling, unit) for one in single(problem, len(launch.shapes))]
    return cast("MeasuredOf[Size]", stacked(each))


def in_one_walk(problem: Attention[Size]) -> bool:
    """Whether problems of arrays of sizes are walked together: without a mask, and under most masks."""
    return problem.mask is DENSE or problem.mask.counts_arrays


def single(problem: Attention[Size], length: int) -> Iterator[Attention]:
    """The problems of arrays, one by one."""
    for k in range(length):
        arrays = {name: size for name, size in problem.values().items() if isinstance(size, np.ndarray)}
        yield narrowed(cast("Attention", problem), **{name: int(size[k]) for name, size in arrays.items()})


def stacked(found: Sequence[Nested]) -> Nested:
    """Counts of several problems as one, with arrays of Python integers for numbers."""
    first = found[0]
    if isinstance(first, dict):
        return {name: stacked([one[name] for one in found]) for name in first}
    if isinstance(first, list):
        return [stacked(each) for each in zip(*found, strict=True)]
    return np.array(found, object)


def rows(
    batch: Batch,
    packs: bool,
    shapes: Shapes | None = None,
    tiles: Tiling | None = None,
    options: Mapping[str, Size] | None = None,
) -> list[Launch]:
    """One launch of flash2, whose blocks are tiles of queries."""
    return [Launch(SCHEDULES["flash2"], batch.shapes if shapes is None else shapes, packs, options or {}, tiles)]


def part_of_keys(p: Attention[Size]) -> Attention[Size]:
    """The problem of one share of the keys of split-kv."""
    return narrowed(p, Nk=share_rows(p), splits=1)


def part_in_pages(p: Attention[Size]) -> Attention[Size]:
    """The problem of one share of the pages of paged-split-kv."""
    return narrowed(p, Nk=np.minimum(p.Nk, share_pages(p) * p[PAGE_SIZE]), splits=1)


def asked_of(batch: Batch, launch: Launch) -> Attention:
    """The problem of a request that a launch is asked for."""
    return by_library(batch.problem) if launch.of_library else batch.problem


def problem_of(batch: Batch, launch: Launch) -> Attention[Size]:
    """The problems of a launch, with arrays of sizes. Packed rows are queries of a KV head. The arrays hold Python's
    integers if int64 might not hold every count."""
    mask = batch.packed_mask if launch.packs else batch.mask
    if launch.sees_all or not skips_tiles(launch.schedule, asked_of(batch, launch)):
        mask = DENSE  # it hides no tile
    sizes = {"N": launch.shapes.new, "Nk": launch.shapes.tokens, "heads": batch.problem.heads}
    if launch.packs:
        rows = packed_rows(launch.shapes.new, batch.group, "--requests", "--way repeat packs none")
        sizes |= {"N": rows, "heads": batch.problem.kv_heads}
    assert mask is not None
    if batch.chip is not None and not batch.problem.divided:
        sizes |= {"register_bytes": batch.chip.register_bytes}  # accumulators and scores, as its kernels have them
    given = {**sizes, **launch.options, "mask": mask, "gqa": "repeat"}
    found = narrowed(cast("Attention[Size]", asked_of(batch, launch)), **given)
    if fits_int64(narrowed(found, **extreme(launch, np.max)), launch.schedule):
        return found
    return narrowed(found, **{name: as_objects(value) for name, value in given.items()})


def extreme(launch: Launch, of: Callable[[Size], Size]) -> dict[str, int]:
    """The options of a launch, each at its largest or smallest value."""
    return {name: int(of(value)) for name, value in launch.options.items()}
