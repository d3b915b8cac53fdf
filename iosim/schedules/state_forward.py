"""The forward pass of attention with a state, in chunks of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.arrays import smaller
from ..core.dependent_tiles import Stretch
from ..steps.passes import add_sum
from ..steps.softmax import accumulate, normalise, zeros
from ..steps.state import add_chunk, add_keys, delta_values, key_products, products, read_normaliser, read_state
from .registry import Schedule, register
from .state import (
    CHUNK,
    COLUMNS,
    FEATURES,
    FORWARD,
    GATES,
    NORMALISE,
    OF_PROBLEM,
    TENSORS_OF_STATE,
    State,
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
    state_traffic,
    tiles_named,
    tokens,
    value_heads,
    whole_keys,
    with_state,
    without_delta,
)

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Size, Words

FUSED = "Yang et al. 2024 (arXiv 2312.06635, 2406.06484), chunkwise form; Katharopoulos et al. 2020 (arXiv 2006.16236)"


def fused(chip: Machine, p: Attention, t: Tiling) -> None:
    """One pass over chunks of tokens with the state on chip. Tokens of a chunk use products of its keys. A chunk of one
    token is the recurrence."""
    pass_over_tokens(chip, p, t, p.dv)


def fused_in_columns(chip: Machine, p: Attention, t: Tiling) -> None:
    """The pass of state-fused for each block of columns of the state by itself."""
    pass_over_tokens(chip, p, t, columns(p, t))


def pass_over_tokens(chip: Machine, p: Attention, t: Tiling, width: Size) -> None:
    """All chunks of tokens, with a block of columns of the state on chip."""
    for r, x in blocks(chip, p, width):
        state = first_state(chip, p, r, x)
        for c in chip.tiles(tokens(p), t.rows_q):
            through_chunk(chip, p, c, state)
        last_state(chip, p, state)


def through_chunk(chip: Machine, p: Attention, c: Tile, state: State) -> None:
    """O of a chunk of tokens, and their keys and values added to the state. Value heads that share a key are taken one
    by one, with q and k on chip for all of them."""
    k, q = rows_of(chip, p, "K", c), shared(chip, p, "Q", c)
    for head in value_heads(chip, p):
        own = state if alone(p) else state._replace(S=state.S[head.state(p, state.r)])
        of_value_head(chip, p, head.rows(p, c), k, own, q)


def of_value_head(chip: Machine, p: Attention, c: Tile, k: Block, state: State, q: Block | None = None) -> None:
    """`through_chunk` for one value head, whose rows are c."""
    v = chip.load("V", c, state.x)
    gates = decays(chip, p, c)
    if rule_of(p).delta:
        delta(chip, c, k, v, state.S, *gates)
    output(chip, p, c, (k, v, *gates), state, q)
    take_in(chip, state, k, v, *gates)


def delta(chip: Machine, c: Tile, k: Block, v: Block, S: Block, *gates: Input) -> None:
    """The values of the delta rule, in the place of v."""
    b = chip.load("beta", c)
    s = chip.compute("P", (c, c), key_products, k, *gates)
    chip.update(v, delta_values, b, s, k, S, *gates)
    chip.free(s)


def output(
    chip: Machine,
    p: Attention,
    c: Tile,
    chunk: tuple[Block, Block, *tuple[Input, ...]],
    state: State,
    q: Block | None = None,
) -> None:
    """O of a chunk, from the state before it and from its own keys. Its queries are read, unless they are there."""
    k, u, *gates = chunk
    q = rows_of(chip, p, "Q", c) if q is None else q
    o = chip.compute("O", (c, state.x), zeros)
    chip.update(o, read_state, q, state.S, *gates)
    s = chip.compute("P", (c, c), products, q, k, *gates)
    chip.update(o, accumulate, s, u)
    if state.z is not None:
        l = chip.compute("l", (c,), read_normaliser, q, state.z)
        chip.update(l, add_sum, s)
        chip.update(o, normalise, l)
    chip.store(o, "O", c, state.x)


def take_in(chip: Machine, state: State, k: Block, u: Block, *gates: Input) -> None:
    """Add the keys and values of a chunk to the state."""
    chip.update(state.S, add_chunk, k, u, *gates)
    if state.z is not None:
        chip.update(state.z, add_keys, k)


def tiles_of_state(chip: Machine, p: Attention, t: Tiling) -> None:
    """Blocks of rows and columns of the state, each in one pass over all tokens. O is a sum over blocks of rows, which
    goes back and forth, but for the first of them."""
    m, rows = key_words(p), rows_of_block(p, t)
    for x in chip.tiles(p.dv, columns(p, t), parallel=True):
        for part, first in ((Stretch(m, 0, rows), True), (Stretch(m, rows, m - rows), False)):
            for r in chip.tiles(part, rows):
                tile_of_state(chip, p, t, r, x, first)


def tile_of_state(chip: Machine, p: Attention, t: Tiling, r: Tile, x: Tile, first: bool) -> None:
    """All tokens through one block of the state."""
    state = first_state(chip, p, r, x)
    for c in chip.tiles(tokens(p), t.rows_q):
        k, v = chip.load("K", c, r), chip.load("V", c, x)
        gates = decays(chip, p, c, r)
        q = chip.load("Q", c, r)
        o = chip.compute("O", (c, x), zeros) if first else chip.load("O", c, x)
        chip.update(o, read_state, q, state.S, *gates)
        s = chip.compute("P", (c, c), products, q, k, *gates)
        chip.update(o, accumulate, s, v)
        chip.store(o, "O", c, x)
        take_in(chip, state, k, v, *gates)
    last_state(chip, p, state)


def rows_of_block(p: Attention[Size], t: Tiling[Size]) -> Size:
    """The rows of a block of the state."""
    return smaller(t.depth, key_words(p))


# ---------------------------------------------------------------- by hand (words of one head)


def fused_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (2d + dv + g), W = N dv: each word once. Value heads that are packed share q and k."""
    return pass_traffic(p, 1)


def split_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (b (2d + g) + dv), W = N dv, for b blocks of columns: each reads q, k and the gates."""
    return pass_traffic(p, blocks_of_columns(p, t))


def pass_traffic(p: Attention, b: int) -> Words:
    """The words of a pass for each of b blocks of columns, and of a state that is given or asked for."""
    n = cast("int", length(p))
    values = n * p.dv * cast("int", group(p))
    rows = {"Q": (b * n * p.d, 0), "K": (b * n * p.d, 0), "V": (values, 0), "O": (0, values)}
    return {**rows, **gate_traffic(p, b, b), **state_traffic(p)}


def tiles_traffic(p: Attention, t: Tiling) -> Words:
    """R = N (2 d b + dv (2a - 1)), W = N a dv, for a x b blocks of the state, and gates. A decay of a row is read for
    each of its b blocks, and one of all rows for each of the a b blocks."""
    n, b, m = cast("int", length(p)), blocks_of_columns(p, t), cast("int", key_words(p))
    a = -(-m // min(t.depth, m))
    times = b if decay_words(p) == p.d and rule_of(p).decay == "diagonal" else a * b
    rows = {"Q": (b * n * p.d, 0), "K": (b * n * p.d, 0), "V": (a * n * p.dv, 0)}
    return {**rows, "O": ((a - 1) * n * p.dv, a * n * p.dv), **gate_traffic(p, times), **state_traffic(p)}


def blocks_of_columns(p: Attention, t: Tiling) -> int:
    """The blocks of columns of the state."""
    return -(-p.dv // cast("int", columns(p, t)))


def fused_room(p: Attention, t: Tiling) -> int:
    """s + C (2d + 2dv + g) + C^2 words: the state, q, k, u, o, gates, and products of keys."""
    return pass_room(p, t, p.dv)


def split_room(p: Attention, t: Tiling) -> int:
    """The words of `fused_room`, with one block of columns of the state, of u and of o."""
    return pass_room(p, t, cast("int", columns(p, t)))


def pass_room(p: Attention, t: Tiling, w: int) -> int:
    """s / b + C (2d + 2dv / b + g) + C^2 words: a block of the state, q, k, u, o, gates, products of keys. With a
    normaliser, d + C more.

    Where features take more room than q and k, there is a moment with q, its features, k's features and v.
    """
    C, m, g = min(t.rows_q, cast("int", length(p))), cast("int", key_words(p)), cast("int", gate_words(p))
    most = C * (2 * m + 2 * w + g + bool(p[NORMALISE])) + C * C
    made = C * (2 * m + w + p.d + g) if p[FEATURES] else 0
    if not alone(p):  # q and k of all value heads are made first
        made = C * (2 * m + p.d) if p[FEATURES] else 0
    return cast("int", group(p)) * m * w + (m if p[NORMALISE] else 0) + max(most, made)


def tiles_room(p: Attention, t: Tiling) -> int:
    """The words of `split_room`, with a block of rows of the state, of q and of k."""
    C, w = min(t.rows_q, cast("int", length(p))), cast("int", columns(p, t))
    rows = min(t.depth, cast("int", key_words(p)))
    g = rows if rule_of(p).decay == "diagonal" else cast("int", gate_words(p))
    return rows * w + C * (2 * rows + 2 * w + g) + C * C


register(
    Schedule(
        "state-fused",
        fused,
        "a state on chip, chunks of tokens in one pass",
        FUSED,
        keys_in_a_row=lambda p: 1,
        named_tiles=tiles_named(),
        formula="R = N (2d + dv), W = N dv",
        state=f"the state on chip; nothing waits in HBM; {GATES}",
        exact_traffic=fused_traffic,
        footprint=fused_room,
        options=(*OF_PROBLEM, CHUNK),
        about=with_state,
        known_as="linear, linear-causal, linear-attention, causal-linear, causal-linear-attention, performer, retnet, "
        "mamba2, ssd, gla, deltanet, gdn, gated-deltanet, kda, recurrent, fused-recurrent",
        pointers=dict.fromkeys(("linear", "linear-causal"), "linear attention is --rule linear --normalise now"),
        tensors=TENSORS_OF_STATE,
        **FORWARD,
    )
)
register(
    Schedule(
        "state-split",
        fused_in_columns,
        "blocks of columns of a state, in a pass each",
        FUSED,
        sizes=(("cols_o", "rows_q"),),
        axes=sizes_of_state,
        more_tiles=("cols_o",),
        keys_in_a_row=lambda p: 1,
        named_tiles=tiles_named(cols_o=64),
        formula="R = N (2d Tv + dv), W = N dv",
        state=f"a block of columns of the state on chip; nothing waits in HBM; {GATES}",
        exact_traffic=split_traffic,
        footprint=split_room,
        options=(*OF_PROBLEM, CHUNK, COLUMNS),
        about=whole_keys,
        known_as="column-parallel",
        tensors=TENSORS_OF_STATE,
        **FORWARD,
    )
)
register(
    Schedule(
        "state-tiles",
        tiles_of_state,
        "blocks of a state, with partial sums of O",
        FUSED,
        sizes=(("depth", "cols_o"),),
        axes=sizes_of_state,
        more_tiles=("depth", "cols_o"),
        keys_in_a_row=lambda p: 1,
        named_tiles=tiles_named(depth=64, cols_o=64),
        formula="R = N (2d Tv + dv (2 Td - 1)), W = N dv Td",
        state=f"a block of the state on chip; sums of O wait in HBM; {GATES}",
        exact_traffic=tiles_traffic,
        footprint=tiles_room,
        options=(*OF_PROBLEM, CHUNK, COLUMNS),
        about=without_delta,
        known_as="fused-chunk",
        tensors=TENSORS_OF_STATE,
        **FORWARD,
    )
)
