"""The machine that carries arrays: the same run gives the outputs, the counts and the SRAM footprint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import numpy as np

from ..errors import ScheduleError
from .machine import Block, Machine
from .rounding import rounder
from .shapes import Tile

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from .machine import Input, ScheduleLike, ScheduleText, Watcher
    from .mask_types import MaskLine
    from .problem import Attention
    from .shapes import Shape
    from .tiling import Tiling
    from .typing import Array, Arrays, Places, Size, Step

NUMPY_DTYPE = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16, "bf16": np.float32, "fp8": np.float32}


class Numeric(Machine):
    """Visits every tile with NumPy arrays. `hbm` maps names to arrays of one head; outputs are added to it.

    New blocks and unwritten HBM hold NaN. A step cannot write to its inputs. ScheduleError is raised if a loop claims
    to be parallel and one iteration touches what another one stored, unless all of them add to it. It is raised too if
    an iteration receives words that lie in its own memory, or takes for its own (`Machine.load`) what lies in that of
    another. With `double` everything is computed in float64. Without it each array has its own type. A step computes in
    float32, as a kernel does, and its result is rounded once. So blocks of fp16, bf16 and fp8 hold rounded values as
    float32, and so do tensors of bf16 and fp8.
    """

    def __init__(self, problem: Attention, hbm: Arrays, *watchers: Watcher, double: bool = True):
        super().__init__(problem, *watchers)
        self.hbm, self.double = dict(hbm), double
        self._given = set(self.hbm)  # arrays that others hold: they are copied before anything is stored to them
        self.turn: tuple[int, int] | None = None
        """The number of the outermost parallel loop that runs, and its iteration: a GPU, or a thread block."""
        self._owners: dict[str, NDArray[np.int64]] = {}
        self.homes: dict[str, NDArray[np.int64]] = {}
        """{tensor: the iteration that has each word in its memory, or -1}, of tensors of which any has some."""
        self._loops = 0
        self.overflowed = ""
        """fp16 if a finite word was too large for that type, else empty. The other types reach as far as float32."""

    def run(self, schedule: ScheduleLike | ScheduleText, tiling: Tiling[Size]) -> Self:
        with np.errstate(over="ignore"):
            return super().run(schedule, tiling)

    def _dtype(self, name: str) -> DTypeLike:
        return np.float64 if self.double else NUMPY_DTYPE[name]

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        outermost = parallel and self._depth == 0
        self._loops += 1
        loop = self._loops
        for tile in super()._walk(length, size, where, parallel):
            if outermost:
                self.turn = (loop, tile.index)
            yield tile
        if outermost:
            self.turn, self._owners = None, {}

    def array(self, tensor: str) -> Array:
        """The values of a tensor in HBM, of one head. Before the first store they are its initial value, or NaN."""
        if tensor not in self.hbm:
            spec = self.tensors[tensor]
            fill = np.nan if spec.initial is None else spec.initial
            if spec.kind == "index":
                self.hbm[tensor] = np.full(self.p.shape(spec), -1, np.int32)  # type: ignore[assignment]  # whole numbers
                return self.hbm[tensor]
            self.hbm[tensor] = np.full(self.p.shape(spec), fill, self._dtype(self.p.hbm_type(spec)))
        return self.hbm[tensor]

    def _claim(self, tensor: str, index: tuple[Places, ...], stores: bool) -> None:
        if self.turn is None or tensor in self.adds or not (stores or tensor in self._owners):
            return
        if tensor not in self._owners:
            self._owners[tensor] = np.full(self.array(tensor).shape, -1)
        owners, here = self._owners[tensor], self.turn[1]
        found = owners[index]
        if ((found != -1) & (found != here)).any():
            raise ScheduleError(f"this parallel loop is not parallel: two iterations touch the same part of {tensor}")
        if stores:
            owners[index] = here

    def _at_home(self, block: Block, tensor: str, index: tuple[Places, ...]) -> None:
        """Note which iteration, a GPU, has the words of a block in its memory. ScheduleError if what is taken for its
        own is not, or if it receives what is."""
        if self.turn is None or block.own == () or not (block.own or tensor in self.homes):
            return
        if tensor not in self.homes:
            self.homes[tensor] = np.full(self.array(tensor).shape, -1)
        homes, here, held = self.homes[tensor], self.turn[1], 0
        if block.own:
            mine = index
            if isinstance(block.own, tuple):
                mine = slices(self.shape_of(tensor, block.own))
            part = homes[mine]
            if ((part != -1) & (part != here)).any():
                raise ScheduleError(f"{tensor} is taken for its own by an iteration, and by another one before it")
            homes[mine], held = here, part.size
            if mine is index:
                return
        if np.count_nonzero(homes[index] == here) > held:
            raise ScheduleError(f"an iteration receives words of {tensor} that lie in its own memory: say own=")

    def _new(self, block: Block) -> Array:
        shape = tuple(x.size if isinstance(x, Tile) else x for x in block.shape)
        if block.tensor is not None and block.tensor.kind == "index":
            return np.full(shape, -1, np.int32)
        kind = self._dtype(self._type(block))
        return np.full(shape, np.nan, np.float32 if kind is np.float16 else kind)

    def _rounded(self, array: Array, dtype: str) -> Array:
        step = None if self.double else rounder(dtype)
        return array if step is None or array.dtype.kind in "iu" else step(array)

    def _round(self, block: Block) -> None:
        if self.double:
            return
        array = value_of(block)
        rounded = self._rounded(array, self._type(block))
        if rounded is not array:
            if not self.overflowed and self._type(block) == "fp16" and (np.isinf(rounded) & np.isfinite(array)).any():
                self.overflowed = "fp16"
            array[...] = rounded

    def _type(self, block: Block) -> str:
        """The name of the element type of a block on chip."""
        return self.p.sram_type(block.tensor)

    def _fetch(self, block: Block, tensor: str, where: MaskLine | None) -> None:
        block.value = self._new(block)
        if where is None or where.any:
            index = slices(block.shape)
            self._claim(tensor, index, stores=False)
            self._at_home(block, tensor, index)
            block.value[...] = self.array(tensor)[index]
            self._round(block)

    def _put(self, block: Block, tensor: str) -> None:
        index = slices(block.shape)
        self._claim(tensor, index, stores=True)
        self._at_home(block, tensor, index)
        if tensor in self._given:
            self._given.remove(tensor)
            self.hbm[tensor] = self.hbm[tensor].copy()
        self.array(tensor)[index] = self._rounded(value_of(block), self.p.hbm_type(self.tensors[tensor]))

    def _apply(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...]) -> None:
        for block in outputs:
            if block.value is None and block.base is None:
                block.value = self._new(block)
        arrays = [value_of(x) if isinstance(x, Block) else x.array() for x in inputs]
        for array in arrays:
            array.setflags(write=False)
        step(*map(value_of, outputs), *arrays)
        for array in arrays:
            array.setflags(write=True)
        for block in outputs:
            self._round(block)
        shaped = [x for x in inputs if isinstance(x, Block)]
        super()._apply(step, outputs, tuple(shaped))


def slices(shape: Shape) -> tuple[Places, ...]:
    """The indices of the part of a tensor that a block of this shape covers."""
    return tuple(x.places if isinstance(x, Tile) else slice(0, x) for x in shape)


def value_of(block: Block) -> Array:
    """A block's array; a view if the block is a part of another one."""
    value = (block.base or block).value
    assert value is not None, f"block {block.name} has no values"
    if block.base is None:
        return value
    tile, whole = block.shape[0], block.base.shape[0]
    assert isinstance(tile, Tile)
    offset = tile.start - (whole.start if isinstance(whole, Tile) else 0)
    return value[offset : offset + tile.size].view()
