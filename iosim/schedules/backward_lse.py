"""The backward pass of FlashAttention-2, with dQ summed by atomic adds, or computed by a second pass.

P is computed again from LSE, one number a row. Dropout is computed again from (row, column), so it moves no words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..steps.backward import (
    add_key_gradients,
    add_query_gradients,
    add_value_gradients,
    probabilities_from_lse,
    probability_gradients,
    row_dots,
    score_gradients,
)
from ..steps.softmax import drop, hide, scores, zeros
from .backward import backward
from .flash import visited
from .registry import FA2, always_skips, register

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Words


def keys_outside_lse(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention-2 (Dao 2023, Algorithm 2). D comes first, then a loop with keys outside. Atomic adds sum dQ in
    HBM."""
    row_sums(chip, p, t)
    key_side(chip, p, t)


def second_pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention-2 without shared sums: keys outside for dK and dV, then queries outside for dQ. S and dP are
    computed twice."""
    row_sums(chip, p, t)
    key_side(chip, p, t, shared=False)
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q, do = chip.load("Q", i, where=p.mask.row(i)), chip.load("dO", i, where=p.mask.row(i))
        lse, delta = chip.load("LSE", i, where=p.mask.row(i)), chip.load("D", i, where=p.mask.row(i))
        dq = chip.compute("dQ", (i, p.d), zeros)
        for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
            k, v = chip.load("K", j), chip.load("V", j)
            s, dp = chip.compute("S", (i, j), scores, q, k), chip.compute("dP", (i, j), probability_gradients, do, v)
            recompute(chip, p, i, j, s, dp, lse, delta)
            chip.update(dq, add_query_gradients, dp, k)
        chip.store(dq, "dQ", i)


def row_sums(chip: Machine, p: Attention, t: Tiling) -> None:
    """D = rowsum(dO * O), Dao 2023, Algorithm 2, line 4."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        do, o = chip.load("dO", i), chip.load("O", i)
        chip.store(chip.compute("D", (i,), row_dots, do, o), "D", i)


def key_side(chip: Machine, p: Attention, t: Tiling, shared: bool = True) -> None:
    """The loop with keys outside, in which dK and dV stay. With `shared`, every iteration adds to the same dQ."""
    for j in chip.tiles(p.Nk, t.rows_k, parallel=True):
        k, v = chip.load("K", j, where=p.mask.column(j)), chip.load("V", j, where=p.mask.column(j))
        dk, dv = chip.compute("dK", (j, p.d), zeros), chip.compute("dV", (j, p.dv), zeros)
        for i in chip.tiles(p.N, t.rows_q, where=p.mask.column(j)):
            q, do = chip.load("Q", i), chip.load("dO", i)
            lse, delta = chip.load("LSE", i), chip.load("D", i)
            s, dp = chip.compute("S", (i, j), scores, q, k), chip.compute("dP", (i, j), probability_gradients, do, v)
            recompute(chip, p, i, j, s, dp, lse, delta)
            chip.update(s, drop, p.dropout_part(i, j))
            chip.update(dv, add_value_gradients, s, do)
            if shared:
                dq = chip.load("dQ", i)
                chip.update(dq, add_query_gradients, dp, k)
                chip.store(dq, "dQ", i)
            chip.update(dk, add_key_gradients, dp, q)
        chip.store(dk, "dK", j)
        chip.store(dv, "dV", j)


def recompute(chip: Machine, p: Attention, i: Tile, j: Tile, s: Block, dp: Block, lse: Block, delta: Block) -> None:
    """Turn S into P and dP into dS, each in its place (Dao 2023, Algorithm 2, lines 11 and 14)."""
    chip.update(s, hide, p.mask.part(i, j))
    chip.update(s, probabilities_from_lse, lse)
    chip.update(dp, drop, p.dropout_part(i, j))
    chip.update(dp, score_gradients, s, delta)


# ---------------------------------------------------------------- by hand, from the papers (words of one head)


def keys_outside_lse_traffic(p: Attention, t: Tiling) -> Words:
    """The words of flash2-bwd. Dense and with dv = d: R = 2 Nd + 2 Nk d + Tc N (3d + 2), W = N + Tc N d + 2 Nk d.

    D reads 2 N d and writes N words, once. Then every query tile that a key tile sees reads Q, dO, LSE and D, and its
    atomic add reads and writes dQ (line 15).
    """
    rows = visited(p, t)["rows"]
    found = key_side_traffic(p, t)
    return {**found, "dQ": (rows * p.d, rows * p.d)}


def key_side_traffic(p: Attention, t: Tiling) -> Words:
    """The words of D and of the loop with keys outside, except dQ."""
    sums = visited(p, t)
    rows, keys = sums["rows"], sums["keys_of_columns"]
    return {
        "O": (p.N * p.dv, 0),
        "dO": (p.N * p.dv + rows * p.dv, 0),
        "D": (rows, p.N),
        "LSE": (rows, 0),
        "Q": (rows * p.d, 0),
        "K": (keys * p.d, 0),
        "V": (keys * p.dv, 0),
        "dK": (0, p.Nk * p.d),
        "dV": (0, p.Nk * p.dv),
    }


def second_pass_traffic(p: Attention, t: Tiling) -> Words:
    """R = 2 Nd + [2 Nk d + Tc N (2d + 2)] + [N (2d + 2) + 2 Nk d Tr], W = N + 2 Nk d + N d, dense and with dv = d."""
    sums, found = visited(p, t), key_side_traffic(p, t)
    seen, keys = sums["queries_of_rows"], sums["keys"]
    more = {"Q": seen * p.d, "dO": seen * p.dv, "LSE": seen, "D": seen, "K": keys * p.d, "V": keys * p.dv}
    again = {name: (found[name][0] + words, found[name][1]) for name, words in more.items()}
    return {**found, **again, "dQ": (0, p.N * p.d)}


def keys_outside_lse_footprint(p: Attention, t: Tiling) -> int:
    """The larger of two: K, V, dK, dV, Q, dO, dQ, S, dP, LSE and D; dO, O and D in the launch before it."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    main = 2 * rows_k * (p.d + p.dv) + rows_q * (2 * p.d + p.dv) + 2 * rows_q * rows_k + 2 * rows_q
    return max(main, rows_q * (2 * p.dv + 1))


def second_pass_footprint(p: Attention, t: Tiling) -> int:
    """The larger of two: K, V, dK, dV with Q, dO; Q, dO, dQ with K, V. Each has S, dP, LSE and D beside it."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    both = (rows_q + rows_k) * (p.d + p.dv) + 2 * rows_q * rows_k + 2 * rows_q
    return max(both + max(rows_k * (p.d + p.dv), rows_q * p.d), rows_q * (2 * p.dv + 1))


FLASH2_BWD = register(
    backward(
        "flash2-bwd",
        keys_outside_lse,
        "D first, K/V outer, dQ summed by atomic adds",
        f"{FA2}, Algorithm 2",
        skips=True,
        outer="keys",
        options=("visit_all",),
        formula="R = 2 N dv + Nk (d + dv) + N (2 d + dv + 2) Tc, W = N + N d Tc + Nk (d + dv)",
        state="a tile of K, V, dK, dV on chip; LSE waits since forward, D between launches, dQ between key tiles",
        exact_traffic=keys_outside_lse_traffic,
        footprint=keys_outside_lse_footprint,
        initialised=("dQ",),
        adds=("dQ",),
        known_as="fa2-bwd, flash2-backward, flash-attention-2-backward, flash-bwd, fa-bwd",
    )
)
always_skips(FLASH2_BWD, "block-sparse-q-bwd", f"{FA2}, Algorithm 2 with a mask")
register(
    backward(
        "flash2-bwd-second-pass",
        second_pass,
        "D first, K/V outer for dK and dV, then Q outer for dQ",
        f"{FA2}, Algorithm 2, without atomic adds",
        formula="R = 2 N dv + (1 + Tr) Nk (d + dv) + (1 + Tc) N (d + dv + 2), W = N + Nk (d + dv) + N d",
        state="dK, dV of a key tile, then dQ of a query tile on chip; LSE waits since forward, D between launches",
        exact_traffic=second_pass_traffic,
        footprint=second_pass_footprint,
        sizes=(("rows_q", "rows_k"),),
    )
)
