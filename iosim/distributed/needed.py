"""What a mask needs of the words that GPUs receive, and the work that it leaves to each of them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from ..core.problem import DENSE
from . import row_ends
from .hops import hops_of, strip_visit

if TYPE_CHECKING:
    from .across import Across
    from .arrivals import Load
    from .schedules import Scheme


def needed(scheme: Scheme, t: Across, loads: list[Load]) -> dict[str, int]:
    """{tensor: words received that a mask needs}: of the rows and keys that are sent, the share of those that see
    something where they go, or are seen there. A group exchanges whole tokens, and decoding needs all its rows."""
    found: dict[str, int] = {}
    rows, keys = needed_shares(scheme, t)
    for load in loads:
        whole = load.needed or scheme.decodes or (t.apart > 1 and load.sender is None)
        share = Fraction(1) if whole else keys if load.of_keys else rows
        if load.own != ():  # else it lies there already
            found[load.tensor] = found.get(load.tensor, 0) + int(load.words * share)
    return found


def needed_shares(scheme: Scheme, t: Across) -> tuple[Fraction, Fraction]:
    """The shares (of the rows, of the keys) that go to other GPUs which a mask needs there."""
    p = t.problem
    if scheme.decodes:
        return Fraction(1), Fraction(1)
    if t.apart > 1 or (scheme.passes_round and t.keys_apart == 1):  # keys go round
        return Fraction(1), Fraction(t.apart * sum(t.hops.needed), max(1, p.Nk * (t.ranks - t.apart)))
    rows, keys = mesh_counts(t)
    return Fraction(rows, max(1, p.N * (t.keys_apart - 1))), Fraction(keys, max(1, p.Nk * (t.rows_apart - 1)))


def work_of(scheme: Scheme, t: Across) -> list[int]:
    """The visible pairs of each GPU: of the rows of its group or its row of a mesh with all keys or those of its
    column, all heads together; in decoding, of all queries with its keys."""
    p = t.problem
    if not scheme.decodes:
        return [t.heads * pairs for pairs in t.hops.pairs_of_mesh(t.keys_apart) for _ in range(t.apart)]
    starts = range(0, p.Nk, t.nk)
    if t.hops.strip is None:
        seen = t.all_visible.sum(axis=0)
        return [p.heads * int(seen[start : start + t.nk].sum()) for start in starts]
    low, high = t.hops.strip
    return [p.heads * strip_visit(p.N, t.nk, low - start, high - start).pairs for start in starts]


# ---------------------------------------------------------------- the rows and keys that a mesh needs


def mesh_counts(t: Across) -> tuple[int, int]:
    """(rows, keys) that a mask needs on other GPUs of a mesh: a row for each GPU that has a key that it sees, and a key
    for each GPU that has a row that sees it; its own GPU is none of them."""
    p, a, b = t.problem, t.rows_apart, t.keys_apart
    if p.mask is DENSE:
        return p.N * (b - 1), p.Nk * (a - 1)
    hops = hops_of(p, t.ranks, t.layout)
    if hops.strip is None:
        return looked_at(t) if hops.intervals is None else row_ends.seen_on_mesh(hops.intervals, p, t.ranks, b)
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


def looked_at(t: Across) -> tuple[int, int]:
    """The same (rows, keys), pair by pair."""
    p, a, b = t.problem, t.rows_apart, t.keys_apart
    seen = t.all_visible.reshape(a, p.N // a, t.ranks, t.nk)
    by_row = seen.any(axis=3).reshape(p.N, a, b).any(axis=1)
    by_key = seen.any(axis=1).reshape(a, p.Nk)
    own_row = by_row.reshape(t.ranks, t.n, b)[range(t.ranks), :, [r % b for r in range(t.ranks)]].sum()
    own_key = by_key.reshape(a, t.ranks, t.nk)[[r // b for r in range(t.ranks)], range(t.ranks)].sum()
    return int(by_row.sum() - own_row), int(by_key.sum() - own_key)
