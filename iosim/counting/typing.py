"""The type of counts. Only type checkers load this file: import it under TYPE_CHECKING."""

from __future__ import annotations

from typing import Generic, TypedDict

from ..core.tiling import S


class Counted(TypedDict, Generic[S]):
    """The counts of one walk, over all heads: numbers, or arrays for a walk over arrays of problems."""

    sram_peak_words: S
    sram_peak_bytes: S
    smem_peak_bytes: S
    register_peak_bytes: S
    least_smem_bytes: S
    reads: S
    writes: S
    total: S
    read_bytes: S
    write_bytes: S
    total_bytes: S
    flops: S
    smem_read_words: S
    tensors: dict[str, dict[str, S]]
    steps: list[dict[str, S]]
