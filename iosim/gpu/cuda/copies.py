"""How a generated kernel copies a tile between HBM and shared memory: which words go together, in which request.

The rules are those of cuda/tiles.cuh (`load` and `store`). cuda/write.py writes the copies by them, and cuda/sectors.py
counts the sectors that they touch.
"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Self

from ...core.dependent_tiles import Each, Ends, Moved, Share, Span, Stretch, UpTo
from ...core.machine import Block
from ...core.shapes import Tile, product
from ...hardware import SECTOR_BYTES
from ...masks.reach import Seen
from .plan import ALL_ROWS, Plan
from .record import SymbolicTile
from .warp_split import LANES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...core.problem import Attention, Tensor
    from ...core.shapes import Shape
    from ...core.typing import Size

    Numbers = NDArray[np.int64]

CHUNK_BYTES = 16  # the most that a lane moves in one access
# Lanes of an asynchronous copy whose sectors are counted together. Measured on an H200 and an H100: 8 pieces of 16
# bytes that start in the middle of a sector count as 5 sectors, and fewer pieces as up to one more than they touch.
ASYNCHRONOUS_LANES = 8


@dataclass(frozen=True)
class Copy:
    """The layout of a copy: everything that decides its requests but the size of the tile."""

    together: int
    """Words of a row that a lane moves at once; 1 if rows are not made of whole 16 bytes."""
    columns: int
    """The words of a row that the block has room for."""
    rows: int
    """Consecutive rows that a team of threads copies, before the next team's rows follow."""
    threads: int
    """Threads of a team."""
    margin: int
    """The rows of a tile, filled up to so many; 0 if they are not filled up."""
    asynchronous: bool
    stride: int
    """Words from a row to the next in HBM."""
    width: int
    """Bytes of a word in HBM."""
    step: int
    """Every tile starts at a multiple of so many bytes of a sector from the start of its head."""
    heads: tuple[tuple[int, int], ...] = field(compare=False)  # the sectors of a tile do not depend on them
    """(bytes from the start of a sector to a head of the tensor, how many query heads read or write such a head). The
    array starts at a sector."""

    @classmethod
    def of(cls, p: Attention, tensor: Tensor, block: Block, place: Shape, plan: Plan, loads: bool) -> Self:
        """The copy of a block from or to a place in a tensor, in a launch with this plan."""
        width, (rows, columns) = p.hbm_bytes(tensor), plan.extents(block)
        columns = plan.extents(block.base or block)[1]
        whole = (block.base or block) in plan.whole
        together = words_together(p, tensor, block, place, columns)
        starts = [words_between(place[0]) * block_stride(place), *map(words_between, place[1:])]
        apart, heads = width * product(p.shape(tensor)), p.batch * p.kv_heads if tensor.shared else p.instances
        sharing, places = p.instances // heads, Tally[int]()
        for h in range(min(heads, SECTOR_BYTES)):  # places repeat after so many heads
            places[h * apart % SECTOR_BYTES] += sharing * len(range(h, heads, SECTOR_BYTES))
        return cls(
            together=together,
            columns=columns,
            rows=ALL_ROWS if whole else plan.rows,
            threads=plan.threads if whole else plan.team,
            margin=rows if loads and plan.tensor_cores else 0,
            asynchronous=loads and together > 1 and p.sram_type(block.tensor) == p.hbm_type(tensor),
            stride=row_stride(p, tensor),
            width=width,
            step=gcd(SECTOR_BYTES, width * gcd(*starts)),
            heads=tuple(places.items()),
        )

    @property
    def pieces(self) -> int:
        """The pieces of a row."""
        return -(-self.columns // self.together)

    def lanes_with_more(self, rows: int) -> Numbers:
        """For each row of a tile, how many lanes of its team have one more piece than the others; 0 if all have the
        same."""
        import numpy as np

        first = np.arange(rows)[:, None] // self.rows * self.rows
        return np.minimum(self.rows, max(rows, self.margin) - first) * self.pieces % self.threads

    def accesses(self, rows: int, columns: int, apart: bool = False) -> tuple[Numbers, Numbers]:
        """(number of its request, bytes from the start of the tile) of each access in a tile of this size.

        A request is one instruction of a warp: a piece of `together` words for each lane, one after the other in the
        team's rows. A piece is moved 16 bytes at a time, and what is left of a row word by word. `apart`: lanes that
        have one more piece than the others make requests of their own, as they do in a loop that the compiler unrolls.
        """
        import numpy as np

        together, pieces = self.together, self.pieces
        whole, unit = columns - columns % together, CHUNK_BYTES // self.width if together > 1 else 1
        kinds = [np.arange(0, whole, together) + k for k in range(0, together, unit)]  # one instruction each
        kinds += [np.array([y]) for y in range(whole, columns)]
        lanes = ASYNCHRONOUS_LANES if self.asynchronous else LANES
        row, turns = np.arange(rows)[:, None], -(-min(self.rows, rows) * pieces // lanes)
        more, requests, places = self.lanes_with_more(rows) if apart else 0, [], []
        for kind, column in enumerate(kinds):
            piece = row % self.rows * pieces + column // together
            request = (kind * rows + row // self.rows) * turns + piece // lanes
            requests.append((2 * request + (piece % self.threads < more)).ravel())
            places.append((row * self.stride + column).ravel() * self.width)
        return np.concatenate(requests), np.concatenate(places)

    def most_sectors(self, rows: int, columns: int) -> int:
        """The most sectors that the requests of such a tile touch in all heads together, wherever it starts in them."""
        return sum(times * _most_sectors(self, rows, columns, start % self.step) for start, times in self.heads)


@lru_cache(maxsize=4096)
def _most_sectors(copy: Copy, rows: int, columns: int, first: int) -> int:
    """The most sectors of a tile, wherever it starts: `first` bytes after the start of a sector, or steps later."""
    import numpy as np

    most, starts = 0, np.arange(first, SECTOR_BYTES, copy.step)[:, None]
    for apart in (False, True) if copy.lanes_with_more(rows).any() else (False,):
        requests, places = copy.accesses(rows, columns, apart)
        order = np.lexsort((places, requests))
        requests, places = requests[order], places[order]
        another = requests[1:] != requests[:-1]
        sectors = (places + starts) // SECTOR_BYTES
        touched = 1 + (another | (sectors[:, 1:] != sectors[:, :-1])).sum(axis=1)
        if copy.asynchronous:
            firsts = np.append(0, np.flatnonzero(another) + 1)
            few = np.diff(firsts, append=len(places)) < ASYNCHRONOUS_LANES
            touched += (few & ((places[firsts] + starts) % SECTOR_BYTES > 0)).sum(axis=1)
        most = max(most, int(touched.max()))
    return most


def words_together(p: Attention, tensor: Tensor, block: Block, place: Shape, columns: int) -> int:
    """The words that a copy moves at once: as many as fill 16 bytes in HBM and in the block, or one."""
    on_chip = CHUNK_BYTES // p.sram_bytes(block.tensor)
    wide = max(CHUNK_BYTES // p.hbm_bytes(tensor), on_chip)
    return wide if is_aligned(p, tensor, place) and columns % on_chip == 0 and columns % wide == 0 else 1


# ---------------------------------------------------------------- where tiles lie


def row_stride(p: Attention, tensor: Tensor) -> int:
    """Words from a row of a tensor to the next."""
    axes = p.shape(tensor)
    return axes[1] if len(axes) > 1 else 1


def block_stride(place: Shape) -> int:
    """Words from a row of the tensor of a place to the next."""
    if len(place) == 1:
        return 1
    last = place[1]
    return int(last.length if isinstance(last, Tile) else last)


def is_aligned(p: Attention, tensor: Tensor, place: Shape) -> bool:
    """Whether every row of every tile starts at a multiple of 16 bytes in HBM."""
    if len(place) == 1:
        return False
    width = p.hbm_bytes(tensor)
    last: Tile | Size | None = place[1]
    starts: list[int] = []
    while isinstance(last, SymbolicTile):
        starts, last = [*starts, last.step if last.step < int(last.length) else 0], last.parent
    if isinstance(last, Span) and not (isinstance(last, Seen) and not last.cut):
        return False
    return all(n * width % CHUNK_BYTES == 0 for n in (row_stride(p, tensor), *starts))


def words_between(tile: Tile | Size) -> int:
    """Each start of a tile is a multiple of so many positions of its axis; 0 if it always starts at the first."""
    if isinstance(tile, Share):
        return int(tile.each) * words_between(tile.tile)
    if isinstance(tile, Ends):
        return 1 if tile.last else words_between(tile.tile)
    if isinstance(tile, Each):
        return int(tile.every) * words_between(tile.tile)
    if isinstance(tile, UpTo):
        return words_between(tile.tile if tile.last_only else tile.share)
    if isinstance(tile, Moved):
        return gcd(*(int(factor) * (1 if isinstance(x, Block) else words_between(x)) for factor, x in tile.terms))
    if isinstance(tile, Seen) and tile.cut:
        return 1
    if isinstance(tile, Stretch):
        return int(tile.start)
    if isinstance(tile, SymbolicTile):
        parent = tile.parent
        if parent is not None and parent.from_end:
            return gcd(tile.step, tile.lead)
        most = int(tile.length if parent is None else parent.extent)
        return gcd(tile.step if tile.step < most else 0, 0 if parent is None else words_between(parent))
    return 0
