"""Attention with queries outside, where K and V use the same SRAM one after the other.

Q either stays on chip or is read again with every key tile. PyTorch's EFFICIENT_ATTENTION reads it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..masks.reach import seen
from ..steps.softmax import accumulate, hide, log_sum_exp, minus_infinity, normalise, online_softmax, scores, zeros
from .registry import Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Words


def queries_again(chip: Machine, p: Attention, t: Tiling) -> None:
    """Queries outside. Q and K are freed when S is computed, and Q is read again with the next K. The loop over keys
    ends at the last key that the query tile sees."""
    one_room(chip, p, t, again=True)


def queries_stay(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention-2 (Dao 2023, Algorithm 1), with K freed before V is loaded."""
    one_room(chip, p, t, again=False)


def one_room(chip: Machine, p: Attention, t: Tiling, again: bool) -> None:
    """Attention in which K and V are never on chip together. With `again`, Q is freed with K, and read again with every
    key tile."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = None if again else chip.load("Q", i)
        o = chip.compute("O", (i, p.dv), zeros)
        l = chip.compute("l", (i,), zeros)
        m = chip.compute("m", (i,), minus_infinity)
        for j in chip.tiles(seen(p, i), t.rows_k):
            if again or q is None:
                q = chip.load("Q", i)
            k = chip.load("K", j)
            s = chip.compute("S", (i, j), scores, q, k)
            chip.update(s, hide, p.mask.part(i, j))
            if again:
                chip.free(q, k)
            else:
                chip.free(k)
            chip.update((s, m, l, o), online_softmax)  # P in the place of S
            if p.keep_p:
                chip.store(s, "P", i, j)
            chip.update(o, accumulate, s, chip.load("V", j))
        chip.update(o, normalise, l)
        chip.store(o, "O", i)
        if p.lse:
            chip.update(l, log_sum_exp, m)
            chip.store(l, "LSE", i)


# ---------------------------------------------------------------- by hand, from the kernel (words of one head)


def traffic(p: Attention, t: Tiling) -> Words:
    """The words of memory-efficient. Dense and with dv = d: R = 2 Nk d Tr + N d Tc, W = N d (LSE adds N).

    A query tile of h rows whose last visible key is the n-th reads n keys and values. It reads its own rows
    ceil(n / Bc) times.
    """
    keys, rows, square = p.Nk * -(-p.N // t.rows_q), p.N * -(-p.Nk // t.rows_k), p.N * p.Nk
    if p.mask.columns is not None:
        tiles = last_keys(p, t)
        keys, rows = sum(n for _, n in tiles), sum(h * -(-n // t.rows_k) for h, n in tiles)
        square = sum(h * n for h, n in tiles)
    return moved(p, keys, rows, square)


def moved(p: Attention, keys: int, rows: int, square: int) -> Words:
    """The words of each tensor. `keys`, `rows` (of Q) and `square` (scores) are sums over all query tiles."""
    return {
        "Q": (rows * p.d, 0),
        "K": (keys * p.d, 0),
        "V": (keys * p.dv, 0),
        "O": (0, p.N * p.dv),
        **({"P": (0, square)} if p.keep_p else {}),
        **({"LSE": (0, p.N)} if p.lse else {}),
    }


def last_keys(p: Attention, t: Tiling) -> list[tuple[int, int]]:
    """The pair (rows, keys up to the last visible one) of every query tile, from the whole matrix of visible pairs."""
    visible = p.mask.visible(0, p.N, 0, p.Nk)
    needed = (visible[:, ::-1].cumsum(axis=1) > 0).sum(axis=1)  # a key is needed if it is seen, or if a later one is
    parts = [needed[x : x + t.rows_q] for x in range(0, p.N, t.rows_q)]
    return [(len(part), int(part.max())) for part in parts]


def room(p: Attention, t: Tiling) -> int:
    """2 Br d + Bc d + Br Bc + 2 Br words with dv = d: O, l, m, S, Q and K. V then uses the SRAM of Q and K."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return rows_q * (p.dv + 2) + rows_q * rows_k + max((rows_q + rows_k) * p.d, rows_k * p.dv)


def stay_traffic(p: Attention, t: Tiling) -> Words:
    """R = N d + 2 Nk d Tr, W = N d, with dv = d, under every mask: the dense words of flash2."""
    passes = -(-p.N // t.rows_q)
    return {
        "Q": (p.N * p.d, 0),
        "K": (p.Nk * p.d * passes, 0),
        "V": (p.Nk * p.dv * passes, 0),
        "O": (0, p.N * p.dv),
        **({"P": (0, p.N * p.Nk)} if p.keep_p else {}),
        **({"LSE": (0, p.N)} if p.lse else {}),
    }


def stay_room(p: Attention, t: Tiling) -> int:
    """Bc d + 2 Br d + Br Bc + 2 Br words with dv = d: those of flash2, but with one tile for K and V instead of two."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return rows_q * (p.d + p.dv + 2) + rows_q * rows_k + rows_k * max(p.d, p.dv)


register(
    Schedule(
        "memory-efficient",
        queries_again,
        "Q outer, O written once, Q read again with each key tile",
        "Rabe and Staats 2021 (arXiv 2112.05682); as in the CUTLASS kernel of xFormers and PyTorch",
        options=("lse", "keep_p"),
        skips=True,
        formula="R = N d Tc + Nk (d + dv) Tr, W = N dv",
        state="O, l, m of a query tile on chip; Q comes again with every K; nothing waits in HBM",
        exact_traffic=traffic,
        footprint=room,
        sizes=(("rows_q", "rows_k"),),
        known_as="efficient, mem-efficient, torch-efficient, xformers, cutlass, memory-efficient-attention",
    )
)
register(
    Schedule(
        "flash2-one-room",
        queries_stay,
        "flash2 with K and V one after the other in the same room",
        "Dao 2023 (arXiv 2307.08691), Algorithm 1; K freed before V is loaded",
        options=("lse", "keep_p"),
        formula="R = N d + Nk (d + dv) Tr, W = N dv",
        state="a tile of Q with its O, l, m on chip, beside it K or V; nothing waits in HBM",
        exact_traffic=stay_traffic,
        footprint=stay_room,
    )
)
