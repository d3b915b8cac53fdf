"""Keywords of Python functions that take a problem. Only type checkers load this file: import it under TYPE_CHECKING.

It is written from the rows of options (core/options.py, and the files of schedules) by tests/house/test_keywords.py.
"""

from __future__ import annotations

from typing import TypedDict

from .mask_types import Dropout, Mask


class OtherOptions(TypedDict, total=False):
    """Options of a problem that are not sizes, except the mask and dropout."""

    dtype: str
    acc_dtype: str | None
    lse: bool
    keep_p: bool
    visit_all: bool
    count_init: bool
    gqa: str
    register_bytes: int
    stages: int
    latent: bool
    kv_dtype: str | None
    kv_scales: str
    scale_dtype: str
    choice_rows: int
    elementwise: int
    short_tile: str
    splits: int
    page_size: int
    top_k: int
    key_block: int
    rule: str
    chunk: int
    state_columns: int
    key_heads: int
    initial_state: bool
    final_state: bool
    state_dtype: str
    normalise: bool
    features: int
    padding: int
    ring: int
    drafts: int
    accepted: int
    rollback: str


class MoreOptions(OtherOptions, total=False):
    """Options of a problem that are not sizes."""

    mask: Mask
    dropout: Dropout | None


class UndroppedOptions(OtherOptions, total=False):
    """Options of a problem that may be left out, except the mask and dropout."""

    Nk: int
    batch: int
    heads: int
    kv_heads: int
    dv: int
    causal: bool


class ProblemOptions(UndroppedOptions, total=False):
    """Options of a problem that may be left out, except the mask."""

    dropout: Dropout | None
