"""Arithmetic of one program in a straight piece of a kernel's code: FLOPs of products, exponentials, other operations.

An operation on a tensor counts once for each element, as in the roofline. Scalars and integers are left out: scalars
are few, and the compiler hoists most address computations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .code import DOTS, MEMORY, READS, Block, Operation

if TYPE_CHECKING:
    from .numbers import Integers

MOST_FOLLOWED = 100_000  # programs whose kinds are recorded in the order of the grid

EXPONENTIALS = (
    "math.exp",
    "math.exp2",
    "math.log",
    "math.log2",
    "math.sin",
    "math.cos",
    "math.tanh",
    "math.rsqrt",
    "math.sqrt",
    "math.erf",
    "tt.extern_elementwise",
)
FLOATS = ("f16", "bf16", "f32", "f64", "f8E5M2", "f8E4M3FN")


class Work(NamedTuple):
    """The operations of one program, and its waits for words that it reads."""

    flops: int = 0
    """FLOPs of matrix products."""
    tensor_flops: int = 0
    """FLOPs of matrix products, weighted by time: 1 for 16-bit words, 1/2 for 8-bit words, 2 for 32-bit words."""
    exponentials: int = 0
    operations: int = 0
    """Other operations on floating-point numbers."""
    waits: int = 0
    """The number of iterations, or of straight pieces of code, that read."""


@dataclass
class Works:
    """The operations of all programs of a launch. Programs of one kind do the same."""

    counts: dict[Work, int] = field(default_factory=dict)
    """{kind: number of programs}."""
    order: list[Integers] | None = field(default_factory=list)
    """The kind of each program in the order of the grid, as an index into `counts`; None for too many programs."""

    def add(self, rows: Integers) -> None:
        """Add the next programs of the grid: a row of numbers for each."""
        same = len(rows) == 1 or bool((rows == rows[0]).all())
        kinds, inverse = np.unique(rows[:1] if same else rows, axis=0, return_inverse=True)
        inverse = np.zeros(len(rows), np.int64) if same else inverse.reshape(-1)
        for kind, count in zip(kinds.tolist(), np.bincount(inverse).tolist(), strict=True):
            self.counts[Work(*kind)] = self.counts.get(Work(*kind), 0) + count
        if sum(self.counts.values()) > MOST_FOLLOWED:
            self.order = None
        if self.order is not None:
            names = list(self.counts)
            self.order.append(np.array([names.index(Work(*kind)) for kind in kinds.tolist()])[inverse])

    @property
    def programs(self) -> int:
        return sum(self.counts.values())

    @property
    def flops(self) -> int:
        """FLOPs of matrix products, of all programs."""
        return sum(kind.flops * count for kind, count in self.counts.items())


def work_of(block: Block) -> Work:
    """The operations of a block that is run once, without those inside loops and branches."""
    flops = tensor_flops = exponentials = operations = 0
    for operation in block.operations:
        if operation.name in DOTS:
            more = dot_flops(operation)
            flops += more
            tensor_flops += more * operation.operand_types[0].bits // 16
        elif of_floats(operation):
            words = prod(operation.operand_types[0].shape)
            if operation.name in EXPONENTIALS:
                exponentials += words
            elif operation.name.startswith(("arith.", "math.")) or operation.name == "tt.reduce":
                operations += words
    reads = any(MEMORY.get(operation.name) == READS for operation in block.operations)
    return Work(flops, tensor_flops, exponentials, operations, int(reads))


def of_floats(operation: Operation) -> bool:
    """Whether an operation takes a tensor of floating-point numbers. A `select` has it as its second operand."""
    return any(type.shape and type.element in FLOATS for type in operation.operand_types)


def dot_flops(operation: Operation) -> int:
    """The multiplications and additions of a matrix product of whole tiles."""
    return 2 * prod(operation.types[0].shape) * operation.operand_types[0].shape[-1]
