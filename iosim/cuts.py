"""How generated kernels cut tiles into what warps and lanes do: as mma.cuh, products.cuh and steps.cuh have it."""

from __future__ import annotations

from functools import cache
from typing import Any

from .machine import Block, Tile
from .shapes import product

LANES = 32
MMA = 16  # rows, columns and depth of a product on tensor cores; two columns of them are under way together (mma.cuh)
KEYS_HELD = (128, 64, 32, 16)  # of P in registers: all up to 128, else of these the largest that divides them (mma.cuh)
GROUP_ROWS, GROUP_WORDS = 4, 4  # of the output for a lane, without tensor cores; `scores` has one column (products.cuh)
WHOLE_TURNS = 4  # of a loop, at least, before a smaller last one: it is written twice then (gpu/expressions.py)
TEAM_ROWS, LEAST_ROWS, FEW_ROWS = 8, 16, 4  # of a warp; of a tile for that; below the last, all threads share a row


def full(x: Any) -> int:
    """How long the tiles of this axis are; the last one may be shorter."""
    if not isinstance(x, Tile):
        return int(x)
    if not x.index or x.start + x.size < x.length or x.start % x.index:  # first, not the last, or a part of a part
        return int(x.size)
    return int(x.start // x.index)


def unsized(*blocks: Any) -> bool:
    """Whether the compiler does not know the size of a tile: the last one is smaller, and the loop is written once."""
    tiles = {x for block in blocks for x in getattr(block, "shape", ()) if isinstance(x, Tile)}
    return any(x.length % full(x) and x.length // full(x) < WHOLE_TURNS for x in tiles)


def whole(step: int, *blocks: Any) -> tuple[int, int]:
    """How much more is computed where ragged tiles are computed whole, in steps of so many, as a fraction."""
    tiles = {x for block in blocks for x in getattr(block, "shape", ()) if isinstance(x, Tile)}
    return product(-(-full(x) // step) * step for x in tiles), product(x.size for x in tiles)


def keys_held(keys: int) -> int:
    """Keys of a tile of P that `accumulate` holds in registers at a time."""
    keys = -(-keys // MMA) * MMA
    return keys if keys <= KEYS_HELD[0] else next(n for n in KEYS_HELD if keys % n == 0)


def passes(keys: int) -> int:
    """How often `accumulate` reads and writes its output: once for the keys of P that are held."""
    return -(-keys // keys_held(keys))


def words_of_lanes(output: Block, single: bool, warps: int) -> tuple[int, int]:
    """Words of a product without tensor cores, with those for which lanes of busy warps only wait, and then of all
    warps that share the rows. `single`: one column a lane."""
    rows, columns = (int(x.size if isinstance(x, Tile) else x) for x in output.shape)
    most, wide = full(output.shape[0]), 1 if single else GROUP_WORDS
    own = TEAM_ROWS if most >= LEAST_ROWS else 1 if most >= FEW_ROWS else most
    group = 1 if LEAST_ROWS > most >= FEW_ROWS else GROUP_ROWS
    room, used = -(-full(output.shape[1]) // wide), -(-columns // wide)
    parts = [(rows // own, own), (1, rows % own)]

    def words(lanes: int) -> int:
        turns = sum(teams * busy_turns(-(-each // group), room, used, lanes) for teams, each in parts)
        return int(turns * lanes * group * wide)

    return words(LANES), words(LANES if most >= FEW_ROWS else LANES * warps)


@cache
def busy_turns(groups: int, room: int, used: int, lanes: int) -> int:
    """Turns of so many lanes over the pieces of some groups of rows, `used` of `room` in each, that meet a used one."""
    return len({piece // lanes for group in range(groups) for piece in range(group * room, group * room + used)})


def row_parts(block: Block, together: int) -> tuple[int, int]:
    """Rows that a warp has at a time, and the words of one that its lanes go over: four lanes a row, more where a row
    is longer than 4 pieces a lane, or where the warp has few rows (steps.cuh)."""
    rows, columns = map(full, block.shape)
    lanes = 4 if rows >= LEAST_ROWS else LANES
    while lanes < LANES and lanes * 4 * together < columns:
        lanes *= 2
    turn = lanes * together
    return LANES // lanes, -(-columns // turn) * turn


def uneven(block: Block, warps: int, tensor_cores: bool) -> float:
    """Of a product. Rows go to warps in teams, in turn: what the busiest warp has, over an even share. (Without tensor
    cores 96 rows are 12 teams: 4 of 8 warps have two.) Where a tile has few rows, all threads share each."""
    most, rows = full(block.shape[0]), block.shape[0]
    if most < FEW_ROWS:
        return 1.0
    count = rows.size if isinstance(rows, Tile) and not tensor_cores else most
    teams = -(-count // rows_of_team(most, tensor_cores))
    return float(-(-teams // warps) * warps / teams)


def rows_of_team(most: int, tensor_cores: bool) -> int:
    """Of a tile of so many rows, at least FEW_ROWS."""
    return MMA if tensor_cores else TEAM_ROWS if most >= LEAST_ROWS else 1


def busiest_rows(block: Block, warps: int, tensor_cores: bool, at_once: int = 1) -> float:
    """Of a step on rows: those of the warp that has most, which it goes over so many at a time. They go to warps in
    teams, too, but only those that a ragged tile has: 10 rows are one warp's."""
    most, rows = full(block.shape[0]), int(product(x.size if isinstance(x, Tile) else x for x in block.shape[:1]))
    if most < FEW_ROWS:
        return float(rows / warps)
    own = rows_of_team(most, tensor_cores)
    return float(sum(-(-min(own, rows - first) // at_once) * at_once for first in range(0, rows, own * warps)))
