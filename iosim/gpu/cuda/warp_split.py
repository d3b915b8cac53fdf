"""The division of a tile's rows and words among warps and lanes in generated kernels.

The rules are those of the CUDA: cuda/mma.cuh, cuda/products.cuh and steps/softmax.cuh. Predictions of time read them
here. All sizes are those of one problem, in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from ...core.machine import Block
from ...core.shapes import Tile, product
from ...core.tiling import MMA

if TYPE_CHECKING:
    from ...core.typing import Size

LANES = 32  # threads of a warp

# Tensor cores (cuda/mma.cuh): where the columns allow it, a warp works on two products side by side.
KEYS_HELD = (128, 64, 32, 16)  # P in registers: up to 128 keys whole, else in parts, the largest of these that divides

# Products without tensor cores (cuda/products.cuh).
GROUP_ROWS, GROUP_WORDS = 4, 4  # of the output that one lane computes; in `scores` it is one column

# Rows of a warp: TEAM_ROWS consecutive rows if the tile has at least LEAST_ROWS, else one row at a time. All threads
# share each row of a tile with fewer than FEW_ROWS.
TEAM_ROWS, LEAST_ROWS, FEW_ROWS = 8, 16, 4

# A loop with a smaller last tile is written twice if it has at least this many whole tiles (cuda/expressions.py).
WHOLE_TURNS = 4


def full(axis: Tile | Size) -> int:
    """The size of a whole tile of this axis; the last tile may be smaller. A length is itself."""
    if not isinstance(axis, Tile):
        return int(axis)
    first, last = not axis.index, axis.start + axis.size >= axis.length
    if first or not last or axis.start % axis.index:  # the third: a tile of a part of an axis
        return axis.size
    return axis.start // axis.index


def used(axis: Tile | Size) -> int:
    """The positions that a tile of this axis really has. A length is itself."""
    return axis.size if isinstance(axis, Tile) else int(axis)


def unsized(*blocks: object) -> bool:
    """Whether the compiler does not know the size of some tile, because the last one is smaller and the loop is
    written once."""
    sizes = ((int(x.length), full(x)) for x in tiles_in_shapes(blocks))
    return any(length % size and length // size < WHOLE_TURNS for length, size in sizes)


def padded(step: int, *blocks: object) -> tuple[int, int]:
    """(words with each axis rounded up to a whole tile and to a multiple of `step`, words in use).

    The axes are all that the tiles of the blocks name, each once. The ratio of the two is the extra work of a kernel
    that computes ragged tiles whole.
    """
    tiles = set(tiles_in_shapes(blocks))
    return product(-(-full(x) // step) * step for x in tiles), product(x.size for x in tiles)


def tiles_in_shapes(blocks: tuple[object, ...]) -> Iterator[Tile]:
    """The tiles in the shapes of blocks; other arguments of a step have none."""
    return (x for block in blocks for x in getattr(block, "shape", ()) if isinstance(x, Tile))


def keys_held(keys: int) -> int:
    """Keys of a tile of P that `accumulate` holds in registers at a time."""
    keys = -(-keys // MMA) * MMA
    return keys if keys <= KEYS_HELD[0] else next(n for n in KEYS_HELD if keys % n == 0)


def times_read(keys: int) -> int:
    """The number of times that `accumulate` reads and writes its output: once for each part of P that it holds in
    registers."""
    return -(-keys // keys_held(keys))


def words_of_lanes(output: Block, single: bool, warps: int) -> tuple[int, int]:
    """(words of all lanes of busy warps, words of all lanes of the block) in a product without tensor cores.

    A step of a warp takes the same time if only one of its lanes has a word. So idle lanes count. If all threads share
    each row, idle warps count in the second number as well. With `single` a lane has one column at a time, else
    GROUP_WORDS.
    """
    shape = (*output.shape, 1)[:2]  # a vector has one column
    rows, columns = map(used, shape)
    most, wide = full(shape[0]), 1 if single else GROUP_WORDS
    own = TEAM_ROWS if most >= LEAST_ROWS else 1 if most >= FEW_ROWS else most
    group = 1 if LEAST_ROWS > most >= FEW_ROWS else GROUP_ROWS
    room, filled = -(-full(shape[1]) // wide), -(-columns // wide)
    parts = [(rows // own, own), (1, rows % own)]

    def words(lanes: int) -> int:
        turns = sum(teams * busy_turns(-(-each // group), room, filled, lanes) for teams, each in parts)
        return turns * lanes * group * wide

    return words(LANES), words(LANES if most >= FEW_ROWS else LANES * warps)


@cache
def busy_turns(groups: int, room: int, filled: int, lanes: int) -> int:
    """Turns in which at least one lane has something to do.

    In each turn every one of the `lanes` takes one piece. There are `groups` of `room` pieces. Only the first `filled`
    pieces of each group hold words of the tile.
    """
    return len({piece // lanes for group in range(groups) for piece in range(group * room, group * room + filled)})


def row_parts(block: Block, together: int) -> tuple[int, int]:
    """(rows that a warp works on at a time, words of a row rounded up to whole turns of its lanes).

    Four lanes share a row. More lanes share it if each of the four would have more than 4 pieces of `together` words. A
    whole warp shares it if the tile has fewer than LEAST_ROWS rows (steps/softmax.cuh).
    """
    rows, columns = map(full, block.shape)
    lanes = 4 if rows >= LEAST_ROWS else LANES
    while lanes < LANES and lanes * 4 * together < columns:
        lanes *= 2
    turn = lanes * together
    return LANES // lanes, -(-columns // turn) * turn


def uneven(block: Block, warps: int, tensor_cores: bool) -> float:
    """The rows of the busiest warp in a product over an even share; 1 if all threads share each row.

    Rows go to warps in teams, in turn. Without tensor cores 96 rows are 12 teams of 8 rows. Then 4 of 8 warps have two
    teams.
    """
    most = full(block.shape[0])
    if most < FEW_ROWS:
        return 1.0
    count = most if tensor_cores else used(block.shape[0])
    teams = -(-count // rows_of_team(most, tensor_cores))
    return -(-teams // warps) * warps / teams


def rows_of_team(most: int, tensor_cores: bool) -> int:
    """Consecutive rows that one warp owns in a tile of `most` rows, which are at least FEW_ROWS."""
    return MMA if tensor_cores else TEAM_ROWS if most >= LEAST_ROWS else 1


def busiest_rows(block: Block, warps: int, tensor_cores: bool, at_once: int = 1) -> float:
    """Rows of the busiest warp in a step over rows, rounded up to whole turns of `at_once` rows.

    Warps own the rows of whole tiles, in teams. So on tensor cores one warp has all 10 rows of a ragged tile of 16.
    """
    most, rows = full(block.shape[0]), used(block.shape[0])
    if most < FEW_ROWS:
        return rows / warps
    own = rows_of_team(most, tensor_cores)
    return float(sum(-(-min(own, rows - first) // at_once) * at_once for first in range(0, rows, own * warps)))
