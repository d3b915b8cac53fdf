"""Prints one launch as a CUDA kernel: loops, copies, calls of steps, and the barriers between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import ScheduleError
from ..machine import Block, Tile, product
from ..masks import Line, Part
from ..problem import Attention, Tensor
from .hazards import Access, State, describe, hbm, sram
from .plan import ALL_ROWS, MATRIX, Plan, grid_loop, tensors_of
from .record import Free, Load, Loop, New, Step, Store, SymbolicTile
from .tables import Tables

LOOPS = "ijxyzuvw"


@dataclass
class Writer:
    """Writes one kernel. `counters` are those of the whole program, in the order of the array `counts`."""

    name: str
    p: Attention
    tensors: dict[str, Tensor]
    plan: Plan
    tables: Tables | None
    counters: list[tuple[str, str]]
    names: dict[Block, str] = field(default_factory=dict)
    used_tables: dict[str, None] = field(default_factory=dict)

    # ------------------------------------------------------------------ the kernel around the statements

    def kernel(self, body: list[Any]) -> str:
        reads, writes = tensors_of(body)
        grid = grid_loop(body)
        if grid is None:
            lines, _ = self.block(body, State())
        else:
            lines, _ = self.block(grid.body, State())
            lines = [*self.position(grid.tile, "blockIdx.x"), *self.guarded(grid, ["{", *indent(lines), "}"])]
        inner = [*self.prologue(reads, writes), *lines, *self.epilogue(reads, writes)]
        parameters = [self.parameter(name, name in writes) for name in dict.fromkeys([*reads, *writes])]
        parameters += [f"const unsigned* {name}" for name in self.table_arguments]
        bounds = f"{self.plan.threads}, {self.plan.blocks}"
        head = f'extern "C" __global__ void __launch_bounds__({bounds}) {self.name}('
        return "\n".join([head, *indent([", ".join([*parameters, "unsigned long long* counts"]) + ") {"]),
                          *indent(inner), "}", ""])  # fmt: skip

    @property
    def table_arguments(self) -> tuple[str, ...]:
        return tuple(name for name in self.used_tables if self.tables and not self.tables.is_constant(name))

    def parameter(self, tensor: str, written: bool) -> str:
        const = "" if written else "const "
        return f"{const}{self.hbm_type(tensor)}* hbm_{tensor}"

    def hbm_type(self, tensor: str) -> str:
        return str(self.p.acc_dtype if self.tensors[tensor].kind == "state" else self.p.dtype)

    def prologue(self, reads: list[str], writes: list[str]) -> list[str]:
        plan = self.plan
        margins = str(plan.tensor_cores).lower()
        lines = [
            f"using Team = Teams<{plan.threads}, {plan.team}, {plan.rows}, {margins}>;",
            f"using All = Teams<{plan.threads}, {plan.threads}, {ALL_ROWS}, {margins}>;",
            "extern __shared__ Raw16 shared[];",
            "unsigned char* const sram = reinterpret_cast<unsigned char*>(shared);",
        ]
        lines += [f"Counter read_{name};" for name in reads] + [f"Counter wrote_{name};" for name in writes]
        for name in dict.fromkeys([*reads, *writes]):
            words = product(self.p.shape(self.tensors[name]))
            lines.append(f"hbm_{name} += {self.instance(name)} * {words}LL;")
        return lines

    def instance(self, tensor: str) -> str:
        """Which instance of a tensor this block works on: keys and values are shared by groups of heads."""
        p = self.p
        if not is_shared(self.tensors[tensor]) or p.heads == p.kv_heads:
            return "(long long)blockIdx.y"
        return f"(long long)(blockIdx.y / {p.heads} * {p.kv_heads} + blockIdx.y % {p.heads} / {p.heads // p.kv_heads})"

    def epilogue(self, reads: list[str], writes: list[str]) -> list[str]:
        used = [(f"read_{name}", (name, "reads")) for name in reads]
        used += [(f"wrote_{name}", (name, "writes")) for name in writes]
        return [f"{counter}.flush(counts + {self.counters.index(key)});" for counter, key in used]

    # ------------------------------------------------------------------ statements

    def block(self, body: list[Any], state: State) -> tuple[list[str], State]:
        lines: list[str] = []
        for node in body:
            more, state = self.statement(node, state)
            lines += more
        return lines, state

    def statement(self, node: Any, state: State) -> tuple[list[str], State]:
        if isinstance(node, Free):
            return [], state
        if isinstance(node, New):
            return [self.declare(node.block)], state
        if isinstance(node, Loop):
            return self.loop(node, state)
        if isinstance(node, Step):
            new, text, copy = self.step_accesses(node), self.call(node), None
        else:
            new, text, copy = self.copy(node)
        still, barrier, state = state.before(new)
        return [*describe(still, barrier), *text], state.add(new, copy)

    def loop(self, loop: Loop, entry: State) -> tuple[list[str], State]:
        start = entry
        while True:
            lines, end = self.block(loop.body, start)
            if end.copies:
                lines, end = [*lines, "copies_done<0>();"], end.landed()
            joined = start.join(end)
            if joined == start:
                break
            start = joined
        i, tile = letter(loop.tile), loop.tile
        turns = f"for (int {i} = 0; {i} < {self.turns(tile)}; ++{i}) {{"
        inner = [*self.position(tile, ""), *self.guarded(loop, ["{", *indent(lines), "}"] if loop.where else lines)]
        return [turns, *indent(inner), "}"], start

    def turns(self, tile: SymbolicTile) -> str:
        if tile.parent is None:
            return str(-(-tile.length // tile.step))
        return f"(n{letter(tile.parent)} + {tile.step - 1}) / {tile.step}"

    def position(self, tile: SymbolicTile, index: str) -> list[str]:
        """Index, first position and size of a tile: i, i0, ni."""
        i, first = letter(tile), "" if tile.parent is None else f"{letter(tile.parent)}0 + "
        end = str(tile.length) if tile.parent is None else f"{letter(tile.parent)}0 + n{letter(tile.parent)}"
        lines = [f"const int {i} = {index};"] if index else []
        lines.append(f"const int {i}0 = {first}{i} * {tile.step};")
        if tile.parent is None and tile.length % tile.extent == 0:
            return [*lines, f"const int n{i} = {tile.extent};"]
        return [*lines, f"const int n{i} = min({tile.step}, {end} - {i}0);"]

    def guarded(self, loop: Loop, lines: list[str]) -> list[str]:
        return lines if loop.where is None else [f"if ({self.line(loop.where, loop.tile)})", *lines]

    def declare(self, block: Block) -> str:
        taken = set(self.names.values())
        name = next(n for n in (block.name, *(f"{block.name}_{k}" for k in range(2, 99))) if n not in taken)
        self.names.setdefault(block, name)
        rows, columns = self.plan.extents(block)
        kind = f"Block<{self.sram_type(block)}, {rows}, {columns}, {self.team(block)}>"
        sizes = ", ".join([size(x) for x in block.shape] + ["1"] * (2 - len(block.shape)))
        return f"const {kind} {self.names[block]}(sram + {self.plan.offsets[block]}, {sizes});"

    def team(self, block: Block) -> str:
        return "All" if (block.base or block) in self.plan.whole else "Team"

    def sram_type(self, block: Block) -> str:
        return str(self.p.dtype if block.tensor is not None and block.tensor.kind == "input" else self.p.acc_dtype)

    # ------------------------------------------------------------------ copies

    def copy(self, node: Load | Store) -> tuple[list[Access], list[str], int | None]:
        block, tensor, loads = node.block, node.tensor, isinstance(node, Load)
        aligned = self.is_aligned(block, tensor)
        flying = loads and aligned and self.sram_type(block) == self.hbm_type(tensor)
        copy = id(node) if flying else None
        new = [self.access(block, loads, True, copy), hbm(block.base or block, tensor, not loads, copy)]
        counter = f"{'read' if loads else 'wrote'}_{tensor}"
        verb = f"{'load' if loads else 'store'}<{str(aligned).lower()}>"
        text = (
            f"{verb}({self.reference(block)}, hbm_{tensor} + {self.offset(block)}, {self.stride(tensor)}LL, {counter});"
        )
        if isinstance(node, Load) and node.where is not None:
            text = f"if ({self.line(node.where)}) {text}"
        return new, [text, "copies_commit();"] if flying else [text], copy

    def stride(self, tensor: str) -> int:
        axes = self.p.shape(self.tensors[tensor])
        return int(axes[1]) if len(axes) > 1 else 1

    def offset(self, block: Block) -> str:
        """Words from the start of the tensor to the tile; int is enough for each factor, not for their product."""
        rows, columns = block.shape[0], block.shape[1] if len(block.shape) > 1 else 1
        stride = self.stride_of_shape(block)
        parts = [f"{letter(rows)}0 * {stride}LL"] if isinstance(rows, Tile) else []
        parts += [f"{letter(columns)}0"] if isinstance(columns, Tile) else []
        return " + ".join(parts) or "0"

    def stride_of_shape(self, block: Block) -> int:
        if len(block.shape) == 1:
            return 1
        last = block.shape[1]
        return int(last.length if isinstance(last, Tile) else last)

    def is_aligned(self, block: Block, tensor: str) -> bool:
        """Whether every row of every tile starts at a multiple of 16 bytes in HBM."""
        if len(block.shape) == 1:
            return False
        width, last = self.p.hbm_bytes(self.tensors[tensor]), block.shape[1]
        starts: list[int] = []
        while isinstance(last, SymbolicTile):
            starts, last = [*starts, last.step if last.step < last.length else 0], last.parent
        return all(n * width % 16 == 0 for n in (self.stride(tensor), *starts))

    # ------------------------------------------------------------------ steps

    def call(self, node: Step) -> list[str]:
        arguments, guard = [], ""
        for x in node.arguments:
            if isinstance(x, Block):
                arguments.append(self.reference(x))
            elif isinstance(x, Part):
                arguments.append(self.visible(x))
                guard = self.unless_whole(x)
            else:
                raise ScheduleError(f"step {node.step.__name__} has an input that no kernel can take: {x!r}")
        return [f"{guard}{node.step.__name__}({', '.join(arguments)});"]

    def visible(self, part: Part) -> str:
        assert self.tables is not None
        text = self.tables.visible()
        self.used_tables.update(dict.fromkeys(name for name in self.tables.words if name in text))
        i, j = letter(part.i), letter(part.j)
        return f"[&](int r, int c) {{ const int x = {i}0 + r, y = {j}0 + c; return {text}; }}"

    def unless_whole(self, part: Part) -> str:
        """A tile in which nothing is hidden is left alone."""
        mask = part.mask
        if (part.i.step, part.j.step) != (mask.rows_q, mask.rows_k) or part.i.parent or part.j.parent:
            return ""
        return f"if (!bit({self.table('whole')}, {letter(part.i)} * {mask.Tc} + {letter(part.j)})) "

    def step_accesses(self, node: Step) -> list[Access]:
        """A step of ours keeps to its rows, but for what a matrix product reads whole; of others nothing is known."""
        ours = not hasattr(node.step, "cuda")
        whole = MATRIX.get(node.step.__name__)
        return [
            self.access(x, k < len(node.outputs), ours and k != whole)
            for k, x in enumerate(node.arguments)
            if isinstance(x, Block)
        ]

    def access(self, block: Block, writes: bool, own: bool, copy: int | None = None) -> Access:
        low, high = self.plan.span(self.p, block)
        own = own and block.base is None and block not in self.plan.whole
        return sram(block.base or block, low, high, own, writes, copy)

    def reference(self, block: Block) -> str:
        """A block, or a part of one."""
        if block.base is None:
            return self.names[block]
        columns = self.plan.extents(block.base)[1]
        tile, base = block.shape[0], block.base.shape[0]
        origin = f" - {letter(base)}0" if isinstance(base, Tile) else ""
        here = self.plan.extents(block)[0]
        kind = f"Block<{self.sram_type(block)}, {here}, {columns}, {self.team(block)}>"
        width = size(block.shape[1]) if len(block.shape) > 1 else "1"
        return f"{kind}(sram + {self.plan.offsets[block.base]}, {size(tile)}, {width}, {letter(tile)}0{origin})"

    # ------------------------------------------------------------------ masks

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

    def index(self, tile: SymbolicTile, rows: int) -> str:
        if tile is None or tile.step != rows or tile.parent is not None:
            raise ScheduleError("a loop over a line of the mask must use the mask's tile size")
        return letter(tile)


def is_shared(tensor: Tensor) -> bool:
    """Whether the heads of a group share it: inputs along the keys, as K and V."""
    return tensor.kind == "input" and tensor.axes[0] == "Nk"


def letter(tile: Any) -> str:
    return LOOPS[tile.depth]


def size(x: Any) -> str:
    return f"n{letter(x)}" if isinstance(x, Tile) else str(x)


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
