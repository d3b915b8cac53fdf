"""What the machine that writes CUDA returns, and what everything that runs kernels takes. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.problem import Attention
from ..core.tiling import Tiling


@dataclass(frozen=True)
class HbmArray:
    """A tensor in the GPU's memory: `shape` of one instance, how many instances, the dtype's name, initial value."""

    tensor: str
    shape: tuple[int, ...]
    instances: int
    dtype: str
    initial: float | None = None

    @property
    def full_shape(self) -> tuple[int, ...]:
        return (self.instances, *self.shape)


@dataclass(frozen=True)
class Kernel:
    """One launch. Its arguments, in order: a pointer for each of `tensors`, one for each of `tables` (uint32 words),
    and `unsigned long long* counts` (never touched unless compiled with -DIOSIM_COUNT).

    grid.y is the instance (head of a batch) in a generated kernel. `smem_bytes` is the dynamic shared memory.
    """

    name: str
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    tensors: tuple[str, ...]
    tables: tuple[str, ...] = ()
    tensor_cores: bool = False


@dataclass(frozen=True)
class Program:
    """A schedule as CUDA: one translation unit and the launches, in order.

    `footprint_bytes` is what Capacity measures, of the tiles rounded up to 16 in launches that use tensor cores;
    the largest `smem_bytes` equals it, but for alignment where blocks are no multiples of 16 bytes.
    `plain_footprint_bytes` is the same without rounding.
    `counters` names the words of the array `counts`: (tensor, "reads" or "writes"), over all instances.
    """

    name: str
    problem: Attention
    tiling: Tiling
    kernels: tuple[Kernel, ...]
    source: str
    arrays: Mapping[str, HbmArray]
    footprint_bytes: int
    plain_footprint_bytes: int
    counters: tuple[tuple[str, str], ...]
    tables: Mapping[str, Any] = field(default_factory=dict)
    starts: tuple[str, ...] = ()  # tensors that the host fills with their initial value before the first launch
    count: bool = False
    options: tuple[str, ...] = ("-std=c++17",)

    @property
    def smem_bytes(self) -> int:
        return max(kernel.smem_bytes for kernel in self.kernels)

    @property
    def defines(self) -> tuple[str, ...]:
        """Options of the compiler, without the architecture."""
        return (*self.options, "-DIOSIM_COUNT") if self.count else self.options

    def counts_by_tensor(self, words: Any) -> dict[str, tuple[int, int]]:
        """The array `counts` as {tensor: (words read, words written)}."""
        found = dict(zip(self.counters, map(int, words), strict=True))
        names = dict.fromkeys(tensor for tensor, _ in self.counters)
        return {name: (found.get((name, "reads"), 0), found.get((name, "writes"), 0)) for name in names}
