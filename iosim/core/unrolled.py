"""The machine that visits every tile and knows which thread block it is in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .machine import Machine
from .shapes import Tile
from .watchers import Watcher

if TYPE_CHECKING:
    from .mask_types import MaskLine
    from .problem import Attention
    from .typing import Size


class Unrolled(Machine):
    """Visits every tile. `thread_block` is the iteration of the outermost loop if that loop is parallel, else 0.

    With `backwards`, inner loops go from their last tile to their first.
    """

    def __init__(self, problem: Attention[Size], *watchers: Watcher, backwards: bool = False):
        super().__init__(problem, *watchers)
        self.thread_block, self.backwards = 0, backwards

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        outermost = self._depth == 0
        tiles = super()._walk(length, size, where, parallel)
        for tile in reversed(list(tiles)) if self.backwards and not outermost else tiles:
            if outermost:
                self.thread_block = tile.index if parallel else 0
            yield tile


class BlockWatcher(Watcher):
    """A watcher of an unrolled run, which asks its machine for the current thread block."""

    machine: Unrolled

    def start(self, machine: Machine) -> None:
        if not isinstance(machine, Unrolled):
            raise TypeError(f"{type(self).__name__} watches an Unrolled machine, not a {type(machine).__name__}")
        self.machine = machine
