"""A cache in place of the explicit SRAM: LRU of every size in one pass, and Belady's optimum. Fully associative.

A load that misses fetches its lines. A store places its lines without reading them and leaves them dirty; dirty lines
are written back when they leave, and at the end. All lines of an object share one reuse distance, so an object stands
for its lines, and every count is exact line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, suggestion
from ..search.best import footprint
from .accesses import Accesses, accesses, record
from .reuse_distance import NEVER, dirty_needs, following, needs

POLICIES = ("lru", "belady", "both")


@dataclass(frozen=True)
class Counts:
    """What a cache of `capacity_bytes` does. `misses` and `write_backs` in accesses; bytes fetched and written back."""

    policy: str
    M_bytes: int
    accesses: int
    misses: int
    read_misses: int
    write_misses: int
    write_backs: int
    fetched_bytes: int
    written_bytes: int
    total_bytes: int


class LRU:
    """One pass over the string; then any capacity, or all of them."""

    def __init__(self, string: Accesses, fast: bool | None = None):
        self.string = string
        need = needs(string.ids, string.weights, fast)
        older = dirty_needs(string.ids, string.stores, need)
        again = string.stores & (older < NEVER)
        self.last = np.unique(string.ids[string.stores])  # their last value is written back whatever the capacity
        self.loads = (need[~string.stores], string.ids[~string.stores])
        self.stores = (need[string.stores], string.ids[string.stores])
        self.overwrites = (older[again], string.ids[again])

    def breakpoints(self) -> Any:
        """The capacities in units at which something changes, from the least that holds anything."""
        found = np.concatenate([self.loads[0], self.stores[0], self.overwrites[0]])
        return np.union1d([1], found[found < NEVER])

    def counts(self, capacities: Any) -> list[Counts]:
        """For capacities in units."""
        capacities = np.asarray(capacities, np.int64)
        s = self.string
        found = []
        for unit in (s.amounts, s.weights):
            reads, writes, older = (
                beyond(need, unit[ids], capacities) for need, ids in (self.loads, self.stores, self.overwrites)
            )
            found.append((reads, writes, older + int(unit[self.last].sum())))
        (reads, writes, backs), (fetched, _, written) = found
        table = zip(capacities, reads, writes, backs, fetched, written, strict=True)
        return [row("lru", s, line) for line in table]


def belady(string: Accesses, capacity: int) -> Counts:
    """Belady's optimum for one capacity, in units."""
    from .belady import Cache, WholeCache, replay

    later = following(string.ids)
    cache: Any = (WholeCache if string.whole else Cache)(capacity)
    replay(cache, string.ids, string.weights, string.stores, later)
    fetched, written = (cache.fetched, cache.written) if string.whole else (cache.misses[0], cache.write_backs)
    return row("belady", string, (capacity, *cache.misses, cache.write_backs, fetched, written))


def row(policy: str, string: Accesses, numbers: Sequence[int]) -> Counts:
    """From units and objects to what is told: capacity, misses of loads and stores, write-backs, what moved."""
    capacity, reads, writes, backs, fetched, written = map(int, numbers)
    size = string.unit_bytes
    moved = (fetched * size, written * size, (fetched + written) * size)
    return Counts(policy, capacity * size, string.total, reads + writes, reads, writes, backs, *moved)


def beyond(need: Any, amounts: Any, capacities: Any) -> Any:
    """For each capacity: the sum of the amounts whose need exceeds it."""
    order = np.argsort(need, kind="stable")
    within = np.concatenate([[0], np.cumsum(amounts[order])])
    return within[-1] - within[np.searchsorted(need[order], capacities, side="right")]


def compare(
    schedule: Any, problem: Any, tiling: Any, sizes: Sequence[int], *, granularity: str = "line", line_bytes: int = 64,
    tensors: tuple[str, ...] = (), policy: str = "both", curve: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Replay a schedule at caches of these bytes, beside what its explicit SRAM moves.

    With `curve`, the rows of LRU are all sizes at which it changes.
    """
    if policy not in POLICIES:
        raise InputError("--policy", policy, ", ".join(POLICIES), suggestion(policy, POLICIES))
    moves = record(schedule, problem, tiling, tensors)
    string = accesses(moves, granularity, line_bytes)
    capacities = list(dict.fromkeys(size // string.unit_bytes for size in sizes))
    if 0 in capacities:
        raise InputError("--M", f"{min(sizes)} B", f"at least one {granularity} of {string.unit_bytes} B")
    rows: list[Counts] = []
    if policy != "belady":
        lru = LRU(string)
        rows += lru.counts(lru.breakpoints() if curve else capacities)
    if policy != "lru":
        rows += [belady(string, capacity) for capacity in capacities]
    scratchpad = moves.total_bytes
    return {
        "accesses": string.total,
        "objects": len(np.unique(string.ids)),
        "granularity": granularity,
        "unit_bytes": string.unit_bytes,
        "optimal": not string.whole or len(np.unique(string.weights)) == 1,
        "scratchpad": explicit(schedule, problem, tiling, moves),
        "results": [{**vars(r), "x_scratchpad": r.total_bytes / scratchpad} for r in rows],
    }


def explicit(schedule: Any, problem: Any, tiling: Any, moves: Any) -> dict[str, Any]:
    """What the schedule itself moves, in words and bytes, and the SRAM that it needs for that."""
    room = footprint(schedule, problem, tiling)
    reads, writes = sum(moves.reads.values()), sum(moves.writes.values())
    tensors = {name: {"reads": r, "writes": w} for name, (r, w) in moves.tensors.items()}
    return {"reads": reads, "writes": writes, "total": reads + writes, "total_bytes": moves.total_bytes,
            "sram_peak_words": room.peak_words, "sram_peak_bytes": room.peak_bytes, "tensors": tensors}  # fmt: skip


def summary(name: str, found: dict[str, Any]) -> str:
    own = found["scratchpad"]
    kind = found["granularity"]
    unit = f"{found['accesses']} {kind} accesses, to {found['objects']} {'tiles' if kind == 'tile' else 'runs'}"
    greedy = (
        "" if found["optimal"] else "\nbelady: tiles of several sizes leave whole, farthest first: a good choice only"
    )
    return (
        f"{name}: {unit}\nits explicit SRAM of {own['sram_peak_bytes']} B moves {own['total']} words, "
        f"{own['total_bytes']} B{greedy}\n\n"
    )


def narrow(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The columns for people."""
    names = ("policy", "M_bytes", "misses", "write_backs", "fetched_bytes", "written_bytes")
    return [{**{n: row[n] for n in names}, "x SRAM's bytes": f"{row['x_scratchpad']:.4f}"} for row in rows]
