"""A backward pass for values that are wider than keys: dV comes first, in panels of columns, then dQ and dK.

flash2-bwd keeps K, V, dK and dV of a key on chip, 2 (d + dv) words. If dv is much larger than d, it is cheaper to
compute dV by itself, panel by panel: then a key needs 2d + dv words for dQ and dK, and d + w for a panel of w columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tiling import Tiling
from ..steps.backward import (
    add_key_gradients,
    add_query_gradients,
    add_value_gradients,
    probabilities_from_lse,
    probability_gradients,
)
from ..steps.softmax import drop, hide, scores, zeros
from .backward import backward
from .backward_lse import recompute
from .backward_small import inputs_without_p, row_sums
from .flash import in_tiles, visited
from .registry import FA2, register

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.typing import Words


def panels(chip: Machine, p: Attention, t: Tiling) -> None:
    """K of a tile of keys and a panel of dV stay while rows stream. Then K, V, dK stay, and dQ goes back and forth."""
    row_sums(chip, p, t)
    keys, width = panel_of(t)
    mask = p.mask.in_tiles(1, keys)
    for j in chip.tiles(p.Nk, keys, parallel=True):
        k = chip.load("K", j, where=mask.column(j))
        for c in chip.tiles(p.dv, width):
            dv = chip.compute("dV", (j, c), zeros)
            for i in chip.tiles(p.N, 1, where=mask.column(j)):
                q, lse, do = chip.load("Q", i), chip.load("LSE", i), chip.load("dO", i, c)
                for r in chip.tiles(j, 1):
                    s = chip.compute("S", (i, r), scores, q, k[r])
                    chip.update(s, hide, p.mask.part(i, r))
                    chip.update(s, probabilities_from_lse, lse)
                    chip.update(s, drop, p.dropout_part(i, r))
                    chip.update(dv[r], add_value_gradients, s, do)
            chip.store(dv, "dV", j, c)
    for j in chip.tiles(p.Nk, t.rows_k, parallel=True):
        k, v = chip.load("K", j, where=p.mask.column(j)), chip.load("V", j, where=p.mask.column(j))
        dk = chip.compute("dK", (j, p.d), zeros)
        for i in chip.tiles(p.N, t.rows_q, where=p.mask.column(j)):
            q, do = chip.load("Q", i), chip.load("dO", i)
            lse, delta, dq = chip.load("LSE", i), chip.load("D", i), chip.load("dQ", i)
            for r in chip.tiles(j, 1):
                s = chip.compute("S", (i, r), scores, q, k[r])
                dp = chip.compute("dP", (i, r), probability_gradients, do, v[r])
                recompute(chip, p, i, r, s, dp, lse, delta)
                chip.update(dq, add_query_gradients, dp, k[r])
                chip.update(dk[r], add_key_gradients, dp, q)
            chip.store(dq, "dQ", i)
        chip.store(dk, "dK", j)


def panel_of(t: Tiling) -> tuple[int, int]:
    """Keys and columns of a panel of dV: Bc x Bc unless given."""
    return t.rows_k if t.rows_o is None else t.rows_o, t.rows_k if t.cols_o is None else t.cols_o


# ---------------------------------------------------------------- by hand, from the idea (words of one head)


def panels_traffic(p: Attention, t: Tiling) -> Words:
    """Dense: 2 N dv + N words for D. Nk (d + dv) and N ((d + 1) ceil(dv/w) + dv) for each tile of b keys, for dV.
    Nk (2d + dv) and N (3d + dv + 2) for each tile of Bc keys, for dQ, which is read and written, and dK.

    Under a mask a tile of b keys needs the rows that see any of them, and a tile of Bc keys those of the tiles Br x Bc.
    """
    keys, width = panel_of(t)
    first, then, wide = visited(in_tiles(p, 1, keys), Tiling(1, keys)), visited(p, t), -(-p.dv // width)
    rows, columns = then["rows"], then["keys_of_columns"]
    return {
        "O": (p.N * p.dv, 0),
        "dO": (p.dv * (p.N + first["rows"] + rows), 0),
        "D": (rows, p.N),
        "LSE": (first["rows"] * wide + rows, 0),
        "Q": (p.d * (first["rows"] * wide + rows), 0),
        "K": (p.d * (first["keys_of_columns"] + columns), 0),
        "V": (columns * p.dv, 0),
        "dQ": (rows * p.d, rows * p.d),
        "dK": (0, p.Nk * p.d),
        "dV": (0, p.Nk * p.dv),
    }


def panels_footprint(p: Attention, t: Tiling) -> int:
    """The largest of three: K, a panel of dV, a row of Q and of dO in it, LSE and a score; K, V, dK, rows of Q, dO and
    dQ with LSE, D, a score and its gradient each; a number of D with parts of dO and O."""
    keys, width = panel_of(t)
    keys, width = min(keys, p.Nk), min(width, p.dv)
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return max(
        keys * (p.d + width) + p.d + width + 2,
        (rows_k + rows_q) * (2 * p.d + p.dv) + 4 * rows_q,
        1 + 2 * min(t.depth, p.dv),
    )


def axes_of_panels(p: Attention) -> dict[str, tuple[int, ...]]:
    """The lengths that its sizes divide."""
    return {"rows_o": (p.Nk,), "cols_o": (p.dv,)}


register(
    backward(
        "flash2-bwd-panels",
        panels,
        "dV in panels of columns, then dQ and dK",
        f"{FA2}, Algorithm 2, with dV by itself",
        skips=True,
        outer="keys",
        options=("visit_all",),
        formula="R = 2 N dv + (N d + N) Ty Tv + N dv Ty + 2 Nk d + Nk dv + N (2 d + dv + 2) Tc, "
        "W = N + N d Tc + Nk (d + dv)",
        state="K and a panel of dV, then K, V, dK of a tile on chip; LSE waits since forward, D between launches",
        example=inputs_without_p,
        exact_traffic=panels_traffic,
        footprint=panels_footprint,
        initialised=("dQ",),
        adds=("dQ",),
        sizes=(("rows_k", "rows_q"), ("rows_o", "cols_o")),
        uneven=True,
        axes=axes_of_panels,
        more_tiles=("depth", "rows_o", "cols_o"),
        known_as="panels",
    )
)
