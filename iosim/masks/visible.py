"""Exact numbers of visible pairs, rows and keys of a mask, counted separately for queries that see two keys or more.

A query that sees only one key has p = 1 and needs no score. So floors (counting/floors.py) leave its pair out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..errors import InputError
from .closed_form import Visible
from .seen import of_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.mask_types import Mask as AnyMask
    from .files import MaskFile
    from .mask import BoundMask, Mask
    from .seen import Ranges

MOST_VISIBLE_PAIRS = 2**26  # looked at one by one: about a second


def visible(mask: AnyMask, N: int, Nk: int, tiling: Tiling | None = None) -> Visible:
    """What the queries of a mask over N queries and Nk keys see, exactly.

    InputError if the mask depends on tiles and `tiling` is None, or if counting would take too long.
    """
    if mask is DENSE:
        return Visible(N * Nk, N, Nk, N, Nk) if Nk > 1 else Visible(0, 0, 0, N, Nk)
    return of_mask(cast("Mask", mask), N, Nk, tiling)


@lru_cache(maxsize=1024)
def of_mask(found: Mask, N: int, Nk: int, tiling: Tiling | None) -> Visible:
    """What the queries see under any mask but the dense one."""
    from .expression import Atom, atoms, check_lengths, unit

    check_lengths(found.expr, N, Nk)
    if isinstance(found.expr, Atom) and found.expr.file and found.expr.file.block:
        return by_block(found, found.expr.file, N, Nk)
    by_tiles = any(atom.tiles or (atom.file and not atom.file.fits(N, Nk)) for atom in atoms(found.expr))
    if by_tiles and tiling is None:
        raise InputError("--mask", found.text, "a mask of tokens", "what a mask of tiles hides depends on the tiles")
    if by_tiles or unit(found.expr) == "mixed":
        return by_pair(found, N, Nk, tiling)
    return of_tokens(found.expr, N, Nk)


def key_ranges(mask: AnyMask, N: int, Nk: int) -> tuple[Ranges, Ranges]:
    """The keys that queries see, as ranges (first, last): those of queries that see two or more, and all."""
    from .expression import unit
    from .seen import key_runs

    found = cast("Mask", mask)
    if unit(found.expr) == "tokens":
        return key_runs(found.expr, N, Nk)
    import numpy as np

    several, every = np.zeros(Nk, bool), np.zeros(Nk, bool)
    for _, part in found.bind(Attention(N, 1, Nk), Tiling(1, 1)).parts():
        several |= part[part.sum(axis=1) > 1].any(axis=0)
        every |= part.any(axis=0)
    return ranges_of(several), ranges_of(every)


def ranges_of(keys: NDArray[np.bool_]) -> Ranges:
    """The ranges (first, last) of the keys that are marked."""
    import numpy as np

    edges = np.flatnonzero(np.diff(np.pad(keys.astype(np.int8), 1)))
    return list(zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True))


def by_block(mask: Mask, file: MaskFile, N: int, Nk: int) -> Visible:
    """What the queries of a block mask see, with one look at each of its blocks."""
    from .expression import Atom
    from .mask import Mask

    mask.bind(Attention(N, 1, Nk), Tiling(N, Nk))  # InputError if the blocks are not those of N x Nk tokens
    rows, keys = file.size
    blocks = Mask(mask.text, Atom("file", replace(file, block=None)))
    height, width = file.block or (1, 1)
    return looked_at(blocks.bind(Attention(rows, 1, keys), Tiling(1, 1)), (N, height), (Nk, width))


def by_pair(mask: Mask, N: int, Nk: int, tiling: Tiling | None) -> Visible:
    """What the queries of a mask see, from every pair of tokens, or of tiles if all atoms count tiles."""
    bound: BoundMask = mask.bind(Attention(N, 1, Nk), tiling or Tiling(1, 1))
    if bound.unit != "tiles":
        return looked_at(bound, (N, 1), (Nk, 1))
    in_tiles = replace(bound, N=bound.Tr, Nk=bound.Tc, rows_q=1, rows_k=1)
    return looked_at(in_tiles, (N, bound.rows_q), (Nk, bound.rows_k))


def looked_at(bound: BoundMask, queries: tuple[int, int], keys_of: tuple[int, int]) -> Visible:
    """What queries see, from every entry of a bound mask's table. A row stands for a tile of the queries, and a column
    for one of the keys: each of the two is given as (their number, those of a tile)."""
    import numpy as np

    if bound.N * bound.Nk > MOST_VISIBLE_PAIRS:
        raise InputError("--mask", str(bound), f"at most {MOST_VISIBLE_PAIRS} pairs of tokens to look at one by one")
    heights, widths = sizes_of(*queries), sizes_of(*keys_of)
    heights = heights.astype(np.int64 if queries[0] * keys_of[0] < 2**63 else object)  # no sum is above N x Nk
    pairs = rows = any_rows = 0
    keys, any_keys = np.zeros(bound.Nk, bool), np.zeros(bound.Nk, bool)
    for x, part in bound.parts():
        high = heights[x : x + len(part)]
        each = part @ widths
        several = each > 1
        pairs, rows = pairs + int((each * high)[several].sum()), rows + int(high[several].sum())
        any_rows += int(high[each > 0].sum())
        keys |= part[several].any(axis=0)
        any_keys |= part.any(axis=0)
    return Visible(pairs, rows, int(widths[keys].sum()), any_rows, int(widths[any_keys].sum()))


def sizes_of(length: int, size: int) -> NDArray[np.int64]:
    """The sizes of the tiles of an axis."""
    import numpy as np

    starts = np.arange(0, length, size)
    return np.minimum(size, length - starts)
