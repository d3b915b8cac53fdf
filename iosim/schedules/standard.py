"""Standard attention (Dao et al. 2022, Algorithm 0) as three kernels, ideal and tiled. S and P go through HBM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import PASSES, Option
from ..steps.softmax import accumulate, drop, hide, keep, scores, softmax_rows, zeros
from .registry import FA1, Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Words


def ideal(chip: Machine, p: Attention, t: Tiling) -> None:
    """Algorithm 0 as the paper counts it: K, then V, stay on chip whole, and every input is read once."""
    k = chip.load("K")
    for i in chip.tiles(p.N, 1):  # line 1: S = Q K^T
        q = chip.load("Q", i)
        for j in chip.tiles(p.Nk, 1):
            s = chip.compute("S", (i, j), scores, q, k[j])
            chip.update(s, hide, p.mask.part(i, j))
            chip.store(s, "S", i, j)
    chip.free(k)
    elementwise_passes(chip, p, t)
    softmax_pass(chip, p, t)
    v = chip.load("V")
    for i in chip.tiles(p.N, 1):  # line 3: O = P V
        o = chip.compute("O", (i, p.dv), zeros)
        for j in chip.tiles(p.Nk, 1):
            probability = chip.load("P", i, j)
            chip.update(probability, drop, p.dropout_part(i, j))
            chip.update(o, accumulate, probability, v[j])
        chip.store(o, "O", i)
    chip.free(v)


def tiled(chip: Machine, p: Attention, t: Tiling) -> None:
    """Algorithm 0 with tiles that fit: K and V are read once for every query tile."""
    score_pass(chip, p, t)
    elementwise_passes(chip, p, t)
    softmax_pass(chip, p, t)
    output_pass(chip, p, t)


def score_pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """S = Q K^T / sqrt(d), line 1. Whole rows of Q stay while K streams."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i)
        for j in chip.tiles(p.Nk, t.rows_k):
            k = chip.load("K", j)
            s = chip.compute("S", (i, j), scores, q, k)
            chip.update(s, hide, p.mask.part(i, j))
            chip.store(s, "S", i, j)


def output_pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """O = P V, line 3, tile by tile."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        o = chip.compute("O", (i, p.dv), zeros)
        for j in chip.tiles(p.Nk, t.rows_k):
            probabilities, v = chip.load("P", i, j), chip.load("V", j)
            chip.update(probabilities, drop, p.dropout_part(i, j))
            chip.update(o, accumulate, probabilities, v)
        chip.store(o, "O", i)


def elementwise_passes(chip: Machine, p: Attention, t: Tiling, tensor: str = "S") -> None:
    """Unfused passes over the scores or their gradients (mask, dropout). Each one reads and writes N x Nk words."""
    for _ in range(p[ELEMENTWISE]):
        for i in chip.tiles(p.N, t.rows_s, parallel=True):
            s = chip.load(tensor, i)
            chip.update(s, keep)
            chip.store(s, tensor, i)


def softmax_pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """P = softmax(S), line 2, whole rows at a time."""
    for i in chip.tiles(p.N, t.rows_s, parallel=True):
        s = chip.load("S", i)
        chip.update(s, softmax_rows)
        chip.store(s, "P", i)


ELEMENTWISE = Option(
    "elementwise",
    PASSES,
    "Add K unfused passes over the N x Nk scores to standard attention (default: 0).",
    0,
    metavar="K",
)

# ---------------------------------------------------------------- by hand, from the paper (words of one head)


def ideal_traffic(p: Attention, t: Tiling) -> Words:
    """R = 2 Nk d + N d + 2 N Nk, W = N d + 2 N Nk, with dv = d. Each unfused pass reads and writes N Nk more."""
    square = p.N * p.Nk
    return {
        "Q": (p.N * p.d, 0),
        "K": (p.Nk * p.d, 0),
        "S": (square * (1 + p[ELEMENTWISE]), square * (1 + p[ELEMENTWISE])),
        "P": (square, square),
        "V": (p.Nk * p.dv, 0),
        "O": (0, p.N * p.dv),
    }


def standard_tiled_traffic(p: Attention, t: Tiling) -> Words:
    """The words of Algorithm 0, with K and V read once for each of the ceil(N / Br) query tiles."""
    passes = -(-p.N // t.rows_q)
    return {**ideal_traffic(p, t), "K": (p.Nk * p.d * passes, 0), "V": (p.Nk * p.dv * passes, 0)}


def ideal_footprint(p: Attention, t: Tiling) -> int:
    """The larger of two: K (or V) whole, one row of Q (or O) and one score; a whole row of scores."""
    return max(p.Nk * p.d + p.d + 1, p.Nk * p.dv + p.dv + 1, t.rows_s * p.Nk)


def tiled_footprint(p: Attention, t: Tiling) -> int:
    """The larger of two: a tile of Q (or O), of K (or V) and of scores; whole rows of scores."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return max((rows_q + rows_k) * max(p.d, p.dv) + rows_q * rows_k, min(t.rows_s, p.N) * p.Nk)


register(
    Schedule(
        "standard",
        ideal,
        "Algorithm 0 as the paper counts it: each input read once",
        f"{FA1}, Algorithm 0",
        rules=("ideal",),
        options=(ELEMENTWISE,),
        drops=True,
        formula="R = N d + Nk (d + dv) + 2 N Nk, W = 2 N Nk + N dv",
        state="K, then V, whole on chip; S and P go through HBM between launches",
        exact_traffic=ideal_traffic,
        footprint=ideal_footprint,
        known_as="naive, vanilla, eager, math, torch-math, baseline, reference, unfused, standard-attention, "
        "algorithm-0, sdpa",
    )
)
register(
    Schedule(
        "standard-tiled",
        tiled,
        "the same three kernels with every tile inside M",
        f"{FA1}, Algorithm 0",
        options=(ELEMENTWISE,),
        drops=True,
        formula="R = N d + Nk (d + dv) Tr + 2 N Nk, W = 2 N Nk + N dv",
        state="a tile of Q, then of O, on chip; S and P go through HBM between launches",
        exact_traffic=standard_tiled_traffic,
        footprint=tiled_footprint,
    )
)
