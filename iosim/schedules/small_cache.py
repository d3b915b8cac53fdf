"""Attention for an SRAM of less than d^2 words, where a tile of whole rows of Q, K, V is too large.

Saha and Ye 2024 show that the optimum there is Theta(N^2 d / sqrt(M)) words. Standard attention reaches it with square
tiles of all three axes in both products, and S goes through HBM. In small-cache and small-cache-q softmax has no
separate pass: the second product reads S anyway, and finds the maximum and the sum of each row online. So S is written
once and read ceil(dv / cols_o) times, and no maximum or sum ever moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem import narrowed
from ..core.tiling import Tiling
from ..masks.reach import seen
from ..oracles.matmul_softmax import unit_inputs
from ..steps.passes import Number, add_scores, scale
from ..steps.softmax import accumulate, hide, minus_infinity, normalise, online_softmax, scores, zeros
from .online_softmax import softmax_2pass
from .registry import FA1, Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.typing import Words

SY = "Saha and Ye 2024 (arXiv 2402.07443)"


def scores_stay(chip: Machine, p: Attention, t: Tiling) -> None:
    """S = Q K^T / sqrt(d): a tile of S stays while Q and K stream in columns."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        for j in chip.tiles(seen(p, i, cut=True), t.rows_k):
            s = chip.compute("S", (i, j), zeros)
            for c in chip.tiles(p.d, t.depth):
                q, k = chip.load("Q", i, c), chip.load("K", j, c)
                chip.update(s, add_scores, q, k)
            chip.update(s, scale, Number(p.d))
            chip.update(s, hide, p.mask.part(i, j))
            chip.store(s, "S", i, j)


def queries_stay(chip: Machine, p: Attention, t: Tiling) -> None:
    """S = Q K^T / sqrt(d): whole rows of Q stay while K streams."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i)
        for j in chip.tiles(seen(p, i, cut=True), t.rows_k):
            chip.store(chip.compute("S", (i, j), scores, q, chip.load("K", j)), "S", i, j)


def online_output(chip: Machine, p: Attention, t: Tiling) -> None:
    """O = softmax(S) V: a tile of O stays, S and V stream. Every column tile of O finds the maximum and sum again."""
    rows, columns = output_tile(t)
    for i in chip.tiles(p.N, rows, parallel=True):
        for c in chip.tiles(p.dv, columns):
            o = chip.compute("O", (i, c), zeros)
            l = chip.compute("l", (i,), zeros)
            m = chip.compute("m", (i,), minus_infinity)
            for j in chip.tiles(seen(p, i, rows, cut=True), t.depth):
                s, v = chip.load("S", i, j), chip.load("V", j, c)
                chip.update(s, hide, p.mask.part(i, j))
                chip.update((s, m, l, o), online_softmax)
                chip.update(o, accumulate, s, v)
            chip.update(o, normalise, l)
            chip.store(o, "O", i, c)


def plain_output(chip: Machine, p: Attention, t: Tiling) -> None:
    """O = P V: a tile of O stays, P and V stream."""
    rows, columns = output_tile(t)
    for i in chip.tiles(p.N, rows, parallel=True):
        for c in chip.tiles(p.dv, columns):
            o = chip.compute("O", (i, c), zeros)
            for j in chip.tiles(p.Nk, t.depth):
                probabilities, v = chip.load("P", i, j), chip.load("V", j, c)
                chip.update(o, accumulate, probabilities, v)
            chip.store(o, "O", i, c)


def small_cache(chip: Machine, p: Attention, t: Tiling) -> None:
    """Attention as two products in square tiles, for the smallest M."""
    scores_stay(chip, p, t)
    online_output(chip, p, t)


def small_cache_queries(chip: Machine, p: Attention, t: Tiling) -> None:
    """Attention as two products, for M near d^2: whole rows of Q stay in the first one."""
    queries_stay(chip, p, t)
    online_output(chip, p, t)


def standard_square(chip: Machine, p: Attention, t: Tiling) -> None:
    """Algorithm 0 with square tiles: two products, and a softmax in two passes between them."""
    scores_stay(chip, p, t)
    softmax_2pass(chip, p, SOFTMAX_TILE)
    plain_output(chip, p, t)


BOTH = (("rows_q", "rows_k"), ("rows_o", "cols_o"))  # each product has its own tile
SOFTMAX_TILE = Tiling(1, 1)  # the traffic of softmax does not depend on its tile


def output_tile(t: Tiling) -> tuple[int, int]:
    """Rows and columns of a tile of O: Br x Bc unless given."""
    return t.rows_q if t.rows_o is None else t.rows_o, t.rows_k if t.cols_o is None else t.cols_o


# ---------------------------------------------------------------- by hand (words of one head)


def small_cache_traffic(p: Attention, t: Tiling) -> Words:
    """The words of small-cache, which computes two products.

    Dense: a word of Q is read for each of the ceil(Nk/Bc) tiles of S in its row, and a word of K for each of the
    ceil(N/Br) tiles in its column. S is written once, and read for each column tile of O. A word of V is read for each
    row tile of O. O is written once. Under a mask each row tile has the keys that it needs in the place of all Nk.
    """
    rows, columns = output_tile(t)
    first, second = key_ranges(p, t.rows_q), key_ranges(p, rows)
    return {
        "Q": (sum(h * -(-keys // t.rows_k) for h, keys in first) * p.d, 0),
        "K": (sum(keys for _, keys in first) * p.d, 0),
        "S": (sum(h * keys for h, keys in second) * -(-p.dv // columns), sum(h * keys for h, keys in first)),
        "V": (sum(keys for _, keys in second) * p.dv, 0),
        "O": (0, p.N * p.dv),
    }


def queries_traffic(p: Attention, t: Tiling) -> Words:
    """The words of small-cache-q: those of small-cache, but Q is read only once."""
    return {**small_cache_traffic(p, t), "Q": (p.N * p.d, 0)}


def key_ranges(p: Attention, rows: int) -> list[tuple[int, int]]:
    """The pair (rows, keys from the first seen to the last) of every tile of so many queries, from the whole matrix of
    visible pairs."""
    parts = [(x, min(rows, p.N - x)) for x in range(0, p.N, rows)]
    if p.mask.columns is None:
        return [(height, p.Nk) for _, height in parts]
    visible, found = p.mask.visible(0, p.N, 0, p.Nk), []
    for x, height in parts:
        keys = visible[x : x + height].nonzero()[1]
        found.append((height, int(keys.max() - keys.min()) + 1 if len(keys) else 0))
    return found


def square_traffic(p: Attention, t: Tiling) -> Words:
    """The words of small-cache, but softmax reads S twice and writes P, and the second product reads P and not S."""
    traffic, square = small_cache_traffic(p, t), p.N * p.Nk
    return {**traffic, "S": (2 * square, square), "P": (traffic["S"][0], square)}


def first_footprint(p: Attention, t: Tiling) -> int:
    """Br Bc + depth (Br + Bc) words, clipped to the axes: a tile of S stays, with parts of Q and K."""
    rows, keys, depth = min(t.rows_q, p.N), min(t.rows_k, p.Nk), min(t.depth, p.d)
    return rows * keys + depth * (rows + keys)


def second_footprint(p: Attention, t: Tiling, state: int = 2) -> int:
    """rows cols + state rows + depth (rows + cols) words: a tile of O with l and m, and parts of S and V."""
    rows, columns = output_tile(t)
    rows, columns, depth = min(rows, p.N), min(columns, p.dv), min(t.depth, p.Nk)
    return rows * columns + state * rows + depth * (rows + columns)


def small_cache_footprint(p: Attention, t: Tiling) -> int:
    """The larger footprint of the two products."""
    return max(first_footprint(p, t), second_footprint(p, t))


def queries_footprint(p: Attention, t: Tiling) -> int:
    """The larger of two: (Br + Bc) d + Br Bc for the first product; the footprint of the second."""
    rows, keys = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return max((rows + keys) * p.d + rows * keys, second_footprint(p, t))


def square_footprint(p: Attention, t: Tiling) -> int:
    """The largest of three: the footprints of the two products; one score with its maximum and sum."""
    return max(first_footprint(p, t), second_footprint(p, t, state=0), 3)


def without_p(p: Attention) -> Attention:
    """P is never whole, so it cannot be kept."""
    return narrowed(p, keep_p=False)


register(
    Schedule(
        "small-cache",
        small_cache,
        "for M < d^2: square tiles; S goes through HBM",
        f"{SY}, M < d^2",
        skips=True,
        options=("visit_all",),
        dominated_by="flash2",
        formula="R = N d Tc + Nk d Tr + N Nk Tv + Nk dv To, W = N Nk + N dv",
        state="a tile of S, then of O with l, m on chip; S waits in HBM between launches",
        exact_traffic=small_cache_traffic,
        footprint=small_cache_footprint,
        sizes=BOTH,
        example=unit_inputs,
        about=without_p,
        more_tiles=("depth", "rows_o", "cols_o"),
        known_as="saha-ye",
    )
)
register(
    Schedule(
        "small-cache-q",
        small_cache_queries,
        "for M near d^2: the same, rows of Q stay in Q K^T",
        f"{SY}, M < d^2",
        skips=True,
        options=("visit_all",),
        dominated_by="flash2",
        formula="R = N d + Nk d Tr + N Nk Tv + Nk dv To, W = N Nk + N dv",
        state="rows of Q, then a tile of O with l, m on chip; S waits in HBM between launches",
        exact_traffic=queries_traffic,
        footprint=queries_footprint,
        sizes=BOTH,
        example=unit_inputs,
        about=without_p,
        more_tiles=("depth", "rows_o", "cols_o"),
    )
)
register(
    Schedule(
        "standard-square",
        standard_square,
        "Algorithm 0 with square tiles of all axes",
        f"{FA1}, Algorithm 0; {SY}",
        dominated_by="standard-tiled",
        formula="R = N d Tc + Nk d Tr + (2 + Tv) N Nk + Nk dv To, W = 2 N Nk + N dv",
        state="a tile of S, then of O on chip; S and P go through HBM between launches",
        exact_traffic=square_traffic,
        footprint=square_footprint,
        example=unit_inputs,
        sizes=BOTH,
        more_tiles=("depth", "rows_o", "cols_o"),
    )
)
