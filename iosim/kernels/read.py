"""Reads the compiler's code of a kernel (Triton's TTIR) through Triton's own bindings into plain values (code.py).

Tested with Triton 3.9. Two things have no binding and are read from text: where a branch leads, and the place of an
operation, which Triton prints as `loc("name"("file.py":12:3))`.
"""

from __future__ import annotations

import re
from typing import Protocol

from .code import Block, Code, Operation, Type

NUMBERS = ("predicate", "axis", "start", "end")
PLACE = re.compile(r'"([^"]+)":(\d+):\d+')
TARGET = re.compile(r"\^bb(\d+)(?:\(([^:)]*):)?")


class Named(Protocol):
    """A value, a block or a region: something with an identity."""

    def id(self) -> int: ...


class ValueOfTriton(Named, Protocol):
    def get_type(self) -> object: ...
    def get_loc(self) -> object: ...


class BlockOfTriton(Named, Protocol):
    def get_parent(self) -> Named: ...
    def get_num_arguments(self) -> int: ...
    def get_argument(self, number: int) -> ValueOfTriton: ...


class OperationOfTriton(Protocol):
    def get_name(self) -> str: ...
    def get_block(self) -> BlockOfTriton | None: ...
    def get_num_operands(self) -> int: ...
    def get_operand(self, number: int) -> ValueOfTriton: ...
    def get_num_results(self) -> int: ...
    def get_result(self, number: int) -> ValueOfTriton: ...
    def get_num_regions(self) -> int: ...
    def get_region(self, number: int) -> Named: ...
    def get_int_attr(self, name: str) -> int | None: ...
    def get_bool_attr(self, name: str) -> bool | None: ...
    def get_constant_value(self) -> int | bool | None: ...


class Reader:
    """Builds the tree of a module from a walk over it, in which a region's operations come before their owner."""

    def __init__(self, text: str) -> None:
        self.branches = [
            [(int(n), len(taken.split(",")) if taken else 0) for n, taken in TARGET.findall(line)]
            for line in text.splitlines()
            if line.lstrip().startswith(("cf.br", "cf.cond_br"))
        ]
        self.blocks: dict[int, dict[int, tuple[BlockOfTriton, list[Operation]]]] = {}
        self.functions: list[Operation] = []

    def visit(self, found: OperationOfTriton) -> None:
        """Read one operation, and put it at the end of its block."""
        block, name = found.get_block(), found.get_name()
        if block is None:
            return
        operation = self.read(found, name)
        if name == "tt.func":
            self.functions.append(operation)
            return
        blocks = self.blocks.setdefault(block.get_parent().id(), {})
        blocks.setdefault(block.id(), (block, []))[1].append(operation)

    def read(self, found: OperationOfTriton, name: str) -> Operation:
        """An operation as a plain value."""
        operands = [found.get_operand(k) for k in range(found.get_num_operands())]
        results = [found.get_result(k) for k in range(found.get_num_results())]
        numbers = {key: value for key in NUMBERS if (value := found.get_int_attr(key)) is not None}
        file, line = place([*results, *operands])
        return Operation(
            name,
            tuple(value.id() for value in operands),
            tuple(value.id() for value in results),
            tuple(Type.of(str(value.get_type())) for value in operands),
            tuple(Type.of(str(value.get_type())) for value in results),
            tuple(self.region(found.get_region(k).id()) for k in range(found.get_num_regions())),
            numbers,
            integer(found) if name == "arith.constant" else None,
            line,
            file,
            tuple(self.branches.pop(0)) if name in ("cf.br", "cf.cond_br") else (),
        )

    def region(self, identity: int) -> tuple[Block, ...]:
        """The blocks of a region, in order."""
        return tuple(
            Block(tuple(block.get_argument(k).id() for k in range(block.get_num_arguments())), tuple(operations))
            for block, operations in self.blocks.pop(identity, {}).values()
        )


def place(values: list[ValueOfTriton]) -> tuple[str | None, int | None]:
    """The file and line of the first value that has them."""
    for value in values:
        found = PLACE.search(str(value.get_loc()))
        if found:
            return found[1], int(found[2])
    return None, None


def integer(found: OperationOfTriton) -> int | None:
    """The integer of a constant."""
    value = found.get_constant_value()
    return None if value is None else int(value)


def read_module(module, name: str, arguments: tuple[str, ...]) -> Code:  # type: ignore[no-untyped-def]
    """The code of a module of Triton, with one function."""
    from ..errors import InputError

    reader = Reader(module.str_nodebug())
    module.walk(reader.visit)
    if len(reader.functions) != 1:
        raise InputError(f"kernel {name}", f"{len(reader.functions)} functions", "one function",
                         "leave out noinline=True")  # fmt: skip
    blocks = reader.functions[0].regions[0]
    entry = module.get_function(module.get_entry_func_name())
    types = tuple(Type.of(str(entry.args(k).get_type())) for k in range(entry.get_num_args()))
    return Code(name, arguments, types, blocks)
