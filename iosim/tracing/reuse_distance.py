"""Reuse distances (Mattson et al. 1970) of weighted objects, all at once: they give the misses of an LRU of every size.

An access string is an array `ids` of objects; object x fills `weights[x]` units of the cache. The *need* of an access
is the least capacity at which it hits: the units of all distinct objects touched since the last access to the same
object, its own included. An LRU of C units hits exactly where need <= C (its stack property, which weights keep:
what lies above an object on the stack only grows until it is touched again, so it is gone as soon as it is too deep).
"""

from __future__ import annotations

from typing import Any

import numpy as np

NEVER = 2**62  # the need of a first access, and the time of a next access that does not come
FAST_FROM = 300_000  # accesses from which compiling is worth its second


def previous(ids: Any) -> Any:
    """The place of the last access to the same object; -1 for a first access."""
    order = np.argsort(ids, kind="stable")
    found = np.full(len(ids), -1, np.int64)
    same = ids[order[1:]] == ids[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def following(ids: Any) -> Any:
    """The place of the next access to the same object; NEVER for a last access."""
    before = previous(ids)
    found = np.full(len(ids), NEVER, np.int64)
    again = np.flatnonzero(before >= 0)
    found[before[again]] = again
    return found


def needs(ids: Any, weights: Any, fast: bool | None = None) -> Any:
    """The need of every access, in units; NEVER for a first access.

    `fast` uses Numba (extra `fast`); by default where it is installed and the string is long enough to be worth it.
    """
    if fast is None:
        fast = len(ids) >= FAST_FROM and numba_is_there()
    if fast:
        from .reuse_distance_numba import fenwick_needs

        return fenwick_needs(ids, weights, NEVER)
    return sorted_needs(ids, previous(ids), weights)


def numba_is_there() -> bool:
    from importlib.util import find_spec

    return find_spec("numba") is not None


def sorted_needs(ids: Any, before: Any, weights: Any) -> Any:
    """In NumPy. An object touched between the access p and the next one, t, to the same object counts once, where it
    is touched first after p: at the places u < t with before[u] < p. All u <= p are such places, so

        need(t) = sum of w[u] over u < t with before[u] < before[t]  -  sum of w[u] over u < before[t].
    """
    w = weights[ids]
    so_far = np.cumsum(w) - w
    earlier = sums_of_smaller(before, w)
    return np.where(before < 0, NEVER, earlier - so_far[before])


def sums_of_smaller(values: Any, w: Any) -> Any:
    """For every place t: the sum of w[u] over u < t with values[u] < values[t]; equal values must not be asked for.

    Places start in order of their values and are sorted back by the bits of the place, highest first. Where a bit
    parts a group, those that go left are earlier, and those of them that stand before are smaller.
    """
    n = len(values)
    size = 1 << max(n - 1, 1).bit_length()
    place = np.concatenate([np.argsort(values, kind="stable"), np.arange(n, size)])  # filled up to a power of two
    weight = np.concatenate([w, np.zeros(size - n, w.dtype)])
    total = np.zeros(size, np.int64)
    half = size // 2
    while half:
        later = (place & half) > 0
        left = np.cumsum(np.where(later, 0, weight[place]).reshape(-1, 2 * half), axis=1).ravel()
        total[place[later]] += left[later]
        part = np.argsort(later.reshape(-1, 2 * half), axis=1, kind="stable")
        place = np.take_along_axis(place.reshape(-1, 2 * half), part, axis=1).ravel()
        half //= 2
    return total[:n]


def dirty_needs(ids: Any, stores: Any, need: Any) -> Any:
    """For every store: the largest need since the store before it to the same object, its own included; NEVER for a
    first one. A cache of C units had to write the older value back exactly where this exceeds C (Thompson and Smith
    1989); the last value is written back at the end in any case. 0 where the access is no store.
    """
    order = np.argsort(ids, kind="stable")
    grouped, need = stores[order], need[order]
    starts = np.flatnonzero(np.concatenate([[True], ids[order][1:] != ids[order][:-1]]))
    cuts = np.union1d(starts, np.flatnonzero(grouped) + 1)  # a stretch ends with its store, or with its object
    cuts = cuts[cuts < len(ids)]
    most = np.maximum.reduceat(need, cuts) if len(ids) else need
    ends = np.concatenate([cuts[1:], [len(ids)]]) - 1
    found = np.zeros(len(ids), np.int64)
    is_store = grouped[ends] if len(ids) else np.zeros(0, bool)
    found[order[ends[is_store]]] = most[is_store]
    return found
