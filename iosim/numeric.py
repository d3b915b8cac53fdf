"""The machine that carries arrays: the run whose output is compared is the run that is counted and fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .errors import ScheduleError
from .machine import Block, Machine, Tile
from .rounding import rounder

NUMPY_DTYPE = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16, "bf16": np.float32, "fp8": np.float32}


class Numeric(Machine):
    """Visits every tile with NumPy arrays. `hbm` maps names to arrays of one head; outputs are made on the way.

    New blocks and unwritten HBM hold NaN, inputs of a step are frozen, and a loop that claims to be parallel is
    checked: its turns may not touch what another turn stored. `double` computes everything in float64; without it
    each array has its own type, and what NumPy has no type for (bf16, fp8) is float32 that is rounded by every load,
    store and step.
    """

    def __init__(self, problem: Any, hbm: dict[str, Any], *watchers: Any, double: bool = True):
        super().__init__(problem, *watchers)
        self.hbm, self.double = dict(hbm), double
        self._turn: tuple[int, int] | None = None
        self._owners: dict[str, Any] = {}
        self._loops = 0

    def _dtype(self, name: str) -> Any:
        return np.float64 if self.double else NUMPY_DTYPE[name]

    def _walk(self, length: Any, size: Any, where: Any, parallel: bool) -> Iterator[Any]:
        outermost = parallel and self._depth == 0
        self._loops += 1
        loop = self._loops
        for tile in super()._walk(length, size, where, parallel):
            if outermost:
                self._turn = (loop, tile.index)
            yield tile
        if outermost:
            self._turn, self._owners = None, {}

    def array(self, tensor: str) -> Any:
        """A tensor in HBM; one that nothing touched yet has its initial value, or NaN."""
        if tensor not in self.hbm:
            spec = self.tensors[tensor]
            name = self.p.acc_dtype if spec.kind == "state" else self.p.dtype
            fill = np.nan if spec.initial is None else spec.initial
            self.hbm[tensor] = np.full(self.p.shape(spec), fill, self._dtype(str(name)))
        return self.hbm[tensor]

    def _claim(self, tensor: str, index: tuple[slice, ...], stores: bool) -> None:
        if self._turn is None:
            return
        owners = self._owners.setdefault(tensor, np.full(self.array(tensor).shape, -1))
        if ((owners[index] != -1) & (owners[index] != self._turn[1])).any():
            raise ScheduleError(f"a parallel loop is not: two of its turns touch the same part of {tensor}")
        if stores:
            owners[index] = self._turn[1]

    def _new(self, block: Block) -> Any:
        spec = block.tensor
        if spec is not None and spec.kind == "index":
            return np.full([x.size if isinstance(x, Tile) else x for x in block.shape], -1, np.int32)
        shape = tuple(x.size if isinstance(x, Tile) else x for x in block.shape)
        return np.full(shape, np.nan, self._dtype(self._type(block)))

    def _rounded(self, array: Any, dtype: str) -> Any:
        step = None if self.double else rounder(dtype)
        return array if step is None or array.dtype.kind in "iu" else step(array)

    def _round(self, block: Block) -> None:
        array = value_of(block)
        rounded = self._rounded(array, self._type(block))
        if rounded is not array:
            array[...] = rounded

    def _type(self, block: Block) -> str:
        """The name of the type of a block on chip."""
        return str(self.p.dtype if block.tensor is not None and block.tensor.kind == "input" else self.p.acc_dtype)

    def _fetch(self, block: Block, tensor: str, where: Any) -> None:
        block.value = self._new(block)
        if where is None or where.any:
            index = spans(block.shape)
            self._claim(tensor, index, stores=False)
            block.value[...] = self.array(tensor)[index]
            self._round(block)

    def _put(self, block: Block, tensor: str) -> None:
        index = spans(block.shape)
        self._claim(tensor, index, stores=True)
        spec = self.tensors[tensor]
        name = self.p.acc_dtype if spec.kind == "state" else self.p.dtype
        self.array(tensor)[index] = self._rounded(value_of(block), str(name))

    def _apply(self, step: Callable[..., None], outputs: tuple[Block, ...], inputs: tuple[Any, ...]) -> None:
        for block in outputs:
            if block.value is None and block.base is None:
                block.value = self._new(block)
        arrays = [value_of(x) if isinstance(x, Block) else x.array() for x in inputs]
        for array in arrays:
            array.flags.writeable = False
        with np.errstate(over="ignore"):
            step(*map(value_of, outputs), *arrays)
        for array in arrays:
            array.flags.writeable = True
        for block in outputs:
            self._round(block)
        shaped = [x for x in inputs if isinstance(x, Block)]
        super()._apply(step, outputs, tuple(shaped))


def spans(shape: tuple[Any, ...]) -> tuple[slice, ...]:
    return tuple(slice(x.start, x.start + x.size) if isinstance(x, Tile) else slice(0, x) for x in shape)


def value_of(block: Block) -> Any:
    """A block's array; a part of a block is a view."""
    if block.base is None:
        return block.value
    tile, whole = block.shape[0], block.base.shape[0]
    offset = tile.start - (whole.start if isinstance(whole, Tile) else 0)
    return block.base.value[offset : offset + tile.size].view()
