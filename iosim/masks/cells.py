"""Counts of active cells: the tiles of keys on an axis that was cut before, as into shares, or into pages.

The first cell of each block of keys begins with the block, and the last one may be smaller. So the cells are a few
progressions: cells of one width, one period apart. Those that a row tile sees of a progression are a range, for each
interval of keys that it sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, cast

from ..core.arrays import clamp, largest, smaller, total
from ..core.tiling import S
from ..errors import InputError
from .closed_form import Axis, Strip, clamped_floors
from .text import WHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..core.typing import Bools, Size
    from .expression import Expr

MOST_PROGRESSIONS = 2**14


class Kind(NamedTuple):
    """Cells of one size: the keys of their block, their own, and by how many row tiles they are seen, whole ones and
    ragged ones."""

    block: Size
    keys: Size
    seen: tuple[Size, Size]


class Cells(NamedTuple, Generic[S]):
    """A progression: `number` cells of `width` keys, the first at `start`, each `period` keys after the one before."""

    start: S
    width: S
    period: S
    number: S


class Rows(NamedTuple):
    """What the row tiles of `axis` see of Nk keys: a `strip`, with the positions that a key has in it; else what an
    expression of tokens says; else `keys_seen()`, an array of booleans over the keys for each row tile."""

    axis: Axis[Size]
    Nk: Size
    strip: tuple[Strip, int] | None
    expr: Expr | None
    keys_seen: Callable[[], Iterable[Bools]]


def kinds(rows: Rows, block: Size, size: Size) -> list[Kind]:
    """The active cells of a mask, for keys in blocks of `block` that are cut into cells of `size` keys."""
    size = smaller(size, block)
    blocks, rest = rows.Nk // block, rows.Nk % block
    last: Size = blocks * block
    tail, over = block % size, rest % size
    parts: list[tuple[Size, Size, list[Cells[Size]]]] = [
        (block, size, whole_cells(blocks, block, size)),
        (block, tail, [Cells(block - tail, tail, block, blocks * smaller(tail, 1))]),
        (rest, size, [Cells(last, size, size, rest // size)]),
        (rest, over, [Cells(last + rest - over, over, size, smaller(over, 1))]),
    ]
    seen = iter(seen_by_rows(rows, [cells for *_, some in parts for cells in some]))
    found = []
    for of, keys, some in parts:
        each = [next(seen) for _ in some]
        found.append(Kind(of, keys, (sum(one[0] for one in each), sum(one[1] for one in each))))
    return found


def whole_cells(blocks: Size, block: Size, size: Size) -> list[Cells[Size]]:
    """The cells of `size` keys in whole blocks: all of them where blocks end with a cell, else those at one place of
    every block, or those of one block. Raises InputError where that are too many progressions."""
    each: Size = block // size
    if not largest(block % size):
        return [Cells(0, size, size, blocks * each)]
    here, there = largest(each), largest(blocks)
    if min(here, there) > MOST_PROGRESSIONS:
        allowed = f"blocks of keys with at most {MOST_PROGRESSIONS} tiles each, or as many blocks"
        raise InputError(WHERE, f"{min(here, there)} tiles in a block of keys", allowed, "larger tiles that divide it")
    if here <= there:
        return [Cells(k * size, size, block, blocks * (each > k)) for k in range(here)]
    return [Cells(k * block, size, size, each * (blocks > k)) for k in range(there)]


def seen_by_rows(rows: Rows, cells: list[Cells[Size]]) -> list[tuple[Size, Size]]:
    """For each progression, the pairs of a cell and a whole row tile that sees it, and those of a ragged row tile."""
    if rows.strip is not None:
        return [by_strip(*rows.strip, rows.axis, one) for one in cells]
    alone = cast("list[Cells[int]]", cells)
    if rows.expr is None:
        return by_pair(rows, alone)
    from .gaps import Tiles, by_diagonals, cell_counts

    found, expr = None, rows.expr
    if by_diagonals(expr):
        tiles = [Tiles(one.start, one.number, one.width, one.period) for one in alone]
        found = cell_counts(expr, Axis(*map(int, rows.axis)), int(rows.Nk), tiles)
    return by_interval(rows, alone) if found is None else found  # type: ignore[return-value]  # ints are sizes


def by_strip(strip: Strip, keys: int, rows: Axis[Size], cells: Cells[Size]) -> tuple[Size, Size]:
    """The pairs under low <= y - x <= high, where a key takes `keys` positions y: sums of floors.

    The cells that rows x0..x1 see are those with x0 + low - width < start + period c <= x1 + high.
    """
    start, width, period, number = cells.start * keys, cells.width * keys, cells.period * keys, cells.number
    first: Size = strip.low - start - width + period
    after: Size = strip.high - start + period
    sizes = rows.whole, number, rows.size, period
    whole = clamped_floors(rows.size - 1 + after, *sizes) - clamped_floors(first, *sizes)
    x0, x1 = rows.last
    ragged: Size = clamp((x1 + after) // period, 0, number) - clamp((x0 + first) // period, 0, number)
    return whole, rows.ragged * ragged


def by_interval(rows: Rows, cells: list[Cells[int]]) -> list[tuple[Size, Size]]:
    """The pairs under any mask of tokens, from the intervals of keys that each row tile sees."""
    import numpy as np

    from .intervals import all_runs, union
    from .pieces import MOST_PIECES, affordable, pieces_of

    N, Nk, Br = int(rows.axis.length), int(rows.Nk), int(rows.axis.size)
    affordable(-(-N // Br), MOST_PIECES)
    assert rows.expr is not None
    whole = pieces_of(rows.expr, N, Nk, Nk - N)
    starts = np.sort(np.concatenate([whole.start, np.arange(0, N, Br)]), kind="stable")  # of two sorted parts
    starts = starts[np.append(True, starts[1:] > starts[:-1])]
    parts = whole.of(np.searchsorted(whole.start, starts, "right") - 1).within(starts, np.append(starts[1:], N))
    owner, first, last = all_runs(parts, min(one.width for one in cells if one.number))
    tile, every = parts.start[owner] // Br, np.ones(1, np.int64)
    found: list[tuple[Size, Size]] = []
    for start, width, period, number in cells:
        if not number:
            found.append((0, 0))
            continue
        a = np.maximum(-((start + width - 1 - first) // period), 0)
        b = np.minimum((last - start) // period, number - 1)
        some = np.flatnonzero(a <= b)
        seen = union(np.zeros(len(some), np.intp), tile[some], a[some], b[some], Axis(every * number, every, every * 0))
        ragged = total(seen.tiles[seen.tile == N // Br])
        found.append((total(seen.tiles) - ragged, ragged))
    return found


def by_pair(rows: Rows, cells: list[Cells[int]]) -> list[tuple[Size, Size]]:
    """The pairs under any mask, from the keys that each row tile sees."""
    import numpy as np

    some = [np.arange(one.number)[:, None] * one.period + one.start + [0, one.width] for one in cells]
    found = [[0, 0] for _ in cells]
    for number, keys in enumerate(rows.keys_seen()):
        before = np.append(0, np.cumsum(keys))
        for k, ends in enumerate(some):
            found[k][number == rows.axis.whole] += int((before[ends[:, 1]] > before[ends[:, 0]]).sum())
    return [(whole, ragged) for whole, ragged in found]


def stacked(found: Sequence[Sequence[Kind]]) -> list[Kind]:
    """The kinds of several problems as one, with arrays."""
    import numpy as np

    table = np.array([[(one.block, one.keys, *one.seen) for one in kinds_of] for kinds_of in found], object)
    return [Kind(block, keys, (whole, ragged)) for block, keys, whole, ragged in np.moveaxis(table, 0, 2)]
