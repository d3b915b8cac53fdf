"""A mask tile by tile, as a picture: how much of each tile is visible."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling, parse_tiles
from ..counting.given import Given, problem
from ..drawing.asked import Asked, PictureKind
from ..drawing.chart_svg import LEFT
from ..drawing.colours import INK
from ..drawing.picture import Picture
from ..drawing.svg import PLAIN, SHEET_WIDTH, head_svg, label, svg_file, svg_frame
from ..errors import InputError
from ..masks import parse_mask
from .mask_text import MOST_PICTURE_PAIRS, bound, counts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.mask_types import Mask
    from ..core.tiling import Tiling
    from ..tables import Row

MOST_TILES = 1024


@dataclass(frozen=True)
class TileMap:
    """How much of each tile of a mask is visible. Pairs are evaluated when it is drawn."""

    title: str
    problem: Attention
    tiling: Tiling

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The visible share of each tile, from 0 to 1: (Tr, Tc)."""
        p, t = self.problem, self.tiling
        rows, columns = range(0, p.N, t.rows_q), range(0, p.Nk, t.rows_k)
        if p.N * p.Nk > MOST_PICTURE_PAIRS or max(len(rows), len(columns)) > MOST_TILES:
            found = f"{p.N} x {p.Nk} tokens in {len(rows)} x {len(columns)} tiles"
            allowed = f"at most {MOST_PICTURE_PAIRS} pairs and {MOST_TILES} tiles a side"
            raise InputError("mask picture", found, allowed, "try a smaller --N or larger --tiles")
        return np.ones((len(rows), len(columns))) if p.mask is DENSE else visible_shares(p, t)

    def rows(self) -> list[Row]:
        """A row for each tile, with the share of it that is visible."""
        lines = enumerate(self.shares.tolist())
        return [{"i": i, "j": j, "visible": share} for i, line in lines for j, share in enumerate(line)]

    def svg(self) -> str:
        """The text of an SVG file: the title, the tiles, and what the axes and the shades mean."""
        (width, height), rects = tile_rects(self)
        left = LEFT + 14
        parts, top = head_svg(self.title)
        parts.append(label(left, top + 22, "keys →", "start", INK) + label(left - 7, top + 44, "queries ↓", "end", INK))
        parts.append(f'<g transform="translate({left} {top + 32})">{"".join(rects)}</g>')
        for k, share in enumerate((1.0, 0.5, 0.0)):
            x, y = left + width + 24, top + 50 + 24 * k
            look = PLAIN["tile"] + f' opacity="{opacity(share):.2f}"' if share else PLAIN["empty"]
            parts.append(f'<rect {look} x="{x:.1f}" y="{y - 11:.1f}" width="14" height="14"/>')
            text = f"{share:.0%} of the pairs visible" if share else "skipped"
            parts.append(label(x + 20, y, text, "start", INK))
        bottom = top + 32 + max(height, 90) + 16
        return svg_file(SHEET_WIDTH, bottom, self.title, "".join(parts))


def tile_map(mask: str | Mask, N: int, Nk: int | None, tiling: Tiling) -> TileMap:
    """The map of a mask over N queries and Nk keys."""
    p, of = Attention(N, 1, Nk=N if Nk is None else Nk, mask=parse_mask(mask)), bound(mask, tiling, N, Nk)
    active, tiles = int(of.active_tiles), of.Tr * of.Tc
    title = f"{p.mask}, N = {p.N}, Nk = {p.Nk}, tiles {tiling.rows_q}x{tiling.rows_k}: "
    title += f"{active:,} of {tiles:,} tiles active ({active / tiles:.1%})"
    return TileMap(title, p, Tiling(min(tiling.rows_q, p.N), min(tiling.rows_k, p.Nk)))


def visible_shares(p: Attention, tiling: Tiling) -> NDArray[np.float64]:
    """The visible share of every tile. The problem's mask must not be dense."""
    bound = p.mask.bind(p, tiling, True)
    rows, columns = range(0, p.N, tiling.rows_q), range(0, p.Nk, tiling.rows_k)
    shares = np.empty((len(rows), len(columns)))  # of at most MOST_PICTURE_PAIRS = 2^28 pairs
    for i, start in enumerate(rows):  # one row of tiles at a time, so that memory does not grow with N^2
        height = min(tiling.rows_q, p.N - start)
        seen = bound.visible(start, height, 0, p.Nk).sum(axis=0)
        shares[i] = np.add.reduceat(seen, columns) / (height * np.diff([*columns, p.Nk]))
    return shares


def tiles_svg(tiles: TileMap) -> str:
    """A mask as SVG for a page, tile by tile."""
    (width, height), found = tile_rects(tiles)
    return svg_frame(width, height, tiles.title, "".join(found))


def opacity(share: float) -> float:
    """The opacity of a tile of which this share is visible."""
    return 0.35 + 0.65 * share


def tile_rects(tiles: TileMap) -> tuple[tuple[float, float], list[str]]:
    """(width, height) of a mask, and its tiles. The more of a tile is visible, the darker it is. Runs of equal small
    tiles are one rectangle."""
    rows, columns = tiles.shares.shape
    scale = 420 / max(rows * tiles.tiling.rows_q, columns * tiles.tiling.rows_k)
    height, width = scale * tiles.tiling.rows_q, scale * tiles.tiling.rows_k
    gap = 0.7 if min(height, width) > 4 else 0
    found = [f'<rect class="empty" {PLAIN["empty"]} width="{columns * width:.1f}" height="{rows * height:.1f}"/>']
    for i, line in enumerate(tiles.shares.tolist()):
        start = 0
        for j in range(1, columns + 1):
            if gap or j == columns or line[j] != line[start]:
                if line[start]:
                    box = f'x="{start * width:.1f}" y="{i * height:.1f}" width="{(j - start) * width - gap:.1f}"'
                    look = f'height="{height - gap:.1f}" opacity="{opacity(line[start]):.2f}"'
                    found.append(f'<rect class="tile" {PLAIN["tile"]} {box} {look}/>')
                start = j
    return (columns * width, rows * height), found


def of_mask(asked: Asked) -> Picture:
    """The picture of the mask, as text too."""
    shown = {name: asked.values.get(name) for name in ("N", "Nk", "mask")}
    p, tiling = problem(cast("Given", {**shown, "d": "1"})), parse_tiles(asked.choice.tiles or "64x64")
    return Picture(tile_map(p.mask, p.N, p.Nk, tiling), said=counts_of(cast("str", shown["mask"]), tiling, p.N, p.Nk))


MASK = PictureKind(of_mask, needs=("mask", "N"), ignores=("M", "schedules", "hardware"), text=True)
