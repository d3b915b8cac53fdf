"""Verification of drafts with a state: one token and its drafts in a step, of which some are accepted.

A rejected draft must leave the state. Either the state after each token is stored, and the next step begins with one of
these snapshots; or the rows (k, u) are stored, and those that were accepted are added again until the state is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ..core.arrays import smaller
from ..core.dependent_tiles import Each, Moved, Share, Stretch, UpTo
from ..core.problem import Tensor, bytes_of, narrowed
from ..oracles import state as oracle
from ..steps.state import OF_HEAD, add_chunk
from . import state as common
from .registry import Schedule, register
from .state import (
    ACCEPTED,
    COLUMNS,
    DRAFTS,
    GATES,
    INITIAL_STATE,
    OF_STEP,
    RING,
    ROLLBACK,
    SNAPSHOTS,
    TENSORS_OF_STATE,
    State,
    columns,
    decay_words,
    decays,
    gate_words,
    rule_of,
    sizes_of_state,
    state_type,
)
from .state_decode import best_length, blocks, copied, one_sequence, steps_named
from .state_forward import delta, output, through_chunk

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import Block, Input, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Arrays, Bools, Size, Words


def verify(chip: Machine, p: Attention, t: Tiling) -> None:
    """Each step is a verification. --rollback says what is stored, so that rejected drafts leave no trace."""
    if p[ROLLBACK] == SNAPSHOTS:
        snapshots(chip, p, t)
    else:
        replay(chip, p, t)


def snapshots(chip: Machine, p: Attention, t: Tiling) -> None:
    """The state after each token is stored in a slot of its own. The next step begins with that of the last token that
    was accepted: the cursor."""
    slots = slot_rows(p)
    for cursor in chip.tiles(Stretch(verified(p), kept(p) - 1, 1), 1):
        if p[INITIAL_STATE]:
            for r, x in blocks(chip, p, t):
                chip.store(chip.load("S0", r, x), "slot", Moved(slots, r, ((p.d, cursor), (1, r))), x)
        for n in chip.tiles(p.N, 1):
            for r, x in blocks(chip, p, t):
                before = Moved(slots, r, ((p.d, cursor), (1, r)))
                state = State(chip.load("slot", before, x), None, r, x)
                for i in chip.tiles(Each(all_tokens(p), n, verified(p)), 1):
                    through_chunk(chip, p, i, state)
                    chip.store(state.S, "slot", Moved(slots, before, ((p.d, i), (1, r))), x)


def replay(chip: Machine, p: Attention, t: Tiling) -> None:
    """A step adds the rows that were accepted since the state was written, which stay on chip, and appends its own rows
    behind them. The last of every L steps writes the state, with its own accepted rows."""
    if p[INITIAL_STATE]:
        for r, x in blocks(chip, p, t):
            chip.store(chip.load("S0", r, x), "slot", r, x)
    for n in chip.tiles(-(-p.N // writes_every(p)), 1):
        share = Share(p.N, writes_every(p), n)
        for j in chip.tiles(share, 1):
            for r, x, first in first_and_others(chip, p, t):
                state = State(chip.load("slot", r, x), None, r, x)
                add_accepted(chip, p, UpTo(share, j, own=False), state)
                chunk = verification(chip, p, j, state, first)
                for last in chip.tiles(UpTo(share, j, own=True, last_only=True), 1):
                    own = Each(all_tokens(p), last, verified(p), kept(p))
                    chip.update(state.S, add_chunk, *(x if x is OF_HEAD else cast("Block", x)[own] for x in chunk))
                    chip.store(state.S, "slot", r, x)


def add_accepted(chip: Machine, p: Attention, earlier: UpTo, state: State) -> None:
    """Add the rows of earlier steps that were accepted to the state on chip."""
    for rows in chip.tiles(Each(ring_rows(p), earlier, kept(p)), kept(p)):
        k, u = chip.load("Kring", rows), chip.load("Uring", rows, state.x)
        chip.update(state.S, add_chunk, k, u, *decays(chip, p, rows, tensor="gring"))


def verification(chip: Machine, p: Attention, j: Tile, state: State, first: bool) -> tuple[Input, ...]:
    """O of the tokens of a step, and their rows k, u and decays, which are appended. The first of the blocks of columns
    appends what they share."""
    c = Each(all_tokens(p), j, verified(p))
    place = Moved(ring_rows(p), c, ((kept(p), j),))
    k, v = chip.load("K", c), chip.load("V", c, state.x)
    gates = decays(chip, p, c, append=place if first else None)
    if rule_of(p).delta:
        delta(chip, c, k, v, state.S, *gates)
    if first:
        chip.store(k, "Kring", place)
    chip.store(v, "Uring", place, state.x)
    output(chip, p, c, (k, v, *gates), state)
    return k, v, *gates


def first_and_others(chip: Machine, p: Attention, t: Tiling) -> Iterator[tuple[Tile, Tile, bool]]:
    """The blocks of columns of the state, as its rows and their columns, and whether it is the first one."""
    w = columns(p, t)
    for part, first in ((Stretch(p.dv, 0, w), True), (Stretch(p.dv, w, p.dv - w), False)):
        for x in chip.tiles(part, w):
            for r in chip.tiles(p.d, p.d):
                yield r, x, first


# ---------------------------------------------------------------- sizes


def verified(p: Attention[Size]) -> Size:
    """T, the tokens of a step: the drafts, and the token before them."""
    return p[DRAFTS] + 1


def kept(p: Attention[Size]) -> Size:
    """A, the tokens of a step that stay: the drafts that are accepted, and the token before them."""
    return (p[DRAFTS] if p[ACCEPTED] is None else p[ACCEPTED]) + 1


def all_tokens(p: Attention[Size]) -> Size:
    """The tokens of all steps."""
    return p.N * verified(p)


def ring_rows(p: Attention[Size]) -> Size:
    """The rows for all tokens that stay, with room for the drafts of the last step."""
    return p.N * kept(p) + verified(p) - kept(p)


def slot_rows(p: Attention[Size]) -> Size:
    """The rows of the state in HBM, or of one for each token of a step."""
    return p.d * verified(p) if p[ROLLBACK] == SNAPSHOTS else p.d


def writes_every(p: Attention[Size]) -> Size:
    """L, the steps from one write of the state to the next: --ring, or those that move the fewest bytes."""
    if p[RING]:
        return p[RING]
    row = (p.d + p.dv) * bytes_of(p.dtype) + decay_words(p) * bytes_of("fp32")
    return best_length(p.d * p.dv * bytes_of(state_type(p)), row * kept(p))


# ---------------------------------------------------------------- the expected output


def example(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random inputs of all steps, and what the slots of the state hold."""
    tokens = all_tokens(p)
    hbm = common.example(rng, narrowed(p, N=tokens, Nk=tokens), visible)
    return {**hbm, "slot": rng.normal(size=(slot_rows(p), p.dv))}


def answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """O and the state after the last token that was accepted, or with snapshots those after each token of the last
    step, by the recurrence from the accepted token of each step on."""
    T, A, tokens = cast("tuple[int, int, int]", (verified(p), kept(p), all_tokens(p)))
    slots = p[ROLLBACK] == SNAPSHOTS
    first = hbm["S0"] if p[INITIAL_STATE] else hbm["slot"].reshape(-1, p.d, p.dv)[A - 1 if slots else 0]
    decay = common.log_decays(hbm, narrowed(p, N=tokens, Nk=tokens))["g"]
    found = oracle.verifications(hbm["Q"], hbm["K"], hbm["V"], decay, hbm.get("beta"), first, T, A)
    return {"O": found.outputs, "slot": found.states[1:].reshape(-1, p.dv) if slots else found.states[A]}


# ---------------------------------------------------------------- by hand (words of one head)


def verify_traffic(p: Attention, t: Tiling) -> Words:
    """R = s + T (b (2d + g) + dv) a step for b blocks of columns, and W = T dv. Snapshots write T s; a replay reads rho
    rows of each of the A j tokens that the j earlier steps of its ring kept, appends T rows, and writes s in the last
    step of each ring."""
    b, N, T, s = -(-p.dv // cast("int", columns(p, t))), p.N, cast("int", verified(p)), p.d * p.dv
    tokens = N * T
    rows = {"Q": (b * tokens * p.d, 0), "K": (b * tokens * p.d, 0), "V": (tokens * p.dv, 0), "O": (0, tokens * p.dv)}
    gates = common.gate_traffic(narrowed(p, N=tokens, Nk=tokens), b, b)
    if p[ROLLBACK] == SNAPSHOTS:
        return copied({**rows, **gates, "slot": (N * s, tokens * s)}, p)
    L, decay = cast("int", writes_every(p)), cast("int", decay_words(p))
    whole, rest = divmod(N, L)
    kept_rows = cast("int", kept(p)) * (whole * (L * (L - 1) // 2) + rest * (rest - 1) // 2)
    ring = {"Kring": (b * kept_rows * p.d, tokens * p.d), "Uring": (kept_rows * p.dv, tokens * p.dv)}
    more = {"gring": (b * kept_rows * decay, tokens * decay)} if decay else {}
    return copied({**rows, **gates, **ring, **more, "slot": (N * s, (whole + (rest > 0)) * s)}, p)


def verify_room(p: Attention, t: Tiling) -> int:
    """The words of a token of decoding with snapshots. A replay has the tokens of a step on chip at once: s / b +
    T (2d + 2dv / b + g) + T^2 words."""
    T, w, g = cast("int", verified(p)), cast("int", columns(p, t)), cast("int", gate_words(p))
    C = 1 if p[ROLLBACK] == SNAPSHOTS else T
    return p.d * w + C * (2 * p.d + 2 * w + g) + C * C


def accepted_drafts(p: Attention) -> Attention:
    """At most all drafts are accepted, and value heads are not packed; no mask, padding, features or normaliser."""
    most = {} if p[ACCEPTED] is None else {"accepted": smaller(p[ACCEPTED], p[DRAFTS])}
    return narrowed(one_sequence(p), gqa="repeat", choice_rows=1, **most)


TENSORS_OF_VERIFICATION = {
    **TENSORS_OF_STATE,
    "Q": Tensor((all_tokens, "d"), "input"),
    "K": Tensor((all_tokens, "d"), "input"),
    "V": Tensor((all_tokens, "dv"), "input"),
    "O": Tensor((all_tokens, "dv"), "output"),
    "g": Tensor((all_tokens, common.vectors), "scale"),
    "beta": Tensor((all_tokens,), "input"),
    "slot": Tensor((slot_rows, "dv"), "state", dtype=state_type),
    "Kring": Tensor((ring_rows, "d"), "input"),
    "Uring": Tensor((ring_rows, "dv"), "input"),
    "gring": Tensor((ring_rows, common.vectors), "scale"),
}
register(
    Schedule(
        "state-verify",
        verify,
        "drafts are verified: states or rows are kept",
        "TensorRT-LLM; vLLM, ReplaySSM; docs/state.md",
        sizes=(("cols_o", "rows_q"),),
        axes=lambda p: {**sizes_of_state(p), "rows_q": (1,)},
        more_tiles=("cols_o",),
        keys_in_a_row=lambda p: 1,
        named_tiles=steps_named,
        formula="R = N (d dv + T (2d Tv + dv)) + E A (d Tv + dv), W = N T (d + 2dv) + d dv Tn",
        state=f"the state waits in HBM between steps, with those after each token or with rows; {GATES}",
        exact_traffic=verify_traffic,
        footprint=verify_room,
        options=(*OF_STEP, COLUMNS, RING, DRAFTS, ACCEPTED, ROLLBACK),
        tensors=TENSORS_OF_VERIFICATION,
        family="state-verify",
        example=example,
        answer=answer,
        about=accepted_drafts,
        known_as="target-verify, speculative-verify, mtp-verify",
    )
)
