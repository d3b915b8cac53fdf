"""FlashAttention with keys outside (2022) and with queries outside (2023), and their block-sparse forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import FromEnd
from ..core.problem import with_mask
from ..options import Kind, Option, one_of
from ..steps.softmax import (
    accumulate,
    denormalise,
    drop,
    log_sum_exp,
    minus_infinity,
    normalise,
    online_softmax,
    zeros,
)
from .cache import Cache, Keys, cache_room, cache_traffic, masked_scores
from .registry import FA1, FA2, Schedule, always_skips, register

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.mask_types import Mask
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Words


SHORT_TILE = Option(
    "short_tile",
    Kind(one_of("last", "first")),
    "Where the short tile of queries lies if they do not divide, for flash2: last (default) or first.",
    "last",
    metavar="WHERE",
)


def keys_outside(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention (Dao et al. 2022, Algorithms 1 and 5). Keys are the outer loop; O, l, m go back and forth."""
    for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.columns):
        keys = Cache(chip, p).load(j)
        for i in chip.tiles(p.N, t.rows_q, where=p.mask.column(j)):
            q, o = chip.load("Q", i), chip.load("O", i)
            l, m = chip.load("l", i), chip.load("m", i)
            s = masked_scores(chip, p, i, j, q, keys)
            chip.update(o, denormalise, l)
            chip.update((s, m, l, o), online_softmax)  # P in the place of S
            if p.keep_p:
                chip.store(s, "P", i, j)
            chip.update(s, drop, p.dropout_part(i, j))
            chip.update(o, accumulate, s, keys.v)
            chip.update(o, normalise, l)
            chip.store(o, "O", i)
            chip.store(l, "l", i)
            chip.store(m, "m", i)


def queries_outside(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention-2 (Dao 2023, Algorithm 1). Queries are the outer loop; O, l, m stay on chip."""
    rows, mask = query_tiles(p)
    for i in chip.tiles(rows, t.rows_q, parallel=True):
        q = chip.load("Q", i, where=mask.row(i))
        o = chip.compute("O", (i, p.dv), zeros)
        l = chip.compute("l", (i,), zeros)
        m = chip.compute("m", (i,), minus_infinity)
        cache = Cache(chip, p)
        for j in chip.tiles(p.Nk, t.rows_k, where=mask.row(i)):
            attend(chip, p, i, j, q, cache.load(j), (m, l, o))
        chip.update(o, normalise, l)
        chip.store(o, "O", i)
        if p.lse:
            chip.update(l, log_sum_exp, m)
            chip.store(l, "LSE", i)


def query_tiles(p: Attention) -> tuple[int | Tile, Mask]:
    """The axis of queries, and the mask over its tiles: the short one is the last, or the first if asked for."""
    return (FromEnd(p.N), cast("Mask", p.mask.short_first())) if p[SHORT_TILE] == "first" else (p.N, p.mask)


def attend(chip: Machine, p: Attention, i: Tile, j: Tile, q: Block, keys: Keys, state: tuple[Block, ...]) -> None:
    """One key tile of online softmax (Dao 2023, Algorithm 1, lines 8 to 10)."""
    m, l, o = state
    s = masked_scores(chip, p, i, j, q, keys)
    chip.update((s, m, l, o), online_softmax)  # P in the place of S
    if p.keep_p:
        chip.store(s, "P", i, j)
    chip.update(s, drop, p.dropout_part(i, j))
    chip.update(o, accumulate, s, keys.v)


# ---------------------------------------------------------------- by hand, from the papers (words of one head)


def keys_outside_traffic(p: Attention, t: Tiling) -> Words:
    """The words of flash1. Dense and with dv = d: R = 2 Nk d + Tc N (2d + 2), W = Tc N (d + 2).

    Every key tile is read once (line 6). For each of them every query tile that sees it reads Q, O, l, m (line 8) and
    writes O, l, m (lines 12, 13).
    """
    sums = visited(p, t)
    rows, keys = sums["rows"], sums["keys_of_columns"]
    return {
        **cache_traffic(p, keys, sums["columns"]),
        "Q": (rows * p.d, 0),
        "O": (rows * p.dv, rows * p.dv),
        "l": (rows, rows),
        "m": (rows, rows),
        **({"P": (0, sums["pairs"])} if p.keep_p else {}),
    }


def queries_outside_traffic(p: Attention, t: Tiling) -> Words:
    """The words of flash2. Dense and with dv = d: R = N d + 2 Nk d Tr, W = N d (LSE adds N).

    Q is read once, and O is written once. K and V are read for every query tile that sees them.
    """
    sums = visited(with_mask(p, query_tiles(p)[1]), t)
    return {
        "Q": (sums["queries_of_rows"] * p.d, 0),
        **cache_traffic(p, sums["keys"], -(-p.N // t.rows_q)),
        "O": (0, p.N * p.dv),
        **({"P": (0, sums["pairs"])} if p.keep_p else {}),
        **({"LSE": (0, p.N)} if p.lse else {}),
    }


def in_tiles(p: Attention, rows_q: int, rows_k: int) -> Attention:
    """The problem with its mask over other tiles, for a launch that has tiles of its own."""
    return with_mask(p, cast("Mask", p.mask.in_tiles(rows_q, rows_k)))


def visited(p: Attention, t: Tiling) -> dict[str, int]:
    """The sums of query rows, key rows and pairs over the active tiles; the queries and the keys in lines with such a
    tile.

    Dense sums are in closed form. With a mask they come from its table of active tiles, and not from the counts that
    the folded machine uses.
    """
    tiles_q, tiles_k = -(-p.N // t.rows_q), -(-p.Nk // t.rows_k)
    if p.mask.columns is None:
        dense = {"rows": p.N * tiles_k, "keys": p.Nk * tiles_q, "pairs": p.N * p.Nk}
        return {**dense, "queries_of_rows": p.N, "keys_of_columns": p.Nk, "columns": tiles_k}
    table = p.mask.table
    heights = [min(t.rows_q, p.N - i * t.rows_q) for i in range(tiles_q)]
    heights = heights[::-1] if p.mask.from_end else heights
    widths = [min(t.rows_k, p.Nk - j * t.rows_k) for j in range(tiles_k)]
    per_row = [int(sum(w for w, on in zip(widths, line, strict=True) if on)) for line in table]
    per_column = [int(sum(h for h, on in zip(heights, line, strict=True) if on)) for line in table.T]
    return {
        "rows": sum(per_column),
        "keys": sum(per_row),
        "pairs": sum(h * keys for h, keys in zip(heights, per_row, strict=True)),
        "queries_of_rows": sum(h for h, keys in zip(heights, per_row, strict=True) if keys),
        "keys_of_columns": sum(w for w, rows in zip(widths, per_column, strict=True) if rows),
        "columns": sum(rows > 0 for rows in per_column),
    }


def flash_footprint(p: Attention, t: Tiling) -> int:
    """2 Bc d + 2 Br d + Br Bc + 2 Br words: K, V, Q, O, S (later P), l, m. Tiles are clipped to the axes."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return rows_q * (p.d + p.dv + 2) + cache_room(p, rows_k, rows_q * rows_k)


def keys_outside_footprint(p: Attention, t: Tiling) -> int:
    """The words of `flash_footprint`, but the key tile and its scales are loaded before everything else."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return cache_room(p, rows_k, rows_q * (p.d + p.dv + 2) + rows_q * rows_k)


OWN_TILES = (
    "with tiles of its own, as in iosim count --N 8192 --d 128 --hardware h100 --acc-dtype fp32 --schedule flash2 "
    "--tiles 128x176 --registers 64K --stages 2 (docs/conventions.md)"
)
LATER_VERSIONS = {
    **dict.fromkeys(("fa3", "flash3", "flash-attention-3", "flash-attn-3", "flash-v3"),
                    f"FlashAttention-3 moves the words of flash2, {OWN_TILES}"),
    **dict.fromkeys(("fa4", "flash4", "flash-attention-4", "flash-attn-4", "flash-v4"),
                    f"FlashAttention-4 has the loops of flash2; FlashAttention-3 has them {OWN_TILES}"),
}  # fmt: skip
FLASH1 = register(
    Schedule(
        "flash1",
        keys_outside,
        "K/V outer: O, l, m go back and forth",
        f"{FA1}, Algorithm 1",
        outer="keys",
        rules=("paper", "best"),
        skips=True,
        exact_traffic=keys_outside_traffic,
        footprint=keys_outside_footprint,
        initialised=("O", "l", "m"),
        drops=True,
        scales=True,
        options=("keep_p", "visit_all"),
        formula="R = Nk (d + dv) + N (d + dv + 2) Tc, W = N (dv + 2) Tc",
        state="a tile of K and V on chip; O, l, m wait in HBM between key tiles",
        known_as="fa1, fa, flash, flash-attention, flash-attn, flash-attention-1, flash-v1, algorithm-1",
    )
)
FLASH2 = register(
    Schedule(
        "flash2",
        queries_outside,
        "Q outer: O, l, m stay on chip",
        f"{FA2}, Algorithm 1",
        skips=True,
        exact_traffic=queries_outside_traffic,
        footprint=flash_footprint,
        drops=True,
        scales=True,
        options=("lse", "keep_p", "visit_all", SHORT_TILE),
        formula="R = N d + Nk (d + dv) Tr, W = N dv",
        state="a tile of Q with its O, l, m on chip; nothing waits in HBM",
        known_as="fa2, fa, flash, flash-attention, flash-attn, flash-attention-2, flash-attn-2, flash-v2, torch-flash, "
        "sdpa, cudnn, " + ", ".join(LATER_VERSIONS),
        pointers=LATER_VERSIONS,
    )
)
always_skips(FLASH1, "block-sparse", f"{FA1}, Algorithm 5", "sparse, block-sparse-flash, algorithm-5")
always_skips(
    FLASH2,
    "block-sparse-q",
    f"{FA2}, Algorithm 1 with a mask",
    "causal, flex, flex-attention, torch-flex, sliding-window, swa, local-attention",
)
register(
    Schedule(
        "local-gather",
        queries_outside,
        "sparse attention, each query gathering its keys",
        "unstructured sparse attention without reuse; flash2 in tiles of 1 x 1",
        rules=("ideal",),
        options=("lse", "keep_p"),
        skips=True,
        dominated_by="flash2",
        formula="R = N d + N Nk (d + dv), W = N dv",
        state="one row of Q and O with l, m on chip; nothing waits in HBM",
        exact_traffic=queries_outside_traffic,
        footprint=flash_footprint,
        scales=True,
        known_as="gather, local, local-attention",
    )
)
