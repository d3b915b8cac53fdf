"""The least SRAM in which something of a schedule fits: what its smallest tiles need, or those that are given to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tiling import Tiling
from ..schedules import SCHEDULES
from ..search.best import footprint

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .result import Result


def name_with(r: Result, multiple: int) -> str:
    """The schedule of a result, with its smallest tiles if it has any to choose, or with those of a paper."""
    if "ideal" in SCHEDULES[r.schedule].rules:
        return r.schedule
    sizes = f"{r.Br}x{r.Bc}" if r.tiling == "paper" and r.Br else f"{multiple}x{multiple}"
    return f"{r.schedule} with {sizes} tiles"


def needed(r: Result, problem: Attention, multiple: int) -> int:
    """The shared memory that the schedule of a result needs, with these tiles."""
    own = r.tiling in ("ideal", "paper") and r.smem_peak_bytes
    return own or least_bytes(r.schedule, problem, multiple)


def least_bytes(name: str, problem: Attention, multiple: int = 1) -> int:
    """The shared memory in bytes that a schedule needs with the smallest tiles of this multiple."""
    smallest = dict.fromkeys(("rows_q", "rows_k", *SCHEDULES[name].more_tiles), multiple)
    return int(footprint(SCHEDULES[name], problem.packed, Tiling(**smallest)).smem_bytes)
