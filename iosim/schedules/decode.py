"""Schedules for few queries and many keys: keys split over thread blocks (Flash-Decoding), and keys in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from ..core.arrays import smaller
from ..core.dependent_tiles import Moved, Share, Span
from ..core.problem import Tensor
from ..options import COUNT, Option
from ..oracles.attention import attention, plain_inputs, queries_keys_values
from ..steps.softmax import log_sum_exp, merge, minus_infinity, normalise, zeros
from .cache import Cache, Keys, cache_room, cache_traffic
from .flash import attend
from .registry import Schedule, register

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import Block, Machine
    from ..core.problem import Attention
    from ..core.shapes import SizeClasses, Tile
    from ..core.tiling import Tiling
    from ..core.typing import Arrays, Bools, Size, Words

    KeyTiles = Iterator[tuple[Tile, Keys]]
    Walk = Callable[[Machine, Attention, Tiling, Tile, Size | Tile], KeyTiles]


SPLITS = Option("splits", COUNT, "Shares that the keys are cut into, for split-kv (default: 4).", 4, metavar="S")
PAGE_SIZE = Option("page_size", COUNT, "Rows of a page of the KV cache, for paged (default: 16).", 16, metavar="ROWS")
FLASH_DECODING, VLLM = "Dao, Haziza, Massa and Sizov 2023, Flash-Decoding", "Kwon et al. 2023 (arXiv 2309.06180)"


def split_keys(chip: Machine, p: Attention, t: Tiling) -> None:
    """Flash-Decoding: each share of the keys gives a partial O and its LSE, and a second kernel merges them."""
    for c in chip.tiles(shares(p), 1, parallel=True):
        partial_results(chip, p, t, c, key_tiles, Share(p.Nk, share_rows(p), c), partial_rows(p))
    merge_results(chip, p, t, shares(p), partial_rows(p))


def walk_pages(chip: Machine, p: Attention, t: Tiling) -> None:
    """Attention with queries outside. K and V lie in pages, and the block table says where each page is."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q = chip.load("Q", i, where=p.mask.row(i))
        whole_result(chip, p, i, q, page_tiles(chip, p, t, i, p.Nk))


def split_pages(chip: Machine, p: Attention, t: Tiling) -> None:
    """Flash-Decoding over a cache in pages: each share consists of whole pages."""
    for c in chip.tiles(page_shares(p), 1, parallel=True):
        share = Share(p.Nk, share_pages(p) * p[PAGE_SIZE], c)
        partial_results(chip, p, t, c, page_tiles, share, page_partial_rows(p))
    merge_results(chip, p, t, page_shares(p), page_partial_rows(p))


# ---------------------------------------------------------------- parts of these


def key_tiles(chip: Machine, p: Attention, t: Tiling, i: Tile, keys: Size | Tile) -> KeyTiles:
    """The tiles of contiguous keys that query tile i sees, each with its K and V on chip."""
    cache = Cache(chip, p)
    for j in chip.tiles(keys, t.rows_k, where=p.mask.row(i)):
        yield j, cache.load(j)


def page_tiles(chip: Machine, p: Attention, t: Tiling, i: Tile, keys: Size | Tile) -> KeyTiles:
    """The tiles of keys in pages that query tile i sees, each with its K and V on chip. The block table has an entry
    for each page."""
    cache = Cache(chip, p)
    for b in chip.tiles(keys, p[PAGE_SIZE], where=p.mask.row(i)):
        entry = chip.load("table", PagesOf(pages(p), b, p[PAGE_SIZE]))
        for j in chip.tiles(b, t.rows_k, where=p.mask.row(i)):
            yield j, cache.load(rows_of_page(p, b, j, entry))


def whole_result(chip: Machine, p: Attention, i: Tile, q: Block, tiles: KeyTiles) -> None:
    """O of a tile of queries over some tiles of keys."""
    o = chip.compute("O", (i, p.dv), zeros)
    l = chip.compute("l", (i,), zeros)
    m = chip.compute("m", (i,), minus_infinity)
    for j, keys in tiles:
        attend(chip, p, i, j, q, keys, (m, l, o))
    store_whole(chip, p, i, m, l, o)


def partial_result(chip: Machine, p: Attention, i: Tile, r: Tile, q: Block, tiles: KeyTiles) -> None:
    """O and LSE of a tile of queries over some tiles of keys, stored as rows r of the partial results."""
    o = chip.compute("Opart", (r, p.dv), zeros)
    l = chip.compute("LSEpart", (r,), zeros)
    m = chip.compute("m", (i,), minus_infinity)
    for j, keys in tiles:
        attend(chip, p, i, j, q, keys, (m, l, o))
    chip.update(o, normalise, l)
    chip.store(o, "Opart", r)
    chip.update(l, log_sum_exp, m)
    chip.store(l, "LSEpart", r)


def partial_results(chip: Machine, p: Attention, t: Tiling, c: Tile, walk: Walk, share: Share, rows: Size) -> None:
    """O and LSE of all queries over the keys of share c. `rows` is the number of rows of the partial results."""
    for i in chip.tiles(p.N, t.rows_q):
        q = chip.load("Q", i, where=p.mask.row(i))
        partial_result(chip, p, i, rows_of_share(p, c, i, rows), q, walk(chip, p, t, i, share))


def merge_results(chip: Machine, p: Attention, t: Tiling, parts: Size, rows: Size) -> None:
    """O from the partial results of all shares."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        merge_parts(chip, p, i, (rows_of_share(p, c, i, rows) for c in chip.tiles(parts, 1)))


def merge_parts(chip: Machine, p: Attention, i: Tile, parts: Iterable[Tile]) -> None:
    """O of a tile of queries from its partial results, whose rows are `parts`."""
    o = chip.compute("O", (i, p.dv), zeros)
    l = chip.compute("l", (i,), zeros)
    m = chip.compute("m", (i,), minus_infinity)
    for r in parts:
        part, lse = chip.load("Opart", r), chip.load("LSEpart", r)
        chip.update((m, l, o), merge, part, lse)
    store_whole(chip, p, i, m, l, o)


def store_whole(chip: Machine, p: Attention, i: Tile, m: Block, l: Block, o: Block) -> None:
    """Divide O by its row sums and store it, and its LSE if that is asked for."""
    chip.update(o, normalise, l)
    chip.store(o, "O", i)
    if p.lse:
        chip.update(l, log_sum_exp, m)
        chip.store(l, "LSE", i)


def rows_of_share(p: Attention, c: Tile, i: Tile, rows: Size) -> Moved:
    """The rows of query tile i in the partial results of share c. The shares lie one after the other."""
    return Moved(rows, i, ((p.N, c), (1, i)))


def rows_of_page(p: Attention, b: Tile, j: Tile, entry: Block) -> Moved:
    """Key tile j of page b, in the page that the entry of the block table names."""
    return Moved(cache_rows(p), j, ((p[PAGE_SIZE], entry), (1, j), (-1, b)))


class PagesOf(Span):
    """The pages of `page` keys that a tile of keys lies in: it is a part of a page, or whole pages."""

    __slots__ = ("page",)

    def __init__(self, length: Size, tile: Tile, page: Size):
        self.length, self.tile, self.page = length, tile, page

    @property
    def start(self) -> Size:  # type: ignore[override]
        return self.tile.start // self.page

    @property
    def size(self) -> Size:  # type: ignore[override]
        return -(-self.tile.size // self.page)

    @property
    def extent(self) -> Size:
        return -(-self.tile.extent // self.page)

    def rows(self, rows: SizeClasses) -> SizeClasses:
        return [(times, {**sizes, self: -(-sizes[self.tile] // self.page)}) for times, sizes in rows]


# ---------------------------------------------------------------- sizes


def share_rows(p: Attention[Size]) -> Size:
    """Keys in one share of split-kv. The last share may have fewer."""
    return -(-p.Nk // p[SPLITS])


def shares(p: Attention[Size]) -> Size:
    """The number of shares that have keys: at most `splits`."""
    return -(-p.Nk // share_rows(p))


def partial_rows(p: Attention[Size]) -> Size:
    """Rows of the partial results of split-kv: N for each share."""
    return shares(p) * p.N


def page_rows(p: Attention[Size]) -> Size:
    """The most keys in one page."""
    return smaller(p[PAGE_SIZE], p.Nk)


def pages(p: Attention[Size]) -> Size:
    """The number of pages in the KV cache of paged."""
    return -(-p.Nk // p[PAGE_SIZE])


def share_pages(p: Attention[Size]) -> Size:
    """Pages in one share of paged-split-kv. The last share may have fewer."""
    return -(-pages(p) // p[SPLITS])


def page_shares(p: Attention[Size]) -> Size:
    """The number of shares that have pages: at most `splits`."""
    return -(-pages(p) // share_pages(p))


def page_partial_rows(p: Attention[Size]) -> Size:
    """Rows of the partial results of paged-split-kv: N for each share."""
    return page_shares(p) * p.N


def cache_rows(p: Attention[Size]) -> Size:
    """Rows in the KV cache of paged. Rows of its last page that hold no key are never read."""
    return pages(p) * p[PAGE_SIZE]


def page_scale_rows(p: Attention[Size]) -> Size:
    """Rows of the scales of a KV cache in pages."""
    return cache_rows(p) if p.scale_words else 1


# ---------------------------------------------------------------- by hand (words of one head)


def split_traffic(p: Attention, t: Tiling) -> Words:
    """R = S N d + 2 Nk d Tr + S N (d + 1), W = S N (d + 1) + N d, with S shares and dv = d.

    Every share reads Q once, reads the tiles of its keys that are seen once for each query tile that sees them, and
    writes N rows of O and LSE. The second kernel reads these and writes O.
    """
    passes, rows, seen = -(-p.N // t.rows_q), split_count(p) * p.N, seen_parts(p, t, -(-p.Nk // p[SPLITS]), t.rows_k)
    return {
        "Q": (split_count(p) * seen.queries * p.d, 0),
        **cache_traffic(p, seen.keys, split_count(p) * passes),
        "Opart": (rows * p.dv, rows * p.dv),
        "LSEpart": (rows, rows),
        "O": (0, p.N * p.dv),
        **extra(p, seen),
    }


class SeenParts(NamedTuple):
    """The queries of tiles that see anything; the keys of the parts that each query tile sees, their number, and their
    pairs with its queries, summed over the query tiles."""

    queries: int
    keys: int
    parts: int
    pairs: int


def seen_parts(p: Attention, t: Tiling, block: int, size: int) -> SeenParts:
    """What query tiles see of keys that are cut into blocks, and each of these into parts of `size` keys. Under a mask
    every part is looked at."""
    tiles, blocks = -(-p.N // t.rows_q), [min(block, p.Nk - start) for start in range(0, p.Nk, block)]
    if p.mask.columns is None:
        return SeenParts(p.N, p.Nk * tiles, tiles * sum(-(-keys // size) for keys in blocks), p.N * p.Nk)
    starts = [first + more for first in range(0, p.Nk, block) for more in range(0, min(block, p.Nk - first), size)]
    found = [0, 0, 0, 0]
    for x in range(0, p.N, t.rows_q):
        rows = min(t.rows_q, p.N - x)
        seen = cast("Bools", p.mask.visible(x, rows, 0, p.Nk).any(axis=0))
        ends = [*starts[1:], p.Nk]
        keys = [end - start for start, end in zip(starts, ends, strict=True) if seen[start:end].any()]
        each = rows * bool(keys), sum(keys), len(keys), rows * sum(keys)
        found = [a + b for a, b in zip(found, each, strict=True)]
    return SeenParts(*found)


def split_count(p: Attention) -> int:
    """The number of shares that have keys. It may be less than `splits` if that does not divide Nk."""
    return -(-p.Nk // -(-p.Nk // p[SPLITS]))


def split_room(p: Attention, t: Tiling) -> int:
    """The larger footprint of the two kernels. The first holds Q, O, K, V, S, l and m, with key tiles no longer than a
    share. The second holds two tiles of O (the sum and a part), l, m and one LSE."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, -(-p.Nk // p[SPLITS]))
    first = rows_q * (p.d + p.dv + 2) + cache_room(p, rows_k, rows_q * rows_k)
    return max(first, rows_q * (2 * p.dv + 3))


def pages_traffic(p: Attention, t: Tiling) -> Words:
    """R = N d + Tr (2 Nk d + ceil(Nk / page)), W = N d, with dv = d.

    These are the words of flash2, and one word of the block table for each page and query tile that sees it. Of the
    last page only the rows with keys move.
    """
    seen = seen_parts(p, t, p[PAGE_SIZE], t.rows_k)
    return {
        "Q": (seen.queries * p.d, 0),
        "table": (seen_parts(p, t, p.Nk, p[PAGE_SIZE]).parts, 0),
        **cache_traffic(p, seen.keys, -(-p.N // t.rows_q)),
        "O": (0, p.N * p.dv),
        **extra(p, seen),
    }


def pages_room(p: Attention, t: Tiling) -> int:
    """The footprint of flash2 with key tiles no longer than a page, and one entry of the block table."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p[PAGE_SIZE], p.Nk)
    return rows_q * (p.d + p.dv + 2) + cache_room(p, rows_k, rows_q * rows_k) + 1


def split_pages_traffic(p: Attention, t: Tiling) -> Words:
    """The words of split-kv with shares of whole pages, and one table entry for each page and query tile that sees
    it."""
    passes, rows, seen = -(-p.N // t.rows_q), page_split_count(p) * p.N, seen_parts(p, t, p[PAGE_SIZE], t.rows_k)
    return {
        "Q": (page_split_count(p) * seen.queries * p.d, 0),
        "table": (seen_parts(p, t, p.Nk, p[PAGE_SIZE]).parts, 0),
        **cache_traffic(p, seen.keys, page_split_count(p) * passes),
        "Opart": (rows * p.dv, rows * p.dv),
        "LSEpart": (rows, rows),
        "O": (0, p.N * p.dv),
        **extra(p, seen),
    }


def page_split_count(p: Attention) -> int:
    """The number of shares that have pages."""
    in_all = -(-p.Nk // p[PAGE_SIZE])
    return -(-in_all // -(-in_all // p[SPLITS]))


def split_pages_room(p: Attention, t: Tiling) -> int:
    """The larger footprint of the two kernels: that of paged, and two tiles of O, l, m and one LSE."""
    return max(pages_room(p, t), min(t.rows_q, p.N) * (2 * p.dv + 3))


def extra(p: Attention, seen: SeenParts) -> Words:
    """The words that the options `keep_p` and `lse` add: P where it is computed, and LSE, written once."""
    return {**({"P": (0, seen.pairs)} if p.keep_p else {}), **({"LSE": (0, p.N)} if p.lse else {})}


# ---------------------------------------------------------------- what `tune` may choose, the least traffic first


def shares_of_tiles(p: Attention, multiple: int) -> Iterator[int]:
    """One number of splits for each possible number of shares, from 1 on, as long as a share holds a key tile.

    More shares move more, because each reads Q again, and writes and reads a partial O and LSE. They need the same
    SRAM, because the smallest key tile fits in any share. So one share moves least; more give more thread blocks.
    """
    rows, least = p.Nk, min(multiple, p.Nk)
    while rows >= least:
        splits = -(-p.Nk // rows)
        rows = -(-p.Nk // splits)
        if rows >= least:
            yield splits
        rows -= 1


def pages_of_tiles(p: Attention, multiple: int) -> list[int]:
    """The page sizes of Kwon et al. 2023, section 7.2, that hold a key tile, largest first.

    Of the sizes that hold all keys, only the smallest is in the list. The list is never empty. Larger pages move fewer
    table entries and need the same SRAM.
    """
    needed = [size for size in PAGE_SIZES if size < 2 * p.Nk]
    return [size for size in needed if size >= min(multiple, p.Nk)][::-1] or needed[-1:]


def shares_of_pages(p: Attention, multiple: int) -> Iterator[int]:
    """One number of splits for each possible number of shares, from 1 on. More shares move more words, as in
    split-kv."""
    in_all = rows = -(-p.Nk // p[PAGE_SIZE])
    while rows >= 1:
        splits = -(-in_all // rows)
        rows = -(-in_all // splits)
        yield splits
        rows -= 1


PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

# ---------------------------------------------------------------- a cache in pages: tensors, example and answer

IN_PAGES = {
    "K": Tensor((cache_rows, "k_words"), "cache", of_keys=True),
    "V": Tensor((cache_rows, "dv"), "cache", of_keys=True),
    "Krope": Tensor((cache_rows, "rope_words"), "input", of_keys=True),
    "Kscale": Tensor((page_scale_rows, "k_scales"), "scale", of_keys=True),
    "Vscale": Tensor((page_scale_rows, "v_scales"), "scale", of_keys=True),
    "table": Tensor((pages,), "index", of_keys=True),
}


def scattered(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random Q, a block table in random order, and pages of K and V. Rows without a key must not be read: they hold
    NaN."""
    hbm = queries_keys_values(rng, p, visible)
    table = rng.permutation(pages(p))
    for name in rows_of_keys(hbm, p):
        rows = hbm[name]
        cache = rng.normal(size=(pages(p), p[PAGE_SIZE], rows.shape[1])) * float("nan")
        for b, page in enumerate(table):
            part = rows[b * p[PAGE_SIZE] : (b + 1) * p[PAGE_SIZE]]
            cache[page, : len(part)] = part
        hbm[name] = cache.reshape(-1, rows.shape[1])
    return {**hbm, "table": table}  # type: ignore[dict-item]  # whole numbers


def in_order(hbm: Arrays, p: Attention) -> Arrays:
    """Q, and the rows of K and V in the order of the block table."""
    order = {}
    for name in rows_of_keys(hbm, p):
        width = hbm[name].shape[1]
        order[name] = hbm[name].reshape(pages(p), p[PAGE_SIZE], width)[hbm["table"]].reshape(-1, width)[: p.Nk]
    return plain_inputs({**hbm, **order}, p)


def rows_of_keys(hbm: Arrays, p: Attention) -> list[str]:
    """The tensors that have a row for each key."""
    names = ("K", "V", "Krope", *(("Kscale", "Vscale") if p.scale_words else ()))
    return [name for name in names if name in hbm]


def answer_of_pages(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """Softmax attention over the keys in the order of the block table."""
    order = in_order(hbm, p)
    kept = None if p.dropout is None else p.dropout.factors(range(p.N), range(p.Nk))
    return {"O": attention(order["Q"], order["K"], order["V"], visible, kept)}


register(
    Schedule(
        "split-kv",
        split_keys,
        "keys split over --splits blocks, then combined",
        FLASH_DECODING,
        skips=True,
        options=("lse", "keep_p", "visit_all", SPLITS),
        keys_in_a_row=share_rows,
        dominated_by="flash2",
        formula="R = S N (d + dv + 1) + Nk (d + dv) Tr, W = S N (dv + 1) + N dv",
        state="a tile of Q with its O, l, m on chip; S partial O and LSE wait in HBM between launches",
        exact_traffic=split_traffic,
        footprint=split_room,
        scales=True,
        drops=True,
        tensors={
            "Opart": Tensor((partial_rows, "dv"), "state"),
            "LSEpart": Tensor((partial_rows,), "state"),
        },
        chosen={"splits": shares_of_tiles},
        known_as="flash-decoding, flash-decode, split-k, decode, decoding",
    )
)
register(
    Schedule(
        "paged",
        walk_pages,
        "Q outer, K and V in pages found through a block table",
        f"{VLLM}, PagedAttention",
        skips=True,
        options=("lse", "keep_p", "visit_all", PAGE_SIZE),
        keys_in_a_row=page_rows,
        dominated_by="flash2",
        formula="R = N d + (Nk (d + dv) + pages) Tr, W = N dv",
        state="a tile of Q with its O, l, m on chip; nothing waits in HBM",
        exact_traffic=pages_traffic,
        footprint=pages_room,
        scales=True,
        drops=True,
        tensors=IN_PAGES,
        example=scattered,
        answer=answer_of_pages,
        attention_inputs=in_order,
        chosen={"page_size": pages_of_tiles},
        known_as="paged-attention, paged-kv, vllm",
    )
)
register(
    Schedule(
        "paged-split-kv",
        split_pages,
        "pages of K and V split over --splits blocks",
        f"{FLASH_DECODING}, over the pages of {VLLM}; vLLM's PagedAttention V2",
        skips=True,
        options=("lse", "keep_p", "visit_all", SPLITS, PAGE_SIZE),
        keys_in_a_row=page_rows,
        dominated_by="flash2",
        formula="R = Sp N (d + dv + 1) + (Nk (d + dv) + pages) Tr, W = Sp N (dv + 1) + N dv",
        state="a tile of Q with its O, l, m on chip; Sp partial O and LSE wait in HBM between launches",
        exact_traffic=split_pages_traffic,
        footprint=split_pages_room,
        scales=True,
        drops=True,
        tensors={
            **IN_PAGES,
            "Opart": Tensor((page_partial_rows, "dv"), "state"),
            "LSEpart": Tensor((page_partial_rows,), "state"),
        },
        example=scattered,
        answer=answer_of_pages,
        attention_inputs=in_order,
        chosen={"splits": shares_of_pages},
        known_as="paged-attention-v2, flash-mla, flashmla, flashinfer, flash-attn-with-kvcache, vllm",
    )
)
