"""Exact numbers of visible pairs, rows and keys of a mask, apart for queries that see two keys or more.

A query that sees one key has p = 1 and needs no score, so floors (counting/floors.py) leave its pair out.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.problem import DENSE, Attention
from ..errors import InputError

if TYPE_CHECKING:
    from ..core.tiling import Tiling
    from ..core.typing import Mask as AnyMask
    from .mask import BoundMask, Mask

MOST_PAIRS = 2**30  # looked at one by one: some seconds


class Visible(NamedTuple):
    """What the queries of one head see. `pairs`, `rows` and `keys` are of the queries that see two keys or more: the
    pairs, the queries, and the keys that any of them sees. `any_rows` and `any_keys` are of all queries."""

    pairs: int
    rows: int
    keys: int
    any_rows: int
    any_keys: int


def visible(mask: AnyMask, N: int, Nk: int, tiling: Tiling | None = None) -> Visible:
    """The exact numbers of a mask over N queries and Nk keys.

    InputError if the mask depends on tiles and `tiling` is None, or if counting would take too long.
    """
    if mask is DENSE:
        return Visible(N * Nk, N, Nk, N, Nk) if Nk > 1 else Visible(0, 0, 0, N, Nk)
    from .expression import Atom, atoms
    from .visible_intervals import by_interval

    found = cast("Mask", mask)
    files = [atom for atom in atoms(found.expr) if atom.file]
    by_tiles = any(atom.tiles or (atom.file and atom.file.data.shape != (N, Nk)) for atom in atoms(found.expr))
    if by_tiles and tiling is None:
        raise InputError("--mask", found.text, "a mask of tokens", "what a mask of tiles hides depends on the tiles")
    if by_tiles or files:
        return by_pair(found, N, Nk, tiling)
    if isinstance(found.expr, Atom) and found.expr.kind == "strided":
        return of_stride(found.expr.size, N, Nk)
    return Visible(*by_interval(found.expr, N, Nk))


def of_stride(size: int, N: int, Nk: int) -> Visible:
    """The numbers of `strided`: query x sees the keys y with y = x modulo `size`."""
    cuts = sorted({0, size, N % size, Nk % size})
    numbers = [0] * 5
    for low, high in pairwise(cuts):  # residues with equally many queries and equally many keys
        rows, keys = N // size + (low < N % size), Nk // size + (low < Nk % size)
        several, one = keys > 1, keys > 0 < rows
        more = (several * rows * keys, several * rows, several * one * keys, one * rows, one * keys)
        numbers = [n + (high - low) * m for n, m in zip(numbers, more, strict=True)]
    return Visible(*numbers)


def by_pair(mask: Mask, N: int, Nk: int, tiling: Tiling | None) -> Visible:
    """The same numbers by looking at every pair of tokens."""
    import numpy as np

    from ..core.tiling import Tiling
    from .mask import CHUNK

    if N * Nk > MOST_PAIRS:
        raise InputError("--mask", mask.text, f"at most {MOST_PAIRS} pairs of tokens to look at one by one")
    bound: BoundMask = mask.bind(Attention(N, 1, Nk), tiling or Tiling(1, 1))
    pairs = rows = any_rows = 0
    keys, any_keys = np.zeros(Nk, bool), np.zeros(Nk, bool)
    chunk = max(1, CHUNK // Nk)
    for x in range(0, N, chunk):
        part = bound.visible(x, min(chunk, N - x), 0, Nk)
        each = part.sum(axis=1)
        several = each > 1
        pairs, rows = pairs + int(each[several].sum()), rows + int(several.sum())
        any_rows += int((each > 0).sum())
        keys |= part[several].any(axis=0)
        any_keys |= part.any(axis=0)
    return Visible(pairs, rows, int(keys.sum()), any_rows, int(any_keys.sum()))
