"""Exact numbers of visible pairs, rows and keys of a mask, counted separately for queries that see two keys or more.

A query that sees only one key has p = 1 and needs no score. So floors (counting/floors.py) leave its pair out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.mask_types import Mask as AnyMask
    from .closed_form import Strip
    from .files import MaskFile
    from .mask import BoundMask, Mask
    from .pieces import Pieces, Whole

MOST_VISIBLE_PAIRS = 2**26  # looked at one by one: about a second


class Visible(NamedTuple):
    """What the queries of one head see.

    `rows` is the number of queries that see two keys or more, `pairs` the number of pairs that they see, and `keys` the
    number of keys that any of them sees. `any_rows` and `any_keys` are the numbers of queries that see a key, and of
    keys that any query sees.
    """

    pairs: int
    rows: int
    keys: int
    any_rows: int
    any_keys: int


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
    from .atoms import Stripes
    from .closed_form import strip_of
    from .expression import Atom, atoms, check_lengths, unit

    check_lengths(found.expr, N, Nk)
    if isinstance(found.expr, Atom) and found.expr.file and found.expr.file.block:
        return by_block(found, found.expr.file, N, Nk)
    by_tiles = any(atom.tiles or (atom.file and not atom.file.fits(N, Nk)) for atom in atoms(found.expr))
    if by_tiles and tiling is None:
        raise InputError("--mask", found.text, "a mask of tokens", "what a mask of tiles hides depends on the tiles")
    if by_tiles or unit(found.expr) == "mixed":
        return by_pair(found, N, Nk, tiling)
    if isinstance(found.expr, Atom) and isinstance(found.expr.shape, Stripes):
        return of_stride(found.expr.shape.size, N, Nk)
    strip = strip_of(found.expr, N, Nk, Nk - N)
    return by_interval(found, N, Nk) if strip is None else of_strip(strip, N, Nk)


def of_strip(strip: Strip, N: int, Nk: int) -> Visible:
    """What the queries see under low <= y - x <= high. Of a query that sees two keys or more, each but the last one
    is followed by another: those are what a strip of one diagonal less shows of one key less."""
    from .closed_form import Axis, Strip, strip_counts

    every = strip_counts(strip, Axis(N, 1, 0), Axis(Nk, 1, 0))
    pairs, any_rows, any_keys = (int(sum(part.values())) for part in every)
    if Nk == 1 or strip.low == strip.high:
        return Visible(0, 0, 0, any_rows, any_keys)
    several = strip_counts(Strip(strip.low, strip.high - 1), Axis(N, 1, 0), Axis(Nk - 1, 1, 0))
    rows, followed = int(several.rows[False]), int(several.cols[False])
    return Visible(pairs - any_rows + rows, rows, followed + (followed > 0), any_rows, any_keys)


def by_interval(mask: Mask, N: int, Nk: int) -> Visible:
    """What the queries of a mask of tokens see, from pieces of rows in which as many keys are seen, or one more or
    less with each row. Under stripes, each row is a piece."""
    import numpy as np

    from .pieces import pieces

    kind: type = np.int64 if max(N, Nk) < 2**31 else object
    found = pieces(mask.expr, *(np.array([size], kind) for size in (N, Nk, Nk - N)))
    seen: list[Pieces] = []
    any_seen: list[Pieces] = []
    numbers = np.zeros(3, object)
    for part in found.in_rows() if found.period > 1 else [found]:
        each, more = part.keys_seen()
        for least, kept in ((2, seen), (1, any_seen)):
            start, stop = rows_that_see(least, part.start, part.stop, each, more)
            some = np.flatnonzero(start < stop)
            kept.append(part.of(some).within(start[some], stop[some]))
            number, first = (stop - start)[some].astype(object), (each + more * (start - part.start))[some]
            numbers[least - 1] += number.sum()
            if least == 2:
                numbers[2] += (number * (2 * first + more[some] * (number - 1)) // 2).sum()
    any_rows, rows, pairs = map(int, numbers)
    return Visible(pairs, rows, keys_of(seen, Nk), any_rows, keys_of(any_seen, Nk))


def rows_that_see(least: int, start: Whole, stop: Whole, each: Whole, more: Whole) -> tuple[Whole, Whole]:
    """The rows of pieces that see at least so many keys: from one on, or up to one. The first row of a piece sees
    `each` keys, and every row `more` than the one before."""
    import numpy as np

    step = np.maximum(abs(more), 1)
    late = np.where(more > 0, np.clip(-((each - least) // step), 0, stop - start), 0)
    early = np.where(more < 0, np.clip((each - least) // step + 1, 0, stop - start), stop - start)
    return start + late, start + np.where((more == 0) & (each < least), 0, early)


def keys_of(parts: Sequence[Pieces], Nk: int) -> int:
    """The number of keys that some pieces of rows see together."""
    import numpy as np

    from .closed_form import Axis
    from .intervals import all_runs, union

    found = [all_runs(part.joined()) for part in parts if len(part.start)]
    if not found:
        return 0
    first, last = (np.concatenate([run[k] for run in found]) for k in (1, 2))
    none = np.zeros(len(first), np.intp)
    one = np.ones(1, first.dtype)
    return int(union(none, none, first, last, Axis(one * Nk, one, one * 0)).tiles.sum())


def of_stride(size: int, N: int, Nk: int) -> Visible:
    """What the queries of `strided` see: query x sees the keys y with y = x modulo `size`."""
    cuts = sorted({0, size, N % size, Nk % size})
    numbers = [0] * 5
    for low, high in pairwise(cuts):  # residues with equally many queries and equally many keys
        rows, keys = N // size + (low < N % size), Nk // size + (low < Nk % size)
        several, one = keys > 1, keys > 0 < rows
        more = (several * rows * keys, several * rows, several * one * keys, one * rows, one * keys)
        numbers = [n + (high - low) * m for n, m in zip(numbers, more, strict=True)]
    return Visible(*numbers)


def by_block(mask: Mask, file: MaskFile, N: int, Nk: int) -> Visible:
    """What the queries of a block mask see, with one look at each of its blocks."""
    from .expression import Atom
    from .mask import Mask

    mask.bind(Attention(N, 1, Nk), Tiling(N, Nk))  # InputError if the blocks are not those of N x Nk tokens
    rows, keys = file.size
    blocks = Mask(mask.text, Atom("file", replace(file, block=None)))
    height, width = file.block or (1, 1)
    return looked_at(blocks.bind(Attention(rows, 1, keys), Tiling(1, 1)), sizes_of(N, height), sizes_of(Nk, width))


def by_pair(mask: Mask, N: int, Nk: int, tiling: Tiling | None) -> Visible:
    """What the queries of a mask see, from every pair of tokens, or of tiles if all atoms count tiles."""
    import numpy as np

    bound: BoundMask = mask.bind(Attention(N, 1, Nk), tiling or Tiling(1, 1))
    heights, widths = np.ones(N, np.int64), np.ones(Nk, np.int64)
    if bound.unit == "tiles":
        heights, widths = sizes_of(N, bound.rows_q), sizes_of(Nk, bound.rows_k)
        bound = replace(bound, N=len(heights), Nk=len(widths), rows_q=1, rows_k=1)
    return looked_at(bound, heights, widths)


def looked_at(bound: BoundMask, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> Visible:
    """What queries see, from every entry of a bound mask's table. A row stands for `heights` queries, and a column for
    `widths` keys."""
    import numpy as np

    if bound.N * bound.Nk > MOST_VISIBLE_PAIRS:
        raise InputError("--mask", str(bound), f"at most {MOST_VISIBLE_PAIRS} pairs of tokens to look at one by one")
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
