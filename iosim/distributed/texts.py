"""The texts of attention across GPUs: what each GPU receives from the others, and keeps.

They are schedules like all others, one level up. To a GPU its own memory is the fast one, and those of the others are
the slow one. A load names the words that lie here already with `own`; a store with `own` keeps its words here. The
steps are schedules inside a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..steps.shards import attend_own, attend_shard, copy, finish, merge_parts, take_part
from ..steps.softmax import minus_infinity, zeros
from .across import Across, All, Kind, Needed, OfFirst, Own, Part, Peer

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.typing import Values

    Text = Callable[[Machine, Attention, Across], None]
    State = tuple[Block, Block, Block]


def pass_kv(
    chip: Machine, p: Attention, t: Across, needed: bool = False, last_hop: bool = False, keep: bool = False
) -> None:
    """Queries stay, and keys come round a ring. The GPUs of a group first exchange tokens for heads, and at the end
    heads for tokens.

    With `needed` only those keys come that a row of the GPU sees, each from the GPU that has it. With `last_hop` the
    keys are sent once more and come home. With `keep` a GPU keeps Q, K and V of its group's tokens and its heads, and
    the LSE of its tokens, for a backward pass.
    """
    for r in t.gpus(chip):
        rows, heads, kv_heads = t.group(r), t.my_heads(r), t.my_kv_heads(r)
        q = chip.load("Q", rows, heads, own=(t.home(r), heads))
        m, l, o = fresh(chip, p, "Oheads", rows, heads)
        k, v = keys_of(chip, p, t.group(r, keys=True), kv_heads, own=(t.home_keys(r), kv_heads))
        chip.update((m, l, o), attend_own, q, k, v, Own(t, r))
        for j in t.others_of_ring(chip, r):
            kind = Kind(t, r, j)
            there, sender = (Needed(p.Nk, kind), t.in_ring(r, j)) if needed else (t.member(j, keys=True), t.left(r))
            visit(chip, p, (m, l, o), q, there, kv_heads, sender, Part(kind, needed))
        if last_hop and t.ring > 1:
            chip.free(*{*keys_of(chip, p, t.group(r, keys=True), kv_heads, own=(), sender=t.left(r))})
        chip.update((o, l), finish, m)
        chip.store(o, "Oheads", rows, heads, own=True)
        if keep:
            chip.store(l, "LSEkept", rows, heads, own=True)
            chip.free(m, l, o)
            keep_copies(chip, p, q, (rows, heads), k, v, (t.group(r, keys=True), t.slots(r)))
    for r in t.gpus(chip):
        home, heads = t.home(r), t.my_heads(r)
        chip.store(chip.load("Oheads", home, own=(home, heads)), "O", home, own=True)


def keep_copies(
    chip: Machine, p: Attention, q: Block, rows: tuple[Tile, ...], k: Block, v: Block, keys: tuple[Tile, ...]
) -> None:
    """Keep Q, K and V in this GPU's memory, as copies of its own."""
    for name, block, place in (("Qkept", q, rows), ("Kkept", k, keys), ("Vkept", v, keys)):
        heads = (p.heads if name == "Qkept" else p.kv_heads,) if len(place) == 1 else ()
        again = chip.compute(name, (*place, *heads, block.shape[2]), copy, block)
        chip.store(again, name, *place, own=True)
        chip.free(again)


def visit(
    chip: Machine, p: Attention, state: State, q: Block, keys: Tile, kv_heads: Tile, sender: Tile, part: Values
) -> None:
    """A shard of keys comes, is used and is dropped."""
    k, v = keys_of(chip, p, keys, kv_heads, sender=sender)
    chip.update(state, attend_shard, q, k, v, part)
    chip.free(*{k, v})


def mesh(chip: Machine, p: Attention, t: Across, keep: bool = False) -> None:
    """A mesh of GPUs: those of a row gather their queries, and those of a column their keys. Partial results are summed
    along rows. With `keep` a GPU keeps what it gathered, and the LSE of its tokens, for a backward pass."""
    b, each = t.keys_apart, t.n * t.keys_apart
    for r in t.gpus(chip):
        rows, keys = t.mesh_rows(r), t.mesh_keys(r)
        q = chip.load("Q", rows, own=(t.home(r),))
        k, v = keys_of(chip, p, keys, own=(t.home_keys(r),))
        mine = t.part(b, each, r, lambda r: r % b * p.N + r // b * each)
        attend_part(chip, p, mine, q, k, v, All(t, rows, keys))
        if keep:
            keep_copies(chip, p, q, (mine,), k, v, (t.key_copies(r),))
    for r in t.gpus(chip):
        home = t.home(r)
        m, l, o = from_own_part(chip, p, t.part(b, t.n, r, lambda r: r % b * p.N + r * t.n), home)
        for c in t.others_of_row(chip, r):
            add_part(chip, (m, l, o), Peer(b * p.N, t.n, r, c, lambda r, c: c * p.N + r * t.n), t.in_row(r, c))
        store_whole(chip, m, l, o, home)
        if keep:
            chip.store(l, "LSE", home, own=True)


def pass_q(chip: Machine, p: Attention, t: Across, keep: bool = False) -> None:
    """Keys stay, and queries come round the ring. Partial results go home (arXiv 2411.01783). With `keep` a GPU keeps
    the LSE of its tokens, for a backward pass."""
    P, N, n = t.ranks, p.N, t.n
    for r in t.gpus(chip):
        k, v = keys_of(chip, p, t.home_keys(r), own=True)
        q = chip.load("Q", t.home(r), own=True)
        attend_part(chip, p, t.part(P, n, r, lambda r: r * N + r * n), q, k, v, Own(t, r))
        for j in t.others_of_ring(chip, r):
            q = chip.load("Q", t.member(j, keys=False), sender=t.left(r))
            rows = Peer(P * N, n, r, j, lambda r, j: r * N + j * n)
            attend_part(chip, p, rows, q, k, v, Part(Kind(t, r, j, flipped=True)))
    for r in t.gpus(chip):
        home = t.home(r)
        m, l, o = from_own_part(chip, p, t.part(P, n, r, lambda r: r * N + r * n), home)
        for j in t.others_of_ring(chip, r):
            add_part(chip, (m, l, o), Peer(P * N, n, r, j, lambda r, j: j * N + r * n), t.in_ring(r, j))
        store_whole(chip, m, l, o, home)
        if keep:
            chip.store(l, "LSE", home, own=True)


def tree(chip: Machine, p: Attention, t: Across) -> None:
    """Decoding: GPU 0 has the queries, and each GPU a part of the keys. Queries are broadcast, and partial results
    merged along a tree (arXiv 2408.04093): the upper half of the GPUs sends to the lower half, until one is left."""
    P, N = t.ranks, p.N
    for r in t.gpus(chip):
        q = chip.load("Q", own=(OfFirst(N, r),))
        k, v = keys_of(chip, p, t.home_keys(r), own=True)
        attend_part(chip, p, t.part(P, N, r, lambda r: r * N), q, k, v, All(t, t.every(r), t.home_keys(r)))
    left = P
    while left > 1:
        left, half = -(-left // 2), left // 2
        for r in chip.tiles(half, 1, parallel=True):
            mine = t.part(P, N, r, lambda r: r * N)
            m, l, o = from_own_part(chip, p, mine, mine)
            add_part(chip, (m, l, o), t.part(P, N, r, partial(upper_rows, left, N)), t.later(r, left))
            keep_part(chip, (m, l, o), mine)
    for r in chip.tiles(1, 1, parallel=True):
        every = t.every(r)
        m, l, o = from_own_part(chip, p, t.part(P, N, r, lambda r: 0), every)
        store_whole(chip, m, l, o, every)


def upper_rows(left: int, N: int, r: int) -> int:
    """The first row of the partial result that GPU r receives if `left` GPUs are left."""
    return (r + left) * N


def gathered_queries(chip: Machine, p: Attention, t: Across) -> None:
    """Decoding: each GPU has some heads of the queries and a part of the keys. Queries are gathered, and partial
    results are merged and scattered; the cache never moves."""
    P, N = t.ranks, p.N
    for r in t.gpus(chip):
        every = t.every(r)
        q = chip.load("Q", own=(every, t.my_heads(r)))
        k, v = keys_of(chip, p, t.home_keys(r), own=True)
        attend_part(chip, p, t.part(P, N, r, lambda r: r * N), q, k, v, All(t, every, t.home_keys(r)))
    for r in t.gpus(chip):
        heads, every = t.my_heads(r), t.every(r)
        m, l, o = from_own_part(chip, p, t.part(P, N, r, lambda r: r * N), every, heads)
        for c in t.others_of_row(chip, r):
            add_part(chip, (m, l, o), Peer(P * N, N, r, c, lambda r, c: c * N), t.in_row(r, c), heads)
        store_whole(chip, m, l, o, every, heads)


# ---------------------------------------------------------------- parts of these


def keys_of(
    chip: Machine, p: Attention, *place: Tile, own: bool | tuple[Tile, ...] = False, sender: Tile | None = None
) -> tuple[Block, Block]:
    """K and V of some tokens and heads; one block if V is part of K."""
    k = chip.load("K", *place, own=own, sender=sender)
    return k, k if p.latent else chip.load("V", *place, own=own, sender=sender)


def fresh(chip: Machine, p: Attention, name: str, rows: Tile, heads: Tile | None = None) -> State:
    """m, l and O of rows that have seen no key yet. They become the LSE and the O of partial results."""
    axis = p.heads if heads is None else heads
    o = chip.compute(name, (rows, axis, p.dv), zeros)
    l = chip.compute("LSE", (rows, axis), zeros)
    return chip.compute("m", (rows, axis), minus_infinity), l, o


def attend_part(chip: Machine, p: Attention, rows: Tile, q: Block, k: Block, v: Block, part: Values) -> None:
    """The partial result of some queries over some keys, kept as these rows of the partial results."""
    state = fresh(chip, p, "Opart", rows)
    chip.update(state, attend_own, q, k, v, part)
    keep_part(chip, state, rows)


def keep_part(chip: Machine, state: State, rows: Tile) -> None:
    """Keep a partial result and its LSE in this GPU's memory."""
    m, l, o = state
    chip.update((o, l), finish, m)
    chip.store(o, "Opart", rows, own=True)
    chip.store(l, "LSEpart", rows, own=True)
    chip.free(m, l, o)


def from_own_part(chip: Machine, p: Attention, part: Tile, rows: Tile, *heads: Tile) -> State:
    """m, l and O of rows, which begin with the partial result of the GPU itself."""
    own, lse = chip.load("Opart", part, *heads, own=True), chip.load("LSEpart", part, *heads, own=True)
    m, l, o = fresh(chip, p, "O" if rows.length == p.N else "Opart", rows, *heads)
    chip.update((m, l, o), take_part, own, lse)
    chip.free(own, lse)
    return m, l, o


def add_part(chip: Machine, state: State, rows: Tile, sender: Tile, *heads: Tile) -> None:
    """Receive a partial result and its LSE, and add it."""
    part = chip.load("Opart", rows, *heads, sender=sender)
    lse = chip.load("LSEpart", rows, *heads, sender=sender)
    chip.update(state, merge_parts, part, lse)
    chip.free(part, lse)


def store_whole(chip: Machine, m: Block, l: Block, o: Block, *place: Tile) -> None:
    """Divide O by its row sums, and keep it as the result."""
    chip.update((o, l), finish, m)
    chip.store(o, "O", *place, own=True)
