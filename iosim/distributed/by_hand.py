"""The words of the texts across GPUs, derived by hand from their papers and never from the texts. Tests compare.

For each text there is the number of words received over all GPUs (`words`), the most words in the memory of a GPU
(`room`), who sends what to a GPU (`arrivals`), the GPUs that may receive most (`busiest`), the visible pairs of each
GPU (`work`), and the received words that a mask needs (`needed`). All are for one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import DENSE, TENSORS
from . import row_ends
from .hops import hops_of, strip_visit

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .across import Across

    Arrivals = Iterator["Arrival"]

Words = dict[str, int]
"""{tensor: words received}."""


class Arrival(NamedTuple):
    """What some GPUs send to one, which is none of them even if the range has it."""

    senders: range
    tensor: str
    each: int | Callable[[int], int]
    """The words of each sender."""
    to: int
    """The GPU that receives."""
    total: int
    """The words of all senders."""

    def of(self, sender: int) -> int:
        """The words of one sender."""
        return self.each(sender) if callable(self.each) else self.each

    def among(self, gpus: range) -> range:
        """The senders between two GPUs, the receiver perhaps among them."""
        first, last, step = self.senders.start, self.senders.stop, self.senders.step
        return range(first + max(0, -((first - gpus.start) // step)) * step, min(last, gpus.stop), step)

    def within(self, gpus: range) -> int:
        """The words of the senders between two GPUs."""
        some = self.among(gpus)
        if callable(self.each):
            return sum(self.each(sender) for sender in some if sender != self.to)
        return self.each * (len(some) - (self.to in some))


def alike(senders: range, to: int, tensor: str, each: int) -> Arrival:
    """What some GPUs send to one, as many words each."""
    return Arrival(senders, tensor, each, to, each * (len(senders) - (to in senders)))


def one(gpu: int) -> range:
    """A single GPU."""
    return range(gpu, gpu + 1)


class ByHand(NamedTuple):
    """What is known of a text. `arrivals(t, r)` gives all that GPU r receives."""

    words: Callable[[Across], Words]
    room: Callable[[Across], int]
    arrivals: Callable[[Across, int], Arrivals]
    work: Callable[[Across], list[int]]
    needed: Callable[[Across], Words]
    busiest: Callable[[Across], Iterable[int]] = lambda t: (0,)
    hop: Callable[[Across], tuple[Fraction, int]] | None = None
    """(bytes of a token that comes in a hop, operations of a token with one other in a visit); None where shards do not
    come one after the other."""
    in_turn: bool = True
    """Whether GPUs receive alike that have the same place in their node, their group and their row of a mesh."""

    def senders(self, t: Across, r: int) -> Iterator[tuple[int, str, int]]:
        """(sender, tensor, words) of all that GPU r receives."""
        for arrival in self.arrivals(t, r):
            yield from ((s, arrival.tensor, arrival.of(s)) for s in arrival.senders if s != r)


def width(p: Attention) -> Words:
    """The words of a key's row, by tensor; V is in K if it is latent."""
    return {"K": p.d} if p.latent else {"K": p.d, "V": p.dv}


# ---------------------------------------------------------------- keys go round, heads are exchanged in groups


class PassKV(NamedTuple):
    """Each GPU receives all keys but its own, of the KV heads that it works on: Nk (P - 1) in all. It receives Q of its
    heads from the other u - 1 GPUs of its group, and O of its tokens back from them.

    The keys of the other groups are (P - u) Nk of these. With `only_needed` they are those that a mask shows. With
    `last_hop` the keys of a group make one hop more.
    """

    only_needed: bool = False
    last_hop: bool = False

    def by_hand(self) -> ByHand:
        """All that is known of it."""
        found = self.words, self.room, self.arrivals, self.work, self.needed, self.busiest, self.hop
        return ByHand(*found, in_turn=not self.only_needed)

    def words(self, t: Across) -> Words:
        """All words. Of the ring those that a mask shows if only these are sent."""
        p, u = t.problem, t.apart
        again = p.Nk * u if self.last_hop and t.ring > 1 else 0
        return self.needed(t) if self.only_needed else self.with_ring(t, p.Nk * (t.ranks - u) + again)

    def needed(self, t: Across) -> Words:
        """Of the ring those that a row sees."""
        return self.with_ring(t, t.apart * sum(t.hops.needed))

    def with_ring(self, t: Across, others: int) -> Words:
        """The words if so many keys come from other groups."""
        p, u = t.problem, t.apart
        exchanged, each = p.N * (u - 1) * (p.heads // u), (p.Nk * (u - 1) + others) * t.kv_heads
        return {"Q": exchanged * p.d, **{name: each * w for name, w in width(p).items()}, "Oheads": exchanged * p.dv}

    def room(self, t: Across) -> int:
        """Q, O, l and m of N / P tokens with all heads, or of as many words of other tokens; two shards of K and V: the
        own one and the one that came."""
        p, shard = t.problem, t.apart * t.nk
        came = max((visit.keys for _, visit in t.hops.others), default=0) if self.only_needed else shard * (t.ring > 1)
        return t.n * p.heads * (p.d + p.dv + 2) + (shard + came) * t.kv_heads * sum(width(p).values())

    def arrivals(self, t: Across, r: int) -> Arrivals:
        """The group sends rows and its keys. The ring sends keys: all from the left, or if only what is needed comes,
        each member its own."""
        p, u = t.problem, t.apart
        group, place, each = r // u, r % u, t.nk * t.kv_heads
        peers = range(group * u, group * u + u)
        yield alike(peers, r, "Q", t.n * t.heads * p.d)
        yield alike(peers, r, "Oheads", t.n * t.heads * p.dv)
        for name, w in width(p).items():
            yield alike(peers, r, name, each * w)
            if self.only_needed:
                yield from_members(t, r, name, t.kv_heads * w)
            elif t.ring > 1:
                hops = t.ring - 1 + self.last_hop
                yield alike(one((group - 1) % t.ring * u + place), r, name, hops * u * each * w)

    def work(self, t: Across) -> list[int]:
        """The visible pairs of the tokens of a group with all keys."""
        heads = t.heads
        return [pairs * heads for pairs in t.hops.pairs for _ in range(t.apart)]

    def busiest(self, t: Across) -> Iterable[int]:
        """All receive as much, unless only needed keys are sent."""
        counts = t.hops.needed if self.only_needed else [0]
        return (counts.index(max(counts)) * t.apart,)

    def hop(self, t: Across) -> tuple[Fraction, int]:
        """A key comes; of those that are needed, the mean share."""
        p, R = t.problem, t.ring
        share = Fraction(sum(t.hops.needed), (R - 1) * p.Nk) if self.only_needed else Fraction(1)
        moved = t.kv_heads * sum(width(p).values()) * p.hbm_bytes(TENSORS["K"])
        return share * moved, 2 * t.heads * (p.d + p.dv)


def from_members(t: Across, r: int, tensor: str, words: int, shown: bool = False) -> Arrival:
    """So many words of each key that the other members of the ring of GPU r have and a row of its group sees, or with
    `shown` of each of its group's keys, for each member that has a row that sees it."""
    u, group, visit = t.apart, r // t.apart, t.hops.visit

    def each(sender: int) -> int:
        other = sender // u
        return (visit(other, group) if shown else visit(group, other)).keys * words

    total = (t.hops.shown if shown else t.hops.needed)[group] * words
    return Arrival(range(r % u, t.ranks, u), tensor, each, r, total)


# ---------------------------------------------------------------- a mesh


def mesh_words(t: Across) -> Words:
    """Each GPU gathers the queries of the b - 1 others of its row and the keys of the a - 1 others of its column, and
    receives b - 1 partial results of its own rows."""
    return of_mesh(t, t.problem.N * (t.keys_apart - 1), t.problem.Nk * (t.rows_apart - 1))


def mesh_needed(t: Across) -> Words:
    """The rows that see a key of a GPU go there, and their partial results come back; so do the keys that a row of it
    sees."""
    return of_mesh(t, *mesh_counts(t))


def of_mesh(t: Across, tokens: int, keys: int) -> Words:
    """The words if so many tokens with all their rows, and so many keys with all their heads, go to other GPUs."""
    p, rows = t.problem, tokens * t.problem.heads
    widths = {name: keys * p.kv_heads * words for name, words in width(p).items()}
    return {"Q": rows * p.d, **widths, "Opart": rows * p.dv, "LSEpart": rows}


def mesh_counts(t: Across) -> tuple[int, int]:
    """(rows, keys) that a mask needs on other GPUs of a mesh: a row for each GPU that has a key that it sees, and a key
    for each GPU that has a row that sees it; its own GPU is none of them."""
    p, a, b = t.problem, t.rows_apart, t.keys_apart
    if p.mask is DENSE:
        return p.N * (b - 1), p.Nk * (a - 1)
    hops = hops_of(p, t.ranks, t.layout)
    if hops.strip is None:
        return seen_on_mesh(t) if hops.intervals is None else row_ends.seen_on_mesh(hops.intervals, p, t.ranks, b)
    low, high = hops.strip
    rows = keys = 0
    for many, r, s0, s1 in stretches(p.N, t.n, p.Nk, t.nk, low, high) if b > 1 else ():
        rows += many * (min(b, s1 - s0 + 1) - ((r % b - s0) % b <= s1 - s0))
    for many, s, r0, r1 in stretches(p.Nk, t.nk, p.N, t.n, -high, -low):
        first, last = r0 // b, r1 // b
        keys += many * (last - first + 1 - (first <= s // b <= last))
    return rows, keys


def stretches(
    length: int, each: int, others: int, step: int, low: int, high: int
) -> Iterator[tuple[int, int, int, int]]:
    """(positions, their GPU, first and last GPU of what they see) for each stretch of `length` positions that are alike
    in it. Position x sees x + low to x + high of `others` positions, of which each GPU has `step`; x is on GPU
    x // each. Positions that see nothing are left out."""
    ends = {length}.union(
        *(range(shift, length, every) for shift, every in ((0, each), (-low % step, step), (-high % step, step)))
    )
    for x, after in pairwise(sorted(ends)):
        first, last = max(0, x + low), min(others - 1, x + high)
        if first <= last:
            yield after - x, x // each, first // step, last // step


def seen_on_mesh(t: Across) -> tuple[int, int]:
    """The same, pair by pair."""
    p, a, b = t.problem, t.rows_apart, t.keys_apart
    seen = t.all_visible.reshape(a, p.N // a, t.ranks, t.nk)
    by_row = seen.any(axis=3).reshape(p.N, a, b).any(axis=1)
    by_key = seen.any(axis=1).reshape(a, p.Nk)
    own_row = by_row.reshape(t.ranks, t.n, b)[range(t.ranks), :, [r % b for r in range(t.ranks)]].sum()
    own_key = by_key.reshape(a, t.ranks, t.nk)[[r // b for r in range(t.ranks)], range(t.ranks)].sum()
    return int(by_row.sum() - own_row), int(by_key.sum() - own_key)


def mesh_room(t: Across) -> int:
    """Queries and state of a row, keys of a column; then the merge of partial results."""
    p, a, b = t.problem, t.rows_apart, t.keys_apart
    gathered = b * t.n * p.heads * (p.d + p.dv + 2) + a * t.nk * p.kv_heads * sum(width(p).values())
    return max(gathered, merging_room(p, t.n * p.heads))


def mesh_arrivals(t: Across, r: int) -> Arrivals:
    """The GPUs of the row send queries and partial results, those of the column keys."""
    p, b = t.problem, t.keys_apart
    row, rows = range(r // b * b, r // b * b + b), t.n * p.heads
    yield from partial_results(p, rows, row, r)
    yield alike(row, r, "Q", rows * p.d)
    for name, w in width(p).items():
        yield alike(range(r % b, t.ranks, b), r, name, t.nk * p.kv_heads * w)


def mesh_work(t: Across) -> list[int]:
    """The visible pairs of the tokens of a row with the keys of a column, shard by shard."""
    p, P = t.problem, t.ranks
    if p.mask is DENSE:
        return [p.N * p.Nk // P * p.heads] * P
    return [p.heads * pairs for pairs in hops_of(p, P, t.layout).pairs_of_mesh(t.keys_apart)]


def partial_results(p: Attention, rows: int, senders: range, to: int) -> Arrivals:
    """A partial result of some rows, and its LSE, of each sender."""
    yield alike(senders, to, "Opart", rows * p.dv)
    yield alike(senders, to, "LSEpart", rows)


def merging_room(p: Attention, rows: int) -> int:
    """O, l and m, and one partial result with its LSE."""
    return rows * (2 * p.dv + 3)


# ---------------------------------------------------------------- queries go round


def partial_words(t: Across) -> Words:
    """Every row goes to P - 1 other GPUs, and P - 1 partial results of it come back. In decoding P - 1 GPUs receive
    each row, or P - 1 shares of each row are received, and as many partial results are merged."""
    p, rows = t.problem, t.problem.N * (t.ranks - 1) * t.problem.heads
    return {"Q": rows * p.d, "Opart": rows * p.dv, "LSEpart": rows}


def pass_q_needed(t: Across) -> Words:
    """The rows that see a key of a GPU go there, and their partial results come back."""
    p, rows = t.problem, rows_needed(t) * t.problem.heads
    return {"Q": rows * p.d, "Opart": rows * p.dv, "LSEpart": rows}


def rows_needed(t: Across) -> int:
    """Tokens that see a key of another GPU, each as often as there are such GPUs."""
    return sum(times * visit.rows for times, visit in t.hops.others)


def pass_q_room(t: Across) -> int:
    """Own keys and own queries, and the queries that came, with O, l and m."""
    p, rows = t.problem, t.n * t.problem.heads
    own = t.nk * p.kv_heads * sum(width(p).values()) + rows * p.d
    came = rows * p.d * (t.ranks > 1)
    return max(own + came + rows * (p.dv + 2), merging_room(p, rows))


def pass_q_arrivals(t: Across, r: int) -> Arrivals:
    """The left neighbour sends all queries; every other GPU sends a partial result."""
    p, rows = t.problem, t.n * t.problem.heads
    yield alike(one((r - 1) % t.ranks), r, "Q", (t.ranks - 1) * rows * p.d)
    yield from partial_results(p, rows, range(t.ranks), r)


def pass_q_hop(t: Across) -> tuple[Fraction, int]:
    """A row comes, and its partial result with its LSE goes home."""
    p = t.problem
    row = (p.d + p.dv) * p.word_bytes + p.acc_bytes
    return Fraction(p.heads * row), 2 * p.heads * (p.d + p.dv)


def pass_q_work(t: Across) -> list[int]:
    """The visible pairs of all tokens with the keys of a GPU."""
    return [pairs * t.problem.heads for pairs in t.hops.pairs_of_keys]


# ---------------------------------------------------------------- decoding


def decode_room(t: Across) -> int:
    """All queries with O, l and m, and the own keys; then the partial results of the heads that are merged here."""
    p = t.problem
    gathered = p.N * p.heads * (p.d + p.dv + 2) + t.nk * p.kv_heads * sum(width(p).values())
    return max(gathered, merging_room(p, p.N * t.heads))


def tree_arrivals(t: Across, r: int) -> Arrivals:
    """GPU 0 sends the queries. While more than one GPU is left, the lower half receives from the upper half."""
    p, rows, left = t.problem, t.problem.N * t.problem.heads, t.ranks
    yield alike(one(0), r, "Q", rows * p.d)
    while left > 1:
        left, half = -(-left // 2), left // 2
        if r < half:
            yield from partial_results(p, rows, one(r + left), r)


def gathered_arrivals(t: Across, r: int) -> Arrivals:
    """Every other GPU sends the queries of its heads, and a partial result of the heads of this one."""
    p, rows = t.problem, t.problem.N * t.heads
    yield alike(range(t.ranks), r, "Q", rows * p.d)
    yield from partial_results(p, rows, range(t.ranks), r)


def decode_work(t: Across) -> list[int]:
    """The visible pairs of all queries with the keys of a GPU."""
    p = t.problem
    if t.hops.strip is None:
        seen = t.all_visible.sum(axis=0)
        each = [int(seen[r * t.nk : (r + 1) * t.nk].sum()) for r in range(t.ranks)]
    else:
        low, high = t.hops.strip
        each = [strip_visit(p.N, t.nk, low - r * t.nk, high - r * t.nk).pairs for r in range(t.ranks)]
    return [pairs * p.heads for pairs in each]


MESH = ByHand(mesh_words, mesh_room, mesh_arrivals, mesh_work, mesh_needed)
PASS_Q = ByHand(partial_words, pass_q_room, pass_q_arrivals, pass_q_work, pass_q_needed, hop=pass_q_hop)
TREE = ByHand(
    partial_words, decode_room, tree_arrivals, decode_work, partial_words, lambda t: range(t.ranks), in_turn=False
)
GATHERED = ByHand(partial_words, decode_room, gathered_arrivals, decode_work, partial_words)
