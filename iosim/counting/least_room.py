"""Notes on counts of which nothing fits: the least SRAM that the schedules need, and what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tiling import Tiling
from ..schedules import SCHEDULES
from ..search.best import footprint
from ..units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.problem import Attention
    from .result import Result


def room_notes(problem: Attention, M_bytes: int | None, results: Sequence[Result]) -> list[str]:
    """A note if no result of a count fits in M."""
    if M_bytes is None or not results or any(r.fits is not False for r in results):
        return []
    names = dict.fromkeys(r.schedule for r in results)
    needs = {name: least_bytes(name, problem) for name in names if "ideal" not in SCHEDULES[name].rules}
    tried = [
        f"{name} with 1x1 tiles needs {format_bytes(needs[name])}" for name in sorted(needs, key=needs.__getitem__)
    ]
    text = f"nothing fits in {format_bytes(M_bytes)}"
    if needs and min(needs.values()) <= M_bytes:
        return [f"{text}: try smaller tiles, or --tiles best to find those that fit; {tried[0]}"]
    text += f": {tried[0]}, the least of what was counted" if tried else ""
    if any(SCHEDULES[name].family == "attention" for name in names):
        text += "; iosim tune searches all schedules, and some of them need less"
    return [text]


def least_bytes(name: str, problem: Attention) -> int:
    """The shared memory in bytes that a schedule needs with the smallest tiles."""
    return int(footprint(SCHEDULES[name], problem.packed, Tiling(1, 1)).smem_bytes)
