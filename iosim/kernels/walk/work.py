"""Arithmetic of one program in a straight piece of a kernel's code: FLOPs of products, and exponentials.

An operation on a tensor counts once for each element, as in the roofline. Scalars are left out: they are few.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from .code import DOTS, Block, Operation

EXPONENTIALS = ("tt.extern_elementwise", *(f"math.{name}" for name in (
    "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "rsqrt", "sqrt", "erf")))  # fmt: skip
FLOATS = ("f16", "bf16", "f32", "f64", "f8E5M2", "f8E4M3FN")


class Work(NamedTuple):
    """The operations of one program, or of several together."""

    flops: int = 0
    """FLOPs of matrix products."""
    tensor_flops: int = 0
    """FLOPs of matrix products, weighted by time: 1 for 16-bit words, 1/2 for 8-bit words, 2 for 32-bit words."""
    exponentials: int = 0

    def and_also(self, other: Work, times: int) -> Work:
        """The operations of this and of so many times another."""
        return Work(*(own + more * times for own, more in zip(self, other, strict=True)))


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
