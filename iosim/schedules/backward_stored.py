"""A backward pass that stores dS once, and computes dQ from it as a matrix product. It needs no atomic adds.

flash2-bwd reads and writes dQ for each tile of keys. For M of one to a few d^2 words it is cheaper to write dS, and to
sum dQ in large tiles afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..steps.backward import add_key_gradients, add_value_gradients, probability_gradients
from ..steps.passes import Number, scale
from ..steps.softmax import accumulate, drop, scores, zeros
from .backward import backward
from .backward_lse import recompute
from .backward_small import inputs_without_p, row_sums
from .flash import visited
from .registry import FA2, register

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Words


def keys_stay_and_store(chip: Machine, p: Attention, t: Tiling) -> None:
    """K, V, dK, dV of a tile of keys stay while rows stream; dS is written. Then dQ = dS K, of which a tile stays."""
    row_sums(chip, p, t)
    rows, columns = streamed_rows(t), output_columns(t)
    for j in chip.tiles(p.Nk, t.rows_k, parallel=True):
        k, v = chip.load("K", j, where=p.mask.column(j)), chip.load("V", j, where=p.mask.column(j))
        dk, dv = chip.compute("dK", (j, p.d), zeros), chip.compute("dV", (j, p.dv), zeros)
        for group in chip.tiles(p.N, t.rows_q, where=p.mask.column(j)):
            for i in chip.tiles(group, rows):
                q, do = chip.load("Q", i), chip.load("dO", i)
                lse, delta = chip.load("LSE", i), chip.load("D", i)
                for r in chip.tiles(j, 1):
                    s = chip.compute("S", (i, r), scores, q, k[r])
                    dp = chip.compute("dP", (i, r), probability_gradients, do, v[r])
                    recompute(chip, p, i, r, s, dp, lse, delta)
                    chip.update(s, drop, p.dropout_part(i, r))
                    chip.update(dv[r], add_value_gradients, s, do)
                    chip.update(dk[r], add_key_gradients, dp, q)
                    chip.store(dp, "dS", i, r)
        chip.store(dk, "dK", j)
        chip.store(dv, "dV", j)
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        for c in chip.tiles(p.d, columns):
            dq = chip.compute("dQ", (i, c), zeros)
            for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
                for r in chip.tiles(j, t.depth):
                    chip.update(dq, accumulate, chip.load("dS", i, r), chip.load("K", r, c))
            chip.update(dq, scale, Number(p.d))
            chip.store(dq, "dQ", i, c)


def streamed_rows(t: Tiling) -> int:
    """The rows of Q and dO that are on chip at a time: 1 unless given."""
    return 1 if t.rows_o is None else t.rows_o


def output_columns(t: Tiling) -> int:
    """The columns of a tile of dQ: Bc unless given."""
    return t.rows_k if t.cols_o is None else t.cols_o


# ---------------------------------------------------------------- by hand, from the idea (words of one head)


def ds_traffic(p: Attention, t: Tiling) -> Words:
    """Dense: 2 N dv + N words for D; 2 Nk (d + dv) for K, V, dK and dV; N (d + dv + 2) for each tile of keys; N Nk for
    dS; then N Nk for each column tile of dQ, Nk d for each row tile, and N d.

    Under a mask rows, keys and dS are those of the tiles Br x Bc that it shows.
    """
    sums, wide = visited(p, t), -(-p.d // output_columns(t))
    rows, keys, columns = sums["rows"], sums["keys"], sums["keys_of_columns"]
    return {
        "O": (p.N * p.dv, 0),
        "dO": (p.N * p.dv + rows * p.dv, 0),
        "D": (rows, p.N),
        "LSE": (rows, 0),
        "Q": (rows * p.d, 0),
        "K": (columns * p.d + keys * p.d, 0),
        "V": (columns * p.dv, 0),
        "dS": (sums["pairs"] * wide, sums["pairs"]),
        "dQ": (0, p.N * p.d),
        "dK": (0, p.Nk * p.d),
        "dV": (0, p.Nk * p.dv),
    }


def ds_footprint(p: Attention, t: Tiling) -> int:
    """The largest of three: K, V, dK, dV, and for each row Q, dO, LSE, D, a score and its gradient; a tile of dQ with
    parts of dS and K; a number of D with parts of dO and O."""
    rows_q, keys, rows = min(t.rows_q, p.N), min(t.rows_k, p.Nk), min(streamed_rows(t), t.rows_q, p.N)
    columns, depth = min(output_columns(t), p.d), min(t.depth, t.rows_k, p.Nk)
    return max(
        2 * keys * (p.d + p.dv) + rows * (p.d + p.dv + 4),
        rows_q * columns + depth * (rows_q + columns),
        1 + 2 * min(t.depth, p.dv),
    )


def axes_of_ds(p: Attention) -> dict[str, tuple[int, ...]]:
    """The lengths that its sizes divide."""
    return {"rows_o": (p.N,), "cols_o": (p.d,)}


register(
    backward(
        "flash2-bwd-stored-ds",
        keys_stay_and_store,
        "keys outer, dS through HBM, then dQ = dS K",
        f"{FA2}, Algorithm 2, with dQ as a product of its own",
        skips=True,
        options=("visit_all",),
        formula="R = N dv + (N dv + N (d + dv + 2) Tc) + N Nk Tx + Nk d (1 + Tr) + Nk dv, "
        "W = N + N Nk + N d + Nk (d + dv)",
        state="a tile of K, V, dK, dV, then of dQ on chip; LSE waits since forward, D and dS between launches",
        example=inputs_without_p,
        exact_traffic=ds_traffic,
        footprint=ds_footprint,
        sizes=(("rows_o", "rows_k"), ("rows_q", "cols_o")),
        axes=axes_of_ds,
        more_tiles=("depth", "rows_o", "cols_o"),
        known_as="ds, stored-ds",
    )
)
