"""What a way moves: the counts of its launches, summed over the requests. Imports NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from ..core.problem import DENSE, TENSORS, Attention, narrowed, skips_tiles, with_mask
from ..core.tiling import Tiling
from ..masks.between import between
from ..masks.grouped import grouped
from ..progress import watched
from ..search.best import Pair, best_tiles, last_within
from ..timing.blocks import first_blocks
from ..timing.products import unit_of
from .launches import Counted, Launch, asked_of, counts_of, extreme, in_one_walk, problem_of, single
from .timed import fastest, least_time

if TYPE_CHECKING:
    from ..core.typing import Size
    from ..counting.typing import Counted as MeasuredOf
    from .asked import Batch
    from .ways import Way


LENGTHS_BYTES = 512
"""Bytes that a block of PyTorch's kernel for batches of unequal lengths loads beside its schedule: the two ends of its
request in both lists of cumulative lengths, four words. Each of its four warps loads them, one sector of 32 B each."""
MOST_SHARES = 1000  # shares under a mask that are counted one by one
MOST_TILES = 4096  # tile sizes that are tried for one batch


@dataclass(frozen=True)
class Moved:
    """The words and bytes of one way to run a batch, over all heads, requests and layers."""

    way: str
    """Its name."""
    schedule: str
    """The schedules of its launches."""
    tiles: str
    """The tiles of its launches."""
    fits: bool | None
    """Whether all launches fit in M; None without M."""
    smem_peak_bytes: int
    """The most shared memory that a block needs."""
    sram_peak_bytes: int
    """The most that a block holds, of shared memory and registers together."""
    reads: int
    writes: int
    total: int
    read_bytes: int
    write_bytes: int
    total_bytes: int
    flops: int
    blocks: int
    """Thread blocks of the first kernel of each launch that have work, of one layer."""
    grid_blocks: int
    """Thread blocks of the grids, of one layer: each request has as many as the one that needs most."""
    lengths_bytes: int
    """Bytes of the cumulative lengths that the blocks of the grids load in PyTorch's kernel, in no other number."""
    largest_block: float | None
    """The words of the largest block over the mean of all blocks; None under masks for which it is not known."""
    kv_times_read: float
    """How often a word of K and V is read, on average over the distinct ones."""
    ratio_to_floor: float | None = None
    """`total` over the floor of the batch; None if a launch does not fit."""
    tensors: dict[str, dict[str, int]] = field(default_factory=dict, hash=False)
    """`{tensor: {"reads": words, "writes": words, "bytes": bytes of both}}`."""
    by_shape: tuple[Sequence[int], Sequence[int]] = field(default=((), ()), hash=False, repr=False)
    """(words, bytes) of each shape of the batch; what several requests have in common is in none of them."""
    source: str = ""
    """Where the way is published."""
    at_least_seconds: float | None = None
    """The least time on the GPU that is named, over all layers."""
    binds: str | None = None
    """What binds in that time."""


def moved_by(
    batch: Batch,
    way: Way,
    floor_words: int | None,
    detail: bool = False,
) -> Moved:
    """What a way moves. `floor_words` are the floor of the batch. Only with `detail` it has the words of each shape."""
    found = [counted(batch, launch) for launch in way.launches(batch)]
    total: dict[str, int] = {
        name: sum(one.sum(one.of[name]) for one in found)  # type: ignore[literal-required]
        for name in ("reads", "writes", "read_bytes", "write_bytes", "flops")
    }
    tensors = tensors_of(found)
    needed = max(int(np.max(one.of["smem_peak_bytes"])) for one in found)
    fits = None if batch.M_bytes is None else needed <= batch.M_bytes
    words = total["reads"] + total["writes"]
    number, grid, largest = blocks_of(batch, found)
    time = None if batch.chip is None else least_time(batch, [one[:3] for one in found], batch.chip)
    distinct_words = sum(batch.distinct[name] for name in batch.problem.cache_tensors)
    kept = sum(tensors[name]["reads"] for name in batch.problem.cache_tensors if name in tensors)
    return Moved(
        way=way.name,
        schedule=", ".join(dict.fromkeys(one.launch.schedule.name for one in found)),
        tiles=", ".join(dict.fromkeys(f"{one.tiling.rows_q}x{one.tiling.rows_k}" for one in found)),
        fits=fits,
        smem_peak_bytes=needed,
        sram_peak_bytes=max(int(np.max(one.of["sram_peak_bytes"])) for one in found),
        total=words,
        total_bytes=total["read_bytes"] + total["write_bytes"],
        blocks=number // batch.layers,
        grid_blocks=grid // batch.layers,
        lengths_bytes=LENGTHS_BYTES * grid,
        largest_block=largest,
        kv_times_read=kept / max(1, distinct_words),
        ratio_to_floor=words / floor_words if floor_words and fits is not False else None,
        tensors=tensors,
        by_shape=by_shape(batch, found) if detail else ((), ()),
        source=way.source,
        at_least_seconds=None if time is None else batch.layers * time.seconds,
        binds=None if time is None else time.binds,
        **total,
    )


# ---------------------------------------------------------------- one launch


def counted(batch: Batch, launch: Launch) -> Counted:
    """The counts of a launch, in one walk over arrays where the mask allows that."""
    problem = problem_of(batch, launch)
    tiling, unit = launch.tiles or tiling_of(batch, launch, problem), unit_of(batch.chip, problem.dtype)
    return Counted(launch, problem, tiling, counts_of(launch, problem, tiling, unit))


def tensors_of(found: Sequence[Counted]) -> dict[str, dict[str, int]]:
    """The words and bytes of each tensor, over all launches."""
    total: dict[str, dict[str, int]] = {}
    for one in found:
        known = {**TENSORS, **one.launch.schedule.tensors}
        for name, each in one.of["tensors"].items():
            sums = total.setdefault(name, {"reads": 0, "writes": 0, "bytes": 0})
            reads, writes = one.sum(each["reads"]), one.sum(each["writes"])
            sums["reads"] += reads
            sums["writes"] += writes
            sums["bytes"] += int(one.problem.in_bytes(known[name], reads + writes))
    return total


def by_shape(batch: Batch, found: Sequence[Counted]) -> tuple[list[int], list[int]]:
    """(words, bytes) of one request of each shape, over the parts that it was cut into; of requests that were cut in
    other ways, the mean in whole words."""
    total = [np.zeros(len(batch.shapes), object) for _ in range(2)]
    for one in found:
        of = one.launch.shapes.of
        mine = of >= 0
        for sums, values in zip(total, (one.of["total"], one.of["total_bytes"]), strict=True):
            each = np.broadcast_to(np.asarray(values, object), of.shape)[mine]
            np.add.at(sums, of[mine], each * one.launch.shapes.times[mine])
    words, size = (sums // batch.shapes.times for sums in total)
    return words.tolist(), size.tolist()


# ---------------------------------------------------------------- tiles


def tiling_of(batch: Batch, launch: Launch, problem: Attention[Size]) -> Tiling:
    """The tiles of a launch: those asked for, or those of least traffic that fit. One launch has one tile size."""
    if isinstance(batch.tiles, Tiling):
        return batch.tiles
    if batch.chip is not None:
        return fastest(batch, launch, problem, batch.chip) or Tiling(batch.multiple, batch.multiple)
    if len(launch.shapes) == 1 and launch.key_sizes is None:
        alone = next(single(problem, 1))
        found = best_tiles(launch.schedule, alone, cast("int", batch.M_bytes), batch.multiple)  # type: ignore[arg-type]
    else:
        found = least(batch, launch, problem)
    return found or Tiling(batch.multiple, min(key_sizes(batch, launch) or [batch.multiple]))


def key_sizes(batch: Batch, launch: Launch) -> Sequence[int]:
    """The sizes of key tiles of which one is best under a mask, beside any number of rows: the smallest, because a
    whole tile is read if any of it is seen, unless the launch says others. None without a mask."""
    if launch.key_sizes is not None:
        return launch.key_sizes(batch.problem, batch.multiple)
    masked = batch.mask is not DENSE and not launch.sees_all and skips_tiles(launch.schedule, asked_of(batch, launch))
    return [batch.multiple] if masked else []


def least(batch: Batch, launch: Launch, problem: Attention[Size]) -> Tiling | None:
    """The tiles of least traffic over all shapes that fit in M: of equal ones those with the fewest rows. Without a
    mask the key tile is the largest that fits."""
    M_bytes, sizes = cast("int", batch.M_bytes), {name: int(np.max(getattr(problem, name))) for name in ("N", "Nk")}
    largest = with_mask(narrowed(problem, **sizes, **extreme(launch, np.min)))  # no share is longer than with these
    pair = Pair(launch.schedule, largest, batch.multiple, "rows_q", "rows_k")
    chosen = sorted(key_sizes(batch, launch), reverse=True)
    tilings = [Tiling(Br, Bc) for Bc in chosen for Br in heights(pair, M_bytes, Bc)]
    if not chosen:
        every = heights(pair, M_bytes, batch.multiple)
        tilings = [Tiling(Br, cast("int", pair.widest(Br, M_bytes))) for Br in every]
    best: tuple[int, Tiling] | None = None
    for tiling in watched(tilings, f"tiles of {launch.schedule.name}", len(tilings)):
        total = launch.shapes.sum(counts_of(launch, problem, tiling)["total_bytes"])
        if best is None or total < best[0]:
            best = total, tiling
    return best[1] if best else None


def heights(pair: Pair, M_bytes: int, Bc: int) -> Sequence[int]:
    """The rows of tiles that may be best beside key tiles of Bc; if there are many, those that give other numbers of
    tiles to the largest request."""
    rows, step = cast("int", pair.p.N), pair.multiple
    units = cast("int", pair.units("rows_q"))
    most = int(last_within(lambda n: pair.needed(n * step, Bc), M_bytes, units))
    if most <= MOST_TILES:
        return range(step, most * step + 1, step)
    fewest = -(-rows // (most * step))
    return sorted({step * min(most, -(-rows // (count * step))) for count in range(fewest, MOST_TILES)})


# ---------------------------------------------------------------- thread blocks


def blocks_of(batch: Batch, found: Sequence[Counted]) -> tuple[int, int, float | None]:
    """(the blocks with work, the blocks of the grids, the words of the largest block over the mean), over the first
    kernels of all launches. A grid has as many blocks for each request as for the one that needs most."""
    number = grid = words = 0
    largest: list[int] = []
    known = True
    for one in found:
        each = blocks_of_shapes(one)
        number += one.sum(each)
        grid += int(np.max(each)) * one.launch.shapes.requests
        words += one.sum(first_of(one.of))
        parts = largest_parts(batch, one)
        known = known and parts is not None
        largest += [words_of_block(one, part) for part in parts or ()]
    return number, grid, max(largest) * number / words if known and words else None


def blocks_of_shapes(one: Counted) -> Size:
    """The thread blocks of the first kernel, for each shape."""
    schedule, tiling = one.launch.schedule, cast("Tiling[Size]", one.tiling)
    if in_one_walk(one.problem):
        return first_blocks(schedule, one.problem, tiling)
    alone = single(one.problem, len(one.launch.shapes))
    return np.array([first_blocks(schedule, each, tiling) for each in alone], object)


def words_of_block(one: Counted, part: Attention[Size]) -> int:
    """The most words that the first kernel moves for one block of a part, which has one block a head."""
    words = first_of(counts_of(one.launch, part, one.tiling))
    return int(np.max(words // cast("int", part.instances)))


def first_of(found: MeasuredOf[Size]) -> Size:
    """The words of the first kernel, whose blocks are counted."""
    return found["steps"][0]["reads"] + found["steps"][0]["writes"]


def largest_parts(batch: Batch, one: Counted) -> list[Attention[Size]] | None:
    """The problems of the blocks that may be the largest: a share of the keys, or a tile of queries with the keys that
    it sees. None under a mask other than `causal`."""
    p = one.problem
    rows = np.minimum(one.tiling.rows_q, p.N)
    group = batch.group if one.launch.packs else 1
    if p.mask is not DENSE and not p.mask.is_causal:
        return None
    if one.launch.share is not None:
        return first_shares(p, with_mask(one.launch.share(p)), group)
    if p.mask is DENSE:
        return [narrowed(p, N=rows)]
    last = (p.N - 1) // rows * rows  # the first row of the last tile
    ends = p.Nk, p.Nk - p.N // group + (np.maximum(last, 1) - 1) // group + 1
    whole = [whole_tiles(one, end) for end in ends]
    plain = with_mask(p)
    return [
        narrowed(plain, N=p.N - last, Nk=whole[0]),
        narrowed(plain, N=rows, Nk=np.where(last > 0, whole[1], 1)),
    ]


def first_shares(p: Attention[Size], part: Attention[Size], group: int) -> list[Attention[Size]] | None:
    """The first shares of requests, of which no later one sees more: those whose keys all queries see together, and
    those under the rest of `causal` one by one. None if more than MOST_SHARES are of that kind."""
    hidden = np.atleast_1d((p.mask is not DENSE) & (p.Nk - p.N // group < part.Nk - 1))
    sizes = [np.broadcast_to(np.asarray(size), hidden.shape)[hidden].tolist() for size in (p.N, p.Nk, part.Nk)]
    each = sorted({*zip(*sizes, strict=True)})
    if len(each) > MOST_SHARES:
        return None
    found = [narrowed(part, Nk=np.where(hidden, 1, part.Nk))]
    for N, Nk, share in each:
        rest = between(-N, Nk - N // group, N // group, share)
        mask = grouped(rest, group) if group > 1 else rest
        assert mask is not None, "it is a strip of diagonals"
        found.append(with_mask(cast("Attention[Size]", narrowed(part, N=N, Nk=share)), mask))
    return found


def whole_tiles(one: Counted, end: Size) -> Size:
    """The keys before `end`, with the rest of the tile of the last one. Tiles begin anew with each block of keys."""
    block, Bc = one.launch.schedule.keys_in_a_row(one.problem), one.tiling.rows_k
    start = (np.maximum(end, 1) - 1) // block * block
    return np.minimum(one.problem.Nk, start + np.minimum(block, -(-(end - start) // Bc) * Bc))
