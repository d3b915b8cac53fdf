"""Masks such as `causal&window:64|global:1b`: predicates on (query, key) pairs, and their binding to tiles.

x is the position of the query (of N) and y that of the key (of Nk). An atom with the suffix b uses the numbers i and j
of their tiles instead. Only tables, parts and files import NumPy. Counts (closed_form.py, intervals.py) are
whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import index
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, cast, overload

from ..core.arrays import larger, smaller
from ..core.problem import DENSE, Attention
from ..core.tiling import S
from ..errors import InputError
from .atoms import Diagonals, Documents, First
from .closed_form import Axis, Counts, Strip
from .expression import Atom, Expr, atoms, check_lengths, evaluate, joined, unit
from .strips import closed_counts, strip_of
from .text import WHERE, parse_expression

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.mask_types import Mask as AnyMask
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Bools, Size, Test
    from .cells import Kind
    from .files import MaskFile

MOST_TABLE_PAIRS = 2**33  # the most pairs of tokens that may be evaluated for a table
MOST_SUMMED_PAIRS = 2**26  # the most pairs whose sums are kept for other tilings: 256 MB
CAUSAL = Atom("causal")
PAIRS_AT_ONCE = 2**22  # pairs of tokens that are evaluated at once


def parse(text: str) -> AnyMask:
    """The mask that a text describes; InputError for any other text."""
    if isinstance(text, str) and text.strip() == "dense":
        return DENSE
    return cast("AnyMask", Mask(text, parse_expression(text)))  # it has sizes and counts once it is bound


@dataclass(frozen=True)
class Mask:
    """A mask that is not yet bound to sizes."""

    text: str
    expr: Expr

    def __str__(self) -> str:
        return self.text

    @property
    def is_causal(self) -> bool:
        """Whether it is `causal` alone, in whatever spelling."""
        return self.expr == CAUSAL

    @property
    def tile_units(self) -> bool:
        """Whether tile sizes change what is hidden. True for a file that may have one number for each tile."""
        return any(atom.tiles or (atom.file and not atom.file.block) for atom in atoms(self.expr))

    @cached_property
    def counts_arrays(self) -> bool:
        """Whether the mask can be bound to arrays of problems and tilings."""
        return unit(self.expr) != "mixed"

    @cached_property
    def counts_at_once(self) -> bool:
        """Whether arrays of problems and tilings are counted in one pass, and not each by itself."""
        return self.counts_arrays and all(isinstance(atom.shape, Diagonals | First) for atom in atoms(self.expr))

    @overload
    def bind(self, problem: Attention, tiling: Tiling, skips: bool = True) -> BoundMask: ...

    @overload
    def bind(self, problem: Attention[Size], tiling: Tiling[Size], skips: bool = True) -> BoundMask[Size]: ...

    def bind(self, problem: Attention[Size], tiling: Tiling[Size], skips: bool = True) -> BoundMask[Size]:
        """The mask over a problem's tokens in tiles. Without `skips` it only hides scores, and no tile is left out.

        Raises InputError for a file of another shape, and TypeError for arrays of sizes that it cannot count.
        """
        sizes = (problem.N, problem.Nk, tiling.rows_q, tiling.rows_k)
        try:
            N, Nk, rows_q, rows_k = map(index, sizes)
        except TypeError:
            if self.counts_arrays:
                return BoundMask(self, *sizes, bool(skips))
            raise TypeError(f"{self.text} binds to one problem and one tiling at a time, not to arrays") from None
        return _bind(self, N, Nk, rows_q, rows_k, bool(skips))


@lru_cache(maxsize=2**14)
def _bind(mask: Mask, N: int, Nk: int, rows_q: int, rows_k: int, skips: bool) -> BoundMask:
    check_lengths(mask.expr, N, Nk)
    for atom in atoms(mask.expr):
        if atom.file:
            atom.file.entry(N, Nk, rows_q, rows_k)
        if atom.function:
            atom.function.check(N, Nk)
    return BoundMask(mask, N, Nk, rows_q, rows_k, skips)


@lru_cache(maxsize=2**10)
def _in_tiles(mask: BoundMask[Size], rows_q: Size, rows_k: Size, from_end: bool) -> BoundMask[Size]:
    blocks = (mask.blocks or (mask.rows_q, mask.rows_k)) if mask.tile_units else None
    return replace(mask, rows_q=rows_q, rows_k=rows_k, blocks=blocks, from_end=from_end)


class Line(NamedTuple, Generic[S]):
    """The tiles of one row or one column, or all key columns, for loops that leave out hidden tiles.

    `kind` is row, column or columns. `tile` is the tile of that row or column, and None for columns.
    """

    mask: BoundMask[S]
    kind: str
    tile: Tile | None = None

    def active(self, tile: Tile) -> bool:
        """Whether the tile has any visible pair in this line. In a row it may be any part of the keys."""
        if self.tile is None:
            return bool(self.mask.table[:, tile.index].any())
        i, j, size = (tile, self.tile, 0) if self.kind == "column" else (self.tile, tile, self.mask.rows_k)
        if size and (tile.start != tile.index * size or tile.size != min(size, self.mask.Nk - tile.start)):
            return bool(self.mask.visible(i.start, i.size, j.start, j.size).any())
        return bool(self.mask.table[i.index, j.index])

    @property
    def any(self) -> bool:
        """Whether any tile of the line is active."""
        if self.tile is None:
            return bool(self.mask.active_tiles > 0)
        table, k = self.mask.table, self.tile.index
        return bool((table[:, k] if self.kind == "column" else table[k]).any())


class Part(NamedTuple):
    """The mask over one tile."""

    mask: BoundMask[Size]
    i: Tile
    j: Tile

    def array(self) -> Bools:
        """Booleans (rows x keys of the tile), True where visible."""
        return self.mask.visible(self.i.start, self.i.size, self.j.start, self.j.size)


@dataclass(frozen=True)
class BoundMask(Generic[S]):
    """A mask over N x Nk tokens in tiles of rows_q x rows_k. Without `skips` its lines are None.

    Sizes may be arrays if `counts_arrays` holds. The mask then has no table. `blocks` are the tiles whose numbers atoms
    with b compare, if they are others. With `from_end` row tiles end at the last query: the short one is the first.
    """

    mask: Mask
    N: S
    Nk: S
    rows_q: S
    rows_k: S
    skips: bool = True
    blocks: tuple[Size, Size] | None = field(default=None, kw_only=True)
    from_end: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        return self.mask.text

    def in_tiles(self, rows_q: Size, rows_k: Size) -> Self:
        """The mask that shows the same pairs, over other tiles: for a launch that has tiles of its own."""
        return self._over(rows_q, rows_k, self.from_end)

    def short_first(self) -> Self:
        """The mask that shows the same pairs, over row tiles of which the short one is the first."""
        return self._over(self.rows_q, self.rows_k, True)

    def _over(self, rows_q: Size, rows_k: Size, from_end: bool) -> Self:
        numbers = all(isinstance(n, int) for n in (self.N, self.Nk, self.rows_q, self.rows_k, rows_q, rows_k))
        found = _in_tiles if numbers else _in_tiles.__wrapped__
        return cast("Self", found(self, rows_q, rows_k, from_end))  # type: ignore[arg-type]  # numbers have a hash

    @property
    def lead(self) -> S:
        """The rows that the first row tile lacks: 0 unless it is the short one."""
        return -self.N % self.rows_q if self.from_end else self.N * 0  # type: ignore[operator,return-value]

    @property
    def is_causal(self) -> bool:
        """Whether it is `causal` alone, in whatever spelling."""
        return self.mask.is_causal

    @property
    def tile_units(self) -> bool:
        """Whether tile sizes change what is hidden."""
        return self.mask.tile_units

    @property
    def Tr(self) -> S:
        """Row tiles."""
        return -(-self.N // self.rows_q)  # type: ignore[operator,return-value]

    @property
    def Tc(self) -> S:
        """Key tiles."""
        return -(-self.Nk // self.rows_k)  # type: ignore[operator,return-value]

    @property
    def shift(self) -> S:
        """Nk - N, by which `causal` moves its diagonal: the last query then sees the last key."""
        return self.Nk - self.N  # type: ignore[operator,return-value]  # both are S

    @property
    def columns(self) -> Line[S] | None:
        """All key columns, for a loop over those with any active tile."""
        return Line(self, "columns") if self.skips else None

    def column(self, j: Tile) -> Line[S] | None:
        """The tiles of key column j, for a loop over the active ones."""
        return Line(self, "column", j) if self.skips else None

    def row(self, i: Tile) -> Line[S] | None:
        """The tiles of row i, for a loop over the active ones."""
        return Line(self, "row", i) if self.skips else None

    def part(self, i: Tile, j: Tile) -> Part:
        """The mask over tile (i, j)."""
        return Part(self, i, j)

    def visible(self, x0: int, rows: int, y0: int, keys: int) -> Bools:
        """Booleans (rows x keys) of the tokens from (x0, y0), True where visible."""
        import numpy as np

        return self.visible_at(x0 + np.arange(rows), y0 + np.arange(keys))

    def visible_at(self, queries: NDArray[np.int64], keys: NDArray[np.int64]) -> Bools:
        """Booleans (queries x keys) of the tokens at these positions, True where visible."""
        import numpy as np

        x, y = queries[:, None], keys[None, :]
        rows_q, rows_k = self.blocks or (self.rows_q, self.rows_k)
        i, j = x // rows_q, y // rows_k

        def sees(atom: Atom) -> Test:
            if atom.file:
                return atom.sees(x, y, 0, self._numbers(atom.file))
            return atom.sees(i, j, 0) if atom.tiles else atom.sees(x, y, self.shift)

        found = np.empty((len(queries), len(keys)), bool)
        found[:] = evaluate(self.mask.expr, sees, joined)
        return found

    def _numbers(self, file: MaskFile) -> Callable[[NDArray[np.int64], NDArray[np.int64]], Bools]:
        """The numbers of a file as a function of positions of tokens."""
        rows_q, rows_k = self.blocks or (self.rows_q, self.rows_k)
        rows, keys = file.entry(int(self.N), int(self.Nk), int(rows_q), int(rows_k))
        return lambda x, y: file.at((x // rows)[:, 0], (y // keys)[0])

    @cached_property
    def table(self) -> Bools:
        """Booleans (Tr x Tc), True for an active tile. Every pair of tokens is evaluated, without the formulas of the
        counts. So the two can be compared."""
        import numpy as np

        starts = np.arange(0, int(self.Nk), int(self.rows_k))
        return np.array([np.logical_or.reduceat(keys, starts) for keys in self.keys_seen()])

    def keys_seen(self) -> Iterator[Bools]:
        """For each row tile, booleans: whether any of its queries sees a key. Every pair of tokens is evaluated."""
        import numpy as np

        N, Nk, rows_q = map(int, (self.N, self.Nk, self.rows_q))
        if N * Nk > MOST_TABLE_PAIRS:
            allowed = f"at most {MOST_TABLE_PAIRS} pairs of tokens where a mask is looked at pair by pair"
            raise InputError(WHERE, self.mask.text, allowed, "use atoms of one unit, and no file or function")
        chunk = max(1, PAIRS_AT_ONCE // Nk)
        for start in range(-int(self.lead), N, rows_q):
            keys, end = np.zeros(Nk, bool), min(start + rows_q, N)
            for x in range(max(0, start), end, chunk):
                keys |= self.visible(x, min(chunk, end - x), 0, Nk).any(axis=0)
            yield keys

    def pairs(self, row_ragged: bool, column_ragged: bool) -> Size:
        """The number of active tiles. The arguments say whether their row, and their column, is ragged or whole."""
        return self._counts.pairs[bool(row_ragged), bool(column_ragged)]

    def rows(self, ragged: bool) -> Size:
        """The number of row tiles, ragged or whole, that have an active tile."""
        return self._counts.rows[bool(ragged)]

    def cols(self, ragged: bool) -> Size:
        """The number of key columns, ragged or whole, that have an active tile."""
        return self._counts.cols[bool(ragged)]

    def cells(self, block: Size, size: Size) -> list[Kind]:
        """How many cells of `size` keys are active, where the keys are cut into blocks of `block` before."""
        from .cells import Rows, kinds, stacked

        strip = self.strip() if self.unit == "tokens" else None
        sizes: tuple[Size, ...] = (self.N, self.Nk, self.rows_q, self.rows_k, block, size)
        if strip is None and not all(isinstance(one, int) for one in sizes):
            import numpy as np

            each = zip(*(part.tolist() for part in np.broadcast_arrays(*sizes)), strict=True)
            bound = [(_bind(self.mask, N, Nk, Br, Bc, self.skips), *cut) for N, Nk, Br, Bc, *cut in each]
            return stacked([one.cells(*cut) for one, *cut in bound])
        rows, expr = axis(self.N, self.rows_q, "tokens"), self.mask.expr if self.unit == "tokens" else None
        return kinds(Rows(rows, self.Nk, strip, expr, self._each_row_tile), block, size)

    def _each_row_tile(self) -> Iterable[Bools]:
        """`keys_seen`, from sums over the mask where they are kept for other tilings too."""
        summed = None if self.unit != "mixed" or self.from_end else Summed.of(self.mask, int(self.N), int(self.Nk))
        return self.keys_seen() if summed is None else summed.table(int(self.rows_q), 1)

    def strip(self) -> tuple[Strip, int] | None:
        """The strip of diagonals that it shows, and the positions that a key has in it; None for any other mask."""
        found = strip_of(self.mask.expr, self.N, self.Nk, self.shift)  # type: ignore[arg-type]  # S is a Size
        return None if found is None else (found, 1)

    @property
    def active_tiles(self) -> Size:
        """The number of active tiles."""
        return sum(self._counts.pairs.values())

    @property
    def unit(self) -> str:
        """`tokens` or `tiles` if all atoms agree, else `mixed`. Files are always mixed."""
        return "mixed" if self.blocks else unit(self.mask.expr)

    def visible_pairs(self) -> int:
        """The exact number of visible pairs of tokens."""
        Br, Bc, N, Nk = map(int, (self.rows_q, self.rows_k, self.N, self.Nk))
        if self.unit == "tokens":
            from .seen import of_tokens

            seen = of_tokens(self.mask.expr, N, Nk)
            return seen.pairs + seen.any_rows - seen.rows
        if self.unit == "tiles":
            rows, cols = {False: Br, True: N % Br}, {False: Bc, True: Nk % Bc}
            return int(sum(self.pairs(r, c) * rows[r] * cols[c] for r in rows for c in cols))
        self.table  # noqa: B018 - raises InputError for too many pairs
        return sum(int(seen.sum()) for _, seen in self.parts())

    def parts(self) -> Iterator[tuple[int, Bools]]:
        """(x, what queries from x on see of all keys), for some queries at a time."""
        chunk = max(1, PAIRS_AT_ONCE // int(self.Nk))
        for x in range(0, int(self.N), chunk):
            yield x, self.visible(x, min(chunk, int(self.N) - x), 0, int(self.Nk))

    @cached_property
    def _counts(self) -> Counts:
        kind, expr = self.unit, self.mask.expr
        if self.from_end:
            return self._counts_from_end(kind)
        if kind == "mixed":
            summed = Summed.of(self.mask, int(self.N), int(self.Nk))
            return self.table_counts(self.table if summed is None else summed.table(int(self.rows_q), int(self.rows_k)))
        rows, cols = axis(self.N, self.rows_q, kind), axis(self.Nk, self.rows_k, kind)
        return counts_of(expr, rows, cols, self.shift if kind == "tokens" else 0)

    def _counts_from_end(self, kind: str) -> Counts:
        """The counts if the short row tile is the first: those of as many whole tiles, with the first of them
        exchanged. Columns see the same rows whatever their tiles are."""
        expr, shift, lead = self.mask.expr, self.shift, self.lead
        if kind != "tokens" or any(isinstance(atom.value, Documents) for atom in atoms(expr)):
            if any(getattr(size, "ndim", 0) for size in (self.N, self.Nk, self.rows_q, self.rows_k)):
                allowed = "last; iosim count takes it with tiles that are given, as --tiles 64x64"
                raise InputError("--short-tile", "first, under documents or tiles of a mask", allowed)
            return self.table_counts(self.table)
        rows, cols = axis(self.N, self.rows_q, kind), axis(self.Nk, self.rows_k, kind)
        none, short = rows.whole * 0, rows.ragged
        every = counts_of(expr, Axis(rows.tiles, rows.size, none), cols, shift - lead)  # type: ignore[operator]
        first = counts_of(expr, Axis(none + 1, rows.size, none), cols, shift - lead)  # type: ignore[operator]
        real = counts_of(expr, Axis(none, rows.size, larger(rows.rest, 1)), cols, shift)
        whole = {(False, c): every.pairs[False, c] - short * first.pairs[False, c] for c in (False, True)}
        return Counts(
            whole | {(True, c): short * real.pairs[True, c] for c in (False, True)},
            {False: every.rows[False] - short * first.rows[False], True: short * real.rows[True]},
            counts_of(expr, rows, cols, shift).cols,
        )

    def table_counts(self, table: Bools) -> Counts:
        """The counts, summed from a table of active tiles."""
        i, j = int(self.N) // int(self.rows_q), int(self.Nk) // int(self.rows_k)  # whole tiles
        halves = {False: slice(0, i), True: slice(i, None)}, {False: slice(0, j), True: slice(j, None)}
        if self.from_end:
            halves = {False: slice(len(table) - i, None), True: slice(0, len(table) - i)}, halves[1]
        return Counts(
            {(r, c): int(table[halves[0][r], halves[1][c]].sum()) for r in halves[0] for c in halves[1]},
            {r: int(table[part].any(axis=1).sum()) for r, part in halves[0].items()},
            {c: int(table[:, part].any(axis=0).sum()) for c, part in halves[1].items()},
        )


def counts_of(expr: Expr, rows: Axis[Size], cols: Axis[Size], shift: Size) -> Counts:
    """The counts of an expression whose atoms have the unit of the axes, for numbers or for arrays of problems."""
    found = closed_counts(expr, rows, cols, shift)
    if found is None:
        from .intervals import tile_counts

        found = tile_counts(expr, rows, cols, shift)
    return found


class Summed(NamedTuple):
    """Sums over a mask of N x Nk tokens, from which the table of any tiling follows with four looks at each tile.

    `sums` (rows + 1, columns + 1) are the numbers of visible entries above and to the left of each entry. An entry is
    one pair of tokens, or the queries x keys of a `block`.
    """

    N: int
    Nk: int
    block: tuple[int, int]
    sums: NDArray[np.int32]

    @classmethod
    def of(cls, mask: Mask, N: int, Nk: int) -> Summed | None:
        """The sums of a mask; None if tile sizes change what it hides, or if it has too many pairs. The last ones are
        kept, of 512 MB together at most: the requests of a batch are asked about in turn."""
        found = SUMMED.pop((mask, N, Nk), None) or cls.made(mask, N, Nk)
        if found is not None:
            SUMMED[mask, N, Nk] = found
        while sum(one.sums.size for one in SUMMED.values()) > 2 * MOST_SUMMED_PAIRS:
            del SUMMED[next(iter(SUMMED))]
        return found

    @staticmethod
    def made(mask: Mask, N: int, Nk: int) -> Summed | None:
        """The sums, which nobody asked for before."""
        import numpy as np

        file = mask.expr.file if isinstance(mask.expr, Atom) else None
        if file is not None and file.block:
            return Summed(  # a file lists fewer than 2^30 blocks: int32 holds each sum
                N, Nk, file.block, np.pad(file.data.cumsum(0, np.int32).cumsum(1, np.int32), ((1, 0), (1, 0)))
            )
        if mask.tile_units or N * Nk > MOST_SUMMED_PAIRS:
            return None
        bound, sums = _bind(mask, N, Nk, 1, 1, True), np.zeros((N + 1, Nk + 1), np.int32)
        for x, seen in bound.parts():
            sums[x + 1 : x + 1 + len(seen), 1:] = seen
        for along in (0, 1):  # sums of at most MOST_SUMMED_PAIRS = 2^26
            np.cumsum(sums, along, out=sums)
        return Summed(N, Nk, (1, 1), sums)

    def table(self, rows_q: int, rows_k: int) -> Bools:
        """Booleans (Tr x Tc), True for an active tile."""
        top, bottom = entries(self.N, rows_q, self.block[0])
        left, right = entries(self.Nk, rows_k, self.block[1])
        if len(top) <= len(left):  # the axis of fewer tiles first, so that less is left for the other one
            in_rows = self.sums[bottom] - self.sums[top]
            return in_rows[:, right] > in_rows[:, left]
        in_columns = self.sums[:, right] - self.sums[:, left]
        return in_columns[bottom] > in_columns[top]


SUMMED: dict[tuple[Mask, int, int], Summed] = {}
"""Sums that are kept, the oldest first."""


def entries(length: int, size: int, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first block that each tile of an axis meets, and the one after its last."""
    import numpy as np

    starts = np.arange(0, length, size)
    return starts // block, (np.minimum(starts + size, length) - 1) // block + 1


def axis(length: Size, size: Size, unit: str) -> Axis[Size]:
    """An axis in tiles of `size` tokens; its positions are tokens or tiles, as `unit` says."""
    whole, rest = length // size, length % size
    return Axis(whole, size, rest) if unit == "tokens" else Axis(whole, 1, smaller(rest, 1))


def formula_density(bound: BoundMask) -> tuple[str, float] | None:
    """The share of active tiles that papers give for a mask of one atom, as (formula, value); None for other masks."""
    atom = bound.mask.expr
    if not isinstance(atom, Atom) or not isinstance(atom.value, int):
        return None
    density = atom.row.density
    if density is None or (density.tiles and not atom.tiles):
        return None
    return density.formula, density.value(bound.Tc, atom.value)
