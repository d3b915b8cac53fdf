"""The folded machine: it visits every loop body once, and counts the words of all its iterations together.

A load inside loops moves a product of tile sizes and lengths in each iteration. Its words are the sum of these products
over all iterations. If the loops are independent, that sum is a product with one factor for each loop. The factor is
the length of the axis if the loop's tile is in the product, because tile sizes add up to it. Otherwise it is the number
of tiles. So a dense count takes a fixed number of steps, whatever the sizes are.

A loop over the active tiles of a mask line, or over a tile of another loop, depends on that other loop. The two loops
form one `Group`: rows that say which tile sizes occur together, and how often.

Sizes may be NumPy int64 arrays. One walk then counts a configuration for each element. A schedule that asks for a
tile's position or size gets a FoldingError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from itertools import product
from operator import mul
from typing import TYPE_CHECKING, cast

from ..errors import FoldingError
from .arrays import anywhere, smaller, sums
from .dependent_tiles import Share, Span, Stretch
from .machine import Machine
from .shapes import Groups, Tile, same

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .machine import Watcher
    from .mask_types import MaskLine
    from .problem import Attention
    from .shapes import Shape, SizeClasses, Visits
    from .typing import Size

    Cuts = tuple[tuple[Tile, Size], ...]


def unknown(name: str) -> property:
    """A property of a tile that no tile of the folded machine has: reading it raises FoldingError."""

    def read(tile: Tile) -> int:
        raise FoldingError(
            f"this schedule looks at a tile's {name}, which stands for many tiles here; run it unrolled to count it"
        )

    return property(read)


class FoldedTile(Tile):
    """All tiles of a loop at once. `extent` is the size of the largest one; no other size is known.

    Its loop has tiles of `step` positions. `before` are the loops around it that cut the same axis, from the outermost
    on, each with the positions of one of its parts.
    """

    __slots__ = ("before", "extent", "step")
    extent: Size  # type: ignore[misc]

    def __init__(self, length: Size, extent: Size, size: Size, before: Cuts):
        self.length, self.extent, self.step, self.before = length, extent, size, before

    index, start, size = map(unknown, ("index", "start", "size"))  # type: ignore[assignment]


class Group:
    """The tiles of loops that depend on each other, as rows (how often, {tile: size}).

    With `owners` (core/dependent_tiles.py) the arrays of a row list the tiles of all configurations.
    """

    def __init__(self, rows: SizeClasses, owners: NDArray[np.int64] | None = None):
        self.rows, self.tiles, self.owners = rows, set(rows[0][1]), owners
        self._moments: dict[tuple[int, ...], Size] = {}

    def within(self, outer: Tile, size: Size, tile: Tile) -> Group:
        """The group with a loop over one of its tiles, `outer`, in tiles of `size`."""
        if self.owners is not None and not isinstance(size, int):
            size = size[self.owners]
        rows = [
            (times * n, {**sizes, **part})
            for times, sizes in self.rows
            for n, part in classes(sizes[outer], size, tile)
        ]
        return Group(rows, self.owners)

    def moment(self, exponents: dict[Tile, int], groups: Sequence[Groups] = ()) -> Size:
        """The sum over all iterations of the product of the tile sizes, each raised to its exponent, and of the numbers
        of `groups` of tiles. The same sum is asked for many times: by the loads of K and of V, for example."""
        if own := [each for each in groups if each.tile in self.tiles]:
            return self._moment(exponents, own)
        key = tuple([exponents.get(tile, 0) for tile in self.tiles])
        if key not in self._moments:
            self._moments[key] = self._moment(exponents)
        return self._moments[key]

    def _moment(self, exponents: dict[Tile, int], groups: Sequence[Groups] = ()) -> Size:
        total: Size = 0
        for times, sizes in self.rows:
            for tile, size in sizes.items():
                if tile in exponents:
                    times = times * (size if exponents[tile] == 1 else size ** exponents[tile])
            for each in groups:
                times = times * -(-sizes[each.tile] // each.each)
            total = total + times
        return total if self.owners is None else sums(total, self.owners)


class AxisGroup(Group):
    """The tiles of one axis, independent of other loops."""

    def __init__(self, tile: Tile, length: Size, size: Size):
        self.tile, self.length, self.size, self.tiles, self.owners = tile, length, size, {tile}, None

    @cached_property
    def count(self) -> Size:
        return -(-self.length // self.size)

    @property
    def rows(self) -> SizeClasses:  # type: ignore[override]
        return classes(self.length, self.size, self.tile)

    def moment(self, exponents: dict[Tile, int], groups: Sequence[Groups] = ()) -> Size:
        if own := [each for each in groups if each.tile is self.tile]:
            return self._moment(exponents, own)
        e = exponents.get(self.tile, 0)
        if e == 0:
            return self.count
        return self.length if e == 1 else self._moment(exponents)


def classes(length: Size, size: Size, tile: Tile) -> SizeClasses:
    """A row for the whole tiles of an axis and one for its ragged tile. Either may occur 0 times."""
    whole = length // size
    return [(whole, {tile: size}), (-(-length // size) - whole, {tile: length % size})]


class Folded(Machine):
    """Counts a schedule without visiting its tiles: exactly, and in a time that does not grow with their number.

    It visits every loop body once. A schedule that looks at a tile's position or size gets a FoldingError. Sizes may be
    NumPy integer arrays: then one walk counts a configuration for each element.
    """

    folded = True

    def __init__(self, problem: Attention[Size], *watchers: Watcher):
        super().__init__(problem, *watchers)
        self._groups: dict[Tile, Group] = {}
        self._totals: dict[tuple[int, ...], tuple[Shape, Size]] = {}

    def total(self, shape: Shape, where: MaskLine | None = None) -> Size:
        if where is not None and where.tile is not None:
            groups = dict(self._groups)
            groups[where.tile] = self._lines(where, where.tile, groups[where.tile])
            return self._sum(shape, groups)
        if where is not None:  # all key columns: no word is read if the mask hides everything
            return self.total(shape) * (where.mask.active_tiles > 0)
        key = tuple(map(id, shape))
        if key not in self._totals:  # the shape is stored too: while it exists, no other object has its ids
            self._totals[key] = (shape, self._sum(shape, self._groups))
        return self._totals[key][1]

    def _sum(self, shape: Shape, groups: dict[Tile, Group]) -> Size:
        exponents: dict[Tile, int] = {}
        factors: list[Size] = []
        parts: list[Groups] = []
        for x in shape:
            if isinstance(x, Groups) and not isinstance(x.tile, Stretch):
                groups = joined(x.tile, groups)
                parts.append(x)
            elif isinstance(x, Stretch | Groups):
                factors.append(x.size)
            elif isinstance(x, Tile):
                groups = joined(x, groups)
                exponents[x] = exponents.get(x, 0) + 1
            else:
                factors.append(x)
        factors += [group.moment(exponents, parts) for group in dict.fromkeys(groups.values())]
        return reduce(mul, factors) if factors else 1

    def occurrences(self, *tiles: Tile) -> Visits:
        groups = self._groups
        for tile in tiles:
            groups = joined(tile, groups)
        found: Visits = []
        for rows in product(*(group.rows for group in dict.fromkeys(groups.values()))):
            sizes = {tile: size for _, part in rows for tile, size in part.items() if tile in tiles}
            found.append((reduce(mul, [times for times, _ in rows], 1), sizes))
        return occurring(found)

    def _walk(self, length: Size | Tile, size: Size, where: MaskLine | None, parallel: bool) -> Iterator[Tile]:
        outer = self._groups
        axis, extent = (length.length, length.extent) if isinstance(length, Tile) else (length, length)
        tile = FoldedTile(axis, smaller(size, extent), size, cuts_of(length))
        changed: dict[Tile, Group]
        if where is not None:
            changed = self._masked(where, tile, size)
        elif isinstance(length, Stretch):
            changed = {tile: AxisGroup(tile, length.size, size)}
        elif isinstance(length, Tile):
            inner = joined(length, outer)[length].within(length, size, tile)
            changed = dict.fromkeys(inner.tiles, inner)
        else:
            changed = {tile: AxisGroup(tile, length, size)}
        replaced = {outer[x] for x in changed if x in outer}
        self._groups = {**{x: group for x, group in outer.items() if group not in replaced}, **changed}
        self._totals = {}
        try:
            yield tile
        finally:
            self._groups, self._totals = outer, {}

    def _masked(self, line: MaskLine, tile: FoldedTile, size: Size) -> dict[Tile, Group]:
        """The groups of a loop over the active tiles of a mask line."""
        mask = line.mask
        if line.kind == "row" and (tile.before or not same(size, mask.rows_k)):
            return self._cells(line, tile)
        if not same(size, mask.rows_q if line.kind == "column" else mask.rows_k):
            raise FoldingError("a loop over a line of the mask must use the mask's tile size")
        if line.tile is None:
            return {tile: self._lines(line, tile, None)}
        if len(self._groups[line.tile].tiles) > 1:
            raise FoldingError("a mask line's own tile already depends on another loop; run it unrolled")
        row, column = (tile, line.tile) if line.kind == "column" else (line.tile, tile)
        q, k = (mask.rows_q, mask.N % mask.rows_q), (mask.rows_k, mask.Nk % mask.rows_k)
        rows = [(mask.pairs(a, b), {row: q[a], column: k[b]}) for a in (False, True) for b in (False, True)]
        group = Group(occurring(rows))
        return {row: group, column: group}

    def _cells(self, line: MaskLine, tile: FoldedTile) -> dict[Tile, Group]:
        """The groups of a loop over the active parts of a row of the mask, on an axis of keys that other loops cut."""
        mask, i, before, size = line.mask, cast(Tile, line.tile), tile.before, tile.step
        block = before[-1][1] if before else mask.Nk
        outer = [x for x, _ in before]
        loops = {x for cut in (i, *outer) for x in self._groups[cut].tiles if not isinstance(x, Span)}
        if loops - {i, *outer} or any(anywhere(keys % block != 0) for _, keys in before):
            raise FoldingError("a row of the mask whose keys other loops cut in other places; run it unrolled")
        rows: SizeClasses = []
        for kind in mask.cells(block, size):
            sizes = {tile: kind.keys, **{x: 1 if same(x.extent, 1) else kind.block for x in outer}}
            heights = mask.rows_q, mask.N % mask.rows_q
            rows += [(times, {i: height, **sizes}) for times, height in zip(kind.seen, heights, strict=True)]
        group = Group(occurring(rows))
        return dict.fromkeys(group.tiles, group)

    def _lines(self, line: MaskLine, tile: Tile, group: Group | None) -> Group:
        """The tiles of an axis whose line of the mask is not empty."""
        if group is not None and len(group.tiles) > 1:
            raise FoldingError("a mask line's own tile already depends on another loop; run it unrolled")
        mask = line.mask
        if line.kind == "row":
            lines, length, size = mask.rows, mask.N, mask.rows_q
        else:
            lines, length, size = mask.cols, mask.Nk, mask.rows_k
        return Group(occurring([(lines(False), {tile: size}), (lines(True), {tile: length % size})]))


class Unsummed(Folded):
    """A folded machine that sums no words. It is for those who ask only for the room of blocks, which need no sum."""

    def total(self, shape: Shape, where: MaskLine | None = None) -> Size:
        for x in shape:
            if isinstance(x, Span):  # to sum its sizes is to check that they are known
                return super().total(shape, where)
        return 0


def cuts_of(length: Size | Tile) -> Cuts:
    """The loops that cut an axis of `length`, or the part of one that a loop goes through."""
    if isinstance(length, Share):
        return ((length.tile, length.each),)
    return (*length.before, (length, length.step)) if isinstance(length, FoldedTile) else ()


def joined(tile: Tile, groups: dict[Tile, Group]) -> dict[Tile, Group]:
    """The groups, with `tile` added to the group of the tile that it depends on (core/dependent_tiles.py)."""
    if tile in groups:
        return groups
    span = cast(Span, tile)
    groups = joined(span.tile, groups)  # it may itself be such a part
    group = Group(span.rows(groups[span.tile].rows), span.owners)
    return {**groups, **dict.fromkeys(group.tiles, group)}


def occurring(rows: SizeClasses) -> SizeClasses:
    """The rows that occur at least once; the first row if none does."""
    return [row for row in rows if not (isinstance(row[0], int) and row[0] == 0)] or rows[:1]
