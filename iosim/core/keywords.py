"""Keywords of Python functions that take a problem. Only type checkers load this file: import it under TYPE_CHECKING.

It is written from the rows of options (core/options.py, and the files of schedules) by tests/house/test_keywords.py.
"""

from __future__ import annotations

from typing import TypedDict

from .typing import Dropout, Mask


class UndroppedOptions(TypedDict, total=False):
    """Options of a problem that may be left out, except the mask and dropout."""

    Nk: int
    batch: int
    heads: int
    kv_heads: int
    dv: int
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
    choice_rows: int
    elementwise: int
    splits: int
    page_size: int
    top_k: int
    key_block: int
    causal: bool


class ProblemOptions(UndroppedOptions, total=False):
    """Options of a problem that may be left out, except the mask."""

    dropout: Dropout | None


class MoreOptions(TypedDict, total=False):
    """Options of a problem that are not sizes."""

    dtype: str
    acc_dtype: str | None
    mask: Mask
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
    choice_rows: int
    elementwise: int
    splits: int
    page_size: int
    top_k: int
    key_block: int
    dropout: Dropout | None
