"""C expressions: where tiles start and end, which of them a mask leaves out, and what steps take beside blocks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil
from typing import Any, cast

from ..core.dependent_tiles import Moved, Share
from ..core.machine import Block, Tile
from ..errors import ScheduleError
from ..masks.dropout import DropoutPart
from ..masks.mask import Line, Part
from ..masks.reach import Seen
from ..steps.passes_and_linear import Number
from .mask_tables import Tables
from .record import Loop, SymbolicTile, statements
from .warp_split import WHOLE_TURNS

LOOPS = "ijxyzuvw"
MOST_BODIES = 4  # measured on an H200: more than about 90 KB of code take longer to come than to run


@dataclass
class Expressions:
    """Of one kernel: `names` are those of its blocks, `used_tables` the tables of the mask that it needs."""

    tables: Tables | None
    names: dict[Block, str] = field(default_factory=dict)
    used_tables: dict[str, None] = field(default_factory=dict)

    # ------------------------------------------------------------------ tiles

    def start(self, tile: Any) -> str:
        """First position of a tile, or of a part of an axis that depends on one."""
        if isinstance(tile, Share):
            return f"{self.start(tile.tile)} * {tile.each}"
        if isinstance(tile, Moved):
            return "(" + " + ".join(f"{factor} * {self.place(x)}" for factor, x in tile.terms) + ")"
        return "0" if isinstance(tile, Seen) else f"{letter(tile)}0"

    def place(self, x: Any) -> str:
        """Where a tile starts, or the first word of a block."""
        return f"*{self.names[x]}.at(0, 0)" if isinstance(x, Block) else self.start(x)

    def size(self, x: Any) -> str:
        """Positions of a tile; a number is itself."""
        if isinstance(x, Share):
            return f"min({x.each}, {x.length} - {self.start(x)})"
        if isinstance(x, Moved):
            return self.size(x.tile)
        if isinstance(x, Seen):
            return f"(int){self.table('reach')}[{self.index(x.tile, x.mask.rows_q)}]"
        return f"n{letter(x)}" if isinstance(x, Tile) else str(x)

    def turns(self, tile: SymbolicTile) -> str:
        """How often the loop over a tile runs."""
        if tile.parent is None:
            return str(-(-tile.length // tile.step))
        return f"({self.size(tile.parent)} + {tile.step - 1}) / {tile.step}"

    def position(self, tile: SymbolicTile, index: str, size: int = 0) -> list[str]:
        """Index, first position and size of a tile: i, i0, ni; `size` where it is known for all that come here."""
        i, parent = letter(tile), tile.parent
        if parent is not None and words_of(parent):
            raise ScheduleError("a loop over a part of an axis whose place is in a block cannot be written as CUDA")
        lines = [f"const int {i} = {index};"] if index else []
        if parent is None:
            lines.append(f"const int {i}0 = {i} * {tile.step};")
            known = size or (0 if last_size(tile) else tile.extent)
            return [*lines, f"const int n{i} = {known or f'min({tile.step}, {tile.length} - {i}0)'};"]
        first = self.start(parent)
        lines.append(f"const int {i}0 = {first} + {i} * {tile.step};")
        return [*lines, f"const int n{i} = min({tile.step}, {first} + {self.size(parent)} - {i}0);"]

    # ------------------------------------------------------------------ inputs of steps that are no blocks

    def value(self, x: Any) -> str:
        if isinstance(x, Part):
            return self.visible(x)
        if isinstance(x, Number):
            return f"{float(x.value)!r}f"
        if isinstance(x, DropoutPart):
            return self.factor(x)
        raise ScheduleError(f"a step has an input that no kernel can take: {x!r}")

    def visible(self, part: Part) -> str:
        assert self.tables is not None
        text = self.tables.visible()
        self.used_tables.update(dict.fromkeys(name for name in self.tables.words if name in text))
        i, j = self.start(part.i), self.start(part.j)
        return f"[&](int r, int c) {{ const int x = {i} + r, y = {j} + c; return {text}; }}"

    def factor(self, part: DropoutPart) -> str:
        """What dropout multiplies with. Kept is k / 2^53 >= probability, for an integer k: k >= the next integer."""
        chance, seed = part.dropout.probability, part.dropout.seed
        row, key = f"{self.start(part.i)} + r", f"{self.start(part.j)} + c"
        least = ceil(chance * 2**53)  # exact: a product with a power of 2
        return f"[&](int r, int c) {{ return dropout({row}, {key}, {seed}ULL, {least}ULL, {1 / (1 - chance)!r}f); }}"

    # ------------------------------------------------------------------ masks

    def unless_whole(self, part: Part) -> str:
        """A tile in which nothing is hidden is left alone."""
        mask, i, j = part.mask, cast("SymbolicTile", part.i), cast("SymbolicTile", part.j)
        parent = j.parent
        if (i.step, j.step) != (mask.rows_q, mask.rows_k) or i.parent:
            return ""
        if parent is not None and not isinstance(parent, Seen):
            return ""
        return f"if (!bit({self.table('whole')}, {letter(part.i)} * {mask.Tc} + {letter(part.j)})) "

    def table(self, name: str) -> str:
        assert self.tables is not None
        self.used_tables[name] = None
        return self.tables.use(name)

    def line(self, line: Line, tile: Any = None) -> str:
        """C for: is this tile of the line active; without a tile: is any."""
        mask = line.mask
        if line.kind == "columns":
            return f"bit({self.table('any_k')}, {self.index(tile, mask.rows_k)})"
        if tile is None:
            name, rows = ("any_q", mask.rows_q) if line.kind == "row" else ("any_k", mask.rows_k)
            return f"bit({self.table(name)}, {self.index(line.tile, rows)})"
        i, j = (tile, line.tile) if line.kind == "column" else (line.tile, tile)
        return f"bit({self.table('active')}, {self.index(i, mask.rows_q)} * {mask.Tc} + {self.index(j, mask.rows_k)})"

    def index(self, tile: Any, rows: int) -> str:
        if tile is None or tile.step != rows or tile.parent is not None:
            raise ScheduleError("a loop over a line of the mask must use the mask's tile size")
        return letter(tile)


def last_size(tile: SymbolicTile) -> int:
    """How many positions the last tile of an axis has where that is fewer than the others have; else 0."""
    return 0 if tile.parent else int(tile.length % tile.extent)


def split_loops(body: list[Any]) -> set[Loop]:
    """The loops that are written twice: for whole tiles, and for a last one that is smaller. Then the compiler knows
    both sizes, but there is more code, which must pay; and what is more than a GPU fetches ahead comes late. So where
    there would be too much, outer loops are not, then the first ones."""
    loops = [node for node in statements(body) if isinstance(node, Loop)]
    found = [x for x in loops if last_size(x.tile) and x.tile.length // x.tile.step >= WHOLE_TURNS]
    while found and bodies(body, found) > MOST_BODIES:
        found.pop(0)
    return set(found)


def bodies(body: list[Any], split: Collection[Loop]) -> int:
    """How many innermost loops there are, each as often as it is written."""
    return max(1, sum(bodies(node.body, split) * (1 + (node in split)) for node in body if isinstance(node, Loop)))


def letter(tile: Any) -> str:
    return LOOPS[tile.depth]


def words_of(tile: Any) -> list[Block]:
    """Blocks whose first word says where a tile lies."""
    return [x for _, x in tile.terms if isinstance(x, Block)] if isinstance(tile, Moved) else []
