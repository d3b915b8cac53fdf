"""The code of a kernel as plain values: operations with their operands, regions and lines, without objects of Triton.

The names of operations are those of MLIR, such as `arith.addi` and `tt.load`. `needed_values` finds the values that
decide which words are moved: all that addresses, masks and bounds depend on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

READS, WRITES, ATOMICS = "reads", "writes", "atomics"
MEMORY = {"tt.load": READS, "tt.store": WRITES, "tt.atomic_rmw": ATOMICS, "tt.atomic_cas": ATOMICS}
DOTS = ("tt.dot", "tt.dot_scaled")
MASK_AT = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}  # the index of the mask among the operands
# How many of the first operands decide control flow.
CONTROL = {"scf.for": 3, "scf.if": 1, "scf.while": 0, "scf.condition": 1, "cf.cond_br": 1, "cf.br": 0}
OPPOSITE = ([0, 1], [2, 5], [3, 4])  # predicates of arith.cmpi: eq ne, slt sge, sle sgt
Places = tuple[tuple[str, str, str], ...]  # (file, line, column)
WIDTH = re.compile(r"(?:i|u|f|bf)(\d+)|f(8)E")


@dataclass(frozen=True)
class Type:
    """The type of a value: the shape of a tensor (empty for a scalar), and the element type."""

    shape: tuple[int, ...]
    element: str
    """`i32`, `f16`, or `!tt.ptr<f16>` for a pointer."""

    @classmethod
    def of(cls, text: str) -> Type:
        """The type of a text of MLIR: `tensor<128x1x!tt.ptr<f16>>`, `i32`."""
        if not text.startswith("tensor<"):
            return cls((), text)
        inner = text.removeprefix("tensor<").removesuffix(">")
        sizes = re.match(r"(?:\d+x)*", inner)
        assert sizes is not None
        return cls(tuple(int(n) for n in sizes[0].split("x")[:-1]), inner[sizes.end() :])

    @property
    def is_pointer(self) -> bool:
        return self.element.startswith("!tt.ptr<")

    @property
    def is_integer(self) -> bool:
        return self.element == "index" or bool(re.fullmatch(r"i\d+", self.element))

    @property
    def pointee(self) -> Type:
        """The type that a pointer points to: `f16` for `!tt.ptr<f16>` and of `!tt.ptr<f16, 1>`."""
        return Type((), self.element.removeprefix("!tt.ptr<").removesuffix(">").partition(",")[0])

    @property
    def bits(self) -> int:
        """The width of an element; 64 for pointers and indices."""
        found = WIDTH.match(self.element)
        return int(found[1] or found[2]) if found else 64

    @property
    def element_bytes(self) -> int:
        """The bytes of an element in memory. A truth value takes one."""
        return max(1, self.bits // 8)


@dataclass(frozen=True)
class Block:
    """Operations in order, and the block's arguments."""

    arguments: tuple[int, ...]
    operations: tuple[Operation, ...]

    def inside(self) -> Iterator[Block]:
        """All blocks inside its operations, at any depth."""
        for operation in self.operations:
            yield from operation.blocks()


@dataclass(frozen=True)
class Operation:
    """One operation. Values are represented by arbitrary numbers.

    `numbers` holds its integer attributes, such as `axis`. `constant` is the integer of `arith.constant`, or
    None. `targets` are the pairs (target block, number of operands for it) of a branch. `order` is the order of axes
    of `tt.trans`.
    """

    name: str
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    operand_types: tuple[Type, ...] = ()
    types: tuple[Type, ...] = ()
    regions: tuple[tuple[Block, ...], ...] = ()
    numbers: dict[str, int] = field(default_factory=dict)
    constant: int | None = None
    places: Places = ()
    """Where it stands in the source, and where the functions around it are called."""
    targets: tuple[tuple[int, int], ...] = ()
    order: tuple[int, ...] = ()

    @property
    def file(self) -> str | None:
        return self.places[0][0] if self.places else None

    @property
    def line(self) -> int | None:
        return int(self.places[0][1]) if self.places else None

    def blocks(self) -> Iterator[Block]:
        """All blocks of its regions, at any depth."""
        for region in self.regions:
            for block in region:
                yield block
                yield from block.inside()

    def inside(self) -> Iterator[Operation]:
        """All operations of its regions, at any depth."""
        return (operation for block in self.blocks() for operation in block.operations)

    @property
    def pointer(self) -> int:
        """The operand with the address that it loads from or stores to."""
        return self.operands[0]

    @property
    def mask(self) -> int | None:
        """The operand with the mask of a request; None without one."""
        at = MASK_AT.get(self.name)
        return self.operands[at] if at is not None and len(self.operands) > at else None

    @property
    def control(self) -> tuple[int, ...]:
        """The operands that decide which code runs: the bounds of a loop, or a condition."""
        return self.operands[: CONTROL.get(self.name, 0)]

    def end_of(self, region: int) -> tuple[int, ...]:
        """The operands of the last operation of a region, which has one block; none if the region is empty."""
        blocks = self.regions[region]
        return blocks[0].operations[-1].operands if blocks else ()

    def jumps(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(target block, operands for it) of each way out of a branch."""
        first = len(self.control)
        for target, taken in self.targets:
            yield target, self.operands[first : first + taken]
            first += taken

    @cached_property
    def acts(self) -> bool:
        """Whether it, or an operation inside it, moves words or multiplies matrices."""
        return any(o.name in MEMORY or o.name in DOTS for o in (self, *self.inside()))


@dataclass(frozen=True)
class Code:
    """A kernel: the blocks of its body, and the names of its arguments, in the order of the arguments of its first
    block."""

    name: str
    arguments: tuple[str, ...]
    types: tuple[Type, ...]
    blocks: tuple[Block, ...]

    def name_of(self, argument: int) -> str:
        """The name of the tensor that a pointer with this number leads to: `*x` for those whose addresses x holds."""
        return self.arguments[argument] if argument >= 0 else f"*{self.arguments[~argument]}"

    @cached_property
    def holders(self) -> dict[int, int]:
        """{result of tt.int_to_ptr: the argument that the address is loaded from}."""
        sources = {value: first for value, (first, *_) in dependencies(self).items()}
        loads = {value for o in self.operations() if MEMORY.get(o.name) == READS for value in o.results}
        found = {}
        for operation in self.operations():
            if operation.name == "tt.int_to_ptr":
                value, loaded = operation.operands[0], False
                while value in sources:
                    loaded, value = loaded or value in loads, sources[value]
                if loaded and value in self.blocks[0].arguments:
                    found[operation.results[0]] = self.blocks[0].arguments.index(value)
        return found

    @cached_property
    def changed(self) -> frozenset[int]:
        """The numbers of the arguments that it stores to, or changes by atomics."""
        pairs = ((v, t) for o in self.operations() for v, t in zip(o.operands, o.operand_types, strict=True))
        pointers = {value for value, type in pairs if type.is_pointer}
        arrows = {value: [s for s in sources if s in pointers] for value, sources in dependencies(self).items()}
        found = closure(arrows, [o.pointer for o in self.operations() if MEMORY.get(o.name, READS) != READS])
        return frozenset(k for k, value in enumerate(self.blocks[0].arguments) if value in found)

    def every_block(self) -> Iterator[Block]:
        """All blocks, at any depth."""
        for block in self.blocks:
            yield block
            yield from block.inside()

    def operations(self) -> Iterator[Operation]:
        """All operations, at any depth."""
        return (operation for block in self.every_block() for operation in block.operations)


def joined_atomics(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations, in which the halves of a floating-point atomic_max or atomic_min are one. Triton compares the
    bits of positive numbers and those of negative numbers apart, and one of the two changes the word."""
    made = {result: operation for operation in operations for result in operation.results}
    found: list[Operation] = []
    last = -1  # the place of the latest atomic operation
    for operation in operations:
        if operation.name == "tt.atomic_rmw":
            before = found[last] if last >= 0 else operation
            masks = [None if each.mask is None else made.get(each.mask) for each in (before, operation)]
            if before is not operation and before.operands[:2] == operation.operands[:2] and None not in masks:
                one, two = (mask for mask in masks if mask)
                shared = [v for v in one.operands if v in two.operands and one.name == two.name == "arith.andi"]
                if shared or opposite(one, two):
                    kept = (*operation.operands[:2], *shared[:1])
                    found[last] = replace(before, operands=kept, operand_types=before.operand_types[: len(kept)])
                    continue
            last = len(found)
        found.append(operation)
    return tuple(found)


def opposite(one: Operation, two: Operation) -> bool:
    """Whether of two truth values one holds: one is the other turned around, or both compare the same numbers."""
    turned = any(a.name == "arith.xori" and b.results[0] in a.operands for a, b in ((one, two), (two, one)))
    ways = sorted(each.numbers.get("predicate", 0) for each in (one, two))
    compared = one.name == two.name == "arith.cmpf" or (one.name == two.name == "arith.cmpi" and ways in OPPOSITE)
    return turned or (compared and one.operands == two.operands)


# ---------------------------------------------------------------- the values that decide which words are moved


def needed_values(code: Code) -> set[int]:
    """The values that addresses, masks, loop bounds and conditions depend on."""
    return closure(dependencies(code), [value for operation in code.operations() for value in asked_by(operation)])


def closure(arrows: Mapping[int, Sequence[int]], wanted: list[int]) -> set[int]:
    """The values that are wanted, and all that they are computed from."""
    found: set[int] = set()
    while wanted:
        value = wanted.pop()
        if value not in found:
            found.add(value)
            wanted += arrows.get(value, ())
    return found


def asked_by(operation: Operation) -> Iterable[int]:
    """The operands of an operation that are needed even if its results are not."""
    if operation.name in MEMORY:
        return (operation.pointer,) if operation.mask is None else (operation.pointer, operation.mask)
    if operation.name == "scf.while" or operation.acts or operation.name in ("cf.cond_br", "scf.condition"):
        return operation.control
    return ()


def dependencies(code: Code) -> dict[int, list[int]]:
    """{value: values that it is computed from}."""
    arrows: dict[int, list[int]] = {}
    for operation in code.operations():
        for value, source in flows(operation):
            arrows.setdefault(value, []).append(source)
        for target, sources in operation.jumps():
            for value, source in zip(code.blocks[target].arguments, sources, strict=True):
                arrows.setdefault(value, []).extend([source, *operation.control])
    return arrows


def flows(operation: Operation) -> Iterable[tuple[int, int]]:
    """Pairs (value, a value that it is computed from) of an operation's results and of the arguments of its blocks."""
    control = operation.control
    if operation.name == "scf.for":
        (body,), inits, yielded = operation.regions[0], operation.operands[3:], operation.end_of(0)
        yield from ((body.arguments[0], bound) for bound in control)
        for result, argument, init, last in zip(operation.results, body.arguments[1:], inits, yielded, strict=True):
            yield from ((v, s) for v in (result, argument) for s in (init, last, *control))
    elif operation.name == "scf.if":
        for number in range(len(operation.regions)):
            yield from zip(operation.results, operation.end_of(number), strict=False)
        yield from ((result, control[0]) for result in operation.results)
    elif operation.name == "scf.while":
        (before,), (after,) = operation.regions
        condition, *passed = operation.end_of(0)
        yield from zip(before.arguments, operation.operands, strict=True)
        yield from zip(before.arguments, operation.end_of(1), strict=True)
        yield from ((v, s) for v, s in zip(after.arguments, passed, strict=True))
        yield from ((v, s) for v, last in zip(operation.results, passed, strict=True) for s in (last, condition))
    else:
        yield from ((result, source) for result in operation.results for source in operation.operands)
