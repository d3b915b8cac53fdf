"""Attention with queries outside, where K and V use the same SRAM one after the other.

Q either stays on chip or is read again with every key tile. PyTorch's EFFICIENT_ATTENTION reads it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem import DENSE
from ..core.tiling import Tiling
from ..errors import InputError
from ..masks.reach import reaches, reaches_of_sizes, seen
from ..progress import watched
from ..search.best import last_true
from ..search.outer_tile_under_mask import MOST_IN_ARRAYS
from ..search.shared_sram import largest, least_passes
from ..search.shared_sram_curve import seen_pairs
from ..steps.softmax import accumulate, hide, log_sum_exp, minus_infinity, normalise, online_softmax, scores, zeros
from .registry import Schedule, register

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.machine import Machine
    from ..core.problem import Attention
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


def best_row_tile(schedule: Schedule, p: Attention, M_bytes: int, multiple: int) -> Tiling | None:
    """The tiles of least traffic that fit; None if nothing fits. Traffic never grows with Bc, so each Br is paired
    with the largest Bc. Without a mask, larger Br never move more; with one, every Br is counted."""

    def keys(n_q: int) -> int:
        """The rows of the largest key tile that fits beside `n_q` multiples of query rows; 0 or less if none fits."""
        rooms = room_bytes(p, min(n_q * multiple, p.N))
        return min(largest((M_bytes - beside) // each, p.Nk, multiple) for each, beside in rooms)

    if p.mask is DENSE:
        found = best_rows(p, M_bytes, multiple)
    else:
        most = last_true(lambda n: keys(n) > 0, -(-p.N // multiple))
        found = best_rows_under_mask(p, most, multiple, keys) if most else 0
    return Tiling(found * multiple, keys(found)) if found else None


def best_rows_under_mask(p: Attention, most: int, multiple: int, keys: Callable[[int], int]) -> int:
    """The best query tile under a mask of tokens, in multiples. Each of 1 to `most` is counted, with its own `keys`."""
    if p.mask.tile_units or most > MOST_IN_ARRAYS:
        raise InputError(
            "--tiles", f"best with --mask {p.mask}", f"a mask in tokens and at most {MOST_IN_ARRAYS} query tiles",
            "give --tiles as 128x64, or a --tile-multiple",
        )  # fmt: skip
    best = (-1, 0)
    sizes = watched(reaches_of_sizes(p, multiple, most), "query tiles", most)
    for n, reach in enumerate(sizes, 1):
        rows, last = n * multiple, p.N - (len(reach) - 1) * n * multiple
        turns = -(-reach // keys(n))
        again, square = (int(part.sum()) * rows - int(part[-1]) * (rows - last) for part in (turns, reach))
        words = sum(map(sum, moved(p, int(reach.sum()), again, square).values()))
        if best[0] < 0 or words < best[0]:
            best = words, n
    return best[1]


def best_rows(p: Attention, M_bytes: int, multiple: int) -> int:
    """The best query tile without a mask, in multiples; 0 if nothing fits."""
    found = least_passes(
        p.N, p.Nk, multiple, M_bytes,
        room=lambda rows: room_bytes(p, rows),
        cost=lambda passes_q, passes_k: p.Nk * (p.d + p.dv) * passes_q + p.N * p.d * passes_k,
    )  # fmt: skip
    return found.tile[0] // multiple if found else 0


def room_bytes(p: Attention, rows: int) -> list[tuple[int, int]]:
    """(bytes for each key of the tile, bytes besides the keys), first while Q and K are on chip, then while V is."""
    acc, word = p.acc_bytes, p.word_bytes
    stays = rows * (p.dv + 2) * acc
    return [(rows * acc + p.d * word, stays + rows * p.d * word), (rows * acc + p.dv * word, stays)]


def masked_candidates(p: Attention, multiple: int) -> list[Tiling]:
    """The tilings that are best at some M, under a mask of tokens."""
    return seen_pairs(
        p.N, p.Nk, multiple,
        reach=lambda rows: reaches(p.tiled(Tiling(rows, multiple)).mask),
        room=lambda rows: room_bytes(p, rows),
        cost=lambda keys, rows, square: sum(map(sum, moved(p, keys, rows, square).values())),
    )  # fmt: skip


register(
    Schedule(
        "memory-efficient",
        queries_again,
        "Q outer, O written once, Q read again with each key tile",
        "Rabe and Staats 2021 (arXiv 2112.05682); as in the CUTLASS kernel of xFormers and PyTorch",
        skips=True,
        formula="R = N d Tc + Nk (d + dv) Tr, W = N dv",
        state="O, l, m of a query tile on chip; Q comes again with every K; nothing waits in HBM",
        exact_traffic=traffic,
        footprint=room,
        search=best_row_tile,
        inner_matters=True,
        masked_candidates=masked_candidates,
        known_as="efficient, mem-efficient, torch-efficient, xformers, cutlass, memory-efficient-attention",
    )
)
register(
    Schedule(
        "flash2-one-room",
        queries_stay,
        "flash2 with K and V one after the other in the same room",
        "Dao 2023 (arXiv 2307.08691), Algorithm 1; K freed before V is loaded",
        formula="R = N d + Nk (d + dv) Tr, W = N dv",
        state="a tile of Q with its O, l, m on chip, beside it K or V; nothing waits in HBM",
        exact_traffic=stay_traffic,
        footprint=stay_room,
    )
)
