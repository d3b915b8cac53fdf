"""Attention with a state whose states before each chunk go through HBM, so that outputs of chunks are independent.

The delta rule takes two passes before it: the inverses A of chunks, and with them W and U, so that the values of a
chunk are U - W S. Published kernels do the same (Yang et al. 2024, arXiv 2406.06484; 2025, arXiv 2412.06464).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import Moved
from ..core.problem import Tensor
from ..steps.softmax import accumulate, zeros
from ..steps.state import add_chunk, invert, key_products, less_state, own_values, products, read_state, state_factors
from .registry import Schedule, register
from .state import (
    CHUNK,
    COLUMNS,
    FEATURES,
    FORWARD,
    GATES,
    OF_PROBLEM,
    TENSORS_OF_STATE,
    alone,
    blocks,
    columns,
    decay_words,
    decays,
    first_state,
    gate_traffic,
    gate_words,
    group,
    key_words,
    last_state,
    length,
    rows_of,
    rule_of,
    shared,
    sizes_of_state,
    state_rows,
    state_traffic,
    state_type,
    tiles_named,
    tokens,
    value_heads,
    value_rows,
    whole_keys,
)

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Size, Words


def saved(chip: Machine, p: Attention, t: Tiling) -> None:
    """The state before each chunk is stored in HBM, and a second pass computes the outputs of chunks in parallel."""
    if rule_of(p).delta:
        inverses(chip, p, t)
        factors(chip, p, t)
    states(chip, p, t)
    outputs(chip, p, t)


def inverses(chip: Machine, p: Attention, t: Tiling) -> None:
    """A of each chunk."""
    for c in chip.tiles(tokens(p), t.rows_q, parallel=True):
        k = rows_of(chip, p, "K", c)
        for head in value_heads(chip, p):
            own = head.rows(p, c)
            gates = decays(chip, p, own)
            b = chip.load("beta", own)
            a = chip.compute("A", (own, c), key_products, k, *gates)
            chip.update(a, invert, b)
            chip.store(a, "A", own, c)


def factors(chip: Machine, p: Attention, t: Tiling) -> None:
    """W = A (b K) and U = A (b V) of each chunk."""
    for c in chip.tiles(tokens(p), t.rows_q, parallel=True):
        k = rows_of(chip, p, "K", c)
        for head in value_heads(chip, p):
            own = head.rows(p, c)
            v = chip.load("V", own)
            gates = decays(chip, p, own)
            b, a = chip.load("beta", own), chip.load("A", own, c)
            chip.store(chip.compute("W", (own, p.d), state_factors, a, k, b, *gates), "W", own)
            chip.store(chip.compute("U", (own, p.dv), own_values, a, v, b), "U", own)


def states(chip: Machine, p: Attention, t: Tiling) -> None:
    """The state before each chunk, and the values of the delta rule."""
    delta = rule_of(p).delta
    for r, x in blocks(chip, p, columns(p, t)):
        state = first_state(chip, p, r, x)
        for c in chip.tiles(tokens(p), t.rows_q):
            chip.store(state.S, "H", slot(p, c, r), x)
            k = rows_of(chip, p, "K", c)
            for head in value_heads(chip, p):
                own, S = head.rows(p, c), state.S if alone(p) else state.S[head.state(p, r)]
                u = chip.load("U" if delta else "V", own, x)
                gates = decays(chip, p, own)
                if delta:
                    chip.update(u, less_state, chip.load("W", own), S)
                    chip.store(u, "Unew", own, x)
                chip.update(S, add_chunk, k, u, *gates)
        last_state(chip, p, state)


def outputs(chip: Machine, p: Attention, t: Tiling) -> None:
    """O of each chunk, from the state before it."""
    for c in chip.tiles(tokens(p), t.rows_q, parallel=True):
        for r in chip.tiles(state_rows(p), state_rows(p)):
            keys, queries = shared(chip, p, "K", c), shared(chip, p, "Q", c)
            for head in value_heads(chip, p):
                own = head.rows(p, c)
                state = chip.load("H", slot(p, c, head.state(p, r)))
                k = rows_of(chip, p, "K", c) if keys is None else keys
                u = chip.load("Unew" if rule_of(p).delta else "V", own)
                gates = decays(chip, p, own)
                q = rows_of(chip, p, "Q", c) if queries is None else queries
                o = chip.compute("O", (own, p.dv), zeros)
                chip.update(o, read_state, q, state, *gates)
                s = chip.compute("P", (c, c), products, q, k, *gates)
                chip.update(o, accumulate, s, u)
                chip.store(o, "O", own)


def slot(p: Attention, c: Tile, r: Tile) -> Moved:
    """Rows r of the state before chunk c. Each chunk has the slot of its first token."""
    return Moved(slot_rows(p), r, ((state_rows(p), c), (1, r)))


def slot_rows(p: Attention[Size]) -> Size:
    """The rows of all slots for states: those of one for each token, which chunks do not fill."""
    return p.N * state_rows(p)


# ---------------------------------------------------------------- by hand (words of one head)


def saved_traffic(p: Attention, t: Tiling) -> Words:
    """Without the delta rule R = N (d (2 + b) + 2dv + g (1 + b)) + n s, W = N dv + n s, for n chunks, and b blocks of
    columns in the pass over states.

    With it, K is read in two passes more. A has C words a token, and is written and read once; W is written once and
    read b times, U is written and read once, as are its values less those of the state. The gates are read in both of
    these passes too, and b of them only there.
    """
    n, C, b, G = cast("int", length(p)), t.rows_q, -(-p.dv // cast("int", columns(p, t))), cast("int", group(p))
    more, own = 2 * rule_of(p).delta, G * n * p.dv
    states = -(-n // C) * cast("int", state_rows(p)) * p.dv
    rows = {"Q": (n * p.d, 0), "K": ((1 + b + more) * n * p.d, 0), "O": (0, own), "H": (states, states)}
    products_of_keys = G * (n // C * C * C + (n % C) ** 2)
    delta = {
        "V": (own, 0),
        "A": (products_of_keys, products_of_keys),
        "W": (b * G * n * p.d, G * n * p.d),
        "U": (own, own),
        "Unew": (own, own),
    }
    values = delta if more else {"V": (2 * own, 0)}
    return {**rows, **values, **gate_traffic(p, 1 + b + more, more), **state_traffic(p)}


def saved_room(p: Attention, t: Tiling) -> int:
    """The largest room of the passes: s / b + C (d + dv / b + g) for states, with W C d more; then s + C (2d + 2dv + g)
    + C^2 for outputs; and with the delta rule C (d + g) + C^2 for A, C (2d + 2dv + g) + C^2 for W and U.

    Features need their own room beside the words that they are made of, for k first and then for q.
    """
    C, m, w = min(t.rows_q, cast("int", length(p))), cast("int", key_words(p)), cast("int", columns(p, t))
    decay, delta = cast("int", decay_words(p)), rule_of(p).delta
    made = p.d if p[FEATURES] else 0
    first = cast("int", group(p)) * m * w + C * max(m + w + decay + (p.d if delta else 0), made + m)
    q_made = C * max(2 * m + p.dv + decay + made, made + m) if alone(p) else 0
    both_made = 0 if alone(p) else C * (2 * m + made)
    second = max(m * p.dv + max(C * (2 * m + 2 * p.dv + decay + C), q_made), both_made)
    factors_of_delta = C * (2 * p.d + 2 * p.dv + cast("int", gate_words(p)) + C) if delta else 0
    return max(first, second, factors_of_delta)


SAVED = "Yang et al. 2024 (arXiv 2312.06635, 2406.06484, 2412.06464); flash-linear-attention"
TENSORS_SAVED = {
    **TENSORS_OF_STATE,
    "H": Tensor((slot_rows, "dv"), "state", dtype=state_type),
    "A": Tensor((value_rows, "N"), "output"),
    "W": Tensor((value_rows, "d"), "input"),
    "U": Tensor((value_rows, "dv"), "input"),
    "Unew": Tensor((value_rows, "dv"), "input"),
}
register(
    Schedule(
        "state-saved",
        saved,
        "states before chunks in HBM, then all in parallel",
        SAVED,
        sizes=(("rows_q", "cols_o"),),
        axes=sizes_of_state,
        more_tiles=("cols_o",),
        keys_in_a_row=lambda p: 1,
        named_tiles=tiles_named(cols_o=None),
        formula="R = N (d (2 + Tv) + 2dv) + d dv Tr, W = N dv + d dv Tr",
        state=f"a state on chip; those before each chunk wait in HBM between launches; {GATES}",
        exact_traffic=saved_traffic,
        footprint=saved_room,
        options=(*OF_PROBLEM, CHUNK, COLUMNS),
        about=whole_keys,
        known_as="chunk, chunk-gated-delta-rule, chunk-gla, chunk-simple-gla, flash-linear-attention, fla",
        tensors=TENSORS_SAVED,
        **FORWARD,
    )
)
