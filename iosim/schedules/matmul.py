"""Matrix products C = A B: A is (N, d), B is (d, Nk), C is (N, Nk), in every loop order.

N, Nk and d are those of attention: rows of A, columns of B, and the axis that is summed over. Three nested loops have
six orders; only the innermost one matters, because the tile that it does not index stays on chip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem import DENSE, Tensor, narrowed
from ..core.tiling import Tiling
from ..oracles.matmul_softmax import matrix_product, two_matrices
from ..steps.softmax import accumulate, zeros
from .registry import Schedule, register

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.typing import Words
    from .registry import FamilyFields


def c_stays(chip: Machine, p: Attention, t: Tiling) -> None:
    """C = A B with the sum innermost: a tile of C stays, A and B stream."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        for j in chip.tiles(p.Nk, t.rows_k):
            c = chip.compute("C", (i, j), zeros)
            for k in chip.tiles(p.d, t.depth):
                a, b = chip.load("A", i, k), chip.load("B", k, j)
                chip.update(c, accumulate, a, b)
            chip.store(c, "C", i, j)


def naive(chip: Machine, p: Attention, t: Tiling) -> None:
    """C = A B with one element of C on chip: every multiplication loads both factors."""
    c_stays(chip, p, Tiling(1, 1))


def a_stays(chip: Machine, p: Attention, t: Tiling) -> None:
    """C = A B with columns of C innermost: a tile of A stays, B streams, C goes back and forth."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        for k in chip.tiles(p.d, t.depth):
            a = chip.load("A", i, k)
            for j in chip.tiles(p.Nk, t.rows_k):
                b, c = chip.load("B", k, j), chip.load("C", i, j)
                chip.update(c, accumulate, a, b)
                chip.store(c, "C", i, j)


def b_stays(chip: Machine, p: Attention, t: Tiling) -> None:
    """C = A B with rows of C innermost: a tile of B stays, A streams, C goes back and forth."""
    for j in chip.tiles(p.Nk, t.rows_k, parallel=True):
        for k in chip.tiles(p.d, t.depth):
            b = chip.load("B", k, j)
            for i in chip.tiles(p.N, t.rows_q):
                a, c = chip.load("A", i, k), chip.load("C", i, j)
                chip.update(c, accumulate, a, b)
                chip.store(c, "C", i, j)


# ---------------------------------------------------------------- by hand (words)


def tiled_traffic(p: Attention, t: Tiling) -> Words:
    """R = N d ceil(Nk/Bc) + d Nk ceil(N/Br), W = N Nk.

    A word of A on chip serves the Bc columns of one tile of C. So it is read ceil(Nk/Bc) times, and a word of B
    ceil(N/Br) times. C is written once and never read.
    """
    return {
        "A": (p.N * p.d * -(-p.Nk // t.rows_k), 0),
        "B": (p.d * p.Nk * -(-p.N // t.rows_q), 0),
        "C": (0, p.N * p.Nk),
    }


def naive_traffic(p: Attention, t: Tiling) -> Words:
    """R = 2 N d Nk, W = N Nk: there are N d Nk multiplications, and each reads two words."""
    multiplications = p.N * p.d * p.Nk
    return {"A": (multiplications, 0), "B": (multiplications, 0), "C": (0, p.N * p.Nk)}


def a_stays_traffic(p: Attention, t: Tiling) -> Words:
    """The words if A is read once, B for every row tile of A, and C read and written for every part of the sum."""
    back_and_forth = p.N * p.Nk * -(-p.d // t.depth)
    return {
        "A": (p.N * p.d, 0),
        "B": (p.d * p.Nk * -(-p.N // t.rows_q), 0),
        "C": (back_and_forth, back_and_forth),
    }


def b_stays_traffic(p: Attention, t: Tiling) -> Words:
    """The words if B is read once, A for every column tile of B, and C read and written for every part of the sum."""
    return {
        **a_stays_traffic(p, t),
        "A": (p.N * p.d * -(-p.Nk // t.rows_k), 0),
        "B": (p.d * p.Nk, 0),
    }


def product_footprint(p: Attention, t: Tiling) -> int:
    """Br Bc + depth (Br + Bc) words, clipped to the axes: a tile of each matrix."""
    rows, columns, depth = min(t.rows_q, p.N), min(t.rows_k, p.Nk), min(t.depth, p.d)
    return rows * columns + depth * (rows + columns)


def naive_footprint(p: Attention, t: Tiling) -> int:
    """One word of each matrix."""
    return 3


def without_mask(p: Attention) -> Attention:
    """A product of matrices has no mask and no P."""
    return narrowed(p, mask=DENSE, keep_p=False)


MATRICES = {
    "A": Tensor(("N", "d"), "input"),
    "B": Tensor(("d", "Nk"), "input"),
    "C": Tensor(("N", "Nk"), "output", 0.0),
}

PRODUCT: FamilyFields = {
    "tensors": MATRICES,
    "family": "matmul",
    "example": two_matrices,
    "answer": matrix_product,
    "about": without_mask,
}
register(
    Schedule(
        "matmul-naive",
        naive,
        "C = A B: every multiplication loads both factors",
        "definition",
        rules=("ideal",),
        formula="R = 2 N d Nk, W = N Nk",
        state="one word of C on chip",
        exact_traffic=naive_traffic,
        footprint=naive_footprint,
        known_as="naive-matmul",
        **PRODUCT,
    )
)
register(
    Schedule(
        "matmul-tiled",
        c_stays,
        "C = A B: a tile of C stays, A and B stream",
        "Hong and Kung 1981",
        formula="R = N d Tc + Nk d Tr, W = N Nk",
        state="a tile of C on chip; nothing waits in HBM",
        exact_traffic=tiled_traffic,
        footprint=product_footprint,
        sizes=(("rows_q", "rows_k"),),
        more_tiles=("depth",),
        known_as="matmul, gemm, tiled-matmul",
        **PRODUCT,
    )
)
register(
    Schedule(
        "matmul-tiled-a",
        a_stays,
        "C = A B: a tile of A stays, C goes back and forth",
        "Hong and Kung 1981",
        formula="R = N d + Nk d Tr + N Nk Td, W = N Nk Td",
        state="a tile of A on chip; sums of C wait in HBM",
        exact_traffic=a_stays_traffic,
        footprint=product_footprint,
        initialised=("C",),
        sizes=(("rows_q", "depth"),),
        more_tiles=("depth",),
        **PRODUCT,
    )
)
register(
    Schedule(
        "matmul-tiled-b",
        b_stays,
        "C = A B: a tile of B stays, C goes back and forth",
        "Hong and Kung 1981",
        formula="R = N d Tc + Nk d + N Nk Td, W = N Nk Td",
        state="a tile of B on chip; sums of C wait in HBM",
        exact_traffic=b_stays_traffic,
        footprint=product_footprint,
        initialised=("C",),
        sizes=(("rows_k", "depth"),),
        more_tiles=("depth",),
        **PRODUCT,
    )
)
