"""Arithmetic of one program in a straight piece of a kernel's code: FLOPs of products, and exponentials.

An operation on a tensor counts once for each element, as in the roofline. Scalars are left out: they are few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .code import DOTS, Block, Operation

if TYPE_CHECKING:
    from .numbers import Integers

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
    """The operations of one program."""

    flops: int = 0
    """FLOPs of matrix products."""
    tensor_flops: int = 0
    """FLOPs of matrix products, weighted by time: 1 for 16-bit words, 1/2 for 8-bit words, 2 for 32-bit words."""
    exponentials: int = 0


@dataclass
class Works:
    """The operations of all programs of a launch. Programs of one kind do the same."""

    counts: dict[Work, int] = field(default_factory=dict)
    """{kind: number of programs}."""

    def add(self, rows: Integers) -> None:
        """Add programs: a row of numbers for each."""
        if bool((rows == rows[0]).all()):
            found = rows[:1], np.array([len(rows)])
        else:
            found = np.unique(rows, axis=0, return_counts=True)
        for kind, count in zip(*(part.tolist() for part in found), strict=True):
            self.counts[Work(*kind)] = self.counts.get(Work(*kind), 0) + count

    @property
    def programs(self) -> int:
        return sum(self.counts.values())

    @property
    def flops(self) -> int:
        """FLOPs of matrix products, of all programs."""
        return sum(kind.flops * count for kind, count in self.counts.items())


def work_of(block: Block) -> Work:
    """The operations of a block that is run once, without those inside loops and branches."""
    flops = tensor_flops = exponentials = 0
    for operation in block.operations:
        if operation.name in DOTS:
            more = dot_flops(operation)
            flops += more
            tensor_flops += more * operation.operand_types[0].bits // 16
        elif operation.name in EXPONENTIALS and of_floats(operation):
            exponentials += prod(operation.operand_types[0].shape)
    return Work(flops, tensor_flops, exponentials)


def of_floats(operation: Operation) -> bool:
    """Whether an operation takes a tensor of floating-point numbers."""
    return any(type.shape and type.element in FLOATS for type in operation.operand_types)


def dot_flops(operation: Operation) -> int:
    """The multiplications and additions of a matrix product of whole tiles."""
    return 2 * prod(operation.types[0].shape) * operation.operand_types[0].shape[-1]
