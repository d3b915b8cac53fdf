"""The words of the backward pass and of a training step across GPUs, by hand, as by_hand.py has those forward."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from ..core.problem import DENSE
from . import by_hand
from .by_hand import MESH, ByHand, mesh_work

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .across import Across
    from .by_hand import Sent, Words


def both(a: Words, b: Words) -> Words:
    """The sums of two counts."""
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


def key_width(p: Attention) -> Words:
    """The words of a key, by tensor."""
    return {"K": p.d, "V": p.dv}


# ---------------------------------------------------------------- keys go round, heads are exchanged in groups


def pass_kv(step: bool, last_hop: bool = False) -> ByHand:
    """As forward, and in place of O: dO comes, dQ goes back, and dK and dV follow the keys: (P - u) Nk round the ring,
    and (u - 1) Nk back to their tokens. LSE and D come with dO.

    With `last_hop` the sum of dK and dV makes one hop more. A `step` is a forward pass and this one without Q, and
    without K and V of the group, which were kept; LSE lies where it is needed.
    """
    ahead = by_hand.pass_kv(last_hop=last_hop)

    def words(t: Across) -> Words:
        p, u = t.problem, t.apart
        rows, ring, group = p.N * (u - 1) * (p.heads // u), p.Nk * (t.ranks - u), p.Nk * (u - 1)
        again = p.Nk * u if last_hop and t.ring > 1 else 0
        found = {"dO": rows * p.dv, "D": rows, "dQheads": rows * p.d}
        found |= {} if step else {"Q": rows * p.d, "LSE": rows}
        for name, w in key_width(p).items():
            found[name] = (ring + (0 if step else group)) * t.kv_heads * w
            found[f"d{name}part"] = (ring + again) * t.kv_heads * w
            found[f"d{name}heads"] = group * t.kv_heads * w
        return both(found, ahead.words(t)) if step else found

    def room(t: Across) -> int:
        """Q, dO, LSE, D and dQ of a group's tokens; K and V, and K, V, dK and dV of a shard that came, or dK and dV of
        the own one. Then the sums of gradients, and D before all."""
        p, shard = t.problem, t.apart * t.nk * t.kv_heads * (t.problem.d + t.problem.dv)
        rows = t.n * p.heads
        main = rows * (2 * p.d + p.dv + 2) + (3 if t.ring > 1 else 2) * shard
        first, second = (t.apart * t.nk * t.kv_heads * w for w in key_width(p).values())
        ring = max(2 * first, first + 2 * second)  # dK and dV are summed one after the other
        copies = sum((t.nk * t.apart * t.kv_heads + t.nk * p.kv_heads) * w for w in key_width(p).values())
        back = rows * p.d + copies
        found = max(main, ring, back, rows * (2 * p.dv + 1))
        return max(found, ahead.room(t), keeping_room(t)) if step else found

    def keeping_room(t: Across) -> int:
        """Q, K and V of a group's tokens, and a copy of one of them."""
        p, shard = t.problem, t.apart * t.nk * t.kv_heads
        rows = t.n * p.heads
        return rows * p.d + shard * (p.d + p.dv) + max(rows * p.d, shard * p.d, shard * p.dv)

    def senders(t: Across, r: int) -> Iterator[tuple[int, str, int]]:
        p, u, group, place = t.problem, t.apart, r // t.apart, r % t.apart
        if step:
            yield from ahead.senders(t, r)
        rows, left = t.n * t.heads, (group - 1) % t.ring * u + place
        for peer in range(group * u, (group + 1) * u):
            if peer != r:
                yield peer, "dO", rows * p.dv
                yield peer, "D", rows
                yield peer, "dQheads", rows * p.d
                if not step:
                    yield peer, "Q", rows * p.d
                    yield peer, "LSE", rows
                for name, w in key_width(p).items():
                    yield peer, f"d{name}heads", t.nk * t.kv_heads * w
                    if not step:
                        yield peer, name, t.nk * t.kv_heads * w
        for name, w in key_width(p).items() if t.ring > 1 else ():
            yield left, name, (t.ring - 1) * u * t.nk * t.kv_heads * w
            yield left, f"d{name}part", (t.ring - 1 + last_hop) * u * t.nk * t.kv_heads * w

    def hop(t: Across) -> tuple[Fraction, int]:
        p, key = t.problem, t.kv_heads * (t.problem.d + t.problem.dv)
        if step:
            moved, operations = ahead.hop(t) if ahead.hop else (Fraction(0), 0)
        else:
            moved, operations = Fraction(0), 0
        back = key * (p.word_bytes + p.acc_bytes)
        return moved + back, operations + 2 * t.heads * (3 * p.d + 2 * p.dv)

    def needed(t: Across) -> Words:
        """Keys that a row sees come, and their gradients go back."""
        p = t.problem
        spared = p.Nk * (t.ranks - t.apart) - t.apart * sum(t.hops.needed)
        found, again = words(t), p.Nk * t.apart if last_hop and t.ring > 1 else 0
        for name, w in key_width(p).items():
            found[name] -= (2 if step else 1) * spared * t.kv_heads * w + (again * t.kv_heads * w if step else 0)
            found[f"d{name}part"] -= (spared + again) * t.kv_heads * w
        return found

    return ByHand(words, room, senders, ahead.work, needed, hop=hop)


# ---------------------------------------------------------------- a mesh


def mesh(step: bool) -> ByHand:
    """Rows gather Q, dO, LSE and D of b - 1 others and receive as many parts of dQ; columns gather K and V of a - 1
    others and receive as many parts of dK and dV. A `step` has a forward pass before it, and keeps Q, K and V."""

    def words(t: Across) -> Words:
        p, a, b = t.problem, t.rows_apart, t.keys_apart
        rows, keys = p.N * (b - 1) * p.heads, p.Nk * (a - 1) * p.kv_heads
        found = {"dO": rows * p.dv, "LSE": rows, "D": rows, "dQpart": rows * p.d}
        found |= {f"d{name}part": keys * w for name, w in key_width(p).items()}
        if step:
            return both(found, by_hand.mesh_words(t))
        return {**found, "Q": rows * p.d, **{name: keys * w for name, w in key_width(p).items()}}

    def room(t: Across) -> int:
        """Q, dO, LSE, D and dQ of a row, K, V, dK and dV of a column; then the sums of gradients."""
        p, a, b = t.problem, t.rows_apart, t.keys_apart
        rows, keys, w = t.n * p.heads, t.nk * p.kv_heads, p.d + p.dv
        main = b * rows * (2 * p.d + p.dv + 2) + 2 * a * keys * w
        sums = max(2 * rows * p.d, keys * (2 * p.d), keys * (p.d + 2 * p.dv))
        found = max(main, sums, rows * (2 * p.dv + 1))
        if not step:
            return found
        kept = b * rows * p.d + a * keys * w + max(b * rows * p.d, a * keys * p.d, a * keys * p.dv)
        return max(found, MESH.room(t), kept)

    def senders(t: Across, r: int) -> Sent:
        p, b = t.problem, t.keys_apart
        rows, keys = t.n * p.heads, t.nk * p.kv_heads
        if step:
            yield from MESH.senders(t, r)
        for peer in range(r // b * b, r // b * b + b):
            if peer != r:
                for name, w in (("dO", p.dv), ("LSE", 1), ("D", 1), ("dQpart", p.d), *([] if step else [("Q", p.d)])):
                    yield peer, name, rows * w
        for peer in range(r % b, t.ranks, b):
            if peer != r:
                for name, w in key_width(p).items():
                    yield peer, f"d{name}part", keys * w
                    if not step:
                        yield peer, name, keys * w

    def needed(t: Across) -> Words | None:
        return words(t) if t.problem.mask is DENSE else None

    return ByHand(words, room, senders, mesh_work, needed)
