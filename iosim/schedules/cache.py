"""The loads of keys and values: in another type than that of Q, with scales, or as latent rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..steps.softmax import hide, rescale, scores, scores_apart

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.typing import Words


class Keys(NamedTuple):
    """A tile of keys and values on chip, in the type of Q. With latent rows, `k` and `v` are the same block."""

    k: Block
    rope: Block | None
    """The last words of the rows of K if they lie apart, else None."""
    v: Block


class Cache:
    """K and V in HBM, with their scales. One scale for a whole tensor is loaded when the cache is made, so make it
    before the loop over keys."""

    def __init__(self, chip: Machine, p: Attention, keys_only: bool = False):
        self.chip, self.p = chip, p
        names = ("K",) if p.latent or keys_only else ("K", "V")
        self.scales = {name: chip.load(name + "scale") for name in names} if p.kv_scales == "tensor" else {}

    def load(self, j: Tile) -> Keys:
        """A tile of keys and values. V is the first words of latent rows, so one load serves both."""
        k = self.scaled("K", j)
        rope = self.chip.load("Krope", j) if self.p.rope_apart else None
        return Keys(k, rope, k if self.p.latent else self.scaled("V", j))

    def scaled(self, name: str, j: Tile) -> Block:
        """A tile of K or V, multiplied by its scales."""
        block = self.chip.load(name, j)
        if self.p.kv_scales == "none":
            return block
        from ..steps.passes import Number

        if self.p.scale_words:
            scales = self.chip.load(name + "scale", j)
            self.chip.update(block, rescale, scales, Number(self.p.scale_words))
            self.chip.free(scales)
        elif name in self.scales:
            self.chip.update(block, rescale, self.scales[name], Number(block.shape[1]))  # type: ignore[arg-type]
        return block


def masked_scores(chip: Machine, p: Attention, i: Tile, j: Tile, q: Block, keys: Keys) -> Block:
    """S = Q K^T / sqrt(d) of a tile, -inf where the mask hides."""
    if keys.rope is None:
        s = chip.compute("S", (i, j), scores, q, keys.k)
    else:
        s = chip.compute("S", (i, j), scores_apart, q, keys.k, keys.rope)
    chip.update(s, hide, p.mask.part(i, j))
    return s


# ---------------------------------------------------------------- by hand (words of one head)


def cache_traffic(p: Attention, keys: int, turns: int) -> Words:
    """The words of K and V for `keys` rows, in `turns` loops over keys: one for each outer tile.

    Latent rows are read once for K and V. Scales of blocks are read with their rows. The one scale of a whole tensor is
    read once for each of the loops.
    """
    rope = p.d - p.dv if p.rope_apart else 0
    widths = {"K": p.d - rope} | ({} if p.latent else {"V": p.dv})
    words = {name: keys * width for name, width in widths.items()} | ({"Krope": keys * rope} if rope else {})
    if p.kv_scales == "tensor":
        words |= {f"{name}scale": turns for name in widths}
    elif p.kv_scales != "none":
        words |= {f"{name}scale": keys * -(-width // int(p.kv_scales)) for name, width in widths.items()}
    return {name: (reads, 0) for name, reads in words.items()}


def cache_room(p: Attention, rows: int, beside: int) -> int:
    """The most words of a tile of `rows` keys and values, its scales, and `beside` other words that are added after
    them.

    Scales of blocks are freed as soon as they are applied: those of K before the rest of K's row is loaded, and those
    of V before S is made.
    """
    rope, value = p.d - p.dv if p.rope_apart else 0, 0 if p.latent else p.dv
    block = 0 if p.kv_scales in ("none", "tensor") else int(p.kv_scales)
    of_k, of_v = (-(-width // block) if block else 0 for width in (p.d - rope, value))
    whole = (1 if p.latent else 2) if p.kv_scales == "tensor" else 0
    return whole + max(rows * (p.d - rope + of_k), rows * (p.d + value + of_v), rows * (p.d + value) + beside)
