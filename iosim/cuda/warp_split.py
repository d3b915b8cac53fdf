"""How generated kernels divide tiles among warps and lanes: the same rules as cuda/mma.cuh, cuda/products.cuh and steps/softmax.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ..core.machine import Block, Tile
from ..core.shapes import product

LANES = 32
MMA = 16  # rows, columns and depth of a product on tensor cores; two columns of them are under way together (cuda/mma.cuh)
KEYS_HELD = (
    128,
    64,
    32,
    16,
)  # of P in registers: all up to 128, else of these the largest that divides them (cuda/mma.cuh)
GROUP_ROWS, GROUP_WORDS = (
    4,
    4,
)  # of the output for a lane, without tensor cores; `scores` has one column (cuda/products.cuh)
WHOLE_TURNS = 4  # of a loop, at least, before a smaller last one: it is written twice then (cuda/expressions.py)
TEAM_ROWS, LEAST_ROWS, FEW_ROWS = 8, 16, 4  # of a warp; of a tile for that; below the last, all threads share a row


def full(axis: Tile | int) -> int:
    """The length of a whole tile of this axis; the last tile may be shorter."""
    if not isinstance(axis, Tile):
        return int(axis)
    first, last = not axis.index, axis.start + axis.size >= axis.length
    if first or not last or axis.start % axis.index:  # the third: a part of a part
        return int(axis.size)
    return int(axis.start // axis.index)


def unsized(*blocks: object) -> bool:
    """Whether the compiler does not know the size of a tile: the last one is smaller, and the loop is written once."""
    return any(x.length % full(x) and x.length // full(x) < WHOLE_TURNS for x in tiles_of(blocks))


def padded(step: int, *blocks: object) -> tuple[int, int]:
    """(words with every ragged tile rounded up to whole tiles and to `step`, words in use): their ratio is the extra
    work of kernels that compute ragged tiles whole."""
    tiles = set(tiles_of(blocks))
    return product(-(-full(x) // step) * step for x in tiles), product(x.size for x in tiles)


def tiles_of(blocks: tuple[object, ...]) -> Iterator[Tile]:
    """The tiles in the shapes of blocks; other arguments of a step have none."""
    return (x for block in blocks for x in getattr(block, "shape", ()) if isinstance(x, Tile))


def keys_held(keys: int) -> int:
    """Keys of a tile of P that `accumulate` holds in registers at a time."""
    keys = -(-keys // MMA) * MMA
    return keys if keys <= KEYS_HELD[0] else next(n for n in KEYS_HELD if keys % n == 0)


def times_read(keys: int) -> int:
    """How often `accumulate` reads and writes its output: once for each group of keys of P that it holds."""
    return -(-keys // keys_held(keys))


def words_of_lanes(output: Block, single: bool, warps: int) -> tuple[int, int]:
    """(words computed, idle lanes of busy warps included; the same with idle warps) for a product without tensor
    cores. `single`: a lane has one column, else GROUP_WORDS."""
    shape = (*output.shape, 1)[:2]  # a vector has one column
    rows, columns = (int(x.size if isinstance(x, Tile) else x) for x in shape)
    most, wide = full(shape[0]), 1 if single else GROUP_WORDS
    own = TEAM_ROWS if most >= LEAST_ROWS else 1 if most >= FEW_ROWS else most
    group = 1 if LEAST_ROWS > most >= FEW_ROWS else GROUP_ROWS
    room, used = -(-full(shape[1]) // wide), -(-columns // wide)
    parts = [(rows // own, own), (1, rows % own)]

    def words(lanes: int) -> int:
        turns = sum(teams * busy_turns(-(-each // group), room, used, lanes) for teams, each in parts)
        return int(turns * lanes * group * wide)

    return words(LANES), words(LANES if most >= FEW_ROWS else LANES * warps)


@cache
def busy_turns(groups: int, room: int, used: int, lanes: int) -> int:
    """Turns in which at least one lane has something to do. `lanes` go over the pieces of `groups` of rows; each group
    has `room` pieces, of which the first `used` are in use."""
    return len({piece // lanes for group in range(groups) for piece in range(group * room, group * room + used)})


def row_parts(block: Block, together: int) -> tuple[int, int]:
    """(rows that a warp has at a time, words of a row that its lanes go over). Four lanes share a row; more do where a
    row is longer than 4 pieces a lane, or where the warp has few rows (steps/softmax.cuh)."""
    rows, columns = map(full, block.shape)
    lanes = 4 if rows >= LEAST_ROWS else LANES
    while lanes < LANES and lanes * 4 * together < columns:
        lanes *= 2
    turn = lanes * together
    return LANES // lanes, -(-columns // turn) * turn


def uneven(block: Block, warps: int, tensor_cores: bool) -> float:
    """Rows of the busiest warp in a product, over an even share.

    Rows go to warps in teams, in turn. Without tensor cores 96 rows are 12 teams: 4 of 8 warps have two. Where a tile
    has few rows, all threads share each.
    """
    most, rows = full(block.shape[0]), block.shape[0]
    if most < FEW_ROWS:
        return 1.0
    count = rows.size if isinstance(rows, Tile) and not tensor_cores else most
    teams = -(-count // rows_of_team(most, tensor_cores))
    return float(-(-teams // warps) * warps / teams)


def rows_of_team(most: int, tensor_cores: bool) -> int:
    """Consecutive rows that one warp has, in a tile of `most` rows (at least FEW_ROWS)."""
    return MMA if tensor_cores else TEAM_ROWS if most >= LEAST_ROWS else 1


def busiest_rows(block: Block, warps: int, tensor_cores: bool, at_once: int = 1) -> float:
    """Rows of the busiest warp in a step over rows, rounded up to whole turns of `at_once` rows.

    Rows go to warps in teams, but only the rows that a ragged tile has: 10 rows are one warp's.
    """
    most, rows = full(block.shape[0]), int(getattr(block.shape[0], "size", block.shape[0]))
    if most < FEW_ROWS:
        return float(rows / warps)
    own = rows_of_team(most, tensor_cores)
    return float(sum(-(-min(own, rows - first) // at_once) * at_once for first in range(0, rows, own * warps)))
