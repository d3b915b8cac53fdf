"""Decoding with a state: one token a step, from an empty chip. A ring of rows (k, u) puts off writing the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import Ends, Share, UpTo
from ..core.problem import Tensor, bytes_of, every, narrowed
from ..core.tiling import Tiling
from ..steps.softmax import zeros
from ..steps.state import add_ring, read_state, ring_delta, ring_key, ring_output, ring_state
from . import state as common
from .registry import Schedule, register
from .state import (
    COLUMNS,
    GATES,
    INITIAL_STATE,
    OF_STEP,
    RING,
    TENSORS_OF_STATE,
    State,
    alone,
    beta_words,
    columns,
    decay_words,
    decays,
    gate_words,
    group,
    rule_of,
    shared,
    sizes_of_state,
    state_rows,
    state_type,
    value_heads,
    value_rows,
    whole_keys,
)
from .state_forward import through_chunk

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.typing import Arrays, Bools, Size, Words


def decode(chip: Machine, p: Attention, t: Tiling) -> None:
    """Each step reads the state, and writes it back with the token's own key and value."""
    fill_slot(chip, p, t)
    for i in chip.tiles(p.N, 1):
        for r, x in blocks(chip, p, t):
            state = State(chip.load("slot", r, x), None, r, x)
            through_chunk(chip, p, i, state)
            chip.store(state.S, "slot", r, x)


def ring(chip: Machine, p: Attention, t: Tiling) -> None:
    """Each step reads the state and the rows since it was written. The last of every L steps adds all rows to it, and
    writes it."""
    fill_slot(chip, p, t)
    for n in chip.tiles(rings(p), 1):
        share = Share(p.N, ring_rows(p), n)
        for i in chip.tiles(before := Ends(share, last=False), 1):
            for r, x in blocks(chip, p, t):
                step_of_ring(chip, p, before, i, r, x)
        for r, x in blocks(chip, p, t):
            last_of_ring(chip, p, share, r, x)


def step_of_ring(chip: Machine, p: Attention, ring: Ends, i: Tile, r: Tile, x: Tile) -> None:
    """O of one token of a ring, from the state and from its rows. The delta rule appends its value to them."""
    delta, rows = rule_of(p).delta, UpTo(ring, i, own=True)
    q, k = chip.load("Q", i), chip.load("K", rows)
    for head in value_heads(chip, p):
        own, before = head.rows(p, i), head.rows(p, UpTo(ring, i, own=False))
        gates = decays(chip, p, head.rows(p, rows))
        state = chip.load("slot", head.state(p, r), x)
        o = chip.compute("O", (own, x), ring_state, q, state, k, *gates)
        u, v = chip.load("U" if delta else "V", before, x), chip.load("V", own, x)
        if delta:
            answer = chip.compute("answer", (own, x), ring_key, state, k, *gates)
            chip.update(v, ring_delta, chip.load("beta", own), answer, k, u, *gates)
            chip.store(v, "U", own, x)
        chip.update(o, ring_output, q, k, u, v, *gates)
        chip.store(o, "O", own, x)


def last_of_ring(chip: Machine, p: Attention, share: Share, r: Tile, x: Tile) -> None:
    """The state with all rows of a ring, and from it O of the last token."""
    delta, i = rule_of(p).delta, Ends(share, last=True)
    k, q = chip.load("K", share), shared(chip, p, "Q", i)
    for head in value_heads(chip, p):
        own, before = head.rows(p, i), head.rows(p, Ends(share, last=False))
        rows = head.state(p, r)
        gates, state = decays(chip, p, head.rows(p, share)), chip.load("slot", rows, x)
        u, v = chip.load("U" if delta else "V", before, x), chip.load("V", own, x)
        if delta:
            answer = chip.compute("answer", (own, x), ring_key, state, k, *gates)
            chip.update(v, ring_delta, chip.load("beta", own), answer, k, u, *gates)
        chip.update(state, add_ring, k, u, v, *gates)
        chip.free(u, v)
        if q is None:
            chip.free(k)
        query, o = chip.load("Q", i) if q is None else q, chip.compute("O", (own, x), zeros)
        chip.update(o, read_state, query, state)
        chip.store(o, "O", own, x)
        chip.store(state, "slot", rows, x)


def blocks(chip: Machine, p: Attention, t: Tiling) -> Iterator[tuple[Tile, Tile]]:
    """The blocks of columns of the state, as its rows and their columns."""
    for x in chip.tiles(p.dv, columns(p, t)):
        for r in chip.tiles(state_rows(p), state_rows(p)):
            yield r, x


def fill_slot(chip: Machine, p: Attention, t: Tiling) -> None:
    """Copy a state that is given, of a prefix, into the slot of the sequence."""
    if p[INITIAL_STATE]:
        for r, x in blocks(chip, p, t):
            for head in value_heads(chip, p):
                rows = head.state(p, r)
                chip.store(chip.load("S0", rows, x), "slot", rows, x)


# ---------------------------------------------------------------- sizes


def ring_rows(p: Attention[Size]) -> Size:
    """L, the steps from one write of the state to the next: --ring, or those that move the fewest bytes."""
    if p[RING]:
        return p[RING]
    state = group(p) * p.d * p.dv * bytes_of(state_type(p))
    row = (p.d + group(p) * p.dv) * bytes_of(p.dtype) + group(p) * decay_words(p) * bytes_of("fp32")
    return best_length(state, row)


def best_length(state: Size, row: Size) -> Size:
    """The least L with L (L + 1) >= 2 state / row, at which state / L + row (L - 1) / 2 is least."""
    least, L = -(-2 * state // row), 0 * state + 1
    while not every(enough := least <= L * (L + 1)):
        L = L + 1 * (1 - 1 * enough)
    return L


def rings(p: Attention[Size]) -> Size:
    """The times that the state is written."""
    return -(-p.N // ring_rows(p))


# ---------------------------------------------------------------- the expected output


def example(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random inputs, and the state of the sequence in its slot."""
    hbm = common.example(rng, p, visible)
    return {**hbm, "slot": rng.normal(size=hbm["S0"].shape)}


def answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """O and the last state, from the state in the slot on, or from one that is given."""
    first = hbm["S0" if p[INITIAL_STATE] else "slot"]
    found = common.answer({**hbm, "S0": first}, narrowed(p, initial_state=True, final_state=True), visible)
    return {"O": found["O"], "slot": found["SN"]}


# ---------------------------------------------------------------- by hand (words of one head)


def decode_traffic(p: Attention, t: Tiling) -> Words:
    """R = s + b (2d + g) + dv, W = s + dv a step, for b blocks of columns; and the copy of a state that is given."""
    b, N, G = -(-p.dv // cast("int", columns(p, t))), p.N, cast("int", group(p))
    s = G * p.d * p.dv
    words = {
        "Q": (b * N * p.d, 0),
        "K": (b * N * p.d, 0),
        "V": (G * N * p.dv, 0),
        "O": (0, G * N * p.dv),
        "slot": (N * s, N * s),
    }
    return copied({**words, **common.gate_traffic(p, b, b)}, p)


def copied(words: Words, p: Attention) -> Words:
    """The words, with those of a state that is copied into the slot."""
    s = p.d * p.dv * cast("int", group(p))
    more = {"S0": (s, 0), "slot": (words["slot"][0], words["slot"][1] + s)} if p[INITIAL_STATE] else {}
    return {**words, **more}


def ring_traffic(p: Attention, t: Tiling) -> Words:
    """A step that follows j others in its ring reads j rows more than its own, and each ring writes the state once. The
    delta rule writes the value of each step but the last of a ring."""
    L, N, b, G = cast("int", ring_rows(p)), p.N, -(-p.dv // cast("int", columns(p, t))), cast("int", group(p))
    s, dv = G * p.d * p.dv, G * p.dv
    whole, rest = divmod(N, L)
    earlier = whole * (L * (L - 1) // 2) + rest * (rest - 1) // 2
    n = whole + (rest > 0)
    delta, decay = rule_of(p).delta, G * cast("int", decay_words(p))
    words = {"Q": (b * N * p.d, 0), "K": (b * (N + earlier) * p.d, 0), "O": (0, N * dv), "slot": (N * s, n * s)}
    rows = {"V": (N * dv, 0), "U": (earlier * dv, (N - n) * dv)} if delta else {"V": ((N + earlier) * dv, 0)}
    gates = {"g": (b * (N + earlier) * decay, 0)} if decay else {}
    return copied({**words, **rows, **gates, **({"beta": (G * b * N, 0)} if delta else {})}, p)


def decode_room(p: Attention, t: Tiling) -> int:
    """s / b + 2d + 2dv / b + g + 1 words: a block of columns of the state, of each value head of a key, and q, k, u, o,
    gates and a product of one."""
    w = cast("int", columns(p, t))
    return cast("int", group(p)) * p.d * w + 2 * p.d + 2 * w + cast("int", gate_words(p)) + 1


def ring_room(p: Attention, t: Tiling) -> int:
    """s / b + L (d + dv / b + g) words: a block of columns of the state, and all rows k, u and decays of a ring. The
    delta rule has what the state answers to a key, and a gate. Every other step has a row less, and q and o. Of value
    heads that share a key rows and states are there one by one, and q beside all keys."""
    L, w = min(cast("int", ring_rows(p)), p.N), cast("int", columns(p, t))
    q = 0 if alone(p) else p.d
    return p.d * w + q + L * (p.d + w + cast("int", decay_words(p))) + beta_words(p) * (w + 1)


def one_sequence(p: Attention) -> Attention:
    """Decoding takes no mask, padding, features or normaliser: each step is a token of every sequence."""
    return narrowed(whole_keys(p), features=0, padding=0)


def steps_named(p: Attention, memory: bool) -> Tiling | None:
    """The tiles of a step of decoding: the columns that are given, else all, or what M decides."""
    return None if memory and not p[COLUMNS] else Tiling(1, 1, cols_o=p[COLUMNS] or p.dv)


TENSORS_OF_STEP = {
    **TENSORS_OF_STATE,
    "slot": Tensor((state_rows, "dv"), "state", dtype=state_type),
    "U": Tensor((value_rows, "dv"), "input"),
}
register(
    Schedule(
        "state-decode",
        decode,
        "each step reads and writes the state",
        "definition; flash-linear-attention, fused_recurrent",
        sizes=(("cols_o", "rows_q"),),
        axes=lambda p: {**sizes_of_state(p), "rows_q": (1,)},
        more_tiles=("cols_o",),
        keys_in_a_row=lambda p: 1,
        named_tiles=steps_named,
        formula="R = N (d dv + 2d Tv + dv), W = N (d dv + dv)",
        state=f"the state waits in HBM between steps; {GATES}",
        exact_traffic=decode_traffic,
        footprint=decode_room,
        options=(*OF_STEP, COLUMNS),
        tensors=TENSORS_OF_STEP,
        family="state-decode",
        example=example,
        answer=answer,
        about=one_sequence,
        known_as="fused-recurrent-update, selective-state-update, recurrent-decode",
    )
)
register(
    Schedule(
        "state-ring",
        ring,
        "rows (k, u) put off the writing of the state",
        "SGLang; docs/floors-state.md, D2",
        sizes=(("cols_o", "rows_q"),),
        axes=lambda p: {**sizes_of_state(p), "rows_q": (1,)},
        more_tiles=("cols_o",),
        keys_in_a_row=lambda p: 1,
        named_tiles=steps_named,
        formula="R = N (d dv + 2d Tv + dv) + E (d Tv + dv), W = N dv + d dv Tn",
        state=f"the state and up to L rows wait in HBM between steps; {GATES}",
        exact_traffic=ring_traffic,
        footprint=ring_room,
        options=(*OF_STEP, COLUMNS, RING),
        tensors=TENSORS_OF_STEP,
        family="state-decode",
        example=example,
        answer=answer,
        about=one_sequence,
        known_as="ring, lazy-state, replay",
    )
)
