"""Softmax in three and in two passes: of an N x Nk matrix alone, and inside rows of attention.

Softmax alone has no one-pass form. Attention in one pass is flash2 with Br = 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..oracles.matmul_softmax import score_matrix, softmax_of_rows
from ..steps.passes import add_maximum, add_maximum_and_sum, add_sum, exponentials
from ..steps.softmax import accumulate, hide, minus_infinity, normalise, scores, zeros
from .registry import Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Words
    from .registry import FamilyFields, TrafficFormula

MG = "Milakov and Gimelshein 2018 (arXiv 1805.02867)"


def load_scores(chip: Machine, p: Attention, i: Tile, j: Tile) -> Block:
    """A tile of S, with -inf for hidden scores."""
    s = chip.load("S", i, j)
    chip.update(s, hide, p.mask.part(i, j))
    return s


def row_maximum(chip: Machine, p: Attention, t: Tiling, i: Tile) -> Block:
    """The maximum of each row: the first of three passes."""
    m = chip.compute("m", (i,), minus_infinity)
    for j in chip.tiles(p.Nk, t.rows_k):
        chip.update(m, add_maximum, load_scores(chip, p, i, j))
    return m


def row_sum(chip: Machine, p: Attention, t: Tiling, i: Tile, m: Block, stored: bool = False) -> Block:
    """The sum of exponentials of each row: the second of three passes."""
    l = chip.compute("l", (i,), zeros)
    for j in chip.tiles(p.Nk, t.rows_k):
        s = load_scores(chip, p, i, j)
        chip.update(s, exponentials, m)
        chip.update(l, add_sum, s)
        if stored:
            chip.store(s, "P", i, j)
    return l


def softmax_3pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """Softmax in three passes: maximum; sum of exponentials; exponentials again, divided by the sum."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        m = row_maximum(chip, p, t, i)
        l = row_sum(chip, p, t, i, m)
        quotients(chip, p, t, i, m, l)


def softmax_3pass_stored(chip: Machine, p: Attention, t: Tiling) -> None:
    """Softmax in three passes: maximum; exponentials, stored, and their sum; the stored ones divided by the sum."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        m = row_maximum(chip, p, t, i)
        l = row_sum(chip, p, t, i, m, stored=True)
        for j in chip.tiles(p.Nk, t.rows_k):
            probabilities = chip.load("P", i, j)
            chip.update(probabilities, normalise, l)
            chip.store(probabilities, "P", i, j)


def softmax_2pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """Softmax in two passes: maximum and sum together, online; exponentials divided by the sum."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        m, l = chip.compute("m", (i,), minus_infinity), chip.compute("l", (i,), zeros)
        for j in chip.tiles(p.Nk, t.rows_k):
            chip.update((m, l), add_maximum_and_sum, load_scores(chip, p, i, j))
        quotients(chip, p, t, i, m, l)


def quotients(chip: Machine, p: Attention, t: Tiling, i: Tile, m: Block, l: Block) -> None:
    """The last pass: P = exp(S - m) / l."""
    for j in chip.tiles(p.Nk, t.rows_k):
        s = load_scores(chip, p, i, j)
        chip.update(s, exponentials, m)
        chip.update(s, normalise, l)
        chip.store(s, "P", i, j)


def make_scores(chip: Machine, p: Attention, i: Tile, j: Tile, q: Block) -> Block:
    """A tile of scores, computed from a tile of keys, which is freed."""
    k = chip.load("K", j)
    s = chip.compute("S", (i, j), scores, q, k)
    chip.free(k)
    chip.update(s, hide, p.mask.part(i, j))
    return s


def attention_3pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """Attention in three passes. Scores are never stored: each pass reads Q and K and computes them again."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        m, l = chip.compute("m", (i,), minus_infinity), chip.compute("l", (i,), zeros)
        q = chip.load("Q", i)
        for j in chip.tiles(p.Nk, t.rows_k):
            chip.update(m, add_maximum, make_scores(chip, p, i, j, q))
        chip.free(q)
        q = chip.load("Q", i)
        for j in chip.tiles(p.Nk, t.rows_k):
            s = make_scores(chip, p, i, j, q)
            chip.update(s, exponentials, m)
            chip.update(l, add_sum, s)
        chip.free(q)
        weighted_values(chip, p, t, i, m, l)


def attention_2pass(chip: Machine, p: Attention, t: Tiling) -> None:
    """Attention in two passes: maximum and sum in the first, the output in the second."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        m, l = chip.compute("m", (i,), minus_infinity), chip.compute("l", (i,), zeros)
        q = chip.load("Q", i)
        for j in chip.tiles(p.Nk, t.rows_k):
            chip.update((m, l), add_maximum_and_sum, make_scores(chip, p, i, j, q))
        chip.free(q)
        weighted_values(chip, p, t, i, m, l)


def weighted_values(chip: Machine, p: Attention, t: Tiling, i: Tile, m: Block, l: Block) -> None:
    """The last pass: O = P V with m and l already final, so nothing is rescaled."""
    q, o = chip.load("Q", i), chip.compute("O", (i, p.dv), zeros)
    for j in chip.tiles(p.Nk, t.rows_k):
        s = make_scores(chip, p, i, j, q)
        chip.update(s, exponentials, m)
        chip.update(s, normalise, l)
        if p.keep_p:
            chip.store(s, "P", i, j)
        chip.update(o, accumulate, s, chip.load("V", j))
    chip.store(o, "O", i)


# ---------------------------------------------------------------- by hand (words of one head)


def softmax_traffic(reads: int) -> TrafficFormula:
    """The formula for `reads` passes over the N Nk scores, with P written once."""

    def traffic(p: Attention, t: Tiling) -> Words:
        return {"S": (reads * p.N * p.Nk, 0), "P": (0, p.N * p.Nk)}

    return traffic


def stored_traffic(p: Attention, t: Tiling) -> Words:
    """R = 3 N Nk, W = 2 N Nk. S is read twice. The exponentials are written and read again, and the quotients are
    written."""
    n = p.N * p.Nk
    return {"S": (2 * n, 0), "P": (n, 2 * n)}


def softmax_footprint(p: Attention, t: Tiling) -> int:
    """Br Bc + 2 Br words, clipped to the axes: a tile of scores and two numbers a row."""
    rows, keys = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return rows * keys + 2 * rows


def attention_traffic(passes: int) -> TrafficFormula:
    """The formula R = passes (N d + Nk d Tr) + Nk dv Tr, W = N dv.

    Every pass reads Q once, and K once for each of the Tr query tiles. Only the last pass reads V.
    """

    def traffic(p: Attention, t: Tiling) -> Words:
        tiles = -(-p.N // t.rows_q)
        return {
            "Q": (passes * p.N * p.d, 0),
            "K": (passes * p.Nk * p.d * tiles, 0),
            "V": (p.Nk * p.dv * tiles, 0),
            "O": (0, p.N * p.dv),
            **({"P": (0, p.N * p.Nk)} if p.keep_p else {}),
        }

    return traffic


def attention_footprint(p: Attention, t: Tiling) -> int:
    """Br (d + dv) + Bc max(d, dv) + Br Bc + 2 Br words: in the last pass, Q, O, S, m, l and one of K and V."""
    rows, keys = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return rows * (p.d + p.dv) + keys * max(p.d, p.dv) + rows * keys + 2 * rows


SAFE, ONLINE = f"{MG}, Algorithm 2", f"{MG}, Algorithm 3"
ROWS_ON_CHIP = "maximum and sum of rows on chip"
SOFTMAX: FamilyFields = {
    "family": "softmax",
    "example": score_matrix,
    "answer": softmax_of_rows,
}
register(
    Schedule(
        "softmax-3pass",
        softmax_3pass,
        "softmax of a matrix, exponentials computed twice",
        SAFE,
        known_as="softmax, safe-softmax",
        formula="R = 3 N Nk, W = N Nk",
        state=f"{ROWS_ON_CHIP}; nothing waits in HBM",
        exact_traffic=softmax_traffic(3),
        footprint=softmax_footprint,
        **SOFTMAX,
    )
)
register(
    Schedule(
        "softmax-3pass-code",
        softmax_3pass_stored,
        "softmax of a matrix, exponentials stored and read again",
        SAFE,
        formula="R = 3 N Nk, W = 2 N Nk",
        state=f"{ROWS_ON_CHIP}; exponentials wait in HBM",
        exact_traffic=stored_traffic,
        footprint=softmax_footprint,
        **SOFTMAX,
    )
)
register(
    Schedule(
        "softmax-2pass",
        softmax_2pass,
        "softmax of a matrix, maximum and sum online",
        ONLINE,
        known_as="softmax, online-softmax",
        formula="R = 2 N Nk, W = N Nk",
        state=f"{ROWS_ON_CHIP}; nothing waits in HBM",
        exact_traffic=softmax_traffic(2),
        footprint=softmax_footprint,
        **SOFTMAX,
    )
)

for name, text, passes, source, formula in (
    ("attention-3pass", attention_3pass, 3, SAFE, "R = 3 N d + Nk (3 d + dv) Tr, W = N dv"),
    ("attention-2pass", attention_2pass, 2, ONLINE, "R = 2 N d + Nk (2 d + dv) Tr, W = N dv"),
):
    register(
        Schedule(
            name,
            text,
            f"Q outer, softmax in {passes} passes; one pass is flash2",
            f"{source}, inside attention",
            options=("keep_p",),
            formula=formula,
            state="l, m, then O of a query tile on chip; scores are computed again; nothing waits in HBM",
            exact_traffic=attention_traffic(passes),
            footprint=attention_footprint,
        )
    )
