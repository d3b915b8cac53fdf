"""The page of `iosim report`: one HTML file about a problem, with a player."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import cast

from ..core.options import OF_STATE
from ..core.problem import DENSE, Attention, skips_tiles
from ..core.tiling import Rule, Tiling
from ..counting.asked import header
from ..counting.bounds import Bound, bounds_table, floor_of
from ..counting.published import published_line
from ..counting.report import Report
from ..counting.result import Result
from ..counting.run import counted_tiling
from ..drawing.chart import Chart, size
from ..drawing.chart_svg import WIDTH, chart_svg
from ..drawing.colours import ink_on, tensor_colours
from ..drawing.page import document, folded, legend_of, rows_table, section
from ..drawing.svg import label, segment, svg_frame, text_width
from ..schedules import find
from ..units import format_bytes
from ..wings import offered
from . import player
from .fullest import fullest
from .mask import tile_map, tiles_svg
from .mask_text import MOST_PICTURE_PAIRS

Bar = tuple[str, list[tuple[str, int]], str]
"""(name, its parts as (name, size), a note)."""
Bars = list[Bar]
RooflineSection = Callable[[Report, str | None, Sequence[str], str | None, Rule | None], str]
LETTERS = """<ul class="small">
<li>Attention computes O = P V from the matrices Q, K and V, where P is the softmax of S = Q K<sup>T</sup> / √d, row by
row. l is the sum and m the maximum of a row of S, which the softmax needs. Q has N rows, K and V have Nk; a row of Q or
K has d numbers.</li>
<li>HBM is the large, slow memory of a GPU. SRAM is the small, fast one, of M bytes, in which everything is computed.
Words, which are single numbers, move between the two.</li>
<li>Tiles are parts that are worked on together: Br x Bc means Br rows of Q with Bc rows of K and V.</li>
<li>The floor is proven: no algorithm of its class, which is exact attention by standard matrix products, moves fewer
words.</li>
</ul>"""
OF_TRAFFIC = "A dashed line needs more SRAM than M. No algorithm of its class moves fewer words than the floor."
OF_WORDS = (
    "Between HBM and SRAM, over all heads and batches. <i>best</i> tiles are those of least traffic that fit; "
    "<i>paper</i> tiles are Bc = ceil(M/4d), Br = min(Bc, d), which often do not. A word is one scalar."
)
OF_BOUNDS = (
    "A floor is a number that no algorithm of its class beats. An order says how traffic grows; its constant is "
    "unknown, so no count can be compared with it alone."
)
OF_TENSORS = (
    "What each tensor adds, read and written together. The mark is the least that any algorithm of its "
    "class can move; with schedules of several families, the least here."
)
MOST_SIDE = 512  # tiles a side of the picture of a mask; of more, several are one


def page(
    found: Report,
    chart: Chart,
    argv: list[str],
    rule: Rule | None = None,
    hardware: str | None = None,
) -> str:
    """The HTML text of a report's page.

    `chart` is the traffic against M. `rule` and `hardware` are the options that the report was counted
    with, `argv` the words of the command line after `iosim`.
    """
    ran = tilings(found)
    p = found.problem
    heading = f"{family_named(p)}, N = {p.N}, d = {p.d}" + (f", M = {size(found.M_bytes)}" if found.M_bytes else "")
    about = ", ".join(header(p, found.M_bytes).strip().split("\n"))
    mark = (float(found.M_bytes), f"M = {size(found.M_bytes)}") if found.M_bytes else None
    sections = [
        section("Traffic against M", chart_svg(chart, mark), OF_TRAFFIC, legend_of(chart)),
        player.player_html(found),
        section("Words moved", counts_table(found), OF_WORDS, whole=True),
        folded("What is proven", bounds_html(found.bounds), OF_BOUNDS),
        section("Words by tensor", tensor_bars(found), OF_TENSORS),
        on_a_gpu(found, hardware, rule),
        section("What is in SRAM at its fullest", footprint_bars(found, ran), "Bytes of the blocks resident together."),
    ]
    if p.mask is not DENSE:
        sections.append(mask_section(found, ran))
    sections.append(folded("Words by tensor and step", rows_table(found.details().grid().rows), ""))
    command = escape(" ".join(["iosim", *without_paths(argv)]))
    foot = f"<footer>iosim {found.version} · <code>{command}</code> · M in 1024s; a ragged last tile counts at its size"
    said = f"<p class=answer>{escape(found.answer)}</p>"
    if all(find(r.schedule).family == "attention" for r in found.results):
        said += LETTERS
    body = f"<h1>{escape(heading)}</h1><p>{escape(about)}</p>{said}{''.join(sections)}{foot}</footer>"
    return document(heading, body)


def family_named(p: Attention) -> str:
    """What a page is about: attention, or attention with the state of a rule."""
    rule = dict(p.own).get(OF_STATE)
    return f"Attention with a state, {rule}" if rule else "Attention"


def without_paths(argv: list[str]) -> list[str]:
    """The words of a command line without where the page goes, and with files by their names alone."""
    kept = [word for before, word in pairwise(["", *argv]) if not {before, word.partition("=")[0]} & {"-o", "--open"}]
    return [re.sub(r"[^\s:=]*/", "", word) for word in kept]


def counts_table(found: Report) -> str:
    """The table of counts with its notes, as HTML."""
    lines = published_line(found.published, found.problem)
    notes = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    return rows_table(found.counts().grid().rows) + notes


def bounds_html(bounds: list[Bound]) -> str:
    """The table of bounds with their sources, as HTML."""
    rows = bounds_table(bounds).grid().rows
    return rows_table([{**row, "source": bound.source} for row, bound in zip(rows, bounds, strict=True)])


def tilings(found: Report) -> list[tuple[Result, Tiling]]:
    """(result, its tiles) of each result that has tiles that fit or were given."""
    return [(result, counted_tiling(result)) for result in found.results if result.total is not None]


def footprint_bars(found: Report, ran: list[tuple[Result, Tiling]]) -> str:
    """Bars of the blocks in SRAM at its fullest, for each result, and the same as a table."""
    rows: Bars = []
    for result, tiling in ran:
        parts = fullest(find(result.schedule), found.problem, tiling)
        note = format_bytes(sum(part for _, part in parts)) + ": does not fit" * (result.fits is False)
        rows.append((f"{result.schedule} {result.tiling}{tiles_of(result)}", parts, note))
    limit = found.M_bytes or max((size_of(bar) for bar in rows), default=0)
    mark = limit, f"M = {size(limit)}" if found.M_bytes else f"the most: {size(limit)}"
    table = [{"schedule": name, "block": piece, "bytes": part} for name, parts, _ in rows for piece, part in parts]
    drawn = bars_html(rows, 4 * limit, mark, "SRAM at its fullest, by block", "B")
    return f"{drawn}<details><summary>in numbers</summary>{rows_table(table)}</details>"


def tensor_bars(found: Report) -> str:
    """Bars of the words of each tensor, for each schedule's last result that fits."""
    results = {r.schedule: r for r in found.results if r.total and r.fits is not False}
    if not results:
        return "<p>(nothing fits)</p>"
    least = min(r.total or 0 for r in results.values())
    families = {find(name).family for name in results}
    floors = [words for family in families if (words := floor_of(found.problem, found.M_bytes, family))]
    rows: Bars = []
    for r in sorted(results.values(), key=lambda r: r.total or 0):
        parts = [(name, moved["reads"] + moved["writes"]) for name, moved in r.tensors.items()]
        rows.append((r.schedule + tiles_of(r), parts, f"{r.total:,} words"))
    mark = (floors[0], "floor") if floors and len(families) == 1 else (least, "least here")
    return bars_html(rows, 6 * least, mark, "Words by tensor", "words")


def tiles_of(result: Result) -> str:
    """The tiles of a result after its name."""
    return f" {result.Br}x{result.Bc}" if result.Br else ""


def size_of(bar: Bar) -> int:
    """The length of a bar."""
    return sum(part for _, part in bar[1])


def bars_html(rows: Bars, longest: int, mark: tuple[int, str], title: str, unit: str) -> str:
    """Bars as a picture. Those longer than `longest` are lines of text below it."""
    within = [bar for bar in rows if size_of(bar) <= longest]
    beyond = [f"<p>{escape(bar[0])}: {escape(bar[2])}</p>" for bar in rows if size_of(bar) > longest]
    return (bars_svg(within, mark, title, unit) if within else "") + "".join(beyond)


def bars_svg(rows: Bars, mark: tuple[int, str], title: str, unit: str) -> str:
    """Stacked bars as SVG, and a mark (size, name). Parts of the same name have the same colour in all bars."""
    limit, limit_name = mark
    widest = max([limit, *map(size_of, rows)])
    left, width, height = 205, 410, 34
    scale, palette = width / widest, tensor_colours(name for _, parts, _ in rows for name, _ in parts)
    found, at = list[str](), left + limit * scale
    for k, (name, parts, note) in enumerate(rows):
        y, x = 22 + k * height, float(left)
        found.append(label(left - 8, y + 15, name, "end"))
        for piece, part in parts:
            tip, wide = f"<title>{escape(piece)}: {part:,} {unit}</title>", part * scale
            box = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="22" fill="{palette[piece]}"'
            found.append(f'<rect class="part" {box}>{tip}</rect>')
            if wide > 9 * len(piece) + 4:
                found.append(label(x + wide / 2, y + 15, piece, "middle", ink_on(palette[piece])))
            x += wide
        clear = at if x < at < x + 8 + text_width(note) else x  # no text is crossed by the mark
        found.append(label(clear + 8, y + 15, note, "start"))
    end = 22 + len(rows) * height
    found.append(segment(at, 14, at, end, "mark") + label(at, 11, limit_name, "middle"))
    return svg_frame(WIDTH, end + 6, title, "".join(found))


def on_a_gpu(found: Report, hardware: str | None, rule: Rule | None) -> str:
    """The section of the roofline, for the winner of the page and two others; empty without the wing that has it."""
    drawn = cast("RooflineSection | None", offered("roofline_section"))
    best, counted = player.winner(found), [r.schedule for r in found.results]
    names = [*dict.fromkeys(name for name in (best, *player.USUAL, *counted) if name in counted)]
    return drawn(found, best, names, hardware, rule) if drawn else ""


def mask_section(found: Report, ran: list[tuple[Result, Tiling]]) -> str:
    """The section of the mask: its picture in the tiles of the result that moves least of those that skip hidden
    tiles, which is the page's winner if that skips. Of very many tiles, several are one."""
    p = found.problem
    if p.N * p.Nk > MOST_PICTURE_PAIRS:
        return section(
            "Mask", "", f"{escape(str(p.mask))}: too many pairs for a picture (at most {MOST_PICTURE_PAIRS})."
        )
    skipping = [(r, t) for r, t in ran if r.Br and skips_tiles(find(r.schedule), p)]
    whose, rows, columns = "", max(1, p.N // 64), max(1, p.Nk // 64)
    if skipping:
        best, tiling = min(skipping, key=lambda one: (one[0].fits is False, one[0].total_bytes or 0))
        down, across = -(-p.N // tiling.rows_q // MOST_SIDE), -(-p.Nk // tiling.rows_k // MOST_SIDE)
        rows, columns = down * tiling.rows_q, across * tiling.rows_k
        several = f", {down * across} of its tiles in one" if down * across > 1 else ""
        whose = f", as {best.schedule} {tiling.rows_q}x{tiling.rows_k} sees it{several}"
    tiles = tile_map(p.mask, p.N, p.Nk, Tiling(rows, columns))
    return section("Mask", tiles_svg(tiles), escape(tiles.title + whose) + ". Queries down, keys across.")
