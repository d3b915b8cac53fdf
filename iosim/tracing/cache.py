"""Fully associative caches in place of the explicit SRAM: LRU of every size in one pass, and Belady's optimum.

A load that misses fetches its lines. A store places its lines without reading them and leaves them dirty. Dirty lines
are written back when they leave the cache, and at the end. All lines of an object share one reuse distance. So an
object stands for its lines, and every count is exact to the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np

from ..errors import InputError, suggestion
from ..search.best import footprint
from .accesses import accesses, record
from .belady import BeladyCache, WholeObjectCache, replay_accesses
from .reuse_distance import UNREACHED, dirty_needs, needs, next_access

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import ScheduleLike
    from ..tables import Row, Rows
    from .accesses import Accesses, Moves
    from .event_reader import MovesOfFile
    from .reuse_distance import Numbers

POLICIES = ("lru", "belady", "both")


@dataclass(frozen=True)
class CacheCounts:
    """The counts of a cache of `M_bytes`: misses and write-backs in accesses, and bytes fetched and written back."""

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


class ExplicitSRAM(TypedDict):
    """The traffic of a schedule itself, and the SRAM that it needs."""

    reads: int
    writes: int
    total: int
    total_bytes: int
    sram_peak_words: int | None
    sram_peak_bytes: int | None
    tensors: dict[str, dict[str, int]]


class Comparison(TypedDict):
    """Caches of several sizes beside the explicit SRAM of a schedule.

    `results` are CacheCounts as rows. Their `M_bytes` is the M asked for. `used_bytes` is the part of it
    that whole lines fill. `x_scratchpad` is the bytes of a cache over those of the explicit SRAM. `optimal` says
    whether Belady's rule is the optimum for these objects.
    """

    accesses: int
    objects: int
    granularity: str
    unit_bytes: int
    optimal: bool
    scratchpad: ExplicitSRAM
    results: list[Row]


class LRU:
    """The LRU caches of all sizes, from one pass over a string of accesses."""

    def __init__(self, string: Accesses, fast: bool | None = None):
        self.string = string
        need = needs(string.ids, string.weights, fast)
        older = dirty_needs(string.ids, string.stores, need)
        again = string.stores & (older < UNREACHED)
        self.last = np.unique(string.ids[string.stores])  # a cache of any capacity writes back their last value
        self.loads = (need[~string.stores], string.ids[~string.stores])
        self.stores = (need[string.stores], string.ids[string.stores])
        self.overwrites = (older[again], string.ids[again])

    def breakpoints(self) -> Numbers:
        """The capacities in units at which a count changes, in order. The first is 1, the smallest cache."""
        found = np.concatenate([self.loads[0], self.stores[0], self.overwrites[0]])
        return np.union1d([1], found[found < UNREACHED])

    def counts(self, capacities: ArrayLike) -> list[CacheCounts]:
        """The counts for capacities in units."""
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
        return [counts_in_bytes("lru", s, line) for line in table]


def belady(string: Accesses, capacity: int) -> CacheCounts:
    """The counts of Belady's optimum for one capacity, in units."""
    cache = (WholeObjectCache if string.whole else BeladyCache)(capacity)
    replay_accesses(cache, string.ids, string.weights, string.stores, next_access(string.ids))
    return counts_in_bytes("belady", string, (capacity, *cache.misses, cache.write_backs, *cache.moved))


def counts_in_bytes(policy: str, string: Accesses, numbers: Sequence[int]) -> CacheCounts:
    """The counts of a cache in bytes, from `numbers` in units: (capacity, misses of loads, misses of stores,
    write-backs, units fetched, units written back)."""
    capacity, reads, writes, backs, fetched, written = map(int, numbers)
    size = string.unit_bytes
    moved = (fetched * size, written * size, (fetched + written) * size)
    return CacheCounts(policy, capacity * size, string.total, reads + writes, reads, writes, backs, *moved)


def beyond(need: Numbers, amounts: Numbers, capacities: Numbers) -> Numbers:
    """The sum of the amounts whose need exceeds a capacity, for each capacity."""
    order = np.argsort(need, kind="stable")
    within = np.concatenate([[0], np.cumsum(amounts[order])])
    return cast("Numbers", within[-1] - within[np.searchsorted(need[order], capacities, side="right")])


def compare(
    schedule: ScheduleLike, problem: Attention, tiling: Tiling, sizes: Sequence[int], *,
    granularity: str = "line", line_bytes: int = 64,
    tensors: tuple[str, ...] = (), policy: str = "both", curve: bool = False,
) -> Comparison:  # fmt: skip
    """The traffic of caches of `sizes` bytes in place of a schedule's explicit SRAM, beside that of the SRAM.

    With `curve`, the LRU has a row for every size at which a count of it changes.
    """
    if policy not in POLICIES:
        raise InputError("--policy", policy, ", ".join(POLICIES), suggestion(policy, POLICIES))
    moves = record(schedule, problem, tiling, tensors)
    own = explicit_sram(schedule, problem, tiling, moves)
    return compare_moves(moves, own, sizes, granularity=granularity, line_bytes=line_bytes, policy=policy, curve=curve)


def compare_file(
    path: str, word_bytes: int, sizes: Sequence[int], *, granularity: str = "line", line_bytes: int = 64,
    tensors: tuple[str, ...] = (), policy: str = "both", curve: bool = False,
) -> Comparison:  # fmt: skip
    """The traffic of caches of `sizes` bytes, for the loads and stores of a file of events."""
    from .event_reader import moves_of_file

    if policy not in POLICIES:
        raise InputError("--policy", policy, ", ".join(POLICIES), suggestion(policy, POLICIES))
    moves = moves_of_file(path, word_bytes, tensors)
    peak = moves.peak_words
    own = moved(moves.tensors, moves.total_bytes, peak, None if peak is None else peak * word_bytes)
    return compare_moves(moves, own, sizes, granularity=granularity, line_bytes=line_bytes, policy=policy, curve=curve)


def compare_moves(
    moves: Moves | MovesOfFile, own: ExplicitSRAM, sizes: Sequence[int], *, granularity: str, line_bytes: int,
    policy: str, curve: bool,
) -> Comparison:  # fmt: skip
    """The traffic of caches of `sizes` bytes, beside that of the moves themselves."""
    string = accesses(moves, granularity, line_bytes)
    sizes = list(dict.fromkeys(sizes))
    capacities = [size // string.unit_bytes for size in sizes]
    if 0 in capacities:
        raise InputError("--M", f"{min(sizes)} B", f"at least one {granularity} of {string.unit_bytes} B")
    found: list[CacheCounts] = []
    asked = list(sizes)
    if policy != "belady":
        lru = LRU(string)
        found += lru.counts(lru.breakpoints() if curve else capacities)
        asked = [*(c.M_bytes for c in found), *sizes] if curve else sizes * 2
    if policy != "lru":
        best = {capacity: belady(string, capacity) for capacity in dict.fromkeys(capacities)}
        found += [best[capacity] for capacity in capacities]
    return {
        "accesses": string.total,
        "objects": len(np.unique(string.ids)),
        "granularity": granularity,
        "unit_bytes": string.unit_bytes,
        "optimal": not string.whole or len(np.unique(string.weights)) == 1,
        "scratchpad": own,
        "results": [
            {**vars(c), "M_bytes": M, "used_bytes": c.M_bytes, "x_scratchpad": c.total_bytes / own["total_bytes"]}
            for M, c in zip(asked, found, strict=False)
        ],
    }


def explicit_sram(schedule: ScheduleLike, problem: Attention, tiling: Tiling, moves: Moves) -> ExplicitSRAM:
    """The row with the words and bytes that the schedule itself moves, and the SRAM that it needs."""
    room = footprint(schedule, problem, tiling)
    counted = cast("dict[str, tuple[int, int]]", moves.tensors)
    return moved(counted, moves.total_bytes, cast("int", room.peak_words), cast("int", room.peak_bytes))


def moved(
    counted: Mapping[str, tuple[int, int]], total_bytes: int, peak_words: int | None, peak_bytes: int | None
) -> ExplicitSRAM:
    """The row with the words and bytes that are read and written, and the SRAM that this needs."""
    reads, writes = sum(r for r, _ in counted.values()), sum(w for _, w in counted.values())
    return {
        "reads": reads,
        "writes": writes,
        "total": reads + writes,
        "total_bytes": total_bytes,
        "sram_peak_words": peak_words,
        "sram_peak_bytes": peak_bytes,
        "tensors": {name: {"reads": r, "writes": w} for name, (r, w) in counted.items()},
    }


def comparison_header(name: str, found: Comparison) -> str:
    """The lines above the table of a comparison: what was accessed, and what the explicit SRAM moves."""
    own = found["scratchpad"]
    kind = found["granularity"]
    unit = f"{found['accesses']} {kind} accesses, to {found['objects']} {'tiles' if kind == 'tile' else 'runs'}"
    greedy = (
        "" if found["optimal"] else "\nbelady: tiles of several sizes leave whole, farthest first: a good choice only"
    )
    room = own["sram_peak_bytes"]
    itself = "without a cache it moves" if room is None else f"its explicit SRAM of {room} B moves"
    return f"{name}: {unit}\n{itself} {own['total']} words, {own['total_bytes']} B{greedy}\n\n"


def for_terminal(results: Rows) -> list[Row]:
    """The columns of the results that a terminal shows. M in whole lines is shown beside M if they differ."""
    used = ("used_bytes",) if any(row["used_bytes"] != row["M_bytes"] for row in results) else ()
    names = ("policy", "M_bytes", *used, "misses", "write_backs", "fetched_bytes", "written_bytes")
    return [{**{n: row[n] for n in names}, "x SRAM's bytes": f"{row['x_scratchpad']:.4f}"} for row in results]
