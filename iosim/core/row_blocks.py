"""The numeric machine for schedules that visit single rows: it takes many turns of such a loop at once.

A loop over single positions whose turns are independent is walked in blocks of positions. The same steps run on larger
arrays, so a run takes seconds where it took minutes. Words are counted as before, and a block in SRAM counts as one
position. Whether turns are independent is found out by running: a loop that breaks a rule is walked singly after all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .dependent_tiles import Span
from .machine import Block, Tile
from .numeric import Numeric, slices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .problem import Attention
    from .tiling import Tiling
    from .typing import Arrays, Input, MaskLine, ScheduleLike, Shape, Size, Step, Watcher

Watchers = TypeVar("Watchers", bound="tuple[Watcher, ...]")
MOST_ROWS = 1024
Path = tuple[int, ...]  # which loop: its place among the loops of each enclosing one


class Rows(Tile):
    """Some single positions of a loop. In SRAM they take the room of one."""

    __slots__ = ()

    @property
    def extent(self) -> Size:
        """One position."""
        return 1


class Dependent(BaseException):
    """The turns of a loop depend on each other, or on a tile's place. `path` says which loop. It is no Exception, so
    that it is not taken for an error of the schedule."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.path = path


class RowBlocks(Numeric):
    """A numeric machine that takes turns of loops over single positions together, but for the loops in `singly`."""

    def __init__(self, problem: Attention, hbm: Arrays, *watchers: Watcher, double: bool, singly: set[Path]):
        super().__init__(problem, hbm, *watchers, double=double)
        self.singly = singly
        self._path: Path = ()
        self._loops_seen = [0]
        self._merged: tuple[Path, int] | None = None  # the loop whose turns are taken together, and its depth
        self._block = self._rows = 0  # the current turns that are taken together: their number, and how many they are
        self._stored: dict[str, NDArray[np.int64]] = {}  # the block of turns that stored each word

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        self._refuse(where is not None or isinstance(length, Tile))
        path = (*self._path, self._loops_seen[-1])
        self._loops_seen[-1] += 1
        merges = not (self._merged or where is not None or size != 1 or path in self.singly)
        walk = super()._walk(length, size, where, parallel)
        for tile in self._in_blocks(int(length), path) if merges and isinstance(length, int) and length > 3 else walk:
            self._path, outer = path, self._path
            self._loops_seen.append(0)
            yield tile
            self._loops_seen.pop()
            self._path = outer

    def _in_blocks(self, length: int, path: Path) -> Iterator[Tile]:
        self._merged, self._stored = (path, self._depth), {}
        rows = min(MOST_ROWS, -(-length // 2))  # two blocks at least: a dependence shows between them
        for self._block, start in enumerate(range(0, length, rows)):
            self._rows = min(rows, length - start)
            yield Rows(length, self._rows, start, start)
        self._merged = None

    def _refuse(self, wrong: bool) -> None:
        """Raise Dependent if something is wrong with taking the turns of the current loop together."""
        if wrong and self._merged:
            raise Dependent(self._merged[0])

    def _touch(self, tensor: str, shape: Shape, stores: bool) -> None:
        """Refuse to go on if another block of turns stored a word of this part of a tensor."""
        self._refuse(any(isinstance(x, Span) for x in shape))
        if self._merged:
            if tensor not in self._stored:
                self._stored[tensor] = np.full(self.array(tensor).shape, -1)
            part = self._stored[tensor][slices(shape)]
            self._refuse(bool(((part != -1) & (part != self._block)).any()))
            if stores:
                part[...] = self._block

    def total(self, shape: Shape, where: MaskLine | None = None) -> Size:
        self._refuse(where is not None)
        once = super().total(shape, where)
        return once * self._rows if self._merged and not any(isinstance(x, Rows) for x in shape) else once

    def _fetch(self, block: Block, tensor: str, where: MaskLine | None) -> None:
        self._touch(tensor, block.shape, stores=False)
        super()._fetch(block, tensor, where)

    def _put(self, block: Block, tensor: str) -> None:
        self._touch(tensor, block.shape, stores=True)
        super()._put(block, tensor)

    def _apply(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...]) -> None:
        self._refuse(self._merged is not None and any(block.depth <= self._merged[1] for block in outputs))
        super()._apply(step, outputs, inputs)


def run_in_row_blocks(
    schedule: ScheduleLike, p: Attention, tiling: Tiling, hbm: Arrays, double: bool, watchers: Callable[[], Watchers]
) -> tuple[RowBlocks, Watchers]:
    """(the machine after a numeric run, its watchers). A run that finds a dependence starts anew, with new watchers."""
    singly: set[Path] = set()
    while True:
        watching = watchers()
        try:
            machine = RowBlocks(p, hbm, *watching, double=double, singly=singly)
            return machine.run(schedule, tiling), watching
        except Dependent as found:
            singly.add(found.path)
