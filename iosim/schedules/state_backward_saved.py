"""The backward pass of attention with a state that reads back the states that a forward pass saved before each chunk.

One scan goes backwards in time, with the gradient of the state on chip, and the saved state of one chunk after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import Backwards
from ..core.problem import Tensor, narrowed
from ..oracles import state_backward as oracle
from ..oracles.state import recurrence
from ..steps.backward import row_dots
from ..steps.softmax import zeros
from ..steps.state import key_products, products
from ..steps.state_backward import (
    add_chunk_back,
    add_earlier,
    add_keys_back,
    add_later,
    add_rows,
    delta_rests,
    earlier_rows,
    gate_gradients,
    less_keys,
    more_keys,
    read_gradient_rows,
    read_state_rows,
    solve_back,
    state_dots,
    weigh_down,
    weigh_rows,
)
from .registry import Schedule, register
from .state import (
    CHUNK,
    FINAL_STATE,
    GATES,
    INITIAL_STATE,
    OF_PROBLEM,
    beta_words,
    by_heads,
    decay_words,
    decays,
    example,
    length,
    log_decays,
    rule_of,
    state_type,
    tiles_named,
)
from .state_backward import TENSORS, backward_answer, has_gates, value_products
from .state_saved import SAVED, slot, slot_rows

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Arrays, Bools, Words


def any_rule(p: Attention) -> Attention:
    """A state is causal by itself and takes no mask, but --padding; gradients take no --normalise, no
    --features and no packed heads."""
    return narrowed(by_heads(p), features=0)


def saved(chip: Machine, p: Attention, t: Tiling) -> None:
    """Backwards in time with the gradient of the state, and with the state before each chunk from HBM."""
    ds = chip.load("dSN") if p[FINAL_STATE] else chip.compute("dS0", (p.d, p.dv), zeros)
    ends = last_sums(chip, p, ds)
    gradients = delta_gradients if rule_of(p).delta else simple_gradients
    for c in chip.tiles(Backwards(p.N, 0, length(p)), t.rows_q):
        for r in chip.tiles(p.d, p.d):
            gradients(chip, p, c, chip.load("H", slot(p, c, r)), ds, ends)
    if p[INITIAL_STATE]:
        chip.store(ds, "dS0")
    chip.free(ds, *ends)


def last_sums(chip: Machine, p: Attention, ds: Block) -> tuple[Block, ...]:
    """The sums of the last state with its gradient, from which the gradients of gates start, if there are some."""
    if not has_gates(p):
        return ()
    if not p[FINAL_STATE]:
        return (chip.compute("e", (decay_words(p),), zeros),)
    state = chip.load("SN")
    ends = chip.compute("e", (decay_words(p),), state_dots, state, ds)
    chip.free(state)
    return (ends,)


def simple_gradients(chip: Machine, p: Attention, c: Tile, state: Block, ds: Block, ends: tuple[Block, ...]) -> None:
    """All gradients of a chunk without the delta rule. `ds` becomes the gradient of the state before it."""
    k, v, do = (chip.load(name, c) for name in ("K", "V", "dO"))
    gates = decays(chip, p, c)
    w = chip.compute("P", (c, c), products, do, v)
    dq = query_gradients(chip, p, c, (do, w, k, *gates), state)
    chip.free(state)
    q = chip.load("Q", c)
    dk = chip.compute("dK", (c, p.d), read_gradient_rows, v, ds, *gates)
    chip.update(dk, add_later, w, q, *gates)
    chip.free(w, v)
    dg = [chip.compute("dg", (c, decay_words(p)), less_keys, k, dk) for _ in ends]
    chip.store(dk, "dK", c)
    chip.free(dk)
    of_gates(chip, c, dg, ends, q, dq)
    s, dv = value_products(chip, p, c, (q, k, do, *gates), ds)
    chip.store(dv, "dV", c)
    chip.free(s, dv)
    chip.update(ds, add_chunk_back, q, do, *gates)


def query_gradients(
    chip: Machine, p: Attention, c: Tile, of: tuple[Block, Block, Block, *tuple[Input, ...]], state: Block
) -> Block:
    """dQ of a chunk, which is stored."""
    do, w, k, *gates = of
    dq = chip.compute("dQ", (c, p.d), read_state_rows, do, state, *gates)
    chip.update(dq, add_earlier, w, k, *gates)
    chip.store(dq, "dQ", c)
    return dq


def of_gates(chip: Machine, c: Tile, dg: list[Block], ends: tuple[Block, ...], q: Block, dq: Block) -> None:
    """The gradients of the gates of a chunk, if there are some."""
    for each, end in zip(dg, ends, strict=True):
        chip.update((each, end), gate_gradients, q, dq)
        chip.store(each, "dg", c)
    chip.free(dq, *dg)


def delta_gradients(chip: Machine, p: Attention, c: Tile, state: Block, ds: Block, ends: tuple[Block, ...]) -> None:
    """All gradients of a chunk with the delta rule. dV goes back from the last token to the first, as values go
    forwards."""
    k, v, do, b = (chip.load(name, c) for name in ("K", "V", "dO", "beta"))
    gates = decays(chip, p, c)
    s = chip.compute("P", (c, c), key_products, k, *gates)
    chip.update(v, delta_rests, b, s, k, state, *gates)
    u = chip.compute("U", (c, p.dv), weigh_rows, b, v)
    w = chip.compute("P", (c, c), products, do, u)
    dq = query_gradients(chip, p, c, (do, w, k, *gates), state)
    q = chip.load("Q", c)
    dk = chip.compute("dK", (c, p.d), read_gradient_rows, u, ds, *gates)
    chip.update(dk, add_later, w, q, *gates)
    chip.free(w)
    pairs, n = value_products(chip, p, c, (q, k, do, *gates), ds)
    chip.free(pairs)
    chip.update(n, solve_back, s, b)
    chip.free(s)
    db = chip.compute("dbeta", (c,), row_dots, n, v)
    chip.store(db, "dbeta", c)
    chip.free(v, db)
    dv = chip.compute("dV", (c, p.dv), weigh_rows, b, n)
    chip.store(dv, "dV", c)
    chip.free(dv)
    chip.update(n, weigh_down, b)
    z = chip.compute("P", (c, c), earlier_rows, n, u)
    chip.free(u)
    chip.update(dk, add_later, z, k, *gates)
    before = chip.compute("dK", (c, p.d), read_state_rows, n, state, *gates)
    chip.update(before, add_earlier, z, k, *gates)
    chip.free(z)
    dg = [chip.compute("dg", (c, decay_words(p)), less_keys, k, dk) for _ in ends]
    for each in dg:
        chip.update(each, more_keys, k, before)
    chip.update(dk, add_rows, before)
    chip.store(dk, "dK", c)
    of_gates(chip, c, dg, ends, q, dq)
    chip.update(ds, add_chunk_back, q, do, *gates)
    chip.update(ds, add_keys_back, k, n, *gates)


# ---------------------------------------------------------------- by hand (words of one head)


def saved_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (2d + 2dv + g) + n s, W = N (2d + dv + g), for n chunks: each word once, and the states before them.

    A gradient of the last state is read, and with a gate that state too.
    """
    n, words, b, s = cast("int", length(p)), cast("int", decay_words(p)), beta_words(p), p.d * p.dv
    rows, columns, states = n * p.d, n * p.dv, -(-n // t.rows_q) * s
    moved = {"Q": (rows, 0), "K": (rows, 0), "V": (columns, 0), "dO": (columns, 0), "H": (states, 0)}
    moved |= {"dQ": (0, rows), "dK": (0, rows), "dV": (0, columns)}
    moved |= {"g": (n * words, 0), "dg": (0, n * words)} if words else {}
    moved |= {"beta": (n, 0), "dbeta": (0, n)} if b else {}
    moved |= {"dS0": (0, s)} if p[INITIAL_STATE] else {}
    moved |= {"dSN": (s, 0)} if p[FINAL_STATE] else {}
    return moved | ({"SN": (s, 0)} if p[FINAL_STATE] and words else {})


def saved_room(p: Attention, t: Tiling) -> int:
    """2s + C (2d + 2dv + g + C) words where dQ is made, and without the saved state s + C (4d + 2dv + g + C) for dK and
    s + C (4d + dv + 2g) for dg. The largest counts; sums for gates come on top.

    The delta rule keeps both states: 2s + C (4d + 4dv + g + 1 + 2C) for dV, or 2s + C (5d + 2dv + g + 1 + max(C, g))
    for dK.
    """
    C, g, s = min(t.rows_q, cast("int", length(p))), cast("int", decay_words(p)), p.d * p.dv
    if rule_of(p).delta:
        values, keys = 4 * p.d + 4 * p.dv + 2 * C, 5 * p.d + 2 * p.dv + max(C, g)
        return 2 * s + g + C * (max(values, keys) + g + 1)
    queries, keys = s + C * (2 * p.d + 2 * p.dv + g + C), C * (4 * p.d + 2 * p.dv + g + C)
    return s + g + max(queries, keys, C * (4 * p.d + p.dv + 2 * g), s if p[FINAL_STATE] and g else 0)


# ---------------------------------------------------------------- inputs and the expected gradients


def left_by_forward(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """What a forward pass leaves: the state before each token, that of a chunk in the slot of its first token, and the
    last one."""
    n = cast("int", length(p))
    first = hbm["S0"] if p[INITIAL_STATE] else 0 * hbm["S0"]
    q, k, v, g = hbm["Q"][:n], hbm["K"][:n], hbm["V"][:n], log_decays(hbm, p)["g"][:n]
    states = recurrence(q, k, v, g, hbm.get("beta"), first).states
    return {"H": oracle.slots(states[:-1], p.N), "SN": states[-1]}


def with_states(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """The tensors, and what a forward pass leaves."""
    return {**hbm, **left_by_forward(hbm, p, visible)}


register(
    Schedule(
        "state-bwd-saved",
        saved,
        "backward of a state, saved states read back",
        SAVED,
        keys_in_a_row=lambda p: 1,
        named_tiles=tiles_named(),
        formula="R = N (2d + 2dv) + d dv Tr, W = N (2d + dv)",
        state=f"the gradient of the state and a saved state on chip; states before chunks wait since forward; {GATES}",
        exact_traffic=saved_traffic,
        footprint=saved_room,
        options=(*OF_PROBLEM, CHUNK),
        tensors={
            **TENSORS,
            "H": Tensor((slot_rows, "dv"), "state", dtype=state_type),
            "U": Tensor(("N", "dv"), "input"),
            "dbeta": Tensor(("N",), "output", 0.0),
        },
        family="state-bwd",
        example=lambda rng, p, visible: with_states({**example(rng, p, visible), **oracle.given(rng, p)}, p, visible),
        follows=left_by_forward,
        answer=backward_answer,
        about=any_rule,
        known_as="delta-backward, deltanet-backward, gdn-backward, kda-backward, chunk-backward",
    )
)
