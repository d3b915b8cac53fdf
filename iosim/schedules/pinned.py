"""FlashAttention-2 in which some keys stay on chip for the whole run, and the others stream.

flash2 reads all of K and V for each of its ceil(N/Br) query tiles. If M has room for a little more than such a tile,
nothing falls until it has room for the next larger one. Keys that stay use that room: each is read once instead of once
for each query tile. Joins in databases do the same (Merrett, Kambayashi and Yasuura 1981).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.arrays import smaller
from ..core.dependent_tiles import Stretch
from ..search.kept import Kept
from .cache import Keys
from .decode import whole_result
from .registry import FA2, Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size, Words
    from .decode import KeyTiles


def keys_stay(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention-2 over the first keys, which stay on chip, and then over the others, which stream."""
    first = Stretch(p.Nk, 0, kept(p, t))
    k, v = chip.load("K", first), chip.load("V", first)
    for i in chip.tiles(p.N, t.rows_q):
        whole_result(chip, p, i, chip.load("Q", i), all_keys(chip, p, t, first, k, v))
    chip.free(k, v)


def all_keys(chip: Machine, p: Attention, t: Tiling, first: Stretch, k: Block, v: Block) -> KeyTiles:
    """The tiles of all keys: first those of K and V on chip, then those that are loaded."""
    for j in chip.tiles(first, t.rows_k):
        yield j, Keys(k[j], None, v[j])
    for j in chip.tiles(Stretch(p.Nk, first.size, p.Nk - first.size), t.rows_k):
        yield j, Keys(chip.load("K", j), None, chip.load("V", j))


def kept(p: Attention, t: Tiling[Size]) -> Size:
    """r: the keys that stay on chip, those of one tile unless given."""
    return smaller(t.rows_k if t.kept is None else t.kept, p.Nk)


# ---------------------------------------------------------------- by hand, from the idea (words of one head)


def keys_stay_traffic(p: Attention, t: Tiling) -> Words:
    """R = N d + (r + s Tr) (d + dv), W = N dv (LSE adds N), with s = Nk - r.

    Q is read once, and O is written once. r keys and values are read once, and the other s for every query tile.
    """
    r, passes = min(t.rows_k if t.kept is None else t.kept, p.Nk), -(-p.N // t.rows_q)
    keys = r + (p.Nk - r) * passes
    return {
        "Q": (p.N * p.d, 0),
        "K": (keys * p.d, 0),
        "V": (keys * p.dv, 0),
        "O": (0, p.N * p.dv),
        **({"P": (0, p.N * p.Nk)} if p.keep_p else {}),
        **({"LSE": (0, p.N)} if p.lse else {}),
    }


def keys_stay_footprint(p: Attention, t: Tiling) -> int:
    """r (d + dv) words for the keys that stay; beside them Br (d + dv + 2) for Q, O, l, m, and S with the streaming
    tile of K and V, or with none of it while the keys that stay are used. Tiles are clipped to their parts of the
    axes."""
    r, rows = min(t.rows_k if t.kept is None else t.kept, p.Nk), min(t.rows_q, p.N)
    streaming = min(t.rows_k, p.Nk - r)
    beside = max(rows * min(t.rows_k, r), streaming * (rows + p.d + p.dv))
    return r * (p.d + p.dv) + rows * (p.d + p.dv + 2) + beside


def need(p: Attention, rows: int, r: int, keys: int) -> int:
    """The bytes of such a tiling: the words of `keys_stay_footprint`, each with the bytes of its type."""
    acc, word, both, rows, r = p.acc_bytes, p.word_bytes, p.d + p.dv, min(rows, p.N), min(r, p.Nk)
    streaming = min(keys, p.Nk - r)
    beside = max(rows * min(keys, r) * acc, streaming * (rows * acc + both * word))
    return r * both * word + rows * (p.d * word + (p.dv + 2) * acc) + beside


register(
    Schedule(
        "flash2-pinned",
        keys_stay,
        "flash2 with some keys on chip for the whole run",
        f"{FA2}, Algorithm 1; the keys that stay as in joins: Merrett, Kambayashi and Yasuura 1981",
        drops=True,
        options=("lse", "keep_p"),
        formula="R = N d + r (d + dv) + s (d + dv) Tr, W = N dv",
        state="r rows of K and V on chip for the whole run, beside a tile of Q with its O, l, m; nothing waits in HBM",
        exact_traffic=keys_stay_traffic,
        footprint=keys_stay_footprint,
        candidates=Kept(need),
        more_tiles=("kept",),
        dominated_by="flash2",
        known_as="pinned, rocking-scan, keys-stay",
    )
)
