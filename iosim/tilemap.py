"""A mask as a map of tiles: the share of each tile's pairs that is visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import InputError
from .masks import parse_mask
from .problem import DENSE, Attention
from .tiling import Tiling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .typing import Mask

MOST_PAIRS = 2**28
MOST_TILES = 1024


@dataclass(frozen=True)
class TileMap:
    """`shares` (Tr, Tc), each from 0 (all hidden) to 1 (all visible), of tiles of `rows_q` x `rows_k` tokens."""

    title: str
    shares: NDArray[np.float64]
    rows_q: int
    rows_k: int


def tile_map(mask: str | Mask, N: int, Nk: int | None, tiling: Tiling) -> TileMap:
    """The map of a mask, by looking at every pair of queries and keys."""
    p = Attention(N, 1, Nk=N if Nk is None else Nk, mask=parse_mask(mask))
    rows, columns = range(0, p.N, tiling.rows_q), range(0, p.Nk, tiling.rows_k)
    if p.N * p.Nk > MOST_PAIRS or max(len(rows), len(columns)) > MOST_TILES:
        found = f"{p.N} x {p.Nk} tokens in {len(rows)} x {len(columns)} tiles"
        raise InputError("mask picture", found, f"at most {MOST_PAIRS} pairs and {MOST_TILES} tiles a side",
                         "try a smaller --N or larger --tiles")  # fmt: skip
    shares = np.ones((len(rows), len(columns))) if p.mask is DENSE else visible_shares(p, tiling)
    active = int((shares > 0).sum())
    title = f"{p.mask}, N = {p.N}, Nk = {p.Nk}, tiles {tiling.rows_q}x{tiling.rows_k}: "
    title += f"{active} of {shares.size} tiles active ({active / shares.size:.1%})"
    return TileMap(title, shares, min(tiling.rows_q, p.N), min(tiling.rows_k, p.Nk))


def visible_shares(p: Attention, tiling: Tiling) -> NDArray[np.float64]:
    """The visible share of every tile; the problem's mask is not dense."""
    bound = p.mask.bind(p, tiling, True)
    rows, columns = range(0, p.N, tiling.rows_q), range(0, p.Nk, tiling.rows_k)
    shares = np.empty((len(rows), len(columns)))
    for i, start in enumerate(rows):  # one row of tiles at a time, so that memory does not grow with N^2
        height = min(tiling.rows_q, p.N - start)
        seen = bound.visible(start, height, 0, p.Nk).sum(axis=0)
        shares[i] = np.add.reduceat(seen, columns) / (height * np.diff([*columns, p.Nk]))
    return shares
