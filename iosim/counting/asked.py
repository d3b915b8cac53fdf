"""What was asked: a problem and its SRAM, in a few words and as the lines above every table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..answer import numbered
from ..core.options import KEY_HEADS, OF_STATE
from ..units import format_bytes

if TYPE_CHECKING:
    from ..core.problem import Attention


def asked(p: Attention, M_bytes: int | None = None) -> str:
    """A problem as its sizes and the options that are not at their defaults: `N = 8192, d = 128, M = 102,400 B (100
    KiB)`."""
    unusual = [f"{name} = {value}" for name, value in p.unusual().items()]
    size = [] if M_bytes is None else [f"M = {format_bytes(M_bytes)}"]
    return ", ".join([f"N = {p.N}", f"d = {p.d}", *unusual, *size])


def header(p: Attention, M_bytes: int | None) -> str:
    """The lines above every table: the problem and the SRAM."""
    seen = f", mask {p.mask}" if not dict(p.own).get(OF_STATE) else state_text(p)
    types = f"{p.dtype} in HBM, {p.acc_dtype} accumulators{p.cache_text}{seen}"
    memory = "M not given"
    if M_bytes is not None:
        memory = f"M = {format_bytes(M_bytes)}".rstrip(")")
        memory += (", " if "(" in memory else " (") + f"{numbered(M_bytes // p.word_bytes, f'{p.dtype} word')})"
    size = size_line(p)
    if p.gqa == "pack":
        size = size.removesuffix(")") + ", packed)"
    return f"{size}\n{types}, {memory}{divided_text(p)}\n"


def size_line(p: Attention) -> str:
    """The sizes of a problem: `attention: N = 8192, Nk = 8192, d = 128, batch 1 x heads 1 (kv 1)`."""
    values = f", dv = {p.dv}" if p.dv != p.d else ""
    if rule := dict(p.own).get(OF_STATE):
        keys = dict(p.own).get(KEY_HEADS.name) or p.heads
        return f"{rule}, with a state: N = {p.N}, d = {p.d}{values}, batch {p.batch} x heads {p.heads} (q and k {keys})"
    return f"attention: N = {p.N}, Nk = {p.Nk}, d = {p.d}{values}, batch {p.batch} x heads {p.heads} (kv {p.kv_heads})"


def state_text(p: Attention) -> str:
    """The types and ends of a state, after a comma: `, states bf16, S_0 given, S_N stored`."""
    own = dict(p.own)
    ends = [text for name, text in (("initial_state", "S_0 given"), ("final_state", "S_N stored")) if own.get(name)]
    return "".join(f", {text}" for text in (f"states {own.get('state_dtype') or p.acc_dtype}", *ends))


def divided_text(p: Attention) -> str:
    """The registers and stages of a chip that is more than one SRAM, after its M; an empty text for one SRAM."""
    if not p.divided:
        return ""
    return f", {format_bytes(p.register_bytes)} of registers for tiles, {numbered(p.stages, 'stage')} in flight"
