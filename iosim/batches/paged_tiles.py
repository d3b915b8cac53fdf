"""Attention over pages in whole key tiles, as kernels for prefill run it: tiles that a mask hides are left out.

`paged` visits every page, and a mask only hides its scores. Here a key tile is a part of one page, or several pages, of
which each has an entry of the block table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dependent_tiles import Span
from ..core.problem import Tensor
from ..schedules.cache import Cache, Keys
from ..schedules.decode import PAGE_SIZE, VLLM, pages, whole_result
from ..schedules.registry import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.typing import Attention, Machine, Size, SizeClasses, Tile, Tiling, Words


class PagesOf(Span):
    """The pages that a key tile lies in. Tiles are parts of a page, or whole pages."""

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


def smallest_key_tiles(p: Attention, multiple: int) -> Iterator[Tiling]:
    """Tiles of every height, with the smallest key tile: a whole tile is read if any of it is seen."""
    from ..core.tiling import Tiling

    return (Tiling(rows, multiple) for rows in range(multiple, p.N + multiple, multiple))


KEY_TILES = Schedule(
    "paged-tiles",
    walk_key_tiles,
    "Q outer, whole key tiles in pages, tiles that the mask hides left out",
    f"{VLLM}, with the key tiles of FlashAttention-2",
    skips=True,
    scales=True,
    options=("lse", "keep_p", PAGE_SIZE),
    exact_traffic=key_tiles_traffic,
    candidates=smallest_key_tiles,
    tensors={"table": Tensor((pages,), "index", of_keys=True)},
)
