"""A schedule as CUDA, in plain values: what `cuda.machine.generate` returns, and what runs and judges kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, SupportsInt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...core.problem import Attention
    from ...core.tiling import Tiling


@dataclass(frozen=True)
class HbmArray:
    """A tensor in the GPU's memory: `instances` arrays of one `shape`. `initial` is what the host may fill in."""

    tensor: str
    shape: tuple[int, ...]
    instances: int
    dtype: str
    initial: float | None = None

    @property
    def full_shape(self) -> tuple[int, ...]:
        """The shape with the instances as its first axis."""
        return (self.instances, *self.shape)


@dataclass(frozen=True)
class Kernel:
    """One launch: `grid` in thread blocks, `block` in threads, `smem_bytes` of dynamic shared memory for each block.

    Its arguments are, in order, a pointer for each of `tensors`, one for each of `tables` (uint32 words), and
    `unsigned long long* counts`, which is used only if compiled with -DIOSIM_COUNT. In a generated kernel blockIdx.y is
    the instance: the head and the batch. It is compiled so that `blocks_per_sm` blocks fit on a multiprocessor: the
    compiler limits the registers of a thread accordingly.
    """

    name: str
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    tensors: tuple[str, ...]
    tables: tuple[str, ...] = ()
    tensor_cores: bool = False
    blocks_per_sm: int = 1


@dataclass(frozen=True)
class Program:
    """A schedule as CUDA: one translation unit and the launches, in order.

    `footprint_bytes` is the peak that Capacity measures, with tiles rounded up to 16 in launches that use tensor cores.
    The largest `smem_bytes` equals it, except for alignment where blocks are not multiples of 16 bytes.
    `plain_footprint_bytes` is the same peak without rounding. `counters` names the words of the array `counts`:
    (tensor, "reads" or "writes"), over all instances. `tables` are those of the mask that are kernel arguments.
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
    tables: Mapping[str, NDArray[np.uint32]] = field(default_factory=dict)
    starts: tuple[str, ...] = ()  # tensors that the host fills with their initial value before the first launch
    count: bool = False
    options: tuple[str, ...] = ("-std=c++17",)

    @property
    def smem_bytes(self) -> int:
        """The dynamic shared memory of the launch that needs most."""
        return max(kernel.smem_bytes for kernel in self.kernels)

    @property
    def defines(self) -> tuple[str, ...]:
        """The options for the compiler, without the architecture."""
        return (*self.options, "-DIOSIM_COUNT") if self.count else self.options

    def counts_by_tensor(self, words: Iterable[SupportsInt]) -> dict[str, tuple[int, int]]:
        """The array `counts` as {tensor: (words read, words written)}."""
        found = dict(zip(self.counters, map(int, words), strict=True))
        names = dict.fromkeys(tensor for tensor, _ in self.counters)
        return {name: (found.get((name, "reads"), 0), found.get((name, "writes"), 0)) for name in names}
