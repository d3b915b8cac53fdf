"""Masks: predicates on (query, key) pairs, read from text such as `causal&window:64|global:1b`, bound to tiles.

With x the query, y the key, N queries and Nk keys, or (suffix b) i and j the tiles they are in.
NumPy is imported only where tables, parts and files need it; counts are whole numbers (see mask_counts).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import index
from typing import Any, cast

from .elementwise import smaller
from .errors import InputError
from .mask_closed import Axis, Counts, closed_counts, has_closed_form
from .mask_counts import Counter
from .mask_expr import Atom, Expr, Join, atoms, unit
from .mask_text import WHERE, read
from .problem import DENSE, Attention, Dense

MOST_PAIRS = 2**33  # token pairs that a table may look at
CHUNK = 2**22  # token pairs looked at at once


def parse(text: str) -> Mask | Dense:
    """The mask that a text says; InputError for anything else."""
    if isinstance(text, str) and text.strip() == "dense":
        return cast("Dense", DENSE)
    return Mask(text, read(text))


@dataclass(frozen=True)
class Mask:
    """An expression, not yet bound to sizes."""

    text: str
    expr: Expr

    def __str__(self) -> str:
        return self.text

    @property
    def tile_units(self) -> bool:
        """Whether tile sizes change what is hidden; for a file, which may have tile shape, taken as true."""
        return any(atom.tiles or atom.file for atom in atoms(self.expr))

    @cached_property
    def counts_arrays(self) -> bool:
        """Whether one binding counts arrays of problems and tilings."""
        return unit(self.expr) != "mixed" and has_closed_form(self.expr)

    def bind(self, problem: Attention, tiling: Any, skips: bool = True) -> BoundMask:
        sizes = (problem.N, problem.Nk, tiling.rows_q, tiling.rows_k)
        try:
            N, Nk, rows_q, rows_k = map(index, sizes)
        except TypeError:
            if self.counts_arrays:
                return BoundMask(self, *sizes, bool(skips))
            raise TypeError(f"{self.text} binds to one problem and one tiling at a time, not to arrays") from None
        return _bind(self, N, Nk, rows_q, rows_k, bool(skips))


@lru_cache(maxsize=4096)
def _bind(mask: Mask, N: int, Nk: int, rows_q: int, rows_k: int, skips: bool) -> BoundMask:
    bound = BoundMask(mask, N, Nk, rows_q, rows_k, skips)
    shapes = {(bound.Tr, bound.Tc), (N, Nk)}
    for atom in atoms(mask.expr):
        if atom.file and atom.file.data.shape not in shapes:
            allowed = f"tile shape ({bound.Tr}, {bound.Tc}) or token shape ({N}, {Nk})"
            raise InputError(f"{WHERE} file:{atom.file.path}", atom.file.data.shape, allowed)
    return bound


@dataclass(frozen=True)
class Line:
    """The tiles of one row or column, or all key columns, for loops that skip what is hidden."""

    mask: BoundMask
    kind: str
    tile: Any = None

    def active(self, tile: Any) -> bool:
        if self.kind == "columns":
            return bool(self.mask.table[:, tile.index].any())
        i, j = (tile, self.tile) if self.kind == "column" else (self.tile, tile)
        return bool(self.mask.table[i.index, j.index])

    @property
    def any(self) -> bool:
        if self.kind == "columns":
            return self.mask.active_tiles > 0
        table, k = self.mask.table, self.tile.index
        return bool((table[:, k] if self.kind == "column" else table[k]).any())


@dataclass(frozen=True)
class Part:
    """The mask over one tile."""

    mask: BoundMask
    i: Any
    j: Any

    def array(self) -> Any:
        """Bool (rows x keys of the tile), True where visible."""
        return self.mask.visible(self.i.start, self.i.size, self.j.start, self.j.size)


@dataclass(frozen=True)
class BoundMask:
    """A mask over N x Nk tokens in tiles of rows_q x rows_k. Without `skips` its lines are None."""

    mask: Mask
    N: int
    Nk: int
    rows_q: int
    rows_k: int
    skips: bool = True

    def __str__(self) -> str:
        return self.mask.text

    @property
    def tile_units(self) -> bool:
        return self.mask.tile_units

    @property
    def Tr(self) -> int:
        return -(-self.N // self.rows_q)

    @property
    def Tc(self) -> int:
        return -(-self.Nk // self.rows_k)

    @property
    def columns(self) -> Line | None:
        return Line(self, "columns") if self.skips else None

    def column(self, j: Any) -> Line | None:
        return Line(self, "column", j) if self.skips else None

    def row(self, i: Any) -> Line | None:
        return Line(self, "row", i) if self.skips else None

    def part(self, i: Any, j: Any) -> Part:
        return Part(self, i, j)

    def visible(self, x0: int, rows: int, y0: int, keys: int) -> Any:
        """Bool (rows x keys) of the tokens from (x0, y0), True where visible."""
        import numpy as np

        x, y = x0 + np.arange(rows)[:, None], y0 + np.arange(keys)[None, :]
        tokens = x, y, self.Nk - self.N
        tiles = x // self.rows_q, y // self.rows_k, 0
        return np.broadcast_to(self._holds(self.mask.expr, tokens, tiles), (rows, keys)).copy()

    def _holds(self, expr: Expr, tokens: tuple, tiles: tuple) -> Any:
        if isinstance(expr, Join):
            found = self._holds(expr.parts[0], tokens, tiles)
            for part in expr.parts[1:]:
                other = self._holds(part, tokens, tiles)
                found = found & other if expr.op == "&" else found | other
            return ~found if expr.op == "~" else found
        if expr.file:
            x, y, _ = tokens if expr.file.data.shape == (self.N, self.Nk) else tiles
            return expr.file.data[x, y]
        x, y, shift = tiles if expr.tiles else tokens
        if expr.kind == "causal":
            return y <= x + shift
        if expr.kind == "window":
            return abs(x - y) <= expr.size
        if expr.kind == "global":
            return (x < expr.size) | (y < expr.size)
        return x % expr.size == y % expr.size if expr.kind == "strided" else x == x

    @cached_property
    def table(self) -> Any:
        """Bool (Tr x Tc) of active tiles, by looking at every pair of tokens: independent of the counts' formulas."""
        import numpy as np

        if self.N * self.Nk > MOST_PAIRS:
            allowed = f"at most {MOST_PAIRS} pairs of tokens where a mask is looked at pair by pair"
            raise InputError(WHERE, self.mask.text, allowed, "use atoms of one unit, and no file")
        table, starts = np.zeros((self.Tr, self.Tc), bool), np.arange(0, self.Nk, self.rows_k)
        chunk = max(1, CHUNK // self.Nk)
        for i in range(self.Tr):
            for x in range(i * self.rows_q, min((i + 1) * self.rows_q, self.N), chunk):
                rows = min(chunk, (i + 1) * self.rows_q - x, self.N - x)
                keys = self.visible(x, rows, 0, self.Nk).any(axis=0)
                table[i] |= np.logical_or.reduceat(keys, starts)
        return table

    def pairs(self, row_ragged: bool, column_ragged: bool) -> int:
        """Active tiles in whole or ragged row tiles x whole or ragged key tiles."""
        return self._counts.pairs[bool(row_ragged), bool(column_ragged)]

    def rows(self, ragged: bool) -> int:
        """Row tiles of a class with any active tile."""
        return self._counts.rows[bool(ragged)]

    def cols(self, ragged: bool) -> int:
        """Key columns of a class with any active tile."""
        return self._counts.cols[bool(ragged)]

    @property
    def active_tiles(self) -> int:
        return sum(self._counts.pairs.values())

    @property
    def unit(self) -> str:
        """`tokens` or `tiles` where all atoms agree, else `mixed`; files are always mixed."""
        return unit(self.mask.expr)

    @cached_property
    def _counts(self) -> Counts:
        kind, expr = self.unit, self.mask.expr
        if kind == "mixed":
            return self.table_counts()
        rows, cols = axis(self.N, self.rows_q, kind), axis(self.Nk, self.rows_k, kind)
        shift = self.Nk - self.N if kind == "tokens" else 0
        return closed_counts(expr, rows, cols, shift) or Counter(expr, rows, cols, shift).counts()

    def table_counts(self) -> Counts:
        """The counts, summed from the table."""
        i, j = self.N // self.rows_q, self.Nk // self.rows_k  # whole tiles
        halves = {False: slice(0, i), True: slice(i, None)}, {False: slice(0, j), True: slice(j, None)}
        rows, cols = self.table.any(axis=1), self.table.any(axis=0)
        return Counts(
            {(r, c): int(self.table[halves[0][r], halves[1][c]].sum()) for r in halves[0] for c in halves[1]},
            {r: int(rows[part].sum()) for r, part in halves[0].items()},
            {c: int(cols[part].sum()) for c, part in halves[1].items()},
        )


def axis(length: Any, size: Any, unit: str) -> Axis:
    """An axis in tiles, its positions being tokens or tiles."""
    whole, rest = length // size, length % size
    return Axis(whole, size, rest) if unit == "tokens" else Axis(whole, 1, smaller(rest, 1))


def formula_density(mask: Mask, bound: BoundMask) -> tuple[str, float] | None:
    """The share of active tiles as papers give it, for a single atom."""
    atom = mask.expr if isinstance(mask, Mask) else None
    if not isinstance(atom, Atom):
        return None
    T, size = bound.Tc, atom.size
    if atom.kind == "causal":
        return "(T+1)/(2T)", (T + 1) / (2 * T)
    if atom.kind == "window" and atom.tiles:
        return "(2w+1)/T", min(1.0, (2 * size + 1) / T)
    if atom.kind == "global" and atom.tiles:
        return "1-(1-g/T)^2", 1 - max(0.0, 1 - size / T) ** 2
    return ("1/S", 1 / size) if atom.kind == "strided" else None


def token_density(mask: Mask, N: int, Nk: int, Br: int, Bc: int) -> tuple[int, int]:
    """(visible pairs, all pairs), exact."""
    bound = _bind(mask, N, Nk, Br, Bc, True)
    if bound.unit == "tokens":
        return _bind(mask, N, Nk, 1, 1, True).active_tiles, N * Nk
    if bound.unit == "tiles":
        rows, cols = {False: Br, True: N % Br}, {False: Bc, True: Nk % Bc}
        return sum(bound.pairs(r, c) * rows[r] * cols[c] for r in rows for c in cols), N * Nk
    bound.table  # noqa: B018 - refuses what is too large
    chunk = max(1, CHUNK // Nk)
    return sum(int(bound.visible(x, min(chunk, N - x), 0, Nk).sum()) for x in range(0, N, chunk)), N * Nk
