"""Backward passes, which compute dQ, dK and dV from dO: the standard one, and that of FlashAttention.

They read what the forward pass left in HBM: P (standard), or O with l and m (FlashAttention). Dropout is computed
again from (row, column), so it moves no words. The order of FlashAttention-2 is in backward_lse.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ..core.problem import Tensor
from ..oracles.backward import backward_inputs, backward_output, left_by_forward
from ..steps.backward import (
    add_key_gradients,
    add_query_gradients,
    add_value_gradients,
    probabilities,
    probability_gradients,
    row_dots,
    score_gradients,
    score_gradients_of_rows,
)
from ..steps.softmax import drop, hide, scores, zeros
from .flash import visited
from .registry import FA1, Schedule, always_skips, register
from .standard import ELEMENTWISE, elementwise_passes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.machine import Machine, ScheduleText
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Words
    from .registry import Example, ScheduleFields


def standard(chip: Machine, p: Attention, t: Tiling) -> None:
    """Algorithm 3 of Dao et al. 2022, as the paper counts it: one operand is whole on chip, each input is read once."""
    do = chip.load("dO")
    for j in chip.tiles(p.Nk, 1):  # line 1: dV = P^T dO
        dv = chip.compute("dV", (j, p.dv), zeros)
        for i in chip.tiles(p.N, 1):
            s = chip.load("P", i, j)
            chip.update(s, drop, p.dropout_part(i, j))
            chip.update(dv, add_value_gradients, s, do[i])
        chip.store(dv, "dV", j)
    chip.free(do)
    v = chip.load("V")
    for i in chip.tiles(p.N, 1):  # line 2: dP = dO V^T
        do = chip.load("dO", i)
        for j in chip.tiles(p.Nk, 1):
            dp = chip.compute("dP", (i, j), probability_gradients, do, v[j])
            chip.update(dp, drop, p.dropout_part(i, j))
            chip.store(dp, "dP", i, j)
    chip.free(v)
    elementwise_passes(chip, p, t, "dP")
    for i in chip.tiles(p.N, t.rows_s, parallel=True):  # line 3: dS, whole rows
        s, dp = chip.load("P", i), chip.load("dP", i)
        chip.update(dp, score_gradients_of_rows, s)
        chip.store(dp, "dS", i)
    k = chip.load("K")
    for i in chip.tiles(p.N, 1):  # line 4: dQ = dS K
        dq = chip.compute("dQ", (i, p.d), zeros)
        for j in chip.tiles(p.Nk, 1):
            chip.update(dq, add_query_gradients, chip.load("dS", i, j), k[j])
        chip.store(dq, "dQ", i)
    chip.free(k)
    q = chip.load("Q")
    for j in chip.tiles(p.Nk, 1):  # line 5: dK = dS^T Q
        dk = chip.compute("dK", (j, p.d), zeros)
        for i in chip.tiles(p.N, 1):
            chip.update(dk, add_key_gradients, chip.load("dS", i, j), q[i])
        chip.store(dk, "dK", j)
    chip.free(q)


def keys_outside(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention (Dao et al. 2022, Algorithm 4). Keys are the outer loop; dK, dV stay, dQ goes back and forth."""
    for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.columns):
        k, v = chip.load("K", j), chip.load("V", j)
        dk, dv = chip.compute("dK", (j, p.d), zeros), chip.compute("dV", (j, p.dv), zeros)
        for i in chip.tiles(p.N, t.rows_q, where=p.mask.column(j)):
            q, o, do = chip.load("Q", i), chip.load("O", i), chip.load("dO", i)
            dq, l, m = chip.load("dQ", i), chip.load("l", i), chip.load("m", i)
            s = chip.compute("S", (i, j), scores, q, k)
            chip.update(s, hide, p.mask.part(i, j))
            chip.update(s, probabilities, l, m)  # P in the place of S
            delta = chip.compute("D", (i,), row_dots, do, o)
            dp = chip.compute("dP", (i, j), probability_gradients, do, v)
            chip.update(dp, drop, p.dropout_part(i, j))
            chip.update(dp, score_gradients, s, delta)  # dS in the place of dP
            chip.update(s, drop, p.dropout_part(i, j))
            chip.update(dv, add_value_gradients, s, do)
            chip.update(dq, add_query_gradients, dp, k)
            chip.store(dq, "dQ", i)
            chip.update(dk, add_key_gradients, dp, q)
        chip.store(dk, "dK", j)
        chip.store(dv, "dV", j)


# ---------------------------------------------------------------- by hand, from the papers (words of one head)


def standard_traffic(p: Attention, t: Tiling) -> Words:
    """The words of Algorithm 3. For Nk = N and dv = d: R = 5 N^2 + 5 N d, W = 2 N^2 + 3 N d.

    P is read in lines 1 and 3, dP in line 3, dS in lines 4 and 5. dO is read twice; V, K and Q are read once. dP, dS,
    dQ, dK and dV are written once. Each unfused pass reads and writes N Nk more.
    """
    square = p.N * p.Nk
    return {
        "P": (2 * square, 0),
        "dP": (square * (1 + p[ELEMENTWISE]), square * (1 + p[ELEMENTWISE])),
        "dS": (2 * square, square),
        "dO": (2 * p.N * p.dv, 0),
        "V": (p.Nk * p.dv, 0),
        "K": (p.Nk * p.d, 0),
        "Q": (p.N * p.d, 0),
        "dQ": (0, p.N * p.d),
        "dK": (0, p.Nk * p.d),
        "dV": (0, p.Nk * p.dv),
    }


def keys_outside_traffic(p: Attention, t: Tiling) -> Words:
    """The words of Algorithm 4. Dense and with dv = d: R = 2 Nk d + Tc N (4d + 2), W = Tc N d + 2 Nk d.

    Every key tile reads K, V (line 7) and writes dK, dV (line 24) once. For each of them every query tile that sees it
    reads Q, O, dO, dQ, l, m (line 10) and writes dQ (line 21).
    """
    sums = visited(p, t)
    rows, keys = sums["rows"], sums["keys_of_columns"]
    return {
        "K": (keys * p.d, 0),
        "V": (keys * p.dv, 0),
        "dK": (0, keys * p.d),
        "dV": (0, keys * p.dv),
        "Q": (rows * p.d, 0),
        "O": (rows * p.dv, 0),
        "dO": (rows * p.dv, 0),
        "dQ": (rows * p.d, rows * p.d),
        "l": (rows, 0),
        "m": (rows, 0),
    }


def standard_footprint(p: Attention, t: Tiling) -> int:
    """The larger of two: a whole operand, a row of the other or of the result, and a score; whole rows of P and dP."""
    longest = max((p.N + 1) * p.dv, (p.Nk + 1) * p.dv, (p.Nk + 1) * p.d, (p.N + 1) * p.d)
    return max(longest + 1, 2 * t.rows_s * p.Nk)


def keys_outside_footprint(p: Attention, t: Tiling) -> int:
    """The words of K, V, dK, dV, Q, O, dO, dQ, l, m and D, and of two tiles of scores: S, later P, and dP, later dS."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return 2 * (rows_q + rows_k) * (p.d + p.dv) + 2 * rows_q * rows_k + 3 * rows_q


GRADIENTS = ("dQ", "dK", "dV")
BACKWARD_TENSORS = {
    "O": Tensor(("N", "dv"), "input"),
    "dO": Tensor(("N", "dv"), "input"),
    "P": Tensor(("N", "Nk"), "input"),
    "dP": Tensor(("N", "Nk")),
    "dS": Tensor(("N", "Nk")),
    "D": Tensor(("N",), "state"),
    "dQ": Tensor(("N", "d"), "output", 0.0),
    "dK": Tensor(("Nk", "d"), "output", 0.0),
    "dV": Tensor(("Nk", "dv"), "output", 0.0),
}


def backward(
    name: str,
    text: ScheduleText,
    summary: str,
    source: str,
    skips: bool = False,
    known_as: str = "",
    tensors: Mapping[str, Tensor] = BACKWARD_TENSORS,
    example: Example = backward_inputs,
    **more: Unpack[ScheduleFields],
) -> Schedule:
    """A schedule of a backward pass. Its example has random inputs, and what a forward pass over them leaves in HBM."""
    return Schedule(
        name,
        text,
        summary,
        source,
        tensors=tensors,
        family="backward",
        skips=skips,
        drops=True,
        example=example,
        follows=left_by_forward,
        answer=backward_output,
        known_as=known_as,
        **more,
    )


register(
    backward(
        "standard-bwd",
        standard,
        "backward: P was stored, dP and dS go through HBM",
        f"{FA1}, Algorithm 3",
        options=(ELEMENTWISE,),
        rules=("ideal",),
        formula="R = 5 N Nk + 2 N dv + Nk (d + dv) + N d, W = 2 N Nk + N d + Nk (d + dv)",
        state="dO, V, K, Q whole on chip, one a launch; P waits since forward, dP and dS between launches",
        exact_traffic=standard_traffic,
        footprint=standard_footprint,
        known_as="naive-bwd, standard-backward",
    )
)
FLASH1_BWD = register(
    backward(
        "flash1-bwd",
        keys_outside,
        "K/V outer: dQ goes back and forth",
        f"{FA1}, Algorithm 4",
        skips=True,
        outer="keys",
        rules=("paper", "best"),
        options=("visit_all",),
        formula="R = Nk (d + dv) + 2 N (d + dv + 1) Tc, W = N d Tc + Nk (d + dv)",
        state="a tile of K, V, dK, dV on chip; O, l, m wait since forward, dQ between key tiles",
        exact_traffic=keys_outside_traffic,
        footprint=keys_outside_footprint,
        initialised=GRADIENTS,
        known_as="fa1-bwd, flash1-backward, flash-attention-1-backward",
    )
)
always_skips(FLASH1_BWD, "block-sparse-bwd", f"{FA1}, Algorithm 4 with the blocks of Algorithm 5")
