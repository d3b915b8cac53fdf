"""Reads the compiler's code of a kernel (Triton's TTIR) through Triton's own bindings into plain values (code.py).

Tested with Triton 3.6 and 3.9. Attributes without a binding are read from text (attributes.py). So is the place of an
operation, which Triton prints as `loc("name"("file.py":12:3))`.
"""

from __future__ import annotations

import re
from typing import Protocol

from .attributes import Attributes, constant_of, numbers_of, order_of, targets_of
from .code import Block, Code, Operation, Type

NUMBERS = ("predicate", "axis", "start", "end")
PLACE = re.compile(r'"([^"]+)":(\d+):\d+')


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
    """Builds the tree of a module from a walk in which the operations of a region come before the operation that owns
    it."""

    def __init__(self, text: str) -> None:
        self.attributes = Attributes(text)
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
        text = self.attributes.take(name)
        file, line = place([*results, *operands])
        return Operation(
            name,
            tuple(value.id() for value in operands),
            tuple(value.id() for value in results),
            tuple(Type.of(str(value.get_type())) for value in operands),
            tuple(Type.of(str(value.get_type())) for value in results),
            tuple(self.region(found.get_region(k).id()) for k in range(found.get_num_regions())),
            numbers(found, name, text),
            integer(found, text) if name == "arith.constant" else None,
            line,
            file,
            targets_of(text) if name in ("cf.br", "cf.cond_br") else (),
            order_of(text) if name == "tt.trans" else (),
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


def numbers(found: OperationOfTriton, name: str, text: str) -> dict[str, int]:
    """The integer attributes of an operation."""
    if not hasattr(found, "get_int_attr"):
        return numbers_of(name, text)
    return {key: value for key in NUMBERS if (value := found.get_int_attr(key)) is not None}


def integer(found: OperationOfTriton, text: str) -> int | None:
    """The integer of a constant."""
    if not hasattr(found, "get_constant_value"):
        return constant_of(text)
    value = found.get_constant_value()
    return None if value is None else int(value)


def read_module(module, name: str, arguments: tuple[str, ...]) -> Code:  # type: ignore[no-untyped-def]
    """The code of a module of Triton, with one function."""
    from ..errors import InputError

    reader = Reader(module.str_nodebug())
    module.walk(reader.visit)
    if left := reader.attributes.left():
        raise InputError(f"kernel {name}", left[0].strip(), "code that iosim can read", "use another release of Triton")
    if len(reader.functions) != 1:
        raise InputError(f"kernel {name}", f"{len(reader.functions)} functions", "one function",
                         "leave out noinline=True, and returns in the middle of functions that it calls")  # fmt: skip
    blocks = reader.functions[0].regions[0]
    entry = module.get_function(module.get_entry_func_name())
    types = tuple(Type.of(str(entry.args(k).get_type())) for k in range(entry.get_num_args()))
    return Code(name, arguments, types, blocks)
