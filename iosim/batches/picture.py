"""A batch as a picture: the keys that each thread block of a request reads, and the bytes of each way beside the floor.

The page of a batch has the same pictures, and its tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..answer import numbered
from ..core.problem import DENSE, narrowed
from ..core.tiling import Tiling
from ..counting.floors import in_narrowest
from ..drawing.colours import COLOURS, GREY, INK
from ..drawing.page import document, rows_table, section
from ..drawing.svg import SHEET_WIDTH, head_svg, label, svg_file, svg_frame, text_width
from ..masks.reach import keys_between
from ..units import binary
from .cascade import MERGE
from .launches import Launch, problem_of
from .moved import Moved, tiling_of
from .ways import ways_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..answer import Row
    from ..core.problem import Attention
    from ..masks.mask import BoundMask
    from .answer import Batched

MOST_ITEMS, MOST_LINES = 24, 16  # requests, and blocks of one, that are drawn
ROOM, LINE, GAP = 22, 4.5, 9  # pixels: of a bar of bytes, of a block's line, between requests
BLOCK, LARGEST = COLOURS[0], COLOURS[1]


class Block(NamedTuple):
    """A thread block of one head: it has `rows` queries, and reads `keys` keys from `first` on."""

    rows: int
    first: int
    keys: int


class Item(NamedTuple):
    """The blocks of one request of a shape, or of a node of the prefix tree."""

    name: str
    keys: int
    blocks: list[Block]


@dataclass(frozen=True)
class BatchPicture:
    """The blocks of a batch by request, for its way of fewest bytes, and the bytes of all ways."""

    found: Batched

    @property
    def way(self) -> Moved:
        """The way whose blocks are drawn."""
        return self.found.least or self.found.ways[0]

    @property
    def title(self) -> str:
        """The text above the picture."""
        requests, p = numbered(self.found.batch.shapes.requests, "request"), self.found.batch.problem
        heads = f"{numbered(p.heads, 'head')} (kv {p.kv_heads})"
        return f"{requests}, d = {p.d}, {heads}: what each block of {self.way.way} reads"

    @cached_property
    def launches(self) -> list[Launch]:
        """The launches of the way, with the shapes that are drawn: those with most keys."""
        (way,) = ways_of(self.found.batch, [self.way.way])
        every = [one for one in way.launches(self.found.batch) if one.schedule is not MERGE]
        lengths = np.sort(np.concatenate([one.shapes.tokens for one in every]))[::-1]
        least = int(lengths[:MOST_ITEMS][-1])
        return [drawn(one, one.shapes.tokens >= least) for one in every if (one.shapes.tokens >= least).any()]

    @cached_property
    def items(self) -> list[Item]:
        """The requests by shape, and the nodes of the prefix tree, as far as they are drawn."""
        return [item for one in self.launches for item in items_of(self.found, one)][:MOST_ITEMS]

    def rows(self) -> list[Row]:
        """A row for each block that is drawn."""
        return [{"part": item.name, **block._asdict()} for item in self.items for block in item.blocks]

    def svg(self) -> str:
        """The text of an SVG file."""
        inside, height = self.drawing()
        return svg_file(SHEET_WIDTH, height, self.title, inside)

    def drawing(self) -> tuple[str, float]:
        """(the content of the picture, its height in pixels)."""
        parts, y = head_svg(self.title)
        blocks, y = self.blocks_svg(y + 22)
        bars, y = self.bars_svg(y + 30)
        return "".join([*parts, *blocks, *bars]), y + 12

    def blocks_svg(self, y: float) -> tuple[list[str], float]:
        """(the blocks of each request from y on, the y below them)."""
        left = 20 + max(text_width(item.name) for item in self.items)
        scale = (SHEET_WIDTH - left - 60) / max(item.keys for item in self.items)
        most = max(block.rows + block.keys for item in self.items for block in item.blocks)
        found = []
        for item in self.items:
            shared = len({block.first for block in item.blocks}) > 1  # shares of the keys lie side by side
            lines = item.blocks if shared else thinned(item.blocks)
            height = 14.0 if shared else max(14.0, LINE * len(lines))
            each = height if shared else height / len(lines)
            found.append(label(left - 8, y + height / 2 + 4, item.name, "end", INK))
            for k, block in enumerate(lines):
                top = y if shared else y + k * each
                x, wide = left + block.first * scale, max(block.keys * scale, 1)
                fill = LARGEST if block.rows + block.keys == most else BLOCK
                tip = f"<title>{block.rows:,} rows, {block.keys:,} keys from {block.first:,} on</title>"
                box = f'x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{each:.1f}"'
                found.append(f'<rect {box} fill="{fill}" stroke="#fff" stroke-width="0.6">{tip}</rect>')
            found.append(label(SHEET_WIDTH - 54, y + height / 2 + 4, f"{len(item.blocks):,}", "start", GREY))
            y += height + GAP
        notes = ["keys from left to right; a line is a block of one head, and the number is how many a request has"]
        if (more := len(self.found.batch.shapes) - len(self.items)) > 0:
            notes.append(f"{more:,} more lengths have fewer keys")
        found += [label(14, y + 8 + 15 * k, note, "start", GREY, 11) for k, note in enumerate(notes)]
        return found, y + 15 * len(notes)

    def bars_svg(self, y: float) -> tuple[list[str], float]:
        """(a bar for the bytes of each way, with the floor as a line; the y below them)."""
        ways, batch = self.found.ways, self.found.batch
        left = 20 + max(text_width(way.way) for way in ways)
        scale = (SHEET_WIDTH - left - 90) / max(way.total_bytes for way in ways)
        least = in_narrowest(batch.problem, self.found.floor.words)
        found = [label(14, y, "Bytes of each way, and the floor", "start", INK, 14, bold=True)]
        y += 14
        top = y
        for way in ways:
            wide = way.total_bytes * scale
            fill = GREY if way.fits is False else LARGEST if way is self.way else BLOCK
            found.append(label(left - 8, y + 15, way.way, "end", INK))
            tip = f"<title>{way.total_bytes:,} B</title>"
            box = f'x="{left:.1f}" y="{y + 3:.1f}" width="{wide:.1f}" height="{ROOM - 6}"'
            found.append(f'<rect {box} fill="{fill}">{tip}</rect>')
            found.append(label(left + wide + 6, y + 15, binary(way.total_bytes), "start", INK))
            y += ROOM
        x = left + least * scale
        found.append(f'<path d="M{x:.1f} {top:.1f}V{y + 4:.1f}" stroke="{INK}" stroke-width="1.6"/>')
        found.append(label(x, y + 18, f"floor {binary(least)}", "middle" if x > left + 40 else "start", INK))
        return found, y + 22


def drawn(launch: Launch, which: NDArray[np.bool]) -> Launch:
    """A launch with some of its shapes."""
    options = {name: value[which] if isinstance(value, np.ndarray) else value for name, value in launch.options.items()}
    return replace(launch, shapes=launch.shapes.picked(which), options=options)


def thinned(blocks: list[Block]) -> list[Block]:
    """Some of the blocks, evenly spread, if there are many."""
    if len(blocks) <= MOST_LINES:
        return blocks
    return [blocks[round(k * (len(blocks) - 1) / (MOST_LINES - 1))] for k in range(MOST_LINES)]


def items_of(found: Batched, launch: Launch) -> Iterator[Item]:
    """The blocks of a launch, shape by shape."""
    batch, shapes = found.batch, launch.shapes
    problem = problem_of(batch, launch)
    tiling = launch.tiles or tiling_of(batch, launch, problem)
    part = launch.share(problem).Nk if launch.share else None
    for k in range(len(shapes)):
        new, tokens, times = int(shapes.new[k]), int(shapes.tokens[k]), int(shapes.times[k])
        N = int(np.broadcast_to(problem.N, shapes.new.shape)[k])
        many = f" x {times:,}" if times > 1 else ""
        name = f"prefix of {tokens:,}" if shapes.of[k] < 0 else f"{new:,}:{tokens:,}{many}"
        own = narrowed(cast("Attention", problem), N=N, Nk=tokens)
        if part is not None:
            each = int(np.broadcast_to(part, shapes.new.shape)[k])
            (whole,) = row_blocks(own, Tiling(N, tiling.rows_k))
            starts = range(0, tokens, each)
            blocks = [within(whole, start, min(start + each, tokens), tiling.rows_k) for start in starts]
        else:
            own_tiles = Tiling(tiling.rows_q, min(tiling.rows_k, int(launch.schedule.keys_in_a_row(own))))
            blocks = row_blocks(own, own_tiles)
        yield Item(name, tokens, blocks)


def row_blocks(p: Attention, t: Tiling) -> list[Block]:
    """The blocks of tiles of queries: each with the key tiles from the first key that it sees to the last."""
    if p.mask is DENSE:
        return [Block(min(t.rows_q, p.N - first), 0, p.Nk) for first in range(0, p.N, t.rows_q)]
    ends = keys_between(cast("BoundMask", p.mask.bind(p, t)))
    return [within(Block(rows, first, end - first), 0, p.Nk, t.rows_k) for rows, first, end in ends]


def within(block: Block, start: int, end: int, Bc: int) -> Block:
    """The part of a block that lies in the keys `start` to `end`, in whole tiles of these."""
    first, last = max(block.first, start), min(block.first + block.keys, end)
    if first >= last:
        return Block(block.rows, start, 0)
    first, last = (first - start) // Bc * Bc + start, min(end, -(-(last - start) // Bc) * Bc + start)
    return Block(block.rows, first, last - first)


# ---------------------------------------------------------------- the page


def batch_page(found: Batched) -> str:
    """The page of a batch: its answer, its pictures and its tables, as HTML."""
    picture = BatchPicture(found)
    inside, height = picture.drawing()
    ways = list(found.counts().grid().rows)
    tensors = [{"way": way.way, "tensor": name, **words} for way in found.ways for name, words in way.tensors.items()]
    title, *head = found.header().splitlines()
    about = " ".join(escape(line) for line in found.lines)
    body = (
        f"<h1>{escape(title)}</h1><p class=answer>{about}</p>"
        f"{section('Blocks and bytes', svg_frame(SHEET_WIDTH, height, picture.title, inside), '')}"
        f"{section('Ways to run it', rows_table(ways), '<br>'.join(map(escape, head)), whole=True)}"
        f"{section('Words of each tensor', rows_table(tensors), '')}"
    )
    return document("A batch of requests", body)
