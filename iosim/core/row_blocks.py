"""The numeric machine for schedules that visit single rows: it runs many iterations of such a loop at once.

A loop over single positions whose iterations are independent is walked in blocks of positions. The same steps run on
larger arrays, so a run takes seconds where it took minutes. Words are counted as before, and a block in SRAM counts as
one position. Whether iterations are independent is found out by running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from .dependent_tiles import Span
from .loop_paths import LoopPaths
from .machine import Block
from .numeric import Numeric, slices
from .shapes import Tile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .machine import Input
    from .mask_types import MaskLine
    from .shapes import Shape
    from .typing import Size, Step

MOST_ROWS = 1024


class Rows(Tile):
    """Several single positions of a loop. In SRAM they count as one."""

    __slots__ = ()

    @property
    def extent(self) -> Size:
        """One position."""
        return 1


class RowBlocks(LoopPaths, Numeric):
    """A numeric machine that runs many iterations of a loop over single positions together."""

    def together(self, length: Size | Tile, size: Size, where: MaskLine | None) -> Iterable[Tile] | None:
        if not isinstance(length, int) or length < 4 or size != 1 or where is not None:
            return None
        self._outside = self._depth
        self._stored: dict[str, NDArray[np.int64]] = {}  # the block of iterations that stored each word
        return self._blocks(length)

    def _blocks(self, length: int) -> Iterator[Tile]:
        rows = min(MOST_ROWS, -(-length // 2))  # two blocks at least: a dependence shows between them
        for self._block, start in enumerate(range(0, length, rows)):
            self._rows = min(rows, length - start)
            yield Rows(length, self._rows, start, start)

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        self.refuse(where is not None or isinstance(length, Tile))
        return super()._walk(length, size, where, parallel)

    def total(self, shape: Shape, where: MaskLine | None = None) -> Size:
        self.refuse(where is not None)
        once = super().total(shape, where)
        apart = self.merged is not None and not any(isinstance(x, Rows) for x in shape)
        return once * self._rows if apart else once

    def _touch(self, tensor: str, shape: Shape, stores: bool) -> None:
        """Refuse if another block of iterations stored a word of this part of a tensor."""
        if self.merged is None:
            return
        self.refuse(any(isinstance(x, Span) for x in shape))
        if tensor not in self._stored:
            self._stored[tensor] = np.full(self.array(tensor).shape, -1)
        part = self._stored[tensor][slices(shape)]
        self.refuse(bool(((part != -1) & (part != self._block)).any()))
        if stores:
            part[...] = self._block

    def _fetch(self, block: Block, tensor: str, where: MaskLine | None) -> None:
        self._touch(tensor, block.shape, stores=False)
        super()._fetch(block, tensor, where)

    def _put(self, block: Block, tensor: str) -> None:
        self._touch(tensor, block.shape, stores=True)
        super()._put(block, tensor)

    def _apply(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...]) -> None:
        self.refuse(self.merged is not None and any(block.depth <= self._outside for block in outputs))
        super()._apply(step, outputs, inputs)
