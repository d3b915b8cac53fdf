"""The forward pass of attention with a state, in chunks of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..steps.passes import add_sum
from ..steps.softmax import accumulate, normalise
from ..steps.state import add_chunk, add_keys, delta_values, key_products, products, read_normaliser, read_state
from .registry import Schedule, register
from .state import (
    CHUNK,
    COLUMNS,
    FEATURES,
    GATES,
    NORMALISE,
    OF_PROBLEM,
    TENSORS_OF_STATE,
    State,
    answer,
    decays,
    example,
    first_state,
    gate_traffic,
    gate_words,
    key_words,
    last_state,
    length,
    named_tiles,
    rows_of,
    rule_of,
    state_traffic,
    state_words,
    tokens,
    with_state,
)

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Words

FUSED = "Yang et al. 2024 (arXiv 2312.06635, 2406.06484), chunkwise form; Katharopoulos et al. 2020 (arXiv 2006.16236)"


def fused(chip: Machine, p: Attention, t: Tiling) -> None:
    """One pass over chunks of tokens with the state on chip. Tokens of a chunk use products of its keys. A chunk of one
    token is the recurrence."""
    state = first_state(chip, p)
    for c in chip.tiles(tokens(p), t.rows_q):
        k, u, *gates = values(chip, p, c, state)
        output(chip, p, c, (k, u, *gates), state)
        take_in(chip, state, k, u, *gates)
    last_state(chip, p, state)


def values(chip: Machine, p: Attention, c: Tile, state: State) -> tuple[Block, Block, *tuple[Input, ...]]:
    """(k, u, the gates if there are some) of a chunk."""
    k, v = rows_of(chip, p, "K", c), chip.load("V", c)
    gates = decays(chip, p, c)
    if rule_of(p).delta:
        b = chip.load("beta", c)
        s = chip.compute("P", (c, c), key_products, k, *gates)
        chip.update(v, delta_values, b, s, k, state.S, *gates)
        chip.free(s)
    return k, v, *gates


def output(chip: Machine, p: Attention, c: Tile, chunk: tuple[Block, Block, *tuple[Input, ...]], state: State) -> None:
    """O of a chunk, from the state before it and from its own keys."""
    k, u, *gates = chunk
    q = rows_of(chip, p, "Q", c)
    o = chip.compute("O", (c, p.dv), read_state, q, state.S, *gates)
    s = chip.compute("P", (c, c), products, q, k, *gates)
    chip.update(o, accumulate, s, u)
    if state.z is not None:
        l = chip.compute("l", (c,), read_normaliser, q, state.z)
        chip.update(l, add_sum, s)
        chip.update(o, normalise, l)
    chip.store(o, "O", c)


def take_in(chip: Machine, state: State, k: Block, u: Block, *gates: Input) -> None:
    """Add the keys and values of a chunk to the state."""
    chip.update(state.S, add_chunk, k, u, *gates)
    if state.z is not None:
        chip.update(state.z, add_keys, k)


# ---------------------------------------------------------------- by hand (words of one head)


def fused_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (2d + dv + g), W = N dv: each word once; and a state that is given or asked for."""
    n = cast("int", length(p))
    rows = {"Q": (n * p.d, 0), "K": (n * p.d, 0), "V": (n * p.dv, 0), "O": (0, n * p.dv)}
    return {**rows, **gate_traffic(p), **state_traffic(p)}


def fused_room(p: Attention, t: Tiling) -> int:
    """s + C (2d + 2dv + g) + C^2 words: the state, q, k, u, o, gates, and products of keys. With a normaliser, C more.

    Where features take more room than q and k, there is a moment with q, its features, k's features and v.
    """
    C, m, g = min(t.rows_q, cast("int", length(p))), cast("int", key_words(p)), cast("int", gate_words(p))
    most = C * (2 * m + 2 * p.dv + g + bool(p[NORMALISE])) + C * C
    made = C * (2 * m + p.dv + p.d + g) if p[FEATURES] else 0
    return cast("int", state_words(p)) + max(most, made)


register(
    Schedule(
        "state-fused",
        fused,
        "a state on chip, chunks of tokens in one pass",
        FUSED,
        keys_in_a_row=lambda p: 1,
        named_tiles=named_tiles,
        formula="R = N (2d + dv), W = N dv",
        state=f"the state on chip; nothing waits in HBM; {GATES}",
        exact_traffic=fused_traffic,
        footprint=fused_room,
        options=(*OF_PROBLEM, CHUNK, COLUMNS),
        tensors=TENSORS_OF_STATE,
        family="state",
        example=example,
        answer=answer,
        about=with_state,
        known_as="linear, linear-causal, linear-attention, causal-linear, causal-linear-attention, performer, retnet, "
        "mamba2, ssd, gla, deltanet, gdn, gated-deltanet, kda, recurrent, fused-recurrent, fused-chunk",
        pointers={
            "linear": "linear attention is --rule linear --normalise now",
            "linear-causal": "linear attention is --rule linear --normalise now",
        },
    )
)
