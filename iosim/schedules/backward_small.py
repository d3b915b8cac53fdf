"""The backward pass of attention for an SRAM of about d^2 words or less: P and dS go through HBM in square tiles.

flash2-bwd keeps rows of K, V, dK and dV on chip, four words for each of the d columns. For a small M those are few
rows, and Q and dO are read very often. It is cheaper then to store P and dS once, and to compute each of the five
products as a matrix product in square tiles. This is to flash2-bwd what small-cache is to flash2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem import TENSORS
from ..core.tiling import Tiling
from ..oracles.backward import backward_inputs
from ..steps.backward import (
    add_row_dots,
    add_value_gradients,
    clear,
    probabilities_from_lse,
    probability_gradients,
    score_gradients,
)
from ..steps.passes import Number, add_scores, scale
from ..steps.softmax import accumulate, drop, hide, scores, zeros
from .backward import BACKWARD_TENSORS, backward
from .flash import in_tiles, visited
from .registry import FA2, register
from .small_cache import SY, output_tile

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.typing import Arrays, Bools, Words


def square(chip: Machine, p: Attention, t: Tiling) -> None:
    """Five products in square tiles, for the smallest M."""
    row_sums(chip, p, t)
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        lse = chip.load("LSE", i, where=p.mask.row(i))
        for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
            s = chip.compute("S", (i, j), zeros)
            for c in chip.tiles(p.d, t.depth):
                chip.update(s, add_scores, chip.load("Q", i, c), chip.load("K", j, c))
            chip.update(s, scale, Number(p.d))
            store_probabilities(chip, p, i, j, s, lse)
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        delta = chip.load("D", i, where=p.mask.row(i))
        for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
            dp = chip.compute("dP", (i, j), zeros)
            for c in chip.tiles(p.dv, t.depth):
                chip.update(dp, add_scores, chip.load("dO", i, c), chip.load("V", j, c))
            store_score_gradients(chip, p, i, j, dp, delta)
    sums(chip, p, t)


def rows_stay(chip: Machine, p: Attention, t: Tiling) -> None:
    """The same, for M near d^2: whole rows of Q and of dO stay in the first two products."""
    row_sums(chip, p, t)
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q, lse = chip.load("Q", i, where=p.mask.row(i)), chip.load("LSE", i, where=p.mask.row(i))
        for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
            store_probabilities(chip, p, i, j, chip.compute("S", (i, j), scores, q, chip.load("K", j)), lse)
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        do, delta = chip.load("dO", i, where=p.mask.row(i)), chip.load("D", i, where=p.mask.row(i))
        for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
            v = chip.load("V", j)
            dp = chip.compute("dP", (i, j), probability_gradients, do, v)
            chip.free(v)
            store_score_gradients(chip, p, i, j, dp, delta)
    sums(chip, p, t)


def row_sums(chip: Machine, p: Attention, t: Tiling) -> None:
    """D = rowsum(dO * O), in parts of a row."""
    for i in chip.tiles(p.N, 1, parallel=True):
        delta = chip.compute("D", (i,), zeros)
        for c in chip.tiles(p.dv, t.depth):
            chip.update(delta, add_row_dots, chip.load("dO", i, c), chip.load("O", i, c))
        chip.store(delta, "D", i)


def store_probabilities(chip: Machine, p: Attention, i: Tile, j: Tile, s: Block, lse: Block) -> None:
    """P = exp(S - LSE) of a tile, in the place of S, and its store."""
    chip.update(s, hide, p.mask.part(i, j))
    chip.update(s, probabilities_from_lse, lse)
    chip.store(s, "P", i, j)


def store_score_gradients(chip: Machine, p: Attention, i: Tile, j: Tile, dp: Block, delta: Block) -> None:
    """dS = P * (dP - D) of a tile, in the place of dP, and its store. P comes one row at a time."""
    chip.update(dp, drop, p.dropout_part(i, j))
    for r in chip.tiles(i, 1):
        chip.update(dp[r], score_gradients, chip.load("P", r, j), delta[r])
    chip.store(dp, "dS", i, j)


def sums(chip: Machine, p: Attention, t: Tiling) -> None:
    """dV = P^T dO, dK = dS^T Q, dQ = dS K: a tile of the gradient stays, and two matrices stream."""
    rows, columns = output_tile(t)
    seen = p.mask.in_tiles(t.depth, rows)
    for j in chip.tiles(p.Nk, rows, parallel=True):
        for c in chip.tiles(p.dv, columns):
            dv = chip.compute("dV", (j, c), zeros)
            for i in chip.tiles(p.N, t.depth, where=seen.column(j)):
                s, do = part_of(chip, p, "P", i, j), chip.load("dO", i, c)
                chip.update(s, drop, p.dropout_part(i, j))
                chip.update(dv, add_value_gradients, s, do)
            chip.store(dv, "dV", j, c)
    for j in chip.tiles(p.Nk, rows, parallel=True):
        for c in chip.tiles(p.d, columns):
            dk = chip.compute("dK", (j, c), zeros)
            for i in chip.tiles(p.N, t.depth, where=seen.column(j)):
                chip.update(dk, add_value_gradients, part_of(chip, p, "dS", i, j), chip.load("Q", i, c))
            chip.update(dk, scale, Number(p.d))
            chip.store(dk, "dK", j, c)
    seen = p.mask.in_tiles(rows, t.depth)
    for i in chip.tiles(p.N, rows, parallel=True):
        for c in chip.tiles(p.d, columns):
            dq = chip.compute("dQ", (i, c), zeros)
            for j in chip.tiles(p.Nk, t.depth, where=seen.row(i)):
                chip.update(dq, accumulate, part_of(chip, p, "dS", i, j), chip.load("K", j, c))
            chip.update(dq, scale, Number(p.d))
            chip.store(dq, "dQ", i, c)


def part_of(chip: Machine, p: Attention, name: str, i: Tile, j: Tile) -> Block:
    """A part of P or dS, 0 where a hidden tile was left out."""
    part = chip.load(name, i, j)
    chip.update(part, clear, p.mask.part(i, j))
    return part


# ---------------------------------------------------------------- by hand (words of one head)


def square_traffic(p: Attention, t: Tiling) -> Words:
    """The words of small-cache-bwd.

    For S, a word of Q is read for each of the ceil(Nk/Bc) tiles in its row, and a word of K for each of the ceil(N/Br)
    tiles in its column; for dP so are those of dO and V. P and dS are written once. P is read once for dS, and for each
    column tile of dV; dS for each column tile of dK and of dQ. A word of dO, of Q or of K is read for each row tile of
    dV, dK or dQ. D reads dO and O once more. Under a mask each product has the tiles that it does not hide.
    """
    rows, columns = output_tile(t)
    first = visited(p, t)
    of_keys, of_rows = (visited(in_tiles(p, a, b), Tiling(a, b)) for a, b in ((t.depth, rows), (rows, t.depth)))
    wide, values = -(-p.d // columns), -(-p.dv // columns)
    return {
        "Q": (p.d * (first["rows"] + of_keys["rows"]), 0),
        "K": (p.d * (first["keys"] + of_rows["keys"]), 0),
        "V": (p.dv * first["keys"], 0),
        "dO": (p.dv * (p.N + first["rows"] + of_keys["rows"]), 0),
        "O": (p.N * p.dv, 0),
        "LSE": (first["queries_of_rows"], 0),
        "D": (first["queries_of_rows"], p.N),
        "P": (first["pairs"] + values * of_keys["pairs"], first["pairs"]),
        "dS": (wide * (of_keys["pairs"] + of_rows["pairs"]), first["pairs"]),
        "dQ": (0, p.N * p.d),
        "dK": (0, p.Nk * p.d),
        "dV": (0, p.Nk * p.dv),
    }


def rows_stay_traffic(p: Attention, t: Tiling) -> Words:
    """The words of small-cache-bwd-q: those of small-cache-bwd, but S reads Q once, and dP reads dO once."""
    first, of_all = visited(p, t), square_traffic(p, t)
    less = first["rows"] - first["queries_of_rows"]
    return {**of_all, "Q": (of_all["Q"][0] - p.d * less, 0), "dO": (of_all["dO"][0] - p.dv * less, 0)}


def sums_footprint(p: Attention, t: Tiling) -> int:
    """rows cols + depth (rows + cols) words, the most of dV, dK and dQ, clipped to their axes: a tile of the gradient,
    and parts of P or dS and of dO, Q or K. For D: one number, and 2 depth words of dO and O."""
    rows, columns = output_tile(t)
    axes = (p.Nk, p.dv, p.N), (p.Nk, p.d, p.N), (p.N, p.d, p.Nk)
    clipped = [(min(rows, a), min(columns, b), min(t.depth, c)) for a, b, c in axes]
    return max(1 + 2 * min(t.depth, p.dv), *(r * c + depth * (r + c) for r, c, depth in clipped))


def square_footprint(p: Attention, t: Tiling) -> int:
    """The most of the last products and of two others: a tile of S with LSE and parts of Q and K; a tile of dP with D,
    and either parts of dO and V, or a row of P."""
    rows, keys = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    beside = max(min(t.depth, max(p.d, p.dv)) * (rows + keys), keys)
    return max(rows * keys + rows + beside, sums_footprint(p, t))


def rows_stay_footprint(p: Attention, t: Tiling) -> int:
    """The most of the last products and of two others: Q, LSE, K and S; dO, D, dP, and V or a row of P."""
    rows, keys = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return max(rows * keys + rows + (rows + keys) * max(p.d, p.dv), sums_footprint(p, t))


# ---------------------------------------------------------------- the best tiles: each product has its own


BOTH = (("rows_q", "rows_k"), ("rows_o", "cols_o"))  # of S and dP; of dV, dK and dQ, which have the same tiles


def axes_of_gradients(p: Attention) -> dict[str, tuple[int, ...]]:
    """The lengths that the tiles of dV, dK and dQ divide."""
    return {"rows_o": (p.N, p.Nk), "cols_o": (p.d, p.dv)}


def inputs_without_p(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """The inputs of other backward passes, without the P of the forward pass."""
    return {name: array for name, array in backward_inputs(rng, p, visible).items() if name != "P"}


SOURCE = f"{FA2}, Algorithm 2, with the products of {SY}, M < d^2"
TENSORS_OF_BOTH = {**BACKWARD_TENSORS, "P": TENSORS["P"]}
WAITS = "on chip; LSE waits since forward, D, P and dS between launches"
SQUARE = ("small-cache-bwd", square, "backward for M < d^2: square tiles; P, dS through HBM")
ROWS_STAY = ("small-cache-bwd-q", rows_stay, "backward for M near d^2: the same, Q and dO stay")
for names, first, held, traffic, room in (
    (SQUARE, "N Tc", "a tile of S, dP, dV, dK or dQ", square_traffic, square_footprint),
    (ROWS_STAY, "N", "rows of Q or dO, or a tile of a gradient", rows_stay_traffic, rows_stay_footprint),
):
    register(
        backward(
            *names,
            SOURCE,
            skips=True,
            options=("visit_all",),
            formula=f"R = ({first} + N Ty + Nk Tr) (d + dv) + Nk d To + N Nk (1 + Tv + 2 Tx) + 2 N dv + 2 N, "
            "W = 2 N Nk + N + N d + Nk (d + dv)",
            state=f"{held} {WAITS}",
            tensors=TENSORS_OF_BOTH,
            example=inputs_without_p,
            exact_traffic=traffic,
            footprint=room,
            sizes=BOTH,
            uneven=True,
            axes=axes_of_gradients,
            more_tiles=("depth", "rows_o", "cols_o"),
            dominated_by="flash2-bwd",
        )
    )
