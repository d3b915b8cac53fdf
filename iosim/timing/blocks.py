"""The number of thread blocks of a schedule. The schedule of least traffic may have few."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ..core.arrays import choose, smaller
from ..core.folded import Folded
from ..core.problem import Attention, as_moved
from ..core.watchers import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.machine import ScheduleLike, Watcher
    from ..core.mask_types import MaskLine
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Size

ONE_WORD_IN = 10  # a launch can decide the number of blocks if it moves at least one in so many of all words


class Blocks(Folded):
    """Counts a schedule, and records the number of blocks of each launch: the size of a kernel's grid.

    If the outermost loop is parallel and nothing stays in SRAM around it, that is the number of its iterations.
    Otherwise it is 1.
    """

    def __init__(self, problem: Attention[Size], *watchers: Watcher):
        super().__init__(problem, *watchers)
        self.launches: list[Size] = []
        self._turns: Size = 1

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        outermost, alone = self._depth == 0, not self._resident
        for tile in super()._walk(length, size, where, parallel):
            if outermost:
                self._turns = self.total(()) if parallel and alone else 1
            yield tile

    def _end_of_launch(self) -> None:
        if self._depth == 0 and not self._resident:
            self.launches.append(self._turns)
        super()._end_of_launch()


def first_blocks(schedule: ScheduleLike, p: Attention[Size], tiling: Tiling[Size]) -> Size:
    """The number of independent blocks of the first launch, over all heads and batches. Sizes may be arrays."""
    p = as_moved(schedule, p.packed)
    return Blocks(p).run(schedule, tiling).launches[0] * p.instances


@overload
def blocks(schedule: ScheduleLike, p: Attention, tiling: Tiling) -> int: ...


@overload
def blocks(schedule: ScheduleLike, p: Attention[Size], tiling: Tiling[Size]) -> Size: ...


def blocks(schedule: ScheduleLike, p: Attention[Size], tiling: Tiling[Size]) -> Size:
    """The number of independent blocks over all heads and batches. Sizes may be arrays.

    It is the smallest number of any launch that moves at least a tenth of all words. If no launch does, it is the
    number of the launch that moves most.
    """
    p = as_moved(schedule, p.packed)
    traffic = Traffic()
    machine = Blocks(p, traffic).run(schedule, tiling)
    words = [reads + writes for reads, writes in traffic.launches]
    most: Size = -1
    found: Size = 1
    total = sum(words)
    for moved, turns in zip(words, machine.launches, strict=True):
        more = moved > most
        most, found = choose(more, moved, most), choose(more, turns, found)
    for moved, turns in zip(words, machine.launches, strict=True):
        found = smaller(found, choose(ONE_WORD_IN * moved >= total, turns, found))
    return found * p.instances
