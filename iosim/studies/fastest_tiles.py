"""The tiles with which the generated kernel of a schedule is fastest, by the time model of `iosim.predict`."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ..core.tiling import Tiling
from ..cuda.machine import generate

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..hardware import Hardware
    from ..schedules import Schedule

SIZES = (16, 32, 48, 64, 80, 96, 128, 192, 256)  # of a candidate's tiles


def candidates(schedule: Schedule, problem: Attention, hardware: Hardware) -> list[Tiling]:
    """All pairs of SIZES whose kernel fits a block's shared memory. No size is longer than the first that holds the
    axis."""
    pairs = product(*(sizes_up_to(length) for length in (problem.N, problem.Nk)))
    room = hardware.shared_memory_per_block_bytes
    every = [Tiling(rows_q, rows_k) for rows_q, rows_k in pairs]
    return [tiling for tiling in every if generate(schedule, problem, tiling).smem_bytes <= room]


def sizes_up_to(length: int) -> list[int]:
    """The sizes below the length of an axis, and the first that holds it all."""
    shorter = [size for size in SIZES if size < length]
    return SIZES[: len(shorter) + 1]  # type: ignore[return-value]
