"""The ways to run a batch: a row each, with the launches that it stands for. Imports NumPy.

A launch is one schedule over some shapes. A way may cut requests into others, pack the query heads of a group into one
tile, and give each request its own options. Whatever it does, the schedule counts.

One schedule is of batches alone: attention over pages in whole key tiles, as kernels for prefill run it. `paged` visits
every page, and a mask only hides its scores. Here tiles that a mask hides are left out. A key tile is a part of one
page, or several pages, of which each has an entry of the block table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import lcm
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.problem import DENSE, Tensor
from ..core.tiling import Tiling
from ..counting.libraries import LIBRARIES
from ..errors import InputError, suggestion
from ..schedules import SCHEDULES, Schedule
from ..schedules.cache import Cache, Keys
from ..schedules.decode import PAGE_SIZE, SPLITS, VLLM, PagesOf, pages, whole_result
from .cascade import SOURCE, cascade
from .launches import Launch, part_in_pages, part_of_keys, rows
from .rules import launches_of, without
from .shapes import in_chunks, one_by_one

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.tiling import Tiling
    from ..core.typing import Size, Words
    from .asked import Batch
    from .shapes import Whole

    Launches = Callable[[Batch], list[Launch]]


def walk_key_tiles(chip: Machine, p: Attention, t: Tiling) -> None:
    """FlashAttention-2 over a cache in pages: each key tile reads the entries of its pages first."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i, where=p.mask.row(i))
        whole_result(chip, p, i, q, tiles_in_pages(chip, p, t, i))


def tiles_in_pages(chip: Machine, p: Attention, t: Tiling, i: Tile) -> Iterator[tuple[Tile, Keys]]:
    """The key tiles that a tile of queries sees, each with its K and V on chip."""
    cache = Cache(chip, p)
    for j in chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i)):
        chip.load("table", PagesOf(pages(p), j, p[PAGE_SIZE]))
        yield j, cache.load(j)


def key_tiles_traffic(p: Attention, t: Tiling) -> Words:
    """By hand: the words of flash2, and an entry for each page of each key tile that a tile of queries sees."""
    from ..schedules.flash import queries_outside_traffic

    widths = [min(t.rows_k, p.Nk - first) for first in range(0, p.Nk, t.rows_k)]
    tiles = -(-p.N // t.rows_q)
    seen = [[True] * len(widths)] * tiles if p.mask.columns is None else p.mask.table
    entries = sum(-(-width // p[PAGE_SIZE]) for line in seen for width, on in zip(widths, line, strict=True) if on)
    return {**queries_outside_traffic(p, t), "table": (entries, 0)}


def sizes_in_pages(p: Attention[Size], multiple: int) -> list[int]:
    """The key tiles that may be best: the parts of a page, which read fewer keys and more entries the smaller they are;
    if none is a multiple of `multiple`, the least whole pages that are."""
    page = int(p[PAGE_SIZE])
    return [size for size in range(multiple, page + 1, multiple) if page % size == 0] or [lcm(page, multiple)]


KEY_TILES = Schedule(
    "paged-tiles",
    walk_key_tiles,
    "Q outer, whole key tiles in pages, tiles that the mask hides left out",
    f"{VLLM}, with the key tiles of FlashAttention-2",
    skips=True,
    scales=True,
    options=("lse", "keep_p", PAGE_SIZE),
    exact_traffic=key_tiles_traffic,
    tensors={"table": Tensor((pages,), "index", of_keys=True)},
)


class Way(NamedTuple):
    """A way to run a batch: its name, what it does in a few words, its launches, and where it is published.

    `fails(batch)` is why it cannot be run for a batch; an empty text if it can.
    """

    name: str
    text: str
    launches: Launches
    source: str = ""
    fails: Callable[[Batch], str] = lambda batch: ""
    usual: Callable[[Batch], bool] = lambda batch: True
    """Whether it is shown if no way is named."""


def packed(schedule: Schedule) -> Launches:
    """One launch of a schedule, with the query heads of a group packed."""
    return lambda batch: [Launch(schedule, batch.shapes, batch.group > 1)]


def split(schedule: Schedule, splits: Callable[[Batch], Size] = lambda batch: batch.problem[SPLITS]) -> Launches:
    """The same for a schedule that splits the keys: by the number that is given, or by one for each shape."""
    part = part_in_pages if PAGE_SIZE in schedule.options else part_of_keys
    return lambda batch: [Launch(schedule, batch.shapes, batch.group > 1, {SPLITS.name: splits(batch)}, share=part)]


def by_length(batch: Batch) -> Whole:
    """Splits for each shape, so that no share is longer than those of the longest request."""
    share = -(-int(batch.shapes.tokens.max()) // batch.problem[SPLITS])
    return cast("Whole", -(-batch.shapes.tokens // share))


def chunked(size: int) -> Way:
    """Prefill in chunks: the new tokens of each request in steps of `size`, packed."""
    return Way(
        f"chunk-{size}",
        f"new tokens in chunks of {size}, each a launch that reads the keys before it again",
        lambda batch: rows(batch, batch.packed_mask is not None and batch.group > 1, in_chunks(batch.shapes, size)),
        fails=lambda batch: no_parts(batch, f"chunks of {size}") if size < batch.shapes.new.max() else "",
    )


def no_pack(batch: Batch) -> str:
    """Why heads cannot be packed."""
    if batch.group == 1:
        return "no query heads share a KV head"
    return "" if batch.packed_mask is not None else f"packed rows under --mask {batch.mask} are not counted"


def no_heads(batch: Batch) -> str:
    """Why a way that packs where heads share keys cannot be run."""
    return no_pack(batch) if batch.group > 1 else ""


def no_drafts(batch: Batch) -> str:
    """Why new tokens cannot be run one by one."""
    return "every request has one new token" if batch.single else no_parts(batch, "new tokens one by one")


def no_parts(batch: Batch, parts: str) -> str:
    """Why new tokens cannot be run in parts, each before the next one is there."""
    if "documents" in str(batch.problem.mask):
        return f"{parts} have no documents of their own lengths"
    if not batch.looks_ahead:
        return ""
    return f"{parts} see no later token, which --mask {batch.problem.mask} may show: join it with causal"


def no_prefix(batch: Batch) -> str:
    """Why there is no cascade."""
    if not batch.tree.shared:
        return "no requests have a prefix in common"
    if batch.mask is not DENSE and not batch.mask.is_causal:
        return "a prefix that all see is that of --mask dense or causal"
    return no_heads(batch)


def no_key_tiles(batch: Batch) -> str:
    """Why pages are not walked in key tiles."""
    if batch.mask is DENSE:
        return "no mask hides a tile, so paged moves the same"
    page, Bc = batch.problem[PAGE_SIZE], batch.tiles.rows_k if isinstance(batch.tiles, Tiling) else 1
    if page % Bc and Bc % page:
        return f"its key tiles have {Bc} keys, neither a part of a page of {page} nor whole pages"
    return no_heads(batch)


FEW = 16  # new tokens of a request whose draft may be verified token by token

WAYS = (
    Way("repeat", "one launch; each query head loads keys and values for itself", lambda b: rows(b, False)),
    Way("pack", "one launch; the query heads of a group share tiles", lambda b: rows(b, True), fails=no_pack),
    Way("split", "keys in --splits shares for all requests, and a merge", split(SCHEDULES["split-kv"]), fails=no_heads),
    Way(
        "split-by-length",
        "keys in shares that are equally long in all requests, and a merge",
        split(SCHEDULES["split-kv"], by_length),
        fails=no_heads,
    ),
    Way("paged", "one launch over pages of --page-size keys", packed(SCHEDULES["paged"]), fails=no_heads),
    Way(
        "paged-tiles",
        "pages in whole key tiles, of which those that the mask hides are left out",
        lambda b: [Launch(KEY_TILES, b.shapes, b.group > 1, key_sizes=sizes_in_pages)],
        KEY_TILES.source,
        no_key_tiles,
    ),
    Way(
        "paged-split",
        "pages in --splits shares for all requests, and a merge",
        split(SCHEDULES["paged-split-kv"]),
        fails=no_heads,
    ),
    Way(
        "decode",
        "each new token as a request of its own, packed",
        lambda b: rows(b, b.group > 1, one_by_one(b.shapes)),
        fails=lambda batch: no_drafts(batch) or no_heads(batch),
        usual=lambda b: 1 < int(b.shapes.new.max()) <= FEW,
    ),
    *(Way(one.name, one.text, launches_of(one), one.source, without(one)) for one in LIBRARIES),
    Way(
        "cascade",
        "each shared prefix once for all requests that have it, then what is left of each, and a merge of O and LSE",
        cascade,
        SOURCE,
        fails=no_prefix,
    ),
)
BY_NAME = {way.name: way for way in WAYS}


def ways_of(batch: Batch, names: Sequence[str] = ()) -> list[Way]:
    """The ways that are named, else those that can be run and are usual. InputError for one that cannot be run."""
    every = {**BY_NAME, **{way.name: way for way in map(chunked, batch.chunks)}}
    if not names:
        if batch.chunks:
            ways_of(batch, [f"chunk-{size}" for size in batch.chunks])
        return [way for way in every.values() if not way.fails(batch) and way.usual(batch)]
    found = []
    for name in dict.fromkeys(names):
        if name not in every:
            raise InputError("--way", name, ", ".join(every), suggestion(name, every))
        if why := every[name].fails(batch):
            others = ", ".join(way.name for way in every.values() if not way.fails(batch))
            raise InputError("--way", name, f"{others} for this batch", why)
        found.append(every[name])
    return found
