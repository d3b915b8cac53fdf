"""Reuse distances (Mattson et al. 1970) of weighted objects. They give the misses of an LRU of every size.

A string of accesses is an array `ids` of objects. Object x fills `weights[x]` units of the cache. The *need* of an
access is the least capacity at which it hits: the units of all distinct objects accessed since the last access to the
same object, its own units included.

An LRU of C units hits exactly if need <= C. This is the stack property of LRU. It also holds with weights: the weight
above an object on the stack only grows until the object is accessed again. So an object that no longer fits stays out
until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.typing import Bools

    Numbers = NDArray[np.int64]
    """One number for each access or each object: objects, weights, places or needs."""

UNREACHED = 2**62  # the need of a first access, and the place of a next access that does not come
# Weights and their sums are below MOST_BYTES of accesses.py, so int64 holds them, and none is UNREACHED.


def previous_access(ids: Numbers) -> Numbers:
    """The place of the previous access to the same object, for each access; -1 for a first access."""
    order = np.argsort(ids, kind="stable")
    found = np.full(len(ids), -1, np.int64)
    same = ids[order[1:]] == ids[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def next_access(ids: Numbers) -> Numbers:
    """The place of the next access to the same object, for each access; UNREACHED for a last access."""
    before = previous_access(ids)
    found = np.full(len(ids), UNREACHED, np.int64)
    again = np.flatnonzero(before >= 0)
    found[before[again]] = again
    return found


def needs(ids: Numbers, weights: Numbers) -> Numbers:
    """The need of every access, in units; UNREACHED for a first access.

    Let t be an access and p = before[t], the place of the previous access. The object of t counts once, at p. Every
    other object accessed between p and t counts once, at its first access behind p: a place u with p < u < t and
    before[u] < p. All places u < p have before[u] < p as well, so their weights are taken off. With w[u], the weight of
    the object at place u,

        need(t) = sum of w[u] over u < t with before[u] < before[t]  -  sum of w[u] over u < before[t].
    """
    before, w = previous_access(ids), weights[ids]
    so_far = np.cumsum(w) - w
    earlier = sums_of_smaller(before, w)
    return np.where(before < 0, UNREACHED, earlier - so_far[before])


def sums_of_smaller(values: Numbers, w: Numbers) -> Numbers:
    """The sum of w[u] over u < t with values[u] < values[t], for every index t. Only the sums of values that occur
    once are right.

    The indices are first sorted by their values. Then a radix sort, highest bit first, brings them back into their own
    order. Each bit splits every group in two: indices without the bit go left, those with it go right. An index that
    goes left is smaller than any that goes right. If it stood before one of these, its value is smaller as well. So its
    weight is added to the sum of that index.
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


def dirty_needs(ids: Numbers, stores: Bools, need: Numbers) -> Numbers:
    """The largest need since the previous store to the same object, for every store. Its own need is included.

    A cache of C units wrote back the older value exactly if this exceeds C (Thompson and Smith 1989). The last value of
    an object is always written back at the end, and is not in this array. The array holds UNREACHED for
    the first store to an object, and 0 for a load.
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
