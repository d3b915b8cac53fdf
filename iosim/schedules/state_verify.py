"""Verification of drafts with a state: one token and its drafts in a step, of which some are accepted.

A rejected draft must leave the state. Either the state after each token is stored, and the next step begins with one of
these snapshots; or the rows (k, u) are stored, and those that were accepted are added again until the state is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ..core.dependent_tiles import Each, Moved, Share, Stretch, UpTo
from ..core.options import flag
from ..core.problem import Tensor, bytes_of, narrowed
from ..errors import InputError
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
    alone,
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
)
from .state_decode import best_length, blocks, copied, one_sequence, steps_named
from .state_forward import delta, output, through_chunk

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import Block, Machine
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
                chip.store(chip.load("S0", r, x), "slot", Moved(slots, r, ((state_rows(p), cursor), (1, r))), x)
        for n in chip.tiles(p.N, 1):
            for r, x in blocks(chip, p, t):
                before = Moved(slots, r, ((state_rows(p), cursor), (1, r)))
                state = State(chip.load("slot", before, x), None, before, x)
                for i in chip.tiles(Each(all_tokens(p), n, verified(p)), 1):
                    through_chunk(chip, p, i, state)
                    chip.store(state.S, "slot", Moved(slots, before, ((state_rows(p), i), (1, r))), x)


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
                verification(chip, p, share, j, state, first)


def add_accepted(chip: Machine, p: Attention, earlier: UpTo, state: State) -> None:
    """Add the rows of earlier steps that were accepted to the state on chip."""
    for rows in chip.tiles(Each(ring_rows(p), earlier, kept(p)), kept(p)):
        k = chip.load("Kring", rows)
        for head in value_heads(chip, p):
            own, S = head.rows(p, rows), state.S if alone(p) else state.S[head.state(p, state.r)]
            u = chip.load("Uring", own, state.x)
            chip.update(S, add_chunk, k, u, *decays(chip, p, own, tensor="gring"))


def verification(chip: Machine, p: Attention, share: Share, j: Tile, state: State, first: bool) -> None:
    """O of the tokens of a step, and their rows k, u and decays, which are appended. The first of the blocks of columns
    appends what they share."""
    c = Each(all_tokens(p), j, verified(p))
    k, q = chip.load("K", c), shared(chip, p, "Q", c)
    if first:
        chip.store(k, "Kring", Moved(ring_rows(p), c, ((kept(p), j),)))
    for head in value_heads(chip, p):
        rows = head.state(p, state.r)
        S, own = state.S if alone(p) else state.S[rows], head.rows(p, c)
        of_head = () if head.h is None else ((ring_rows(p), head.h),)
        place = Moved(ring_rows(p) * group(p), own, ((kept(p), j), *of_head))
        v = chip.load("V", own, state.x)
        gates = decays(chip, p, own, append=place if first else None)
        if rule_of(p).delta:
            delta(chip, own, k, v, S, *gates)
        chip.store(v, "Uring", place, state.x)
        output(chip, p, own, (k, v, *gates), State(S, None, rows, state.x), q)
        for last in chip.tiles(UpTo(share, j, own=True, last_only=True), 1):
            part = Each(all_tokens(p), last, verified(p), kept(p))
            own = head.rows(p, part)
            chip.update(S, add_chunk, k[part], v[own], *(g if g is OF_HEAD else cast("Block", g)[own] for g in gates))
            chip.store(S, "slot", rows, state.x)


def first_and_others(chip: Machine, p: Attention, t: Tiling) -> Iterator[tuple[Tile, Tile, bool]]:
    """The blocks of columns of the state, as its rows and their columns, and whether it is the first one."""
    w = columns(p, t)
    for part, first in ((Stretch(p.dv, 0, w), True), (Stretch(p.dv, w, p.dv - w), False)):
        for x in chip.tiles(part, w):
            for r in chip.tiles(state_rows(p), state_rows(p)):
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
    return state_rows(p) * verified(p) if p[ROLLBACK] == SNAPSHOTS else state_rows(p)


def all_values(p: Attention[Size]) -> Size:
    """The tokens of all steps and value heads."""
    return all_tokens(p) * group(p)


def ring_values(p: Attention[Size]) -> Size:
    """`ring_rows` of all value heads."""
    return ring_rows(p) * group(p)


def writes_every(p: Attention[Size]) -> Size:
    """L, the steps from one write of the state to the next: --ring, or those that move the fewest bytes."""
    if p[RING]:
        return p[RING]
    row = (p.d + group(p) * p.dv) * bytes_of(p.dtype) + group(p) * decay_words(p) * bytes_of("fp32")
    return best_length(group(p) * p.d * p.dv * bytes_of(state_type(p)), cast("Size", row * kept(p)))


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
    slots, G = p[ROLLBACK] == SNAPSHOTS, cast("int", group(p))
    first = hbm["S0"] if p[INITIAL_STATE] else hbm["slot"].reshape(-1, G * p.d, p.dv)[A - 1 if slots else 0]
    decay = common.log_decays(hbm, narrowed(p, N=tokens * G, Nk=tokens * G))["g"]
    found = oracle.verifications(hbm["Q"], hbm["K"], hbm["V"], decay, hbm.get("beta"), first, T, A)
    return {"O": found.outputs, "slot": found.states[1:].reshape(-1, p.dv) if slots else found.states[A]}


# ---------------------------------------------------------------- by hand (words of one head)


def verify_traffic(p: Attention, t: Tiling) -> Words:
    """R = s + T (b (2d + g) + dv) a step for b blocks of columns, and W = T dv. Snapshots write T s; a replay reads rho
    rows of each of the A j tokens that the j earlier steps of its ring kept, appends T rows, and writes s in the last
    step of each ring."""
    b, N, T = -(-p.dv // cast("int", columns(p, t))), p.N, cast("int", verified(p))
    s = cast("int", state_rows(p)) * p.dv
    tokens, dv = N * T, p.dv * cast("int", group(p))
    rows = {"Q": (b * tokens * p.d, 0), "K": (b * tokens * p.d, 0), "V": (tokens * dv, 0), "O": (0, tokens * dv)}
    gates = common.gate_traffic(narrowed(p, N=tokens, Nk=tokens), b, b)
    if p[ROLLBACK] == SNAPSHOTS:
        return copied({**rows, **gates, "slot": (N * s, tokens * s)}, p)
    L, decay = cast("int", writes_every(p)), cast("int", decay_words(p) * group(p))
    whole, rest = divmod(N, L)
    kept_rows = cast("int", kept(p)) * (whole * (L * (L - 1) // 2) + rest * (rest - 1) // 2)
    ring = {"Kring": (b * kept_rows * p.d, tokens * p.d), "Uring": (kept_rows * dv, tokens * dv)}
    more = {"gring": (b * kept_rows * decay, tokens * decay)} if decay else {}
    return copied({**rows, **gates, **ring, **more, "slot": (N * s, (whole + (rest > 0)) * s)}, p)


def verify_room(p: Attention, t: Tiling) -> int:
    """The words of a token of decoding with snapshots. A replay has the tokens of a step on chip at once: s / b +
    T (2d + 2dv / b + g) + T^2 words."""
    T, w, g = cast("int", verified(p)), cast("int", columns(p, t)), cast("int", gate_words(p))
    C = 1 if p[ROLLBACK] == SNAPSHOTS else T
    return cast("int", state_rows(p)) * w + C * (2 * p.d + 2 * w + g) + C * C


def accepted_drafts(p: Attention) -> Attention:
    """Decoding takes no mask, padding, features or normaliser."""
    accepted, drafts = cast("int | None", p[ACCEPTED]), cast("int", p[DRAFTS])
    if accepted is not None and accepted > drafts:
        hint = f"--drafts {accepted} verifies as many"
        raise InputError(flag(ACCEPTED.name), accepted, f"at most --drafts {drafts}", hint)
    return one_sequence(p)


TENSORS_OF_VERIFICATION = {
    **TENSORS_OF_STATE,
    "Q": Tensor((all_tokens, "d"), "input"),
    "K": Tensor((all_tokens, "d"), "input"),
    "V": Tensor((all_values, "dv"), "input"),
    "O": Tensor((all_values, "dv"), "output"),
    "g": Tensor((all_values, common.vectors), "scale"),
    "beta": Tensor((all_values,), "input"),
    "slot": Tensor((slot_rows, "dv"), "state", dtype=state_type),
    "Kring": Tensor((ring_rows, "d"), "input"),
    "Uring": Tensor((ring_values, "dv"), "input"),
    "gring": Tensor((ring_values, common.vectors), "scale"),
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
