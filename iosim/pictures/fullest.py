"""What is in SRAM at its fullest, by block."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.folded import Folded
from ..core.problem import DENSE
from ..core.tiling import Tiling
from ..core.watchers import Capacity
from ..schedules import Schedule

if TYPE_CHECKING:
    from ..core.machine import Block
    from ..core.problem import Attention


def fullest(schedule: Schedule, p: Attention, tiling: Tiling) -> list[tuple[str, int]]:
    """(name, bytes) of each block in SRAM when it is at its fullest, without the mask."""
    room = Residents()
    Folded(replace(p.packed, mask=DENSE), room).run(schedule, tiling)
    return room.parts


class Residents(Capacity):
    """A watcher that keeps which blocks are in SRAM at its fullest: `parts`, as (name, bytes)."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[Block, int] = {}
        self.parts: list[tuple[str, int]] = []

    def allocate(self, block: Block) -> None:
        before = self.peak_bytes
        super().allocate(block)
        self.now[block] = int(block.words * self._width(block.tensor))
        if self.peak_bytes > before:
            self.parts = [(b.name, block_bytes) for b, block_bytes in self.now.items()]

    def free(self, block: Block) -> None:
        super().free(block)
        del self.now[block]
