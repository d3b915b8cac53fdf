"""The texts of the backward pass across GPUs, and of a training step: dQ, dK and dV end where Q, K and V lie.

P is computed again from LSE. Each GPU computes D of its own tokens. The sum of dK and dV of a shard goes round the ring
as its keys do: it begins at the GPU after the one that has the keys, and comes home in P - 1 hops. Where queries go
round, dQ comes home as partial results do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..steps.shards import add, add_some, copy, dots, shard_gradients, sum_copies
from ..steps.softmax import zeros
from .across import Across, All, Kind, Needed, NeededPart, Own, Part, Peer, Piece, Seen
from .texts import keys_of, mesh, pass_kv, pass_q

if TYPE_CHECKING:
    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.typing import Size, Values


def pass_kv_backward(
    chip: Machine, p: Attention, t: Across, kept: bool = False, last_hop: bool = False, needed: bool = False
) -> None:
    """Queries stay; keys go round a ring, and their gradients after them. GPUs of a group exchange tokens for heads.

    With `kept` the forward pass has left Q, K and V of the group's tokens in a GPU. With `last_hop` the sum of dK and
    dV begins at home, and makes P hops. With `needed` only those keys come that a row of the GPU sees, each from the
    GPU that has it, and only their gradients go there.
    """
    rows_dots(chip, p, t)
    for r in t.gpus(chip):
        rows, heads, kv_heads, slots = t.group(r), t.my_heads(r), t.my_kv_heads(r), t.slots(r)
        q = chip.load("Qkept" if kept else "Q", rows, heads, own=kept or (t.home(r), heads))
        do, delta = (chip.load(name, rows, heads, own=(t.home(r), heads)) for name in ("dO", "D"))
        lse = chip.load("LSEkept" if kept else "LSE", rows, heads, own=kept or (t.home(r), heads))
        dq = chip.compute("dQheads", (rows, heads, p.d), zeros)
        keys = t.group(r, keys=True)
        k, v = (
            kept_keys(chip, keys, slots) if kept else keys_of(chip, p, keys, kv_heads, own=(t.home_keys(r), kv_heads))
        )
        beside = (q, do, lse, delta)
        key_gradients(chip, p, dq, t.ring_part(r), slots, (*beside, k, v, Own(t, r)))
        for j in t.others_of_ring(chip, r):
            kind = Kind(t, r, j)
            there, sender = (Needed(p.Nk, kind), t.in_ring(r, j)) if needed else (t.member(j, keys=True), t.left(r))
            k, v = keys_of(chip, p, there, kv_heads, sender=sender)
            part = NeededPart(kind) if needed else t.ring_part_of(r, j)
            key_gradients(chip, p, dq, part, slots, (*beside, k, v, Part(kind, needed)))
            chip.free(k, v)
        chip.store(dq, "dQheads", rows, heads, own=True)
    for r in t.gpus(chip):
        sum_of_ring(chip, p, t, r, last_hop, needed)
    for r in t.gpus(chip):
        home, heads, keys = t.home(r), t.my_heads(r), t.home_keys(r)
        chip.store(chip.load("dQheads", home, own=(home, heads)), "dQ", home, own=True)
        for name, width in (("K", p.d), ("V", p.dv)):
            found = chip.load(f"d{name}heads", keys, own=(keys, t.slots(r)))
            chip.store(
                chip.compute(f"d{name}", (keys, p.kv_heads, width), sum_copies, found), f"d{name}", keys, own=True
            )


def sum_of_ring(chip: Machine, p: Attention, t: Across, r: Tile, last_hop: bool, needed: bool) -> None:
    """dK and dV of the keys of a group: the own part, and those of the other members of the ring."""
    keys, slots = t.group(r, keys=True), t.slots(r)
    for name, width in (("K", p.d), ("V", p.dv)):
        own = chip.load(f"d{name}part", t.ring_part(r), slots, own=True)
        total = chip.compute(f"d{name}heads", (keys, slots, width), copy, own)
        chip.free(own)
        for j in t.others_of_ring(chip, r):
            kind = Kind(t, r, j, flipped=True)
            there, sender = (NeededPart(kind), t.in_ring(r, j)) if needed else (t.ring_part_from(r, j), t.left(r))
            part = chip.load(f"d{name}part", there, slots, sender=sender)
            chip.update(total, *((add_some, part, Seen(kind)) if needed else (add, part)))
            chip.free(part)
        if last_hop and t.ring > 1:
            chip.free(chip.load(f"d{name}part", t.ring_part(r), slots, own=(), sender=t.left(r)))
        chip.store(total, f"d{name}heads", keys, slots, own=True)


def mesh_backward(chip: Machine, p: Attention, t: Across, kept: bool = False) -> None:
    """A mesh: rows gather Q, dO and their statistics, columns gather K and V. dQ is summed along rows and scattered, dK
    and dV along columns. With `kept` the forward pass has left the gathered Q, K and V."""
    a, b, each = t.rows_apart, t.keys_apart, t.n * t.keys_apart
    rows_dots(chip, p, t)
    for r in t.gpus(chip):
        rows, keys, mine = t.mesh_rows(r), t.mesh_keys(r), (t.home(r),)
        copies, copied = t.part(b, each, r, lambda r: r % b * p.N + r // b * each), t.key_copies(r)
        q = chip.load("Qkept", copies, own=True) if kept else chip.load("Q", rows, own=mine)
        do, lse, delta = (chip.load(name, rows, own=mine) for name in ("dO", "LSE", "D"))
        dq = chip.compute("dQpart", (copies, p.heads, p.d), zeros)
        k, v = kept_keys(chip, copied) if kept else keys_of(chip, p, keys, own=(t.home_keys(r),))
        key_gradients(chip, p, dq, copied, None, (q, do, lse, delta, k, v, All(t, rows, keys)))
        chip.store(dq, "dQpart", copies, own=True)
    for r in t.gpus(chip):
        keys = t.home_keys(r)
        sum_of_row(chip, p, t, r)
        for name, width in (("K", p.d), ("V", p.dv)):
            part = chip.load(f"d{name}part", Piece(a * p.Nk, t.nk, r, lambda r: r // b * p.Nk + r * t.nk), own=True)
            total = chip.compute(f"d{name}", (keys, p.kv_heads, width), copy, part)
            chip.free(part)
            for c in t.others_of_column(chip, r):
                place = Peer(a * p.Nk, t.nk, r, c, lambda r, c: c * p.Nk + r * t.nk)
                part = chip.load(f"d{name}part", place, sender=t.in_column(r, c))
                chip.update(total, add, part)
                chip.free(part)
            chip.store(total, f"d{name}", keys, own=True)


def sum_of_row(chip: Machine, p: Attention, t: Across, r: Tile) -> None:
    """dQ of the tokens of a GPU: the own part, and those of the other GPUs of its row of a mesh."""
    b, home = t.keys_apart, t.home(r)
    own = chip.load("dQpart", t.part(b, t.n, r, lambda r: r % b * p.N + r * t.n), own=True)
    dq = chip.compute("dQ", (home, p.heads, p.d), copy, own)
    chip.free(own)
    for c in t.others_of_row(chip, r):
        rows = Peer(b * p.N, t.n, r, c, lambda r, c: c * p.N + r * t.n)
        part = chip.load("dQpart", rows, sender=t.in_row(r, c))
        chip.update(dq, add, part)
        chip.free(part)
    chip.store(dq, "dQ", home, own=True)
    chip.free(dq)


def pass_q_backward(chip: Machine, p: Attention, t: Across) -> None:
    """Keys and their gradients stay; queries come round the ring with dO, LSE and D, and their dQ goes home."""
    N, n = p.N, t.n
    rows_dots(chip, p, t)
    for r in t.gpus(chip):
        keys = t.home_keys(r)
        k, v = keys_of(chip, p, keys, own=True)
        dk, dv = (chip.compute(f"d{name}", (keys, p.kv_heads, w), zeros) for name, w in (("K", p.d), ("V", p.dv)))
        given = [chip.load(name, t.home(r), own=True) for name in ROWS]
        own = t.part(t.ranks, n, r, lambda r: r * N + r * n)
        row_gradients(chip, p, (dk, dv), own, (*given, k, v, Own(t, r)))
        chip.free(*given)
        for j in t.others_of_ring(chip, r):
            given = [chip.load(name, t.member(j, keys=False), sender=t.left(r)) for name in ROWS]
            sums = [chip.compute(block.name, block.shape, zeros) for block in (dk, dv)]
            rows = Peer(t.ranks * N, n, r, j, lambda r, j: r * N + j * n)
            row_gradients(chip, p, (sums[0], sums[1]), rows, (*given, k, v, Part(Kind(t, r, j, flipped=True))))
            for total, part in zip((dk, dv), sums, strict=True):
                chip.update(total, add, part)
            chip.free(*given, *sums)
        chip.store(dk, "dK", keys, own=True)
        chip.store(dv, "dV", keys, own=True)
    for r in t.gpus(chip):
        sum_of_row(chip, p, t, r)


def pass_kv_step(chip: Machine, p: Attention, t: Across, last_hop: bool = False, needed: bool = False) -> None:
    """A training step that keeps what the GPUs of a group exchanged; only the ring sends its keys again."""
    pass_kv(chip, p, t, needed, last_hop, keep=True)
    pass_kv_backward(chip, p, t, kept=True, last_hop=last_hop, needed=needed)


def pass_q_step(chip: Machine, p: Attention, t: Across) -> None:
    """A training step whose ring sends Q again."""
    pass_q(chip, p, t, keep=True)
    pass_q_backward(chip, p, t)


def mesh_step(chip: Machine, p: Attention, t: Across) -> None:
    """A training step that keeps all that was gathered."""
    mesh(chip, p, t, keep=True)
    mesh_backward(chip, p, t, kept=True)


# ---------------------------------------------------------------- parts of these

ROWS = ("Q", "dO", "LSE", "D")
"""What a row needs in a backward pass."""


def rows_dots(chip: Machine, p: Attention, t: Across) -> None:
    """D = rowsum(dO * O) of the tokens of each GPU."""
    for r in t.gpus(chip):
        home = t.home(r)
        do, o = chip.load("dO", home, own=True), chip.load("O", home, own=True)
        chip.store(chip.compute("D", (home, p.heads), dots, do, o), "D", home, own=True)


def key_gradients(
    chip: Machine, p: Attention, dq: Block, place: Tile, slots: Tile | None, given: tuple[Block | Values, ...]
) -> None:
    """The gradients of the keys of a visit, kept as a part of a sum, and those of its rows, which are added to dQ."""
    axis: Tile | Size = p.kv_heads if slots is None else slots
    dk, dv = chip.compute("dKpart", (place, axis, p.d), zeros), chip.compute("dVpart", (place, axis, p.dv), zeros)
    chip.update((dq, dk, dv), shard_gradients, *given)
    tiles = (place,) if slots is None else (place, slots)
    chip.store(dk, "dKpart", *tiles, own=True)
    chip.store(dv, "dVpart", *tiles, own=True)
    chip.free(dk, dv)


def row_gradients(
    chip: Machine, p: Attention, sums: tuple[Block, Block], place: Tile, given: tuple[Block | Values, ...]
) -> None:
    """dQ of the rows of a visit, kept as a part of a sum, and the gradients of its keys, which are added to `sums`."""
    dq = chip.compute("dQpart", (place, p.heads, p.d), zeros)
    chip.update((dq, *sums), shard_gradients, *given)
    chip.store(dq, "dQpart", place, own=True)
    chip.free(dq)


def kept_keys(chip: Machine, *place: Tile) -> tuple[Block, Block]:
    """K and V that the forward pass left in a GPU."""
    return chip.load("Kkept", *place, own=True), chip.load("Vkept", *place, own=True)
