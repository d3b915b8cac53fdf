"""What machines and schedules use of a mask and of dropout. Only type checkers load this file, as core/typing.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .shapes import Tile
    from .tiling import Sizes, Tiling
    from .typing import Array, Bools, Size, Values


class Kind(Protocol):
    """The part of `masks.cells.Kind` that the folded machine uses."""

    @property
    def block(self) -> Size: ...

    @property
    def keys(self) -> Size: ...

    @property
    def seen(self) -> tuple[Size, Size]: ...


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

    @property
    def from_end(self) -> bool: ...

    @property
    def lead(self) -> Size: ...

    def in_tiles(self, rows_q: Size, rows_k: Size) -> Self: ...

    def short_first(self) -> Self: ...

    def column(self, j: Tile) -> MaskLine | None: ...

    def row(self, i: Tile) -> MaskLine | None: ...

    def part(self, i: Tile, j: Tile) -> Values | None: ...

    def visible(self, x0: int, rows: int, y0: int, keys: int) -> Bools: ...

    def pairs(self, row_ragged: bool, column_ragged: bool) -> Size: ...

    def rows(self, ragged: bool) -> Size: ...

    def cols(self, ragged: bool) -> Size: ...

    def cells(self, block: Size, size: Size) -> Sequence[Kind]: ...


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

    def bind(self, problem: Sizes[Size], tiling: Tiling[Size], skips: bool = True) -> Mask: ...


class Dropout(Protocol):
    """Dropout of the probabilities: some become 0, and the others grow by a factor."""

    def part(self, i: Tile, j: Tile) -> Values: ...

    def factors(self, rows: range, keys: range) -> Array: ...
