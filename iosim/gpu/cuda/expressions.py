"""C expressions that a kernel evaluates while it runs: the places of tiles, and whether a mask leaves a tile out.

They include the arguments of steps that are not blocks: a part of a mask or of dropout, and numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, cast

from ...core.dependent_tiles import Each, Ends, Moved, Share, Span, Stretch, UpTo
from ...core.machine import Block
from ...core.shapes import Tile
from ...errors import ScheduleError
from ...masks.dropout import DropoutPart
from ...masks.mask import Part
from ...masks.reach import Seen
from ...schedules.decode import PagesOf
from ...steps.passes import Number, Place
from .mask_tables import Tables
from .record import Body, LoopNode, SymbolicTile, statements
from .warp_split import WHOLE_TURNS

if TYPE_CHECKING:
    from ...core.machine import Input
    from ...core.mask_types import BoundMask, MaskLine
    from ...core.typing import Size

LOOPS = "ijxyzuvw"  # the index of a loop, by the number of loops around it
MOST_BODIES = 4  # on an H200 code of more than about 90 KB takes longer to be fetched than to run


@dataclass
class Expressions:
    """The C expressions of one kernel. `names` are those of its blocks, `used_tables` the mask's tables it needs."""

    tables: Tables | None
    names: dict[Block, str] = field(default_factory=dict)
    used_tables: dict[str, None] = field(default_factory=dict)

    # ------------------------------------------------------------------ tiles

    def start(self, tile: Tile) -> str:
        """The first position of a tile, or of a part of an axis."""
        if isinstance(tile, Share):
            return f"{self.start(tile.tile)} * {tile.each}"
        if isinstance(tile, Ends):
            first = self.start(tile.tile)
            return f"({first} + {self.size(tile.tile)} - 1)" if tile.last else first
        if isinstance(tile, Each):
            return f"({self.start(tile.tile)}) * {tile.every}"
        if isinstance(tile, UpTo):
            return self.start(tile.tile if tile.last_only else tile.share)
        if isinstance(tile, Moved):
            place = "(" + " + ".join(f"{factor} * {self.place(x)}" for factor, x in tile.terms) + ")"
            return f"({place} % {tile.length})" if goes_round(tile) else place
        if isinstance(tile, Stretch):
            return str(tile.start)
        if isinstance(tile, PagesOf):
            return f"({self.start(tile.tile)} / {tile.page})"
        if isinstance(tile, Seen):
            return self.needed(tile, first=True) if tile.cut else "0"
        return f"{letter(tile)}0"

    def place(self, x: Tile | Block) -> str:
        """The start of a tile, or the first word of a block."""
        return f"*{self.names[x]}.at(0, 0)" if isinstance(x, Block) else self.start(x)

    def size(self, x: Tile | Size) -> str:
        """The number of positions of a tile; a number is itself."""
        if isinstance(x, Share):
            return f"min({x.each}, {x.length} - {self.start(x)})"
        if isinstance(x, Ends):
            return "1" if x.last else f"({self.size(x.tile)} - 1)"
        if isinstance(x, Each):
            return f"({self.size(x.tile)}) * {x.only}"
        if isinstance(x, UpTo):
            place, first = self.start(x.tile), self.start(x.share)
            if x.last_only:
                return f"({place} == {first} + {self.size(x.share)} - 1 ? 1 : 0)"
            return f"({place} - {first} + {int(x.own)})"
        if isinstance(x, Moved):
            return self.size(x.tile)
        if isinstance(x, Seen):
            return self.needed(x, first=False)
        if isinstance(x, Stretch):
            return str(x.size)
        if isinstance(x, PagesOf):
            return f"(({self.size(x.tile)} + {int(x.page) - 1}) / {x.page})"
        return f"n{letter(x)}" if isinstance(x, Tile) else str(x)

    def turns(self, tile: SymbolicTile) -> str:
        """The number of iterations of the loop over a tile."""
        if tile.parent is None:
            return str(turns_of(tile))
        return f"({self.size(tile.parent)} + {tile.step - 1}) / {tile.step}"

    def position(self, tile: SymbolicTile, index: str, size: int = 0) -> list[str]:
        """Declarations of the index, first position and size of a tile: i, i0, ni. `size` is the size of all tiles at
        this place, or 0 if sizes differ. Raises ScheduleError if only a block says where the tile lies."""
        i, parent = letter(tile), tile.parent
        if parent is not None and words_of(parent):
            raise ScheduleError("a loop over a part of an axis whose place is in a block cannot be written as CUDA")
        lines = [f"const int {i} = {index};"] if index else []
        if parent is not None and parent.from_end:
            last = f"{i} * {tile.step} + {tile.step - tile.lead}"
            return [*lines, f"const int n{i} = min({tile.step}, {last});", f"const int {i}0 = {last} - n{i};"]
        if parent is None:
            lines.append(f"const int {i}0 = {i} * {tile.step};")
            known = size or (0 if last_size(tile) else tile.extent)
            return [*lines, f"const int n{i} = {known or f'min({tile.step}, {tile.length} - {i}0)'};"]
        first = self.start(parent)
        lines.append(f"const int {i}0 = {first} + {i} * {tile.step};")
        return [*lines, f"const int n{i} = min({tile.step}, {first} + {self.size(parent)} - {i}0);"]

    # ------------------------------------------------------------------ inputs of steps that are not blocks

    def value(self, x: Input) -> str:
        """The argument of a step that is not a block. Raises ScheduleError if no kernel can take it."""
        if isinstance(x, Part):
            return self.visible(x)
        if isinstance(x, Number):
            return f"{float(x.value)!r}f"
        if isinstance(x, DropoutPart):
            return self.factor(x)
        if isinstance(x, Place):
            return " - ".join(self.start(cast("Tile", tile)) for tile in (x.tile, x.within) if tile)
        raise ScheduleError(f"a step has an input that no kernel can take: {x!r}")

    def visible(self, part: Part) -> str:
        """A lambda (r, c): whether row r of a tile sees its column c."""
        assert self.tables is not None
        text = self.tables.visible()
        self.used_tables.update(dict.fromkeys(name for name in self.tables.words if name in text))
        i, j = self.start(part.i), self.start(part.j)
        return f"[&](int r, int c) {{ const int x = {i} + r, y = {j} + c; return {text}; }}"

    def factor(self, part: DropoutPart) -> str:
        """A lambda (r, c): the factor of dropout for row r and column c of a tile.

        The element with the integer k is kept if k / 2^53 >= probability. So k is compared with the probability times
        2^53, rounded up.
        """
        chance, seed = part.dropout.probability, part.dropout.seed
        row, key = f"{self.start(part.i)} + r", f"{self.start(part.j)} + c"
        least = ceil(chance * 2**53)  # exact: a product with a power of 2
        return f"[&](int r, int c) {{ return dropout({row}, {key}, {seed}ULL, {least}ULL, {1 / (1 - chance)!r}f); }}"

    # ------------------------------------------------------------------ masks

    def unless_whole(self, part: Part) -> str:
        """The condition in front of a step that hides: not for tiles in which nothing is hidden. Empty if no table of
        tiles fits the step's loops."""
        mask, i, j = part.mask, part.i, part.j
        assert isinstance(i, SymbolicTile) and isinstance(j, SymbolicTile)
        parent = j.parent
        if (i.step, j.step) != (mask.rows_q, mask.rows_k) or i.parent:
            return ""
        if parent is not None and not (isinstance(parent, Seen) and not parent.cut):
            return ""
        return f"if (!bit({self.table('whole')}, {letter(i)} * {in_c(mask.Tc, mask.Tr)} + {letter(j)})) "

    def table(self, name: str, mask: BoundMask | None = None) -> str:
        """The name of a table of the mask over these tiles (cuda/mask_tables.py), which the kernel then needs."""
        assert self.tables is not None
        found = self.tables.use(name, mask)
        self.used_tables[found] = None
        return found

    def needed(self, seen: Seen, first: bool) -> str:
        """The first of the keys that a query tile needs, or their number, from a table."""
        assert self.tables is not None
        name = self.tables.needed(seen, first)
        self.used_tables[name] = None
        return f"(int){name}[{self.index(seen.tile, seen.size_of_tiles)}]"

    def line(self, line: MaskLine, tile: Tile | None = None) -> str:
        """The C expression for whether a tile of a line of the mask is active. Without a tile, for whether any tile of
        the line is active."""
        mask = line.mask
        if line.kind == "columns":
            return f"bit({self.table('any_k', mask)}, {self.index(tile, mask.rows_k)})"
        if tile is None:
            name, rows = ("any_q", mask.rows_q) if line.kind == "row" else ("any_k", mask.rows_k)
            return f"bit({self.table(name, mask)}, {self.index(line.tile, rows)})"
        i, j = (tile, line.tile) if line.kind == "column" else (line.tile, tile)
        if line.kind == "row" and isinstance(j, SymbolicTile) and (j.parent is not None or j.step != mask.rows_k):
            assert self.tables is not None
            name, columns, unit = self.tables.cells(*cuts_of(j))
            self.used_tables[name] = None
            return f"bit({name}, {self.index(i, mask.rows_q)} * {in_c(columns, mask.Tr)} + {letter(j)}0 / {unit})"
        active = self.table("active", mask)
        return f"bit({active}, {self.index(i, mask.rows_q)} * {in_c(mask.Tc, mask.Tr)} + {self.index(j, mask.rows_k)})"

    def index(self, tile: Tile | None, rows: Size) -> str:
        """The number of a tile among the mask's tiles of `rows` positions. Raises ScheduleError if the loop has tiles
        of another size."""
        whole = isinstance(tile, SymbolicTile) and (tile.parent is None or tile.parent.from_end)
        if not (isinstance(tile, SymbolicTile) and whole and tile.step == rows):
            raise ScheduleError("a loop over a line of the mask must use the mask's tile size")
        return letter(tile)


def in_c(columns: Size, rows: Size) -> str:
    """The columns of a table of bits in C: of 64 bits where the number of a bit may be beyond int."""
    return f"{columns}{'LL' if rows * columns >= 2**31 else ''}"


def cuts_of(tile: SymbolicTile) -> tuple[int, int]:
    """(the keys of the blocks that an axis was cut into before a loop, those of a tile of the loop)."""
    parent = tile.parent
    block = (
        parent.each if isinstance(parent, Share) else parent.step if isinstance(parent, SymbolicTile) else tile.length
    )
    return int(block), tile.step


def last_size(tile: SymbolicTile) -> int:
    """The positions of the last tile of an axis if it is smaller than the others; else 0."""
    return 0 if tile.parent else int(tile.length) % tile.extent


def turns_of(tile: SymbolicTile) -> int:
    """The number of tiles of an axis, or of a fixed part of one."""
    return -(-int(tile.length if tile.parent is None else tile.parent.extent) // tile.step)


def split_loops(body: Body) -> set[LoopNode]:
    """The loops that are written twice: once for whole tiles, once for a last tile that is smaller.

    The compiler then knows both sizes, but there is more code. So a loop must have enough whole tiles. If the kernel
    would be too long, some loops are written only once, outer ones first.
    """
    loops = [node for node in statements(body) if isinstance(node, LoopNode)]
    found = [x for x in loops if last_size(x.tile) and int(x.tile.length) // x.tile.step >= WHOLE_TURNS]
    while found and bodies(body, found) > MOST_BODIES:
        found.pop(0)
    return set(found)


def bodies(body: Body, split: Collection[LoopNode]) -> int:
    """The number of innermost loops in the source, each counted as often as it is written."""
    return max(1, sum(bodies(node.body, split) * (1 + (node in split)) for node in body if isinstance(node, LoopNode)))


def letter(tile: Tile) -> str:
    """The C name of a tile's index. Raises ScheduleError for a part of an axis that does not belong to a loop."""
    assert isinstance(tile, SymbolicTile | Span)
    return LOOPS[tile.depth]


def goes_round(tile: Moved) -> bool:
    """Whether the places of tiles alone lead beyond the end of the axis, and so to its start again."""
    tiles = [(int(factor), x) for factor, x in tile.terms if isinstance(x, Tile)]
    last = sum(factor * int(x.length - 1) for factor, x in tiles)
    return len(tiles) == len(tile.terms) and last >= int(tile.length)


def words_of(tile: Tile | Size) -> list[Block]:
    """The blocks whose first words say where a tile lies."""
    return [x for _, x in tile.terms if isinstance(x, Block)] if isinstance(tile, Moved) else []
