"""Types that the core shares. Only type checkers load this file, so it may import NumPy: import it under TYPE_CHECKING.

It has the core's classes as well, so that annotations of other files need one import of the core.

In a count of one problem every size is an int. In one walk over many problems every size is an array, and all arrays
have the same shape. A `Size` is either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .machine import Block as Block
from .machine import Machine as Machine
from .machine import Tile as Tile
from .problem import Attention as Attention
from .problem import S as S
from .problem import Tensor as Tensor
from .tiling import Rule as Rule
from .tiling import RuleName as RuleName
from .tiling import TilesAsked as TilesAsked
from .tiling import Tiling as Tiling
from .watchers import Event as Event
from .watchers import Watcher as Watcher

Size = int | NDArray[np.int64]
"""A number of positions, words or bytes."""
Same = TypeVar("Same", bound=Size)
"""A Size that is the same in a whole signature: numbers give a number, and arrays an array."""
Test = bool | NDArray[np.bool]
"""The result of a comparison of sizes."""
Shape = tuple[Tile | Size, ...]
"""The dimensions of a block or a tensor: a tile of an axis, or a length."""
SizeClasses = list[tuple[Size, dict[Tile, Size]]]
"""Rows (times, {tile: size}): sizes that some tiles have together, and how many times."""
Visits = SizeClasses
"""What an event of a machine stands for, in such rows."""
Places = slice[int, Size, None] | NDArray[np.int64]
"""Positions of an axis, as NumPy indexes it."""
Own = bool | tuple[Tile, ...]
"""What of a block lies in this memory already: all, nothing, or the part that tiles select."""

Array = NDArray[np.floating]  # type: ignore[explicit-any]  # NumPy's own alias holds an Any
"""The values of a tensor or of a block."""
Bools = NDArray[np.bool]
"""The booleans of a mask: True where a query sees a key."""
Arrays = dict[str, Array]
"""Arrays of one head by the names of their tensors."""

ScheduleText = Callable[[Machine, Attention, Tiling], None]
"""The function of a schedule, written for one problem. `Folded` runs it for arrays of problems too."""
Words = dict[str, tuple[int, int]]
"""{tensor: (words read, words written)}, of one head, from formulas that were derived by hand."""


class Step(Protocol):
    """A named tile step: a function that writes into its first arrays and reads the others.

    `flops` and `work` (steps/softmax.py) are optional attributes that say what it costs.
    """

    @property
    def __name__(self) -> str: ...

    __call__: Callable[..., None]  # type: ignore[explicit-any]  # each step has arguments of its own


class Values(Protocol):
    """An input of a step that is not a block: a part of a mask or of dropout, or a number."""

    def array(self) -> NDArray[np.generic]: ...  # type: ignore[explicit-any]


Input = Block | Values
"""An input of a step."""


class MaskLine(Protocol):
    """The part of `masks.mask.Line` that machines use. A loop over a line leaves out the tiles that the mask hides."""

    @property
    def kind(self) -> str: ...

    @property
    def mask(self) -> BoundMask: ...

    @property
    def tile(self) -> Tile | None: ...

    @property
    def any(self) -> bool: ...

    def active(self, tile: Tile) -> bool: ...


class BoundMask(Protocol):
    """The part of `masks.mask.BoundMask`, and of the dense mask, that machines and schedules use."""

    @property
    def N(self) -> Size: ...

    @property
    def Nk(self) -> Size: ...

    @property
    def rows_q(self) -> Size: ...

    @property
    def rows_k(self) -> Size: ...

    @property
    def tile_units(self) -> bool: ...

    @property
    def Tr(self) -> Size: ...

    @property
    def Tc(self) -> Size: ...

    @property
    def active_tiles(self) -> Size: ...

    @property
    def columns(self) -> MaskLine | None: ...

    @property
    def table(self) -> Bools: ...

    def column(self, j: Tile) -> MaskLine | None: ...

    def row(self, i: Tile) -> MaskLine | None: ...

    def part(self, i: Tile, j: Tile) -> Values | None: ...

    def visible(self, x0: int, rows: int, y0: int, keys: int) -> Bools: ...

    def pairs(self, row_ragged: bool, column_ragged: bool) -> Size: ...

    def rows(self, ragged: bool) -> Size: ...

    def cols(self, ragged: bool) -> Size: ...


class Mask(BoundMask, Protocol):
    """The mask of a problem. `Attention.tiled` binds it to tile sizes. Before that, use only the members named here.

    The dense mask has neither counts nor a table. A schedule asks only for its lines and parts, which are None.
    """

    @property
    def is_causal(self) -> bool: ...
    @property
    def tile_units(self) -> bool: ...

    @property
    def counts_arrays(self) -> bool: ...
    @property
    def counts_at_once(self) -> bool: ...

    def bind(self, problem: Attention[Size], tiling: Tiling[Size], skips: bool = True) -> Mask: ...


class Dropout(Protocol):
    """Dropout of the probabilities: some become 0, and the others grow by a factor."""

    def part(self, i: Tile, j: Tile) -> Values: ...

    def factors(self, rows: range, keys: range) -> Array: ...


class ScheduleLike(Protocol):
    """The fields of a Schedule that machines and searches read. schedules/registry.py says what they mean."""

    @property
    def text(self) -> ScheduleText: ...

    @property
    def outer(self) -> str: ...

    @property
    def skips(self) -> bool: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    def __hash__(self) -> int: ...


TrafficFormula = Callable[[Attention, Tiling], Mapping[str, tuple[int, int]]]
"""A formula, derived by hand, for the words of one head: {tensor: (reads, writes)}."""
FootprintFormula = Callable[[Attention, Tiling], int]
"""A formula, derived by hand, for the words in SRAM."""
Example = Callable[[np.random.Generator, Attention, Bools | None], Arrays]
"""Makes random inputs of one head. The booleans say which keys each query sees; None means all."""
Answer = Callable[[Arrays, Attention, Bools | None], Arrays]
"""Computes the correct outputs for such inputs, in float64."""
