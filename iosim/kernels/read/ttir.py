"""Reads the compiler's code of a kernel (Triton's TTIR) through Triton's own bindings into plain values (walk/code.py).

Tested with Triton 3.6 and 3.9. Attributes are read from the module's text: no release has bindings for all of them.
Operations of one name stand in the text in the order of a walk, because none is nested in another of the same name. The
place of an operation is read from text too, which Triton prints as `loc("name"("file.py":12:3))`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ...errors import InputError
from ..walk.code import Block, Code, Operation, Places, Type, joined_atomics

PLACE = re.compile(r'"([^"]+)":(\d+):(\d+)')


class Reader:
    """Builds the tree of a module from a walk in which the operations of a region come before the operation that owns
    it."""

    def __init__(self, text: str) -> None:
        self.attributes = Attributes(text)
        self.blocks: dict[int, dict[int, tuple[tuple[int, ...], list[Operation]]]] = {}
        self.functions: list[Operation] = []

    def visit(self, found) -> None:  # type: ignore[no-untyped-def]
        """Read one operation, and put it at the end of its block."""
        block, name = found.get_block(), found.get_name()
        if block is None:
            return
        operation = self.read(found, name)
        if name == "tt.func":
            self.functions.append(operation)
            return
        blocks = self.blocks.setdefault(block.get_parent().id(), {})
        arguments = tuple(block.get_argument(k).id() for k in range(block.get_num_arguments()))
        blocks.setdefault(block.id(), (arguments, []))[1].append(operation)

    def read(self, found, name: str) -> Operation:  # type: ignore[no-untyped-def]
        """An operation as a plain value."""
        operands = [found.get_operand(k) for k in range(found.get_num_operands())]
        results = [found.get_result(k) for k in range(found.get_num_results())]
        text = self.attributes.take(name)
        return Operation(
            name,
            tuple(value.id() for value in operands),
            tuple(value.id() for value in results),
            tuple(Type.of(str(value.get_type())) for value in operands),
            tuple(Type.of(str(value.get_type())) for value in results),
            tuple(self.region(found.get_region(k).id()) for k in range(found.get_num_regions())),
            numbers_of(name, text),
            constant_of(text) if name == "arith.constant" else None,
            places_of(str(value.get_loc()) for value in (*results, *operands)),
            targets_of(text) if name in ("cf.br", "cf.cond_br") else (),
            order_of(text) if name == "tt.trans" else (),
        )

    def region(self, identity: int) -> tuple[Block, ...]:
        """The blocks of a region, in order."""
        blocks = self.blocks.pop(identity, {}).values()
        return tuple(Block(arguments, joined_atomics(operations)) for arguments, operations in blocks)


def places_of(texts: Iterable[str]) -> Places:
    """Where a value stands, and the calls around it, of the first text that says it."""
    return next((places for text in texts if (places := tuple(PLACE.findall(text)))), ())


def read_module(  # type: ignore[no-untyped-def]
    module, name: str, names: Callable[[Sequence[Type]], Iterable[str]]
) -> Code:
    """The code of a module of Triton, with one function. `names` gives the names of its arguments by their types."""
    reader = Reader(module.str_nodebug())
    module.walk(reader.visit)
    if left := reader.attributes.left():
        raise InputError(f"kernel {name}", left[0].strip(), "code that iosim can read", "use another release of Triton")
    if len(reader.functions) != 1:
        hint = "leave out noinline=True, and returns in the middle of functions that it calls"
        raise InputError(f"kernel {name}", f"{len(reader.functions)} functions", "one function", hint)
    blocks = reader.functions[0].regions[0]
    entry = module.get_function(module.get_entry_func_name())
    types = tuple(Type.of(str(entry.args(k).get_type())) for k in range(entry.get_num_args()))
    return Code(name, tuple(names(types)), types, blocks)


# ---------------------------------------------------------------- attributes in the module's text

PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
NEEDED = ("arith.constant", "arith.cmpi", "tt.get_program_id", "tt.make_range", "tt.trans", "cf.br", "cf.cond_br")
AXES = {"x": 0, "y": 1, "z": 2}
NAMED = re.compile(r"\b(axis|start|end) = (-?\d+) : i32")
CONSTANT = re.compile(r"arith\.constant (?:dense<)?(-?\d+|true|false)>? :")
CONSTANT_TRUTH = re.compile(r"arith\.constant (?:dense<)?(true|false)\b")
TARGET = re.compile(r"\^bb(\d+)(?:\(([^:)]*):)?")
NAME = re.compile(r'^\s*(?:%[^=]+ = )?"?((?:arith|tt|cf)\.\w+)"?[\s(]')


class Attributes:
    """The lines of a module by the names of their operations, in order. Each line is taken once."""

    def __init__(self, text: str) -> None:
        self.lines: dict[str, list[str]] = {}
        for line in text.splitlines():
            found = NAME.match(line)
            if found:
                self.lines.setdefault(found[1], []).append(line)

    def take(self, name: str) -> str:
        """The line of the next operation of this name; empty if it has none."""
        return lines.pop(0) if (lines := self.lines.get(name)) else ""

    def left(self) -> list[str]:
        """The lines that were not taken, of operations that need text. If there are any, the order was wrong."""
        return [line for name in NEEDED for line in self.lines.get(name, [])]


def numbers_of(name: str, line: str) -> dict[str, int]:
    """The integer attributes of an operation."""
    if name == "arith.cmpi":
        return {"predicate": PREDICATES.index(line.split("arith.cmpi ")[1].split(",")[0].strip())}
    if name in ("tt.get_program_id", "tt.get_num_programs"):
        return {"axis": AXES[line.split(name)[1].split()[0]]}
    return {key: int(value) for key, value in NAMED.findall(line)}


def constant_of(line: str) -> int | None:
    """The integer of a constant; None for other constants."""
    truth = CONSTANT_TRUTH.search(line)
    if truth:
        return int(truth[1] == "true")
    found = CONSTANT.search(line)
    return int(found[1]) if found else None


def targets_of(line: str) -> tuple[tuple[int, int], ...]:
    """The pairs (target block, number of operands for it) of a branch."""
    return tuple((int(n), len(taken.split(",")) if taken else 0) for n, taken in TARGET.findall(line))


def order_of(line: str) -> tuple[int, ...]:
    """The order of axes of `tt.trans`."""
    found = re.search(r"order = array<i32: ([\d, ]+)>", line)
    return tuple(int(n) for n in found[1].split(",")) if found else ()
