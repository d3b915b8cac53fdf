"""The search for the schedule and tiles that explain the counters of an attention kernel that somebody else wrote.

It goes over every schedule of attention and all tile sizes, and looks for those that predict the bytes that were
loaded. If the kernels of a call are passes of attention (gpu/profile/passes.py), each pass is explained. In any other
call the kernel that loads most is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product, starmap
from math import ceil, prod
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from ...answer import rounded
from ...core.folded import Folded
from ...core.problem import DENSE, Attention, narrowed, skips_tiles
from ...core.tiling import Tiling
from ...core.watchers import Traffic
from ...hardware import SECTOR_BYTES
from ...schedules import SCHEDULES, Schedule
from ...schedules.ways import NOT_FOR_IT, PROFILE_TILES, number_of_launches, ways
from ..compulsory import compulsory_bytes
from ..cuda.warp_split import LANES
from ..moved import DECIMALS, in_whole_tiles, launch_words, moved_bytes
from ..ncu.counters import DRAM_READ, DRAM_WRITE, ProfiledKernel
from .passes import (
    NAME_LENGTH,
    RATIO_TOLERANCE,
    PassRow,
    explain_passes,
    pass_rows,
)

if TYPE_CHECKING:
    from ...core.typing import Size

MOST_SPLITS = 128
SPLIT_TILES = Tiling(64, 128)  # a query tile for decoding; reads do not depend on the key tile
LEAST_SHARE = 0.5  # share of a call's loads; a kernel with less does not represent the call
# Bounds on stores, as multiples of the predicted ones: a log-sum-exp more or less, and single words that take whole
# sectors, are within them. A kernel that stores S or parts of O is outside.
WRITES = 0.75, 3.0
OTHER_GRID_WRITES = 0.95, 1.05  # if the kernel also has another number of blocks
INDEXED = "flex_attention"  # PyTorch's FlexAttention finds its tiles of keys in lists of blocks
SPLITS = "flash_fwd_splitkv_kernel"  # FlashAttention-2 with keys split: its grid is query tiles, splits, heads


@dataclass(frozen=True)
class Explanation:
    """A schedule and its tiles, with the bytes that they predict. Ratios are measured / predicted.

    `alike` are other tiles that predict the same. With `whole_tiles`, ragged tiles are loaded whole, as bulk copies
    (TMA) do. `splits` is the number of blocks that share the keys of a head; then only the first launch is predicted.
    With `packed`, the query heads of a group are rows of one tile (`--gqa pack`). With `visit_all`, tiles that the
    mask hides are loaded, too. `share` is the part of the call's
    loads that kernels of this name make. With `other_grid` the kernel does not have one block for each query
    tile (and split).
    """

    schedule: str
    tiling: Tiling
    read_bytes: int
    write_bytes: int
    read_ratio: float
    write_ratio: float | None
    alike: tuple[str, ...] = ()
    whole_tiles: bool = False
    splits: int | None = None
    packed: bool = False
    visit_all: bool = False
    share: float = 1.0
    other_grid: bool = False
    index_bytes: int = 0

    def problem(self, problem: Attention) -> Attention:
        """The problem in the form of this explanation."""
        p = replace(problem, visit_all=self.visit_all)
        p = replace(p, gqa="pack").packed if self.packed else p
        return narrowed(p, splits=self.splits) if self.splits else p

    @property
    def label(self) -> str:
        """The tiles, with splits, packing and visits to hidden tiles if there are any."""
        splits = f"/splits={self.splits}" if self.splits else ""
        return _tiles(self.tiling) + splits + "/pack" * self.packed + "/visit-all" * self.visit_all

    @property
    def explains(self) -> bool:
        """Whether it predicts the loads, agrees with the stores and the grid, and its kernel makes most loads of the
        call."""
        least, most = OTHER_GRID_WRITES if self.other_grid else WRITES
        stores = least <= (self.write_ratio or 1) <= most
        most_read = RATIO_TOLERANCE + self.index_bytes / max(1, self.read_bytes)
        return -RATIO_TOLERANCE <= self.read_ratio - 1 <= most_read and stores and self.share >= LEAST_SHARE


class ExplanationRow(TypedDict):
    """An explanation beside the counters of its kernel."""

    kernel: str
    schedule: str
    tiles: str
    read_predicted: int
    read_measured: int
    read_ratio: float
    write_predicted: int
    write_measured: int | None
    write_ratio: float | None
    spilled_bytes: int | None
    dram_compulsory_bytes: int | None
    dram_measured: int
    dram_ratio: float | None
    seconds: float
    explains: bool
    whole_tiles: bool
    alike: str
    answer: int
    says: str


# ---------------------------------------------------------------- the search


def explain(
    kernels: Sequence[ProfiledKernel], problem: Attention, masked_tiles: bool = True, most: int = 3
) -> tuple[ProfiledKernel, list[Explanation]]:
    """The kernel that loads most, and the best explanations of it, best first.

    They are ordered by the distance in bytes read; then by whether the grid has a block for each query tile; then by
    the bytes written. In some loop orders reads do not depend on the inner tile. So of equal ones the largest tiles of
    the most usual kind come first (powers of two, no more keys than queries); the others are listed as `alike`.
    """
    kernel = max(kernels, key=lambda k: k.load_bytes)
    share = sum(k.load_bytes for k in kernels if k.name == kernel.name) / max(1, sum(k.load_bytes for k in kernels))
    every = possible_explanations(kernel, problem, masked_tiles)
    found = [replace(e, share=share, other_grid=_blocks(e, problem) != prod(kernel.grid)) for e in every]
    if INDEXED in kernel.name:
        found = [replace(e, index_bytes=index_bytes(e, kernel, problem)) for e in found]
    found.sort(key=lambda e: (not e.explains, *_unlikely_lists(e), round(abs(e.read_ratio - 1), 6), *_unlikely(e)))
    merged: dict[tuple[str, bool, bool, int, int], list[Explanation]] = {}
    for e in found:
        merged.setdefault((e.schedule, e.packed, e.visit_all, e.read_bytes, e.write_bytes), []).append(e)
    best = list(merged.values())[:most]
    return kernel, [replace(group[0], alike=_alike(group)) for group in best]


def index_bytes(e: Explanation, kernel: ProfiledKernel, problem: Attention) -> int:
    """The most bytes that lists of blocks add. For each tile of keys a warp loads the indices of this block and of the
    next one. For each tile of queries it loads the lengths and starts of two lists. Each of these is a sector."""
    p = e.problem(problem)
    read_k = launch_words(SCHEDULES[e.schedule], p, e.tiling)[0][0] * p.instances  # of Q, K and V, not only of K
    tiles = ceil(read_k / ((p.d + p.dv) * e.tiling.rows_k)) + _blocks(e, problem)
    warps = -(-prod(kernel.block) // LANES)
    return SECTOR_BYTES * warps * (2 * tiles + 4 * _blocks(e, problem))


def _blocks(e: Explanation, problem: Attention) -> int:
    """The number of blocks of a kernel that has one for each query tile (and split)."""
    p = replace(problem, gqa="pack").packed if e.packed else problem
    return -(-p.N // e.tiling.rows_q) * p.instances * (e.splits or 1)


def _alike(group: list[Explanation]) -> tuple[str, ...]:
    """The tiles of all but the first, once each."""
    names = dict.fromkeys(_tiles(e.tiling) for e in group)
    return tuple(name for name in names if name != _tiles(group[0].tiling))


def _unlikely_lists(e: Explanation) -> tuple[int, ...]:
    """A sort key for explanations that differ from the loads only by lists of blocks. Reasons against one are another
    grid, tiles that are not powers of two, which Triton lacks, and a schedule that was registered later."""
    return (e.other_grid, _odd(e) > 0, list(SCHEDULES).index(e.schedule)) if e.index_bytes else ()


def _odd(e: Explanation) -> int:
    """The number of its tile sizes that are not powers of two."""
    return sum(n & (n - 1) != 0 for n in (e.tiling.rows_q, e.tiling.rows_k))


def _unlikely(e: Explanation) -> tuple[float, ...]:
    """A sort key for explanations that predict the reads: reasons against them, the strongest first."""
    rows_q, rows_k = e.tiling.rows_q, e.tiling.rows_k
    registered = list(SCHEDULES).index(e.schedule)  # the core schedules come first
    return e.other_grid, abs((e.write_ratio or 1) - 1), _odd(e), registered, rows_k > rows_q, -rows_k, -rows_q


def _tiles(t: Tiling) -> str:
    return f"{t.rows_q}x{t.rows_k}"


def possible_explanations(kernel: ProfiledKernel, problem: Attention, masked_tiles: bool) -> Iterator[Explanation]:
    """Every attention schedule with every pair of tile sizes, also with packed groups of query heads."""
    for schedule, visited in ways(problem):
        launches = number_of_launches(schedule, problem)
        for packed in (False, True) if packs(problem) else (False,):
            if launches == 2 and problem.mask is DENSE:
                yield from _split(schedule, problem, kernel, packed)
            if (skips_tiles(schedule, visited) and not masked_tiles) or launches != 1:
                continue
            yield from _candidates(schedule, visited, kernel, packed)


def packs(problem: Attention) -> bool:
    """Whether the query heads of a group may be rows of one tile."""
    return problem.kv_heads != problem.heads and problem.mask is DENSE


def _split(schedule: Schedule, problem: Attention, kernel: ProfiledKernel, packed: bool) -> Iterator[Explanation]:
    """An explanation for each number of splits, from the first launch of a schedule that splits the keys among
    blocks."""
    most = min(MOST_SPLITS, problem.Nk)
    every = range(2, max(3, most) + 1)
    moved = _first_launches(schedule, replace(problem, gqa="pack").packed if packed else problem, every)
    if moved[0] == moved[1]:
        return  # `splits` is no option of this schedule
    for splits, (reads, writes) in zip(every[: most - 1], moved, strict=False):
        read_bytes, write_bytes = reads * problem.word_bytes, writes * problem.acc_bytes
        ratios = kernel.load_bytes / read_bytes, kernel.store_bytes / write_bytes
        yield Explanation(schedule.name, SPLIT_TILES, read_bytes, write_bytes, *ratios, splits=splits, packed=packed)


def _first_launches(schedule: Schedule, problem: Attention, splits: range) -> list[tuple[int, int]]:
    """Words (read, written) of the first launch, over all heads, with each number of splits. One walk counts all."""
    p = narrowed(problem, visit_all=False, splits=np.array(splits, object))  # Python integers: no overflow
    traffic = Traffic()
    Folded(p, traffic).run(schedule, SPLIT_TILES)
    reads, writes = (np.broadcast_to(np.asarray(x, object), len(splits)) for x in traffic.launches[0])
    return list(zip(reads * p.instances, writes * p.instances, strict=True))


def _candidates(schedule: Schedule, problem: Attention, kernel: ProfiledKernel, packed: bool) -> Iterator[Explanation]:
    """A schedule with all pairs of tile sizes as explanations; none with those that are for other problems."""
    form = replace(problem, gqa="pack").packed if packed else problem
    measured = kernel.store_bytes if not kernel.stores_unseen else None
    for tiling, loaded, reads, writes in _moved_by_tiles(schedule, form, kernel.through_tma):
        yield Explanation(
            schedule.name,
            tiling,
            loaded,
            writes,
            kernel.load_bytes / max(1, loaded),
            None if measured is None else measured / max(1, writes),
            whole_tiles=loaded != reads,
            packed=packed,
            visit_all=problem.visit_all,
        )


def _moved_by_tiles(schedule: Schedule, problem: Attention, whole: bool) -> list[tuple[Tiling, int, int, int]]:
    """(tiles, bytes loaded, bytes read, bytes written) of each pair of tile sizes that the schedule can have. `whole`:
    ragged tiles are loaded whole. One walk counts all pairs, if the mask and each of the pairs allow that."""
    tilings = list(starmap(Tiling, product(PROFILE_TILES, PROFILE_TILES)))
    rows_q, rows_k = np.array(list(product(PROFILE_TILES, PROFILE_TILES)), object).T  # Python integers: no overflow
    try:
        moved = _moved(schedule, problem, Tiling(rows_q, rows_k), whole)
    except NOT_FOR_IT:
        return list(chain.from_iterable(_moved_by_one(schedule, problem, t, whole) for t in tilings))
    return list(zip(tilings, *(np.broadcast_to(np.asarray(x, object), len(tilings)) for x in moved), strict=True))


def _moved_by_one(
    schedule: Schedule, problem: Attention, tiling: Tiling, whole: bool
) -> list[tuple[Tiling, int, int, int]]:
    """The row of `_moved_by_tiles` for one pair of tile sizes; none if the schedule cannot have them."""
    try:
        loaded, reads, writes = _moved(schedule, problem, tiling, whole)
    except NOT_FOR_IT:
        return []
    return [(tiling, int(loaded), int(reads), int(writes))]


def _moved(schedule: Schedule, problem: Attention[Size], tiling: Tiling[Size], whole: bool) -> tuple[Size, Size, Size]:
    """(bytes loaded, bytes read, bytes written) with tiles that may be arrays."""
    reads, writes = moved_bytes(schedule, problem, tiling)
    loaded = moved_bytes(schedule, in_whole_tiles(problem, tiling), tiling)[0] if whole else reads
    return loaded, reads, writes


# ---------------------------------------------------------------- rows


def explanation_rows(
    label: str,
    kernel: ProfiledKernel,
    explanations: Sequence[Explanation],
    problem: Attention,
) -> list[ExplanationRow]:
    """A row for each explanation. The first one has the compulsory bytes of DRAM as well, if it explains."""
    rows = [
        explanation_row(label, kernel, e, problem, number == 0 and e.explains) for number, e in enumerate(explanations)
    ]
    for number, (row, e) in enumerate(zip(rows, explanations, strict=True), 1):
        row["answer"], row["says"] = number, in_words(e, explanations[0])
    if rows and not rows[0]["explains"]:
        rows[0]["says"] += split_keys(kernel)
    return rows


def split_keys(kernel: ProfiledKernel) -> str:
    """That a kernel splits the keys of each head, which no answer does under a mask; empty if it does not."""
    splits = kernel.grid[1] if SPLITS in kernel.name and len(kernel.grid) == 3 else 1
    if splits == 1:
        return ""
    return f"; {splits} of its blocks share the keys of a query tile, and each stores its part of O in fp32"


def explanation_row(
    label: str, kernel: ProfiledKernel, e: Explanation, problem: Attention, with_dram: bool
) -> ExplanationRow:
    """The row of one explanation."""
    read, written = kernel.get(DRAM_READ), kernel.get(DRAM_WRITE)
    least = compulsory_bytes(SCHEDULES[e.schedule], e.problem(problem), e.tiling)[0] if with_dram else None
    return {
        "kernel": label,
        "schedule": e.schedule,
        "tiles": e.label,
        "read_predicted": e.read_bytes,
        "read_measured": kernel.load_bytes,
        "read_ratio": round(e.read_ratio, 6),
        "write_predicted": e.write_bytes,
        "write_measured": None if kernel.stores_unseen else kernel.store_bytes,
        "write_ratio": None if e.write_ratio is None else round(e.write_ratio, 6),
        "spilled_bytes": kernel.spilled_bytes,
        "dram_compulsory_bytes": least,
        "dram_measured": read + written,
        "dram_ratio": round(read / least, 4) if least else None,
        "seconds": round(kernel.seconds, DECIMALS),
        "explains": e.explains,
        "whole_tiles": e.whole_tiles,
        "alike": " ".join(e.alike),
        "answer": 1,
        "says": in_words(e, e),
    }


def in_words(e: Explanation, first: Explanation) -> str:
    """The meaning of an answer in words, compared with the first one."""
    if not e.explains:
        return f"does not explain it: {fault(e)}"
    if e == first:
        extra = "; the rest are lists of blocks" if e.read_ratio - 1 > RATIO_TOLERANCE else ""
        return f"explains it: predicts the bytes that it loads{', not its number of blocks' * e.other_grid}{extra}"
    if (e.read_bytes, e.write_bytes, e.other_grid) == (first.read_bytes, first.write_bytes, first.other_grid):
        return f"as good as {first.schedule}: it predicts the same bytes, so the counters cannot tell them apart"
    against = ["it would have another number of blocks"] if e.other_grid and not first.other_grid else []
    if (e.write_ratio or 1) != (first.write_ratio or 1):
        against.append(f"the kernel stores {rounded(e.write_ratio or 1)} times what it predicts")
    if against:
        return f"less likely: {' and '.join(against)}; its loads are explained too"
    return "less likely: its loads are explained too, but are farther off"


def fault(e: Explanation) -> str:
    """The reason why an answer does not explain a kernel."""
    off = e.read_ratio - 1
    if abs(off) > RATIO_TOLERANCE:
        return f"the kernel loads {abs(off):.2%} {'more' if off > 0 else 'less'} than it predicts"
    if e.share < LEAST_SHARE:
        return f"the kernel makes only {e.share:.0%} of the loads of the call"
    return f"the kernel stores {rounded(e.write_ratio or 1)} times what it predicts"


def explained(
    label: str | None, kernels: Sequence[ProfiledKernel], problem: Attention
) -> Sequence[ExplanationRow] | Sequence[PassRow]:
    """The rows of one call: of its passes if it has them, else of the best explanations, best first."""
    found = explain_passes(kernels, problem)
    if found:
        return pass_rows(label or "call", kernels, found)
    kernel, explanations = explain(kernels, problem)
    return explanation_rows(label or kernel.name[:NAME_LENGTH], kernel, explanations, problem)
