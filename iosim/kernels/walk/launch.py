"""What is launched: a grid of programs, and the arguments of a kernel as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Protocol, TypeGuard

from ...errors import InputError

if TYPE_CHECKING:
    from .numbers import Elements

DTYPES = {  # {name: (Triton's name, bytes)}
    "fp16": ("float16", 2), "bf16": ("bfloat16", 2), "fp32": ("float32", 4), "fp64": ("float64", 8),
    "fp8": ("float8e4nv", 1), "fp8e4nv": ("float8e4nv", 1), "fp8e5": ("float8e5", 1),
    "bool": ("int1", 1), "int1": ("int1", 1), "int8": ("int8", 1), "int16": ("int16", 2), "int32": ("int32", 4),
    "int64": ("int64", 8), "uint8": ("uint8", 1), "uint16": ("uint16", 2), "uint32": ("uint32", 4),
    "uint64": ("uint64", 8),
}  # fmt: skip
MOST_BYTES = 1 << 56  # that any address of a GPU has; the walk computes them in int64
Value = object  # an argument of a kernel: an integer, a float, a truth, a text, a type of Triton, a Tensor


@dataclass(frozen=True)
class Tensor:
    """A tensor argument: its element type, its shape, and its data if they are known.

    It is contiguous in row-major order unless `strides` are given.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Elements | None = None
    strides: tuple[int, ...] | None = None
    offset: int = 0
    """Words from an aligned address to its start, as in a slice of another tensor."""
    memory: int = field(default=0, compare=False)
    """A number that tensors have in common if one is a view of the other; 0 if that is not known."""

    def __post_init__(self) -> None:
        if (size := self.reach * self.word_bytes) > MOST_BYTES:
            raise InputError("a tensor", f"{self}, {size} bytes", f"at most {MOST_BYTES} bytes", "try smaller sizes")

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def word_bytes(self) -> int:
        return DTYPES[self.dtype][1]

    @property
    def words(self) -> int:
        return prod(self.shape)

    @property
    def reach(self) -> int:
        """The number of words from its first to its last, both included."""
        if self.strides is None or 0 in self.shape:
            return self.words
        return 1 + sum((n - 1) * abs(step) for n, step in zip(self.shape, self.strides, strict=True))

    def stride(self, axis: int | None = None) -> int | tuple[int, ...]:
        """The stride of an axis in words; without an axis, the strides of all."""
        strides = self.strides or tuple(prod(self.shape[k + 1 :]) for k in range(len(self.shape)))
        return strides if axis is None else strides[axis]


def is_descriptor(value: Value) -> TypeGuard[Descriptor]:
    """Whether an argument is a tensor descriptor that the host made (`TensorDescriptor` of Triton)."""
    return type(value).__name__ == "TensorDescriptor"


class Descriptor(Protocol):
    """A tensor descriptor of the host: a tensor, its sizes and strides, and the block that a request moves."""

    base: Value
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]


@dataclass(frozen=True)
class Launch:
    """The start of a kernel: its grid, its integer arguments, and its tensors."""

    grid: tuple[int, int, int]
    scalars: Mapping[str, int]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def programs(self) -> int:
        return prod(self.grid)
