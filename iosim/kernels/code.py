"""The code of a kernel as plain values: operations with their operands, regions and lines, without objects of Triton.

The names of operations are those of MLIR, such as `arith.addi` and `tt.load`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import InputError
from .places import place

READS, WRITES, ATOMICS = "reads", "writes", "atomics"
MEMORY = {"tt.load": READS, "tt.store": WRITES, "tt.atomic_rmw": ATOMICS, "tt.atomic_cas": ATOMICS}
DOTS = ("tt.dot", "tt.dot_scaled")
SHAPE = re.compile(r"tensor<((?:\d+x)*)(.*?)>?$")
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
    line: int | None = None
    file: str | None = None
    targets: tuple[tuple[int, int], ...] = ()
    order: tuple[int, ...] = ()

    def inside(self) -> Iterator[Operation]:
        """All operations of its regions, at any depth."""
        for region in self.regions:
            for block in region:
                for operation in block.operations:
                    yield operation
                    yield from operation.inside()

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

    def operations(self) -> Iterator[Operation]:
        """All operations, at any depth."""
        for block in self.blocks:
            for operation in block.operations:
                yield operation
                yield from operation.inside()


class Refusal(InputError):
    """The error for something that cannot be known without running the kernel. It names the line that causes it."""

    def __init__(self, operation: Operation, why: str, hint: str = ""):
        self.line = operation.line
        super().__init__(place_of(operation), why, "what follows from sizes, strides and program numbers", hint)


def place_of(operation: Operation) -> str:
    """The line of an operation in the user's file, with its text."""
    if operation.file is None or operation.line is None:
        return f"the kernel, {operation.name}"
    return place(operation.file, operation.line)
