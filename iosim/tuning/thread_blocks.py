"""How many thread blocks a schedule gives to a GPU: what least traffic alone does not ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.arrays import choose, smaller
from ..core.folded import Folded
from ..core.problem import DENSE, Attention
from ..core.watchers import Traffic

PARTS = 10  # a launch that moves less than this part of all words does not decide


class Blocks(Folded):
    """Notes for each launch the turns of its outermost loop if that is parallel, as the grid of a kernel walks them;
    1 where it is not, or where something stays in SRAM around it."""

    def __init__(self, problem: Any, *watchers: Any):
        super().__init__(problem, *watchers)
        self.launches: list[Any] = []
        self._turns: Any = 1

    def _walk(self, length: Any, size: Any, where: Any, parallel: bool) -> Any:
        outermost, alone = self._depth == 0, not self._resident
        for tile in super()._walk(length, size, where, parallel):
            if outermost:
                self._turns = self.total(()) if parallel and alone else 1
            yield tile

    def _end_of_launch(self) -> None:
        if self._depth == 0 and not self._resident:
            self.launches.append(self._turns)
        super()._end_of_launch()


def blocks(schedule: Any, p: Attention, tiling: Any) -> Any:
    """Independent blocks over all heads and batches: the fewest of any launch that moves a tenth of all words or more
    (of the one that moves most, where none does). Sizes may be arrays."""
    p = p.packed
    if not schedule.skips:
        p = replace(p, mask=DENSE)
    traffic = Traffic()
    machine = Blocks(p, traffic).run(schedule, tiling)
    words = [reads + writes for reads, writes in traffic.steps]
    most: Any = -1
    found: Any = 1
    total = sum(words)
    for moved, turns in zip(words, machine.launches, strict=True):
        more = moved > most
        most, found = choose(more, moved, most), choose(more, turns, found)
    for moved, turns in zip(words, machine.launches, strict=True):
        found = smaller(found, choose(PARTS * moved >= total, turns, found))
    return found * p.instances
