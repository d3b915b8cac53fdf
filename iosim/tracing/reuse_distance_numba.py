"""Reuse distances with a Fenwick tree over the places of the accesses, compiled by Numba (extra `fast`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from .reuse_distance import Numbers


@njit(cache=True)  # type: ignore[untyped-decorator]
def add(tree: Numbers, place: int, weight: int) -> None:
    """Add a weight at a place (from 0)."""
    place += 1
    while place < len(tree):
        tree[place] += weight
        place += place & -place


@njit(cache=True)  # type: ignore[untyped-decorator]
def sum_before(tree: Numbers, place: int) -> int:
    """The sum of the weights at the places below this one."""
    total = 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@njit(cache=True)  # type: ignore[untyped-decorator]
def fenwick_needs(ids: Numbers, weights: Numbers, never: int) -> Numbers:
    """The need of every access, as `reuse_distance.needs`; `never` for a first access.

    The tree holds the weight of every object at the place of its last access.
    """
    tree = np.zeros(len(ids) + 1, np.int64)
    need = np.empty(len(ids), np.int64)
    last = np.full(len(weights), -1, np.int64)
    accessed = 0  # weight of all objects so far
    for t in range(len(ids)):
        weight, p = weights[ids[t]], last[ids[t]]
        last[ids[t]] = t
        if p < 0:
            need[t] = never
            accessed += weight
        else:
            need[t] = accessed - sum_before(tree, p)
            add(tree, p, -weight)
        add(tree, t, weight)
    return need
