"""Types of keywords and of counts. Only type checkers load this file: import it under TYPE_CHECKING."""

from __future__ import annotations

from typing import Generic, TypedDict

from ..core.problem import S
from ..core.typing import Dropout


class VariantOptions(TypedDict, total=False):
    """Fields of `Attention` that are the same at many points of a sweep."""

    lse: bool
    keep_p: bool
    elementwise: int
    count_init: bool
    splits: int
    page_size: int
    gqa: str
    register_bytes: int
    stages: int
    top_k: int
    key_block: int
    choice_rows: int
    latent: bool
    kv_dtype: str | None
    kv_scales: str


class UndroppedOptions(VariantOptions, total=False):
    """Fields of `Attention` that may be left out, except the mask and dropout."""

    Nk: int
    dv: int
    batch: int
    heads: int
    kv_heads: int
    dtype: str
    acc_dtype: str | None


class ProblemOptions(UndroppedOptions, total=False):
    """Fields of `Attention` that may be left out, except the mask: those in KEYWORDS."""

    dropout: Dropout | None


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
    tensors: dict[str, dict[str, S]]
    steps: list[dict[str, S]]
