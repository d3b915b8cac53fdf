"""New rows of a KV cache: converted to its type, with scales if it has them, and written where a list says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.arrays import smaller
from ..core.dependent_tiles import Moved
from ..core.problem import DENSE, Tensor, narrowed
from ..oracles.cache_rows import cache_with_new_rows, new_rows
from ..steps.passes import Number, block_scales, copied, quantised
from .registry import Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Size, Words


def write_rows(chip: Machine, p: Attention, t: Tiling) -> None:
    """Each new row goes to its slot. A row of latent rows serves keys and values, and its last words may lie apart."""
    for i in chip.tiles(p.N, 1, parallel=True):
        slot = chip.load("slots", i)
        row = Moved(p.Nk, i, ((1, slot),))
        for name, width in rows_of(p).items():
            write_row(chip, p, name, width, i, row)


def rows_of(p: Attention) -> dict[str, Size]:
    """The tensors that have a row for each key, with the words of a row."""
    rope = {"Krope": p.rope_words} if p.rope_apart else {}
    return {"K": p.k_words, **rope, **({} if p.latent else {"V": p.dv})}


def write_row(chip: Machine, p: Attention, name: str, width: Size, i: Tile, row: Moved) -> None:
    """One new row of K, Krope or V in the type of the cache. Krope has no scales."""
    new = chip.load(name + "new", i)
    if p.kv_scales == "none" or name == "Krope":
        stored = chip.compute(name, (row, width), copied, new)
        chip.store(stored, name, row)
        chip.free(new, stored)
        return
    words = Number(p.scale_words or width)
    if p.scale_words:
        scales = chip.compute(name + "scale", (row, scales_of(p, name)), block_scales, new, words)
        chip.store(scales, name + "scale", row)
    else:
        scales = chip.load(name + "scale")
    stored = chip.compute(name, (row, width), quantised, new, scales, words)
    chip.store(stored, name, row)
    chip.free(new, scales, stored)


def scales_of(p: Attention, name: str) -> Size:
    """The scales of a row of K or V."""
    return p.k_scales if name == "K" else p.v_scales


# ---------------------------------------------------------------- by hand (words of one head)


def rows_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (d + dv + 1), W = N (d + dv): each new row once, and its slot. Of latent rows dv is left out.

    Scales of blocks are written with their rows, ceil(d / B) for a row of K. The one scale of a whole tensor is read
    for each row.
    """
    rope = p.d - p.dv if p.rope_apart else 0
    widths = {"K": p.d - rope} | ({"Krope": rope} if rope else {}) | ({} if p.latent else {"V": p.dv})
    words = {"slots": (p.N, 0)}
    for name, width in widths.items():
        words |= {name + "new": (p.N * width, 0), name: (0, p.N * width)}
        if name != "Krope" and p.kv_scales == "tensor":
            words[name + "scale"] = (p.N, 0)
        elif name != "Krope" and p.kv_scales != "none":
            words[name + "scale"] = (0, p.N * -(-width // int(p.kv_scales)))
    return words


def rows_room(p: Attention, t: Tiling) -> int:
    """The footprint: a slot, and a row as it came and as it leaves, with its scales."""
    rope, value = p.d - p.dv if p.rope_apart else 0, 0 if p.latent else p.dv
    block = 0 if p.kv_scales in ("none", "tensor") else int(p.kv_scales)
    of_k, of_v = (
        -(-width // block) if block else int(p.kv_scales == "tensor" and width > 0) for width in (p.d - rope, value)
    )
    return 1 + max(2 * (p.d - rope) + of_k, 2 * rope, 2 * value + of_v)


def of_kv_heads(p: Attention) -> Attention:
    """New rows belong to KV heads, so --heads are those, and there are at most --Nk of them."""
    return narrowed(
        p, heads=p.kv_heads, gqa="repeat", N=smaller(p.N, p.Nk), mask=DENSE, keep_p=False, lse=False, count_init=False
    )


register(
    Schedule(
        "cache-write",
        write_rows,
        "new rows of keys and values, written into their slots",
        "Kwon et al. 2023 (arXiv 2309.06180), section 5.1: reshape and block write; FlashMLA's rows of 656 bytes",
        rules=("ideal",),
        formula="R = N (d + dv + 1), W = N (d + dv)",
        state="one row on chip, as it came and as it leaves; nothing waits in HBM",
        exact_traffic=rows_traffic,
        footprint=rows_room,
        initialised=("K", "V", "Krope", "Kscale", "Vscale"),
        scales=True,
        tensors={
            "slots": Tensor(("N",), "index"),
            "Knew": Tensor(("N", "k_words"), "input"),
            "Vnew": Tensor(("N", "dv"), "input"),
            "Kropenew": Tensor(("N", "rope_words"), "input"),
            "K": Tensor(("Nk", "k_words"), "cache", 0.0),
            "V": Tensor(("Nk", "dv"), "cache", 0.0),
            "Krope": Tensor(("Nk", "rope_words"), "input", 0.0),
            "Kscale": Tensor(("scale_rows", "k_scales"), "scale", 0.0),
            "Vscale": Tensor(("scale_rows", "v_scales"), "scale", 0.0),
        },
        family="cache",
        example=new_rows,
        answer=cache_with_new_rows,
        about=of_kv_heads,
        known_as="reshape-and-cache, concat-and-cache-mla, kv-cache-write, append-kv, quantise-kv",
    )
)
