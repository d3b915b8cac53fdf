"""The least time of a way on a GPU, and the tiles of least time: timing/bound.py over all requests. Imports NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from ..core.problem import narrowed, with_mask
from ..search.best import footprint
from ..timing.blocks import first_blocks
from ..timing.bound import LaunchTime, TimeBound, rates_of, seconds_of
from ..timing.products import instruction_rows, unit_of
from ..timing.tiles import STAGES, TimedTiles, candidates, in_order, on_chip
from ..timing.work import Work
from .launches import Counted, counts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size
    from ..hardware import Hardware
    from .asked import Batch
    from .launches import Launch


def least_time(batch: Batch, found: Sequence[Counted], in_memory: int) -> LaunchTime | None:
    """The least time of the launches of a way, over all layers, at once; None without a GPU. `in_memory` are the bytes
    that HBM moves at least: each word of Q, K, V and O once. Work is taken as spread over all thread blocks."""
    chip = batch.chip
    if chip is None:
        return None
    work = work_of_launches(batch, found)
    turns = max(1.0, chip.sms * batch.layers / max(1, work.blocks))
    return LaunchTime(work, seconds_of(work, in_memory, rates_of(chip, batch.problem.dtype), turns))


def work_of_launches(batch: Batch, found: Sequence[Counted]) -> Work:
    """The work of launches over all requests, heads and layers."""
    p = batch.problem
    total = {
        name: sum(one.sum(one.of[name]) for one in found)  # type: ignore[literal-required]
        for name in ("read_bytes", "write_bytes", "flops", "smem_read_words")
    }
    each = [first_blocks(one.launch.schedule, one.problem, cast("Tiling[Size]", one.tiling)) for one in found]
    blocks = sum(one.sum(many) for one, many in zip(found, each, strict=True))
    return Work(
        read_bytes=total["read_bytes"],
        write_bytes=total["write_bytes"],
        matrix_flops=total["flops"],
        exps=total["flops"] // (2 * (p.d + p.dv)),
        smem_read_words=total["smem_read_words"],
        smem_read_bytes=total["smem_read_words"] * p.word_bytes,
        smem_write_bytes=total["read_bytes"],
        blocks=blocks,
    )


def fastest(batch: Batch, launch: Launch, problem: Attention[Size], chip: Hardware) -> Tiling | None:
    """The tiles of least time of one launch over all its shapes, as `timing.tiles` chooses them; None if none fits."""
    sizes = {name: int(np.max(cast("Size", getattr(problem, name)))) for name in ("N", "Nk")}
    options = {name: int(np.min(value)) for name, value in launch.options.items()}
    largest = with_mask(cast("Attention", narrowed(problem, **sizes, **options)))
    unit, M_bytes, found = unit_of(chip, problem.dtype), cast("int", batch.M_bytes), list[TimedTiles]()
    for rows in (instruction_rows(chip, problem.dtype), 1):
        for tiling in [] if found else candidates(launch.schedule, largest, M_bytes, batch.multiple, rows):
            need, least = (footprint(launch.schedule, on_chip(largest, chip, n), tiling) for n in (STAGES, 1))
            if need.smem_bytes <= M_bytes:
                counted = Counted(launch, problem, tiling, counts_of(launch, problem, tiling, unit))
                time = least_time(batch, [counted], 0)
                assert time is not None
                found.append(TimedTiles(tiling, TimeBound((time,)), need, least))
    kernels = [one for one in found if one.in_registers(chip)]
    return next((one.tiling for one in in_order(kernels or found, chip, unit)), None)
