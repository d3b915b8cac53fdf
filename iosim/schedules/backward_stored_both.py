"""A backward pass that stores P and dS once each, for M of about d^2. It needs no atomic adds.

flash2-bwd-stored-ds keeps K, V, dK and dV of a key on chip, 2 (d + dv) words. Here P is stored too, and V and dV alone
stay while dO streams: 2 dv words a key. Then dQ and dK are two products of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tiling import Tiling
from ..steps.backward import add_value_gradients, clear, probability_gradients, score_gradients
from ..steps.passes import Number, Place, accumulate_columns, accumulate_transposed, add_scores_from, scale
from ..steps.softmax import drop, zeros
from .backward import backward
from .backward_small import TENSORS_OF_BOTH, inputs_without_p, row_sums, store_probabilities
from .flash import in_tiles, visited
from .registry import FA2, register
from .small_cache import output_tile

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.typing import Step, Words


def both_stored(chip: Machine, p: Attention, t: Tiling) -> None:
    """P, while rows of Q stay and K streams. dV and dS, while V and dV stay and dO streams. Then dQ = dS K, dK = dS^T
    Q."""
    row_sums(chip, p, t)
    seen = p.mask.in_tiles(t.rows_q, 1)
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q, lse = chip.load("Q", i, where=seen.row(i)), chip.load("LSE", i, where=seen.row(i))
        for j in chip.tiles(p.Nk, 1, where=seen.row(i)):
            s = chip.compute("S", (i, j), zeros)
            for c in chip.tiles(p.d, t.depth):
                chip.update(s, add_scores_from, q, chip.load("K", j, c), Place(c))
            chip.update(s, scale, Number(p.d))
            store_probabilities(chip, p, i, j, s, lse)
    seen = p.mask.in_tiles(1, t.rows_k)
    for j in chip.tiles(p.Nk, t.rows_k, parallel=True):
        v, dv = chip.load("V", j, where=seen.column(j)), chip.compute("dV", (j, p.dv), zeros)
        for i in chip.tiles(p.N, 1, where=seen.column(j)):
            do, delta = chip.load("dO", i), chip.load("D", i)
            for r in chip.tiles(j, 1):
                s = chip.load("P", i, r)
                chip.update(s, clear, p.mask.part(i, r))
                dp = chip.compute("dP", (i, r), probability_gradients, do, v[r])
                chip.update(dp, drop, p.dropout_part(i, r))
                chip.update(dp, score_gradients, s, delta)
                chip.store(dp, "dS", i, r)
                chip.update(s, drop, p.dropout_part(i, r))
                chip.update(dv[r], add_value_gradients, s, do)
        chip.store(dv, "dV", j)
    gradient(chip, p, t, "dQ", "K", accumulate_columns)
    gradient(chip, p, t, "dK", "Q", accumulate_transposed)


def gradient(chip: Machine, p: Attention, t: Tiling, name: str, other: str, step: Step) -> None:
    """dQ = dS K, or dK = dS^T Q: a tile of the gradient stays, beside a column of its dS; the other matrix streams."""
    (rows, columns), of_keys = output_tile(t), name == "dK"
    seen = p.mask.in_tiles(1, rows) if of_keys else p.mask.in_tiles(rows, 1)
    length, along = (p.Nk, p.N) if of_keys else (p.N, p.Nk)
    for x in chip.tiles(length, rows, parallel=True):
        for c in chip.tiles(p.d, columns):
            tile = chip.compute(name, (x, c), zeros)
            for y in chip.tiles(along, 1, where=seen.column(x) if of_keys else seen.row(x)):
                i, j = (y, x) if of_keys else (x, y)
                ds = chip.load("dS", i, j)
                chip.update(ds, clear, p.mask.part(i, j))
                for w in chip.tiles(c, t.depth):
                    chip.update(tile, step, ds, chip.load(other, y, w), Place(w, c))
            chip.update(tile, scale, Number(p.d))
            chip.store(tile, name, x, c)


# ---------------------------------------------------------------- by hand, from the idea (words of one head)


def both_traffic(p: Attention, t: Tiling) -> Words:
    """Dense: 2 N dv + N words for D. N (d + 1), Nk d for each tile of Br rows, and N Nk for P. 2 Nk dv, N (dv + 1) for
    each tile of Bc keys, and 2 N Nk for dV and dS. N Nk for each column tile of dQ, Nk d for each row tile, and N d;
    for dK likewise.

    Under a mask a tile of rows needs the keys that any of them sees, and a tile of keys the rows that see any of them.
    """
    rows, columns = output_tile(t)
    of_p = visited(in_tiles(p, t.rows_q, 1), Tiling(t.rows_q, 1))
    of_ds = visited(in_tiles(p, 1, t.rows_k), Tiling(1, t.rows_k))
    of_dq = visited(in_tiles(p, rows, 1), Tiling(rows, 1))
    of_dk = visited(in_tiles(p, 1, rows), Tiling(1, rows))
    wide = -(-p.d // columns)
    return {
        "Q": (p.d * (of_p["queries_of_rows"] + of_dk["rows"]), 0),
        "K": (p.d * (of_p["keys"] + of_dq["keys"]), 0),
        "V": (p.dv * of_ds["keys_of_columns"], 0),
        "dO": (p.dv * (p.N + of_ds["rows"]), 0),
        "O": (p.N * p.dv, 0),
        "LSE": (of_p["queries_of_rows"], 0),
        "D": (of_ds["rows"], p.N),
        "P": (of_ds["pairs"], of_p["pairs"]),
        "dS": (wide * (of_dq["pairs"] + of_dk["pairs"]), of_ds["pairs"]),
        "dQ": (0, p.N * p.d),
        "dK": (0, p.Nk * p.d),
        "dV": (0, p.Nk * p.dv),
    }


def both_footprint(p: Attention, t: Tiling) -> int:
    """The largest of four: rows of Q with LSE and a column of S, and parts of K; V, dV, a row of dO, D, and a word of P
    and of dS; a tile of dQ or dK with a column of dS, and parts of K or Q; a number of D with parts of dO and O."""
    rows, columns = output_tile(t)
    rows_q, keys, depth = min(t.rows_q, p.N), min(t.rows_k, p.Nk), min(t.depth, p.d)
    rows, columns = min(rows, max(p.N, p.Nk)), min(columns, p.d)
    return max(
        rows_q * (p.d + 2) + depth,
        2 * keys * p.dv + p.dv + 3,
        rows * (columns + 1) + min(t.depth, columns),
        1 + 2 * min(t.depth, p.dv),
    )


def axes_of_both(p: Attention) -> dict[str, tuple[int, ...]]:
    """The lengths that the tiles of dQ and dK divide."""
    return {"rows_o": (p.N, p.Nk), "cols_o": (p.d,)}


register(
    backward(
        "flash2-bwd-stored-p-ds",
        both_stored,
        "P and dS through HBM: V, dV stay; then dQ, dK",
        f"{FA2}, Algorithm 2, with three of its products apart",
        skips=True,
        options=("visit_all",),
        formula="R = 2 N dv + N d + N + Nk d Tr + Nk dv + N (dv + 1) Tc + N Nk + 2 N Nk Tx + Nk d To + N d Ty, "
        "W = N + 2 N Nk + N d + Nk (d + dv)",
        state="rows of Q, then V, dV, then a tile of dQ or dK; LSE waits since forward, D, P and dS between launches",
        tensors=TENSORS_OF_BOTH,
        example=inputs_without_p,
        exact_traffic=both_traffic,
        footprint=both_footprint,
        sizes=(("rows_q", "rows_k"), ("rows_o", "cols_o")),
        uneven=True,
        axes=axes_of_both,
        more_tiles=("depth", "rows_o", "cols_o"),
        known_as="pv, stored-p, stored-p-ds",
    )
)
