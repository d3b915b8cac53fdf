"""Masks under which each row sees an interval of keys, as documents: their visits, without a look at each pair."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ..core.tiling import Tiling
from ..errors import InputError
from ..masks.reach import Ends, ends_of_rows
from ..masks.visible import visible

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.problem import Attention
    from ..masks.mask import BoundMask

    Positions = NDArray[np.int64]

MOST_ENDS = 2**23  # tokens x GPUs: each GPU's rows are looked at for the keys of each GPU. Pairs of tokens fit in int64


def intervals_of(p: Attention, ranks: int) -> Ends | None:
    """For each query the first key that it sees and the key after the last one, if it sees all keys between; None for
    another mask, or for more tokens and GPUs than can be looked at."""
    if max(p.N, p.Nk) * ranks > MOST_ENDS:
        return None
    return _intervals(p)


@lru_cache(maxsize=16)
def _intervals(p: Attention) -> Ends | None:
    try:
        found = ends_of_rows(cast("BoundMask", p.mask.bind(p, Tiling(1, 1))))
        seen = visible(p.mask, p.N, p.Nk, None)
    except InputError:  # a mask that is looked at pair by pair, with too many pairs
        return None
    return found if int((found.last - found.first).clip(0).sum()) == seen.pairs + seen.any_rows - seen.rows else None


def visit_of(ends: Ends, rows: Positions, keys: Positions) -> tuple[int, int, int]:
    """(rows that see a key, keys that a row sees, visible pairs) of tokens at these positions, in rising order."""
    import numpy as np

    first, last = (np.searchsorted(keys, end[rows]) for end in ends)
    seen = last > first
    return int(seen.sum()), int(union(first[seen], last[seen], len(keys)).sum()), int((last - first)[seen].sum())


def union(first: Positions, last: Positions, length: int) -> NDArray[np.bool_]:
    """Booleans of `length` positions, True where any of the intervals from `first` to before `last` is."""
    import numpy as np

    steps = np.bincount(first, minlength=length + 1) - np.bincount(last, minlength=length + 1)
    return np.cumsum(steps)[:length] > 0


def seen_on_mesh(ends: Ends, p: Attention, ranks: int, columns: int) -> tuple[int, int]:
    """(rows, keys) that are needed on other GPUs of a mesh, as `mesh_counts` of needed.py has them."""
    import numpy as np

    n, nk, own = p.N // ranks, p.Nk // ranks, np.arange(ranks)
    sees = ends.last > ends.first
    lo, hi = ends.first[sees] // nk, (ends.last[sees] - 1) // nk  # GPUs that have the first and the last key
    mine = np.repeat(own % columns, n)[sees]
    rows = np.minimum(columns, hi - lo + 1) - ((mine - lo) % columns <= hi - lo)
    keys = 0
    for row in range(ranks // columns):
        part = slice(row * columns * n, (row + 1) * columns * n)
        first, last = ends.first[part][sees[part]], ends.last[part][sees[part]]
        keys += int((union(first, last, p.Nk) & np.repeat(own // columns != row, nk)).sum())
    return int(rows.sum()), keys
