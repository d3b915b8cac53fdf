"""Reuse distances with a Fenwick tree over the places of the accesses, compiled by Numba (extra `fast`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)  # type: ignore[untyped-decorator]
def add(tree: Any, place: int, weight: int) -> None:
    place += 1
    while place < len(tree):
        tree[place] += weight
        place += place & -place


@njit(cache=True)  # type: ignore[untyped-decorator]
def sum_before(tree: Any, place: int) -> int:
    total = 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@njit(cache=True)  # type: ignore[untyped-decorator]
def fenwick_needs(ids: Any, weights: Any, never: int) -> Any:
    """`reuse.needs`: the tree holds the weight of every object at the place of its last access."""
    tree = np.zeros(len(ids) + 1, np.int64)
    need = np.empty(len(ids), np.int64)
    last = np.full(len(weights), -1, np.int64)
    touched = 0  # weight of all objects so far
    for t in range(len(ids)):
        weight, p = weights[ids[t]], last[ids[t]]
        last[ids[t]] = t
        if p < 0:
            need[t] = never
            touched += weight
        else:
            need[t] = touched - sum_before(tree, p)
            add(tree, p, -weight)
        add(tree, t, weight)
    return need
