"""Arithmetic of one run of a straight piece of a kernel's code: FLOPs of products, exponentials, and what products take
from shared memory, as timing/products.py says it.

An operation on a tensor counts once for each element, as in the roofline. Scalars are left out: they are few.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...timing.products import unit_of
from .code import DOTS, MEMORY, READS, Code, Operation

if TYPE_CHECKING:
    from ...hardware import Hardware

EXPONENTIALS = tuple(f"math.{name}" for name in ("exp", "exp2", "log", "log2", "rsqrt", "sqrt"))
DTYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8E5M2": "fp8", "f8E4M3FN": "fp8", "i8": "int8"}
SAME_WORDS = ("tt.trans", "tt.reshape")
COUNTED = (*EXPONENTIALS, *DOTS, *(name for name, way in MEMORY.items() if way == READS))


class Work(NamedTuple):
    """The operations of one run."""

    flops: int = 0
    """FLOPs of matrix products."""
    exponentials: int = 0
    """Of 32 bits, logarithms and roots among them: a unit of its own takes them."""
    smem_read_bytes: int = 0
    """What products read from shared memory."""
    smem_write_bytes: int = 0
    """What loads bring there for products."""


class Arithmetic:
    """The work of one run of each block of a kernel, on a chip: `found` is {id of the block: [its work, in parts]}."""

    def __init__(self, code: Code, chip: Hardware | None) -> None:
        self.chip = chip
        self.made = {value: (block, o) for block in code.every_block() for o in block.operations for value in o.results}
        self.found: dict[int, list[Work]] = {}
        self.seen: set[tuple[int, bool]] = set()
        for block in code.every_block():
            for operation in block.operations:
                if operation.name in DOTS:
                    self.product(operation, id(block))
                elif operation.name in EXPONENTIALS and operation.operand_types[0].element == "f32":
                    self.add(id(block), Work(exponentials=prod(operation.operand_types[0].shape or (0,))))

    def add(self, block: int, work: Work) -> None:
        self.found.setdefault(block, []).append(work)

    def product(self, operation: Operation, block: int) -> None:
        """Add a product of whole tiles: its FLOPs, its reads of both factors, and the loads that bring them."""
        type, (*batch, m, n) = operation.operand_types[0], operation.types[0].shape
        k, size = type.shape[-1], type.element_bytes * prod(batch)
        unit = unit_of(self.chip, DTYPES.get(type.element, "fp32"))
        words = -(-m // (unit.rows or m)) * n * k
        first, _ = sources = [self.load_of(value) for value in operation.operands[:2]]
        if unit.held and first:
            self.once(first, True, Work(smem_read_bytes=m * k * size))
        elif first or unit.always:
            words += -(-n // (unit.width or n)) * m * k
        self.add(block, Work(2 * m * n * k * prod(batch), 0, words * size))
        for source, rows in zip(sources, (m, n), strict=True):
            if source:
                self.once(source, False, Work(smem_write_bytes=rows * k * size))

    def once(self, load: tuple[int, int], reads: bool, work: Work) -> None:
        """Add work that each run of a load takes once, for whatever products."""
        value, block = load
        if (value, reads) not in self.seen:
            self.seen.add((value, reads))
            self.add(block, work)

    def load_of(self, value: int) -> tuple[int, int] | None:
        """(value, block) of the load that a factor comes from as it is; None if it is computed."""
        while value in self.made:
            block, operation = self.made[value]
            if MEMORY.get(operation.name) == READS:
                return value, id(block)
            if operation.name not in SAME_WORDS:
                return None
            value = operation.operands[0]
        return None
