"""The memory of a GPU where no scheme fits: the sentence that leads the answer, and the note on what would fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..units import format_bytes
from .counted import LinkResult, Machines, best_split
from .schedules import PASSES, splits_of

if TYPE_CHECKING:
    from ..core.problem import Attention

MOST_RANKS = 4096  # tried, by doubling


def least_room(results: Sequence[LinkResult]) -> LinkResult:
    """The result that needs least memory; of equal ones, the one that receives least."""
    return min(results, key=lambda r: (r.memory_bytes, r.largest_received_bytes))


def room_note(p: Attention, gpus: Machines, results: Sequence[LinkResult], passes: str) -> str:
    """The note for that case: what a GPU has, what is needed, and what to try."""
    least, has = least_room(results), format_bytes(gpus.memory_bytes or 0)
    needs = f"{least.schedule} needs {format_bytes(least.memory_bytes)}, the least of what was counted"
    return f"nothing fits in the {has} of a GPU: {needs}; {more_gpus(p, gpus, [r.schedule for r in results], passes)}"


def more_gpus(p: Attention, gpus: Machines, names: Sequence[str], passes: str) -> str:
    """What to try: the first of twice, four times, ... as many GPUs on which one of the schemes fits."""
    ranks = 2 * gpus.ranks
    while ranks <= MOST_RANKS:
        more = gpus._replace(ranks=ranks, node=gpus.node if gpus.nodes > 1 else ranks, M_bytes=None)
        found = [
            best_split(scheme, splits, more)
            for name in names
            if (splits := splits_of(scheme := PASSES[passes][name], p, ranks))
        ]
        if fitting := [split for split in found if split.fits]:
            option = f"--nodes {more.nodes}x{more.node}" if more.nodes > 1 else f"--ranks {ranks}"
            least = min(fitting, key=lambda split: (split.memory_bytes, split.most("bytes")))
            return f"with {option} {least.scheme.name} fits"
        ranks *= 2
    return "try fewer tokens or heads, or a narrower --dtype"
