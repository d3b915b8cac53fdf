"""A mask as a map of tiles: what share of each tile's pairs is visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import InputError
from .experiment import parse_mask
from .machine import Tile
from .problem import DENSE, Attention
from .tiling import Tiling

MOST_PAIRS = 2**28
MOST_TILES = 1024


@dataclass(frozen=True)
class TileMap:
    """`shares` (Tr, Tc), from 0 (left out) to 1 (whole), of tiles of `rows_q` x `rows_k` tokens."""

    title: str
    shares: Any
    rows_q: int
    rows_k: int


def tile_map(mask: Any, N: int, Nk: int | None, tiling: Tiling) -> TileMap:
    """Looks at every pair of queries and keys."""
    p = Attention(N, 1, Nk=N if Nk is None else Nk, mask=parse_mask(mask))
    rows, columns = range(0, p.N, tiling.rows_q), range(0, p.Nk, tiling.rows_k)
    if p.N * p.Nk > MOST_PAIRS or max(len(rows), len(columns)) > MOST_TILES:
        found = f"{p.N} x {p.Nk} tokens in {len(rows)} x {len(columns)} tiles"
        raise InputError("mask picture", found, f"at most {MOST_PAIRS} pairs and {MOST_TILES} tiles a side",
                         "try a smaller --N or larger --tiles")  # fmt: skip
    if p.mask is DENSE:
        shares = np.ones((len(rows), len(columns)))
    else:
        bound = p.mask.bind(p, tiling, True)
        shares = np.empty((len(rows), len(columns)))
        for i, start in enumerate(rows):  # a line of tiles at a time, so that memory does not grow with N^2
            line = Tile(p.N, min(tiling.rows_q, p.N - start), start, i)
            seen = bound.visible(start, line.size, 0, p.Nk).sum(axis=0)
            shares[i] = np.add.reduceat(seen, columns) / (line.size * np.diff([*columns, p.Nk]))
    tile = min(tiling.rows_q, p.N), min(tiling.rows_k, p.Nk)
    active = int((shares > 0).sum())
    title = f"{p.mask}, N = {p.N}, Nk = {p.Nk}, tiles {tiling.rows_q}x{tiling.rows_k}: "
    return TileMap(title + f"{active} of {shares.size} tiles active ({active / shares.size:.1%})", shares, *tile)
