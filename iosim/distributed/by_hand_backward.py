"""The words of the backward pass and of a training step across GPUs, by hand, as by_hand.py has those forward."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import TENSORS
from . import by_hand
from .by_hand import MESH, PASS_Q, ByHand, alike, from_members, mesh_counts, mesh_work, one, pass_q_work

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .across import Across
    from .by_hand import Arrivals, Words


def both(a: Words, b: Words) -> Words:
    """The sums of two counts."""
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


def key_width(p: Attention) -> Words:
    """The words of a key, by tensor."""
    return {"K": p.d, "V": p.dv}


def operations(p: Attention, heads: int) -> int:
    """Operations of a token's rows with one key: five products."""
    return 2 * heads * (3 * p.d + 2 * p.dv)


# ---------------------------------------------------------------- keys go round, heads are exchanged in groups


class PassKV(NamedTuple):
    """As forward, and in place of O: dO comes, dQ goes back, and dK and dV follow the keys: (P - u) Nk round the ring,
    and (u - 1) Nk back to their tokens. LSE and D come with dO.

    With `last_hop` the sum of dK and dV makes one hop more. With `only_needed` keys and gradients are those that a mask
    shows. A `step` is a forward pass and this one without Q, and without K and V of the group, which were kept; LSE
    lies where it is needed.
    """

    step: bool
    last_hop: bool = False
    only_needed: bool = False

    @property
    def ahead(self) -> ByHand:
        """The forward pass of a step."""
        return by_hand.PassKV(self.only_needed, self.last_hop).by_hand()

    def by_hand(self) -> ByHand:
        """All that is known of it."""
        found = self.words, self.room, self.arrivals, self.ahead.work, self.needed, self.busiest, self.hop
        return ByHand(*found, in_turn=not self.only_needed)

    def words(self, t: Across) -> Words:
        """All words. Of the ring those that a mask shows if only these are sent."""
        p, u = t.problem, t.apart
        again = p.Nk * u if self.last_hop and t.ring > 1 else 0
        ring = u * sum(t.hops.needed) if self.only_needed else p.Nk * (t.ranks - u)
        found = self.with_ring(t, ring, again)
        return both(found, self.ahead.words(t)) if self.step else found

    def needed(self, t: Across) -> Words:
        """Keys that a row sees come, and their gradients go back."""
        found = self.with_ring(t, t.apart * sum(t.hops.needed), 0)
        return both(found, self.ahead.needed(t)) if self.step else found

    def with_ring(self, t: Across, ring: int, again: int) -> Words:
        """The words of the backward pass if `ring` keys come from other groups, and `again` gradients in a hop more."""
        p, u = t.problem, t.apart
        rows, group = p.N * (u - 1) * (p.heads // u), p.Nk * (u - 1)
        found = {"dO": rows * p.dv, "D": rows, "dQheads": rows * p.d}
        found |= {} if self.step else {"Q": rows * p.d, "LSE": rows}
        for name, w in key_width(p).items():
            found[name] = (ring + (0 if self.step else group)) * t.kv_heads * w
            found[f"d{name}part"] = (ring + again) * t.kv_heads * w
            found[f"d{name}heads"] = group * t.kv_heads * w
        return found

    def room(self, t: Across) -> int:
        """Q, dO, LSE, D and dQ of a group's tokens and K and V of the own shard; then dK and dV of it, or K, V, dK and
        dV of a shard that came. Then the sums of gradients, and D before all. What comes after, as
        sums of copies of a KV head, takes no more than the first."""
        p, width = t.problem, t.kv_heads * (t.problem.d + t.problem.dv)
        rows, shard = t.n * p.heads, t.apart * t.nk * width
        came = max((visit.keys for _, visit in t.hops.others), default=0) * width if self.only_needed else shard
        main = rows * (2 * p.d + p.dv + 2) + shard + max(shard, 2 * came * (t.ring > 1))
        first, second = (t.apart * t.nk * t.kv_heads * w for w in key_width(p).values())
        ring = max(2 * first, first + 2 * second)  # dK and dV are summed one after the other
        found = max(main, ring, rows * (2 * p.dv + 1))
        return max(found, self.ahead.room(t), self.keeping_room(t)) if self.step else found

    def keeping_room(self, t: Across) -> int:
        """Q, K and V of a group's tokens, and a copy of one of them."""
        p, shard = t.problem, t.apart * t.nk * t.kv_heads
        rows = t.n * p.heads
        return rows * p.d + shard * (p.d + p.dv) + max(rows * p.d, shard * p.d, shard * p.dv)

    def arrivals(self, t: Across, r: int) -> Arrivals:
        """The group sends rows and its keys, and the ring keys and their gradients."""
        if self.step:
            yield from self.ahead.arrivals(t, r)
        yield from self.from_group(t, r)
        yield from self.from_ring(t, r) if t.ring > 1 else ()

    def from_group(self, t: Across, r: int) -> Arrivals:
        """What the other GPUs of a group send."""
        p, u, rows, keys = t.problem, t.apart, t.n * t.heads, t.nk * t.kv_heads
        widths = key_width(p).items()
        words = {
            "dO": rows * p.dv,
            "D": rows,
            "dQheads": rows * p.d,
            **{f"d{name}heads": keys * w for name, w in widths},
        }
        if not self.step:
            words |= {"Q": rows * p.d, "LSE": rows, **{name: keys * w for name, w in widths}}
        peers = range(r // u * u, r // u * u + u)
        yield from (alike(peers, r, name, each) for name, each in words.items())

    def from_ring(self, t: Across, r: int) -> Arrivals:
        """What comes round the ring from the left, or from all members of it that have what is needed."""
        u, hops = t.apart, t.ring - 1
        left = one((r // u - 1) % t.ring * u + r % u)
        for name, w in key_width(t.problem).items():
            if self.only_needed:
                yield from_members(t, r, name, t.kv_heads * w)
                yield from_members(t, r, f"d{name}part", t.kv_heads * w, shown=True)
            else:
                shard = u * t.nk * t.kv_heads * w
                yield alike(left, r, name, hops * shard)
                yield alike(left, r, f"d{name}part", (hops + self.last_hop) * shard)

    def busiest(self, t: Across) -> Iterable[int]:
        """All receive as much, unless only needed keys are sent: then by words, and by bytes."""
        if not self.only_needed:
            return (0,)
        p, times = t.problem, 2 if self.step else 1
        weights = ((times, 1), (times * p.hbm_bytes(TENSORS["K"]), p.acc_bytes))
        each = [
            [a * come + b * home for come, home in zip(t.hops.needed, t.hops.shown, strict=True)] for a, b in weights
        ]
        return {found.index(max(found)) * t.apart for found in each}

    def hop(self, t: Across) -> tuple[Fraction, int]:
        """A key comes and its gradient goes home; before it in a step, a key comes forward."""
        p, share = t.problem, Fraction(1)
        if self.only_needed and t.ring > 1:
            share = Fraction(sum(t.hops.needed), (t.ring - 1) * p.Nk)
        back = share * t.kv_heads * (p.d + p.dv) * (p.word_bytes + p.acc_bytes)
        if not self.step or self.ahead.hop is None:
            return back, operations(p, t.heads)
        moved, forward = self.ahead.hop(t)
        return moved + back, forward + operations(p, t.heads)


# ---------------------------------------------------------------- a mesh


class Mesh(NamedTuple):
    """Rows gather Q, dO, LSE and D of b - 1 others and receive as many parts of dQ; columns gather K and V of a - 1
    others and receive as many parts of dK and dV. A `step` has a forward pass before it, and keeps Q, K and V."""

    step: bool

    def by_hand(self) -> ByHand:
        """All that is known of it."""
        return ByHand(self.words, self.room, self.arrivals, mesh_work, self.needed)

    def words(self, t: Across) -> Words:
        """All words."""
        p = t.problem
        return self.of(t, by_hand.mesh_words(t), p.N * (t.keys_apart - 1), p.Nk * (t.rows_apart - 1))

    def needed(self, t: Across) -> Words:
        """Rows that see a key of a GPU go there, and keys that a row there sees; so do their gradients home."""
        return self.of(t, by_hand.mesh_needed(t), *mesh_counts(t))

    def of(self, t: Across, forward: Words, tokens: int, keys: int) -> Words:
        """The words if so many tokens with all their rows, and so many keys with all their heads, go to other GPUs."""
        p, rows = t.problem, tokens * t.problem.heads
        widths = {name: keys * p.kv_heads * w for name, w in key_width(p).items()}
        found = {"dO": rows * p.dv, "LSE": rows, "D": rows, "dQpart": rows * p.d}
        found |= {f"d{name}part": words for name, words in widths.items()}
        return both(found, forward) if self.step else {**found, "Q": rows * p.d, **widths}

    def room(self, t: Across) -> int:
        """Q, dO, LSE, D and dQ of a row, K, V, dK and dV of a column; then the sums of gradients."""
        p, a, b = t.problem, t.rows_apart, t.keys_apart
        rows, keys, w = t.n * p.heads, t.nk * p.kv_heads, p.d + p.dv
        main = b * rows * (2 * p.d + p.dv + 2) + 2 * a * keys * w
        sums = max(2 * rows * p.d, keys * (2 * p.d), keys * (p.d + 2 * p.dv))
        found = max(main, sums, rows * (2 * p.dv + 1))
        if not self.step:
            return found
        kept = b * rows * p.d + a * keys * w + max(b * rows * p.d, a * keys * p.d, a * keys * p.dv)
        return max(found, MESH.room(t), kept)

    def arrivals(self, t: Across, r: int) -> Arrivals:
        """The GPUs of the row and of the column."""
        p, b = t.problem, t.keys_apart
        rows, keys = t.n * p.heads, t.nk * p.kv_heads
        if self.step:
            yield from MESH.arrivals(t, r)
        of_row = {"dO": p.dv, "LSE": 1, "D": 1, "dQpart": p.d, **({} if self.step else {"Q": p.d})}
        row, column = range(r // b * b, r // b * b + b), range(r % b, t.ranks, b)
        yield from (alike(row, r, name, rows * w) for name, w in of_row.items())
        for name, w in key_width(p).items():
            yield alike(column, r, f"d{name}part", keys * w)
            if not self.step:
                yield alike(column, r, name, keys * w)


# ---------------------------------------------------------------- queries go round


class PassQ(NamedTuple):
    """Every row goes to P - 1 other GPUs with dO, LSE and D, and P - 1 parts of its dQ come back. A `step` has a
    forward pass before it."""

    step: bool

    def by_hand(self) -> ByHand:
        """All that is known of it."""
        return ByHand(self.words, self.room, self.arrivals, pass_q_work, self.needed, hop=self.hop)

    def words(self, t: Across) -> Words:
        """All words."""
        found = self.of(t, t.problem.N * (t.ranks - 1))
        return both(found, PASS_Q.words(t)) if self.step else found

    def needed(self, t: Across) -> Words:
        """The rows that see a key of a GPU go there, and their gradients come back."""
        found = self.of(t, by_hand.rows_needed(t))
        return both(found, by_hand.pass_q_needed(t)) if self.step else found

    def of(self, t: Across, tokens: int) -> Words:
        """The words of the backward pass if so many tokens go to other GPUs."""
        p, rows = t.problem, tokens * t.problem.heads
        return {"Q": rows * p.d, "dO": rows * p.dv, "LSE": rows, "D": rows, "dQpart": rows * p.d}

    def room(self, t: Across) -> int:
        """Own K, V, dK and dV, and rows with Q, dO, LSE, D and dQ; beside rows that came, their part of dK and dV. Then
        the sum of dQ, and D before all."""
        p = t.problem
        rows, keys = t.n * p.heads, t.nk * p.kv_heads * (p.d + p.dv)
        main = (3 if t.ranks > 1 else 2) * keys + rows * (2 * p.d + p.dv + 2)
        found = max(main, 2 * rows * p.d, rows * (2 * p.dv + 1))
        return max(found, PASS_Q.room(t)) if self.step else found

    def arrivals(self, t: Across, r: int) -> Arrivals:
        """The left neighbour sends all rows; every other GPU sends a part of dQ."""
        p, rows = t.problem, t.n * t.problem.heads
        if self.step:
            yield from PASS_Q.arrivals(t, r)
        for name, w in {"Q": p.d, "dO": p.dv, "LSE": 1, "D": 1}.items():
            yield alike(one((r - 1) % t.ranks), r, name, (t.ranks - 1) * rows * w)
        yield alike(range(t.ranks), r, "dQpart", rows * p.d)

    def hop(self, t: Across) -> tuple[Fraction, int]:
        """A row comes with dO, LSE and D, and its dQ goes home; before it in a step, its forward pass."""
        p = t.problem
        back = p.heads * ((p.d + p.dv) * p.word_bytes + (p.d + 2) * p.acc_bytes)
        if not self.step:
            return Fraction(back), operations(p, p.heads)
        moved, forward = by_hand.pass_q_hop(t)
        return moved + back, forward + operations(p, p.heads)
