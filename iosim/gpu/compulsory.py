"""The bytes that each launch cannot but load from DRAM: the words that it reads before it writes them, each once.

Nsight Compute empties the L2 before every launch, so a launch loads at least these bytes. It loads no others if the L2
serves all that is read again. What it writes may stay in the L2 until it has ended, so no written byte is compulsory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.machine import Machine
from ..core.problem import as_moved
from ..core.watchers import Watcher, extent_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.machine import Block, ScheduleLike, ScheduleText
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size

    Place = tuple[str, int, int, int, int]
    Words = dict[str, NDArray[np.bool_]]


class FirstReads(Watcher):
    """The words of one head whose first touch in a launch is a load, launch by launch: {tensor: how many}. It watches a
    machine that visits every tile, in the order of the grid."""

    def __init__(self) -> None:
        self.launches: list[dict[str, int]] = []
        self._restart()

    def _restart(self) -> None:
        self._seen: set[Place] = set()
        self._met: Words = {}
        self._first: dict[str, int] = {}

    def start(self, machine: Machine) -> None:
        self.machine = machine

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if words:
            self._touch(block, tensor, True)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self._touch(block, tensor, False)

    def _touch(self, block: Block, tensor: str, load: bool) -> None:
        (row, rows), (column, columns) = extent_of(block)
        place = tensor, row, int(rows), column, int(columns)
        if place in self._seen:
            return
        self._seen.add(place)
        part = self._of(tensor)[row : row + int(rows), column : column + int(columns)]
        if load:
            self._first[tensor] = self._first.get(tensor, 0) + int(part.size - np.count_nonzero(part))
        part[...] = True

    def _of(self, tensor: str) -> NDArray[np.bool_]:
        """A value for each word of a tensor: whether this launch has touched it."""
        if tensor not in self._met:
            lengths = (*map(int, self.machine.p.shape(self.machine.tensors[tensor])), 1)[:2]
            self._met[tensor] = np.zeros(lengths, bool)
        return self._met[tensor]

    def launch_ended(self) -> None:
        if self._seen:
            self.launches.append(self._first)
        self._restart()


def compulsory_bytes(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> list[int]:
    """The compulsory bytes of each launch that moves anything, over all heads. A tensor that heads share counts once
    for all of them."""
    first = FirstReads()
    machine = Machine(as_moved(schedule, problem), first).run(schedule, tiling)
    p, tensors = machine.p, machine.tensors

    def copies(name: str) -> int:
        return int(p.batch * (p.kv_heads if tensors[name].shared else p.heads))

    return [
        sum(words * copies(name) * p.hbm_bytes(tensors[name]) for name, words in launch.items())
        for launch in first.launches
    ]
