"""Answers in a few words, for `repr`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..units import binary, format_bytes
from .columns import OPTIONS, tile_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.problem import Attention
    from .count import Result


def asked(p: Attention, M_bytes: int | None = None) -> str:
    """A problem as its sizes and the options that are not at their defaults: `N = 8192, d = 128, M = 102400 B (100
    KiB)`."""
    usual = type(p)(p.N, p.d)
    names = ("Nk", "dv", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", *OPTIONS)
    unusual = [f"{name} = {getattr(p, name)}" for name in names if getattr(p, name) != getattr(usual, name)]
    size = [] if M_bytes is None else [f"M = {format_bytes(M_bytes)}"]
    return ", ".join([f"N = {p.N}", f"d = {p.d}", *unusual, *size])


def moved(result: Result) -> str:
    """A result as its schedule, tiles and words: `flash2 best 196x1, 90177536 words, 172 MiB`."""
    name = f"{result.schedule} {result.tiling}{tile_sizes(result)}"
    if result.total is None or result.total_bytes is None:
        return f"{name}, nothing fits"
    unfit = ", does not fit" if result.fits is False else ""
    return f"{name}, {result.total} words, {binary(result.total_bytes)}{unfit}"


def least_of(results: Sequence[Result]) -> str:
    """The least result of those that fit or may fit, as text after a semicolon; empty if there is none."""
    fitting = [r for r in results if r.total is not None and r.fits is not False]
    return f"; least: {moved(min(fitting, key=lambda r: r.total_bytes or 0))}" if fitting else ""
