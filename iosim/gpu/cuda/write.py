"""Writes one launch as a CUDA kernel: its loops, copies and calls of steps, with the barriers of barriers.py."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.machine import Block
from ...core.problem import Attention, Tensor
from ...core.shapes import Tile, product
from ...masks.mask import Part
from .barriers import Access, State, barrier_lines, hbm, sram
from .copies import block_stride, is_aligned, row_stride
from .expressions import Expressions, last_size, letter, split_loops, turns_of, words_of
from .mask_tables import Tables
from .plan import ALL_ROWS, Plan, grid_loop, mark_of, tensors_of
from .record import Body, FreeNode, LoadNode, LoopNode, NewNode, Statement, StepNode, StoreNode

if TYPE_CHECKING:
    from ...core.shapes import Shape

C_TYPES = {"int32": "int"}  # element types with another name in C


@dataclass
class Writer:
    """Writes one kernel. `counters`: (tensor, "reads" or "writes") of all words of the program's array `counts`."""

    name: str
    p: Attention
    tensors: dict[str, Tensor]
    plan: Plan
    tables: Tables | None
    counters: list[tuple[str, str]]

    def __post_init__(self) -> None:
        self.c = Expressions(self.tables)
        self.split: set[LoopNode] = set()  # the loops that are written twice

    # ------------------------------------------------------------------ the kernel around the statements

    def kernel(self, body: Body) -> str:
        """The text of the kernel of a launch."""
        self.split = split_loops(body)
        reads, writes = tensors_of(body)
        grid = grid_loop(body)
        if grid is None:
            lines, _ = self.block(body, State())
        else:
            lines, _ = self.block(grid.body, State())
            lines = self.of_grid(grid, self.guarded(grid, ["{", *indent(lines), "}"]))
        inner = [*self.prologue(reads, writes), *lines, *self.epilogue(reads, writes)]
        parameters = [self.parameter(name, name in writes) for name in dict.fromkeys([*reads, *writes])]
        parameters += [f"const unsigned* {name}" for name in self.table_arguments]
        bounds = f"{self.plan.threads}, {self.plan.blocks}"
        head = f'extern "C" __global__ void __launch_bounds__({bounds}) {self.name}('
        arguments = ", ".join([*parameters, "unsigned long long* counts"]) + ") {"
        return "\n".join([head, *indent([arguments, *inner]), "}", ""])

    @property
    def table_arguments(self) -> tuple[str, ...]:
        """The tables of the mask that the kernel takes as arguments."""
        return tuple(name for name in self.c.used_tables if self.tables and not self.tables.is_constant(name))

    def parameter(self, tensor: str, written: bool) -> str:
        """The parameter that is the pointer to a tensor."""
        const = "" if written else "const "
        return f"{const}{self.hbm_type(tensor)}* hbm_{tensor}"

    def hbm_type(self, tensor: str) -> str:
        """The C type of a tensor's words in HBM."""
        return C_TYPES.get(name := self.p.hbm_type(self.tensors[tensor]), name)

    def prologue(self, reads: list[str], writes: list[str]) -> list[str]:
        """The code before the statements: teams, shared memory, counters, pointers to this block's instance."""
        plan = self.plan
        margins = str(plan.tensor_cores).lower()
        lines = [
            f"using Team = Teams<{plan.threads}, {plan.team}, {plan.rows}, {margins}>;",
            f"using All = Teams<{plan.threads}, {plan.threads}, {ALL_ROWS}, {margins}>;",
            "extern __shared__ Raw16 shared[];",
            "unsigned char* const sram = reinterpret_cast<unsigned char*>(shared);",
        ]
        lines += [f"Counter {name}_reads;" for name in reads] + [f"Counter {name}_writes;" for name in writes]
        for name in dict.fromkeys([*reads, *writes]):
            words = product(self.p.shape(self.tensors[name]))
            lines.append(f"hbm_{name} += {self.instance(name)} * {words}LL;")
        return lines

    def instance(self, tensor: str) -> str:
        """The number of the instance of a tensor that this thread block works on. A group of heads shares K and V."""
        p = self.p
        if not self.tensors[tensor].shared or p.heads == p.kv_heads:
            return "(long long)blockIdx.y"
        return f"(long long)(blockIdx.y / {p.heads} * {p.kv_heads} + blockIdx.y % {p.heads} / {p.heads // p.kv_heads})"

    def epilogue(self, reads: list[str], writes: list[str]) -> list[str]:
        """The code after the statements, which adds the counters to those of the other blocks."""
        used = [(f"{name}_reads", (name, "reads")) for name in reads]
        used += [(f"{name}_writes", (name, "writes")) for name in writes]
        return [f"{counter}.flush(counts + {self.counters.index(key)});" for counter, key in used]

    # ------------------------------------------------------------------ statements

    def block(self, body: Body, state: State) -> tuple[list[str], State]:
        """(lines of consecutive statements, the state after them), from the state before them."""
        lines: list[str] = []
        for node in body:
            more, state = self.statement(node, state)
            lines += more
        return lines, state

    def statement(self, node: Statement, state: State) -> tuple[list[str], State]:
        """(lines of one statement, with the wait and the barrier that it needs first; the state after it)."""
        if isinstance(node, FreeNode):
            return [], state
        if isinstance(node, NewNode):
            return [self.declare(node.block)], state
        if isinstance(node, LoopNode):
            return self.loop(node, state)
        if isinstance(node, StepNode):
            new, text, copy = self.step_accesses(node), self.call(node), None
        else:
            new, text, copy = self.copy(node)
        needed = state.before(new)
        return [*barrier_lines(needed), *text], needed.state.add(new, copy)

    def loop(self, loop: LoopNode, entry: State) -> tuple[list[str], State]:
        """(lines of a loop, the state after it). The body is written again until its barriers also suffice for
        what the iteration before left unfinished."""
        start = entry
        while True:
            lines, end = self.block(loop.body, start)
            if end.copies:
                lines, end = [*lines, "copies_done<0>();"], end.landed()
            joined = start.join(end)
            if joined == start:
                break
            start = joined
        lines = self.guarded(loop, ["{", *indent(lines), "}"] if loop.where else lines)
        return self.in_turn(loop, lines), start

    def in_turn(self, loop: LoopNode, lines: list[str]) -> list[str]:
        """A loop with this body."""
        i = letter(loop.tile)
        if loop not in self.split:
            turns, inner = self.c.turns(loop.tile), indent(self.placed(loop, "", 0, lines))
            if loop.tile.parent is not None and loop.tile.parent.backwards:
                return [f"for (int {i} = {turns} - 1; {i} >= 0; --{i}) {{", *inner, "}"]
            return [f"for (int {i} = 0; {i} < {turns}; ++{i}) {{", *inner, "}"]
        before_last = turns_of(loop.tile) - 1
        whole, last = self.whole_and_last(loop, "", str(before_last), lines)
        return [f"for (int {i} = 0; {i} < {before_last}; ++{i}) {{", *whole, "}", "{", *last, "}"]

    def of_grid(self, loop: LoopNode, lines: list[str]) -> list[str]:
        """The body of the loop whose iterations are the thread blocks."""
        if loop not in self.split:
            return self.placed(loop, "blockIdx.x", 0, lines)
        whole, last = self.whole_and_last(loop, "blockIdx.x", "blockIdx.x", lines)
        return [f"if (blockIdx.x < {turns_of(loop.tile) - 1}) {{", *whole, "} else {", *last, "}"]

    def whole_and_last(self, loop: LoopNode, index: str, last: str, lines: list[str]) -> tuple[list[str], list[str]]:
        """(the body for whole tiles, the body for the smaller last one): the compiler knows both sizes. `index` and
        `last` are the C expressions of their numbers."""
        rest = self.placed(loop, last, last_size(loop.tile), lines)
        return indent(self.placed(loop, index, loop.tile.extent, lines)), indent(rest)

    def placed(self, loop: LoopNode, index: str, size: int, lines: list[str]) -> list[str]:
        """The body, after the declarations of where its tile lies."""
        return [*needed(self.c.position(loop.tile, index, size), lines), *lines]

    def guarded(self, loop: LoopNode, lines: list[str]) -> list[str]:
        """The body, under a condition if the loop goes over the active tiles of a line of the mask."""
        return lines if loop.where is None else [f"if ({self.c.line(loop.where, loop.tile)})", *lines]

    def declare(self, block: Block) -> str:
        """The declaration of a block, under a name that is not taken."""
        taken, name, number = self.c.names.values(), block.name, 1
        while name in taken:
            number += 1
            name = f"{block.name}_{number}"
        self.c.names.setdefault(block, name)
        rows, columns = self.plan.extents(block)
        kind = f"Block<{self.sram_type(block)}, {rows}, {columns}, {self.team(block)}>"
        sizes = ", ".join([self.c.size(x) for x in block.shape] + ["1"] * (2 - len(block.shape)))
        return f"const {kind} {self.c.names[block]}(sram + {self.plan.offsets[block]}, {sizes});"

    def team(self, block: Block) -> str:
        """Whose threads share the rows of a block: `Team` (each team has rows of its own) or `All`."""
        return "All" if (block.base or block) in self.plan.whole else "Team"

    def sram_type(self, block: Block) -> str:
        """The C type of a block's words on chip."""
        return C_TYPES.get(name := self.p.sram_type(block.tensor), name)

    # ------------------------------------------------------------------ copies

    def copy(self, node: LoadNode | StoreNode) -> tuple[list[Access], list[str], int | None]:
        """(accesses, lines, number of the asynchronous copy or None) of a load or a store.

        A copy is asynchronous if it is an aligned load and the words have the same type in HBM and on chip.
        """
        block, tensor, loads = node.block, node.tensor, isinstance(node, LoadNode)
        stride = row_stride(self.p, self.tensors[tensor])
        aligned = is_aligned(self.p, self.tensors[tensor], node.place)
        flying = loads and aligned and self.sram_type(block) == self.hbm_type(tensor)
        copy = id(node) if flying else None
        new = [self.access(block, loads, True, copy), hbm(block.base or block, tensor, not loads, copy)]
        new += [self.access(x, False, False) for tile in node.place for x in words_of(tile)]
        counter = f"{tensor}_{'reads' if loads else 'writes'}"
        verb = f"{'load' if loads else 'store'}<{str(aligned).lower()}>"
        text = f"{verb}({self.reference(block)}, hbm_{tensor} + {self.offset(node.place)}, {stride}LL, {counter});"
        if isinstance(node, LoadNode) and node.where is not None:
            text = f"if ({self.c.line(node.where)}) {text}"
        return new, [text, "copies_commit();"] if flying else [text], copy

    def offset(self, place: Shape) -> str:
        """Words from the start of the tensor to a place in it, as a 64-bit product: its factors are ints."""
        rows, columns = place[0], place[1] if len(place) > 1 else 1
        stride = block_stride(place)
        parts = [f"{self.c.start(rows)} * {stride}LL"] if isinstance(rows, Tile) else []
        parts += [self.c.start(columns)] if isinstance(columns, Tile) else []
        return " + ".join(parts) or "0"

    # ------------------------------------------------------------------ steps

    def call(self, node: StepNode) -> list[str]:
        """The call of a step."""
        arguments = [self.reference(x) if isinstance(x, Block) else self.c.value(x) for x in node.arguments]
        guard = "".join(self.c.unless_whole(x) for x in node.arguments if isinstance(x, Part))
        return [f"{guard}{node.step.__name__}({', '.join(arguments)});"]

    def step_accesses(self, node: StepNode) -> list[Access]:
        """The accesses of a step. A step of iosim touches only its team's rows, except in the arguments that it reads
        whole. A step that brings its own CUDA may touch anything."""
        ours, whole = not hasattr(node.step, "cuda"), mark_of(node.step).reads_whole
        return [
            self.access(x, k < len(node.outputs), ours and k not in whole)
            for k, x in enumerate(node.arguments)
            if isinstance(x, Block)
        ]

    def access(self, block: Block, writes: bool, own: bool, copy: int | None = None) -> Access:
        """An access to a block in shared memory. No team owns rows of a part of a block, or of a block that all threads
        share."""
        low, high = self.plan.span(self.p, block)
        own = own and block.base is None and block not in self.plan.whole
        return sram(block.base or block, low, high, own, writes, copy)

    def reference(self, block: Block) -> str:
        """The C name of a block; a part of a block is a Block of its own over the same memory."""
        if block.base is None:
            return self.c.names[block]
        columns = self.plan.extents(block.base)[1]
        tile, base = block.shape[0], block.base.shape[0]
        assert isinstance(tile, Tile), "a part of a block is named by a tile"
        first = self.c.start(tile) + (f" - {self.c.start(base)}" if isinstance(base, Tile) else "")
        here = self.plan.extents(block)[0]
        kind = f"Block<{self.sram_type(block)}, {here}, {columns}, {self.team(block)}>"
        width = self.c.size(block.shape[1]) if len(block.shape) > 1 else "1"
        return f"{kind}(sram + {self.plan.offsets[block.base]}, {self.c.size(tile)}, {width}, {first})"


def needed(declarations: list[str], lines: list[str]) -> list[str]:
    """The declarations `const int name = ...` whose name is used in a later one or in the lines."""
    found: list[str] = []
    for declaration in reversed(declarations):
        name = declaration.split()[2]
        if any(re.search(rf"\b{name}\b", line) for line in [*found, *lines]):
            found.insert(0, declaration)
    return found


def indent(lines: list[str]) -> list[str]:
    """The lines, four spaces further to the right."""
    return ["    " + line for line in lines]
