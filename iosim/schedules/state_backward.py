"""The backward pass of attention with a state, in chunks of tokens.

With dS_t the gradient of S_t, dQ_t = S_t dO_t, dK_t = dS_t v_t, dV_t = dS_t^T k_t: dQ comes from a scan that goes
forwards with the state on chip, dK and dV from one that goes backwards with its gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import Backwards
from ..core.problem import Tensor
from ..oracles import state_backward as oracle
from ..steps.backward import add_value_gradients
from ..steps.softmax import zeros
from ..steps.state import add_chunk, products
from ..steps.state_backward import (
    add_chunk_back,
    add_earlier,
    add_later,
    gate_gradients,
    less_keys,
    read_gradient,
    read_gradient_rows,
    read_state_rows,
    state_dots,
)
from .registry import Schedule, register
from .state import (
    CHUNK,
    FINAL_STATE,
    GATES,
    INITIAL_STATE,
    OF_PROBLEM,
    TENSORS_OF_STATE,
    decay_words,
    decays,
    example,
    key_words,
    length,
    log_decays,
    rule_of,
    state_type,
    tiles_named,
    tokens,
    vectors,
    without_delta,
)

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Arrays, Bools, Size, Words

SOURCE = "Katharopoulos et al. 2020 (arXiv 2006.16236), section 3.3.1; Yang et al. 2024 (arXiv 2312.06635), section 4"


def simple_rules(p: Attention) -> Attention:
    """No mask but --padding, no --normalise, no --features, no packed heads; with the delta rule it takes S and its
    gradient at once."""
    return without_delta(p)


def two_scans(chip: Machine, p: Attention, t: Tiling) -> None:
    """Forwards with the state for dQ, then backwards with its gradient for dK, dV and the gradients of gates."""
    state = chip.load("S0") if p[INITIAL_STATE] else chip.compute("S0", (p.d, p.dv), zeros)
    for c in chip.tiles(tokens(p), t.rows_q):
        query_gradients(chip, p, c, state)
    ds, ends = last_gradient(chip, p, state)
    for c in chip.tiles(Backwards(p.N, 0, length(p)), t.rows_q):
        key_gradients(chip, p, c, ds, ends)
    if p[INITIAL_STATE]:
        chip.store(ds, "dS0")
    chip.free(ds, *ends)


def query_gradients(chip: Machine, p: Attention, c: Tile, state: Block) -> None:
    """dQ of a chunk, from the state before it and from its own keys. The state takes in the chunk."""
    k, v, do = (chip.load(name, c) for name in ("K", "V", "dO"))
    gates = decays(chip, p, c)
    w = chip.compute("P", (c, c), products, do, v)
    dq = chip.compute("dQ", (c, p.d), read_state_rows, do, state, *gates)
    chip.update(dq, add_earlier, w, k, *gates)
    chip.store(dq, "dQ", c)
    chip.update(state, add_chunk, k, v, *gates)


def last_gradient(chip: Machine, p: Attention, state: Block) -> tuple[Block, tuple[Block, ...]]:
    """(the gradient of the last state, given or 0; its sums with the last state, if gates are read). The last state is
    freed."""
    words = decay_words(p) if has_gates(p) else 0
    if not p[FINAL_STATE]:
        chip.free(state)
        ds = chip.compute("dS0", (p.d, p.dv), zeros)
        return ds, (chip.compute("e", (words,), zeros),) if has_gates(p) else ()
    if not has_gates(p):
        chip.free(state)
    ds = chip.load("dSN")
    if not has_gates(p):
        return ds, ()
    ends = chip.compute("e", (words,), state_dots, state, ds)
    chip.free(state)
    return ds, (ends,)


def key_gradients(chip: Machine, p: Attention, c: Tile, ds: Block, ends: tuple[Block, ...]) -> None:
    """dK and dV of a chunk, and those of its gates. `ds` becomes the gradient of the state before it."""
    q, do, v = (chip.load(name, c) for name in ("Q", "dO", "V"))
    gates = decays(chip, p, c)
    w = chip.compute("P", (c, c), products, do, v)
    dk = chip.compute("dK", (c, p.d), read_gradient_rows, v, ds, *gates)
    chip.update(dk, add_later, w, q, *gates)
    chip.free(w, v)
    k = chip.load("K", c)
    dg = [chip.compute("dg", (c, decay_words(p)), less_keys, k, dk) for _ in ends]
    chip.store(dk, "dK", c)
    chip.free(dk)
    for each, end in zip(dg, ends, strict=True):
        dq = chip.load("dQ", c)
        chip.update((each, end), gate_gradients, q, dq)
        chip.store(each, "dg", c)
        chip.free(each, dq)
    _, dv = value_products(chip, p, c, (q, k, do, *gates), ds)
    chip.store(dv, "dV", c)
    chip.update(ds, add_chunk_back, q, do, *gates)


def value_products(chip: Machine, p: Attention, c: Tile, of: tuple[Input, ...], ds: Block) -> tuple[Block, Block]:
    """(products of the queries and keys of a chunk, dV from these and from the gradient of the state after it)."""
    q, k, do, *gates = of
    s = chip.compute("P", (c, c), products, q, k, *gates)
    dv = chip.compute("dV", (c, p.dv), read_gradient, k, ds, *gates)
    chip.update(dv, add_value_gradients, s, do)
    return s, dv


def has_gates(p: Attention[Size]) -> bool:
    """Whether the decay is read, and has a gradient."""
    return rule_of(p).decay in ("scalar", "diagonal")


# ---------------------------------------------------------------- by hand (words of one head)


def two_scans_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (3d + 4dv), W = N (2d + dv): K, V, dO twice, Q once. Gates: read twice, dg written, and dQ read again."""
    n, words = cast("int", length(p)), cast("int", decay_words(p))
    rows, columns, s = n * p.d, n * p.dv, cast("int", key_words(p)) * p.dv
    once = {"Q": (rows, 0), "K": (2 * rows, 0), "V": (2 * columns, 0), "dO": (2 * columns, 0)}
    moved = {**once, "dQ": (rows if words else 0, rows), "dK": (0, rows), "dV": (0, columns)}
    moved |= {"g": (2 * n * words, 0), "dg": (0, n * words)} if words else {}
    moved |= {"S0": (s, 0), "dS0": (0, s)} if p[INITIAL_STATE] else {}
    return moved | ({"dSN": (s, 0)} if p[FINAL_STATE] else {})


def two_scans_room(p: Attention, t: Tiling) -> int:
    """s + g + C (2d + 2dv + g) + C^2 words: the state or its gradient, sums for gates, four tensors, products. Or, with
    Q, K, dO, dK and the gates on chip, C (3d + dv + 2g); or for a moment 2s + g, if a last gradient is given."""
    C, g = min(t.rows_q, cast("int", length(p))), cast("int", decay_words(p))
    s, most = p.d * p.dv, C * (2 * p.d + 2 * p.dv + g) + C * C
    turned = s if g and p[FINAL_STATE] else 0
    return s + g + max(most, C * (3 * p.d + p.dv + 2 * g), turned)


# ---------------------------------------------------------------- inputs and the expected gradients


def backward_answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """dQ, dK, dV, and the gradients of gates and of the first state if they are there, by the recurrence."""
    n = cast("int", length(p))
    first, last = (hbm[x] if there else 0 * hbm[x] for x, there in (("S0", p[INITIAL_STATE]), ("dSN", p[FINAL_STATE])))
    rows = {name: hbm[name][:n] for name in OF_TOKENS if name in hbm}
    found = oracle.padded(oracle.gradients(rows, log_decays(hbm, p)["g"][:n], first, last), p.N)
    asked = {"dQ": True, "dK": True, "dV": True, "dg": has_gates(p), "dS0": p[INITIAL_STATE]}
    asked["dbeta"] = rule_of(p).delta
    return {name: found[name] for name, there in asked.items() if there}


OF_TOKENS: tuple[str, ...] = ("Q", "K", "V", "dO", "beta")  # that gradients are computed from
TENSORS = {
    **TENSORS_OF_STATE,
    "dO": Tensor(("N", "dv"), "input"),
    "dQ": Tensor(("N", "d"), "output", 0.0),
    "dK": Tensor(("N", "d"), "output", 0.0),
    "dV": Tensor(("N", "dv"), "output", 0.0),
    "dg": Tensor(("N", vectors), "scale", 0.0),
    "dS0": Tensor(("d", "dv"), "state", dtype=state_type),
    "dSN": Tensor(("d", "dv"), "state", dtype=state_type),
}
register(
    Schedule(
        "state-bwd",
        two_scans,
        "backward of a state: dQ forwards, then dK, dV backwards",
        SOURCE,
        keys_in_a_row=lambda p: 1,
        named_tiles=tiles_named(),
        formula="R = N (3d + 4dv), W = N (2d + dv)",
        state=f"the state, then its gradient on chip; nothing waits in HBM between launches but dQ for gates; {GATES}",
        exact_traffic=two_scans_traffic,
        footprint=two_scans_room,
        options=(*OF_PROBLEM, CHUNK),
        tensors=TENSORS,
        family="state-bwd",
        example=lambda rng, p, visible: {**example(rng, p, visible), **oracle.given(rng, p)},
        answer=backward_answer,
        about=simple_rules,
        known_as="state-backward, linear-attention-backward, gla-backward, retnet-backward, mamba2-backward",
    )
)
