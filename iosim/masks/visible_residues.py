"""The numbers of `visible.py` for an expression of strides alone, from classes of residues.

Whether query x sees key y then depends only on y - x modulo L, the least common multiple of the strides. So all queries
with the same residue see equally many keys. The time grows with L, and not with N.
"""

from __future__ import annotations

from .counts import Counter, Intervals, by_class


def by_residue(counter: Counter) -> tuple[int, int, int, int, int]:
    """The fields of `Visible`, in their order, for an expression without edges, cuts and segments."""
    L, N, Nk = counter.period, counter.rows.length, counter.cols.length
    runs = counter.runs(0, L - 1, 0, 0)
    sees = seen_by_class(runs, L, N, Nk)
    seen_by = seen_by_class([(-high % L, -low % L) for low, high in runs], L, Nk, N)
    several = [a for a, keys in enumerate(sees) if keys > 1]
    keys = {b for b, queries in enumerate(seen_by) if queries}
    reached = keys
    if len(several) < sum(keys > 0 for keys in sees):  # some see one key: as Nk >= L, there is but one residue
        reached = {(a + low) % L for a in several for low, _ in runs}
    return (
        sum(sees[a] * alike(a, L, N) for a in several),
        sum(alike(a, L, N) for a in several),
        sum(alike(b, L, Nk) for b in reached),
        sum(alike(a, L, N) for a, keys in enumerate(sees) if keys),
        sum(alike(b, L, Nk) for b in keys),
    )


def seen_by_class(residues: Intervals, L: int, N: int, Nk: int) -> list[int]:
    """For each residue of the N queries modulo L, how many of the Nk keys such a query sees."""
    return by_class(residues, L, Nk, 1, (-a for a in range(min(L, N))))


def alike(residue: int, L: int, length: int) -> int:
    """How many of the positions below `length` have a residue modulo L."""
    return len(range(residue, length, L))
