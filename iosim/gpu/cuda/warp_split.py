"""The division of a tile's rows among warps in generated kernels: the rules of cuda/mma.cuh and cuda/products.cuh."""

from __future__ import annotations

from ...core.tiling import MMA

LANES = 32  # threads of a warp

# Tensor cores (cuda/mma.cuh): where the columns allow it, a warp works on two products side by side.
KEYS_HELD = (128, 64, 32, 16)  # P in registers: up to 128 keys whole, else in parts, the largest of these that divides

# Rows of a warp: TEAM_ROWS consecutive rows if the tile has at least LEAST_ROWS, else one row at a time. All threads
# share each row of a tile with fewer than FEW_ROWS.
TEAM_ROWS, LEAST_ROWS, FEW_ROWS = 8, 16, 4

# A loop with a smaller last tile is written twice if it has at least this many whole tiles (cuda/expressions.py).
WHOLE_TURNS = 4


def keys_held(keys: int) -> int:
    """Keys of a tile of P that `accumulate` holds in registers at a time."""
    keys = -(-keys // MMA) * MMA
    return keys if keys <= KEYS_HELD[0] else next(n for n in KEYS_HELD if keys % n == 0)
