"""A page in one HTML file: its styles for light and dark screens and for paper, its sections and its tables."""

from __future__ import annotations

from html import escape

from ..grid import ByteCell, grouped
from ..tables import Rows
from . import player
from .chart import Chart
from .chart_svg import looks
from .colours import GREY

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --muted: #6a6a6a; --paper: #fff; --rule: #dcdcdc; --tile: #0072b2;
        --empty: #eef2f5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --muted: #a0a0a0; --paper: #16181b; --rule: #3a3d42;
        --tile: #56b4e9; --empty: #23272c; }
        [fill="#767676"] { fill: var(--muted); } [stroke="#767676"] { stroke: var(--muted); }
        [fill="#333333"] { fill: var(--ink); } [stroke="#333333"] { stroke: var(--ink); }
        [stroke="#0072B2"] { stroke: #2b94d8; } [stroke="#882255"] { stroke: #c4609a; }
        .legend [style*="#767676"] { color: var(--muted) !important; }
        .legend [style*="#0072B2"] { color: #2b94d8 !important; }
        .legend [style*="#882255"] { color: #c4609a !important; } }
@media print { :root { --ink: #000; --muted: #555; --paper: #fff; --rule: #ccc; --tile: #0072b2; --empty: #f2f2f2; }
        svg, tr { break-inside: avoid; } h2 { break-after: avoid; } body { padding: 0; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 84rem;
       margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
summary h2 { display: inline-block; margin: .6rem 0; } summary { cursor: pointer; }
p, ul { max-width: 46rem; margin: .3rem 0 .7rem; } ul { padding-left: 1.2rem; }
.answer { font-size: 1.05rem; border-left: 3px solid var(--tile); padding-left: .8rem; }
.small, footer { color: var(--muted); font-size: .85rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .55rem; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
th { font-weight: 600; vertical-align: bottom; } .n { text-align: right; } td.n, td:first-child { white-space: nowrap; }
.no { font-weight: 700; }
svg { width: 100%; height: auto; display: block; } svg { color: var(--ink); }
.legend { display: none; list-style: none; padding: 0; font-size: .85rem; }
.legend span { display: inline-block; width: 1.6rem; border-top: .2rem solid; margin: 0 .5rem .2rem 0;
       vertical-align: middle; }
.legend .dashed { border-top-style: dashed; } .legend .dotted { border-top-style: dotted; }
@media (max-width: 45rem) { .wide > svg:has(text) { min-width: 38rem; } .legend { display: block; } }
@media (min-width: 64rem) {
       section { display: grid; grid-template-columns: 17rem minmax(0, 1fr); gap: 0 2rem; margin: 2rem 0; }
       section > h2, section > p { grid-column: 1; margin-top: 0; }
       section.whole { display: block; } section.whole > p { max-width: none; }
       section > div, section > details { grid-column: 2; grid-row: 1 / span 3; min-width: 0; }
       .answer, .answer + p { max-width: none; } .wide > svg { max-width: none !important; }
       main > ul { columns: 2; max-width: none; column-gap: 2rem; } }
.grid { stroke: var(--rule); } .mark { stroke: var(--muted); }
.part { stroke: var(--paper); stroke-width: 1; } .empty { fill: var(--empty); } .tile { fill: var(--tile); }
"""


def document(title: str, body: str) -> str:
    """A page with this title and body (HTML), in one file."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    styles = f"<style>{STYLE}{player.style()}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}{styles}</head><body><main>{body}</main></body></html>\n'


def section(title: str, content: str, words: str, below: str = "", whole: bool = False) -> str:
    """A section of the page: its title, `words` in small print (HTML), then its content (HTML), and what is `below` it
    and never wider than the screen (HTML). A `whole` one has no column for its words beside it."""
    text = f'<p class="small">{words}</p>' if words else ""
    kind = " class=whole" if whole else ""
    return f"\n<section{kind}><h2>{escape(title)}</h2>{text}<div>{scrolling(title, content)}{below}</div></section>"


def legend_of(chart: Chart) -> str:
    """The names of a chart's lines, in their colours and dashes. Narrow screens show it, where labels at the ends are
    out of sight."""
    known, found = looks(chart.lines), []
    for line in {line.label: line for line in chart.lines}.values():
        beyond = line.kind == "data" and 2 * sum(line.fits) < len(line.fits)  # most of its points do not fit
        dashes = "dotted" if line.kind == "order" else "dashed" * beyond
        colour = known[line.label].colour if line.kind == "data" else GREY
        kind = f' class="{dashes}"' if dashes else ""
        style = f"color:{colour};opacity:{known[line.label].tint:g}"
        found.append(f'<li><span{kind} style="{style}"></span>{escape(line.label)}</li>')
    return f'<ul class="legend">{"".join(found)}</ul>'


def folded(title: str, content: str, words: str) -> str:
    """A section that the reader unfolds."""
    text = f'<p class="small">{words}</p>' if words else ""
    inside = text + scrolling(title, content)
    return f"\n<section><details><summary><h2>{escape(title)}</h2></summary>{inside}</details></section>"


def scrolling(title: str, content: str) -> str:
    """Content that may be wider than the screen. The keyboard can reach and scroll it."""
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(title)}">{content}</div>'


def rows_table(rows: Rows) -> str:
    """Rows as an HTML table. Numbers are flush right."""
    if not rows:
        return "<p>(no rows)</p>"
    head = "".join(f"<th{' class=n' if is_number(rows, name) else ''}>{escape(name)}</th>" for name in rows[0])
    numbers = [is_number(rows, name) for name in rows[0]]
    body = "".join("<tr>" + "".join(map(html_cell, row.values(), numbers)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def is_number(rows: Rows, name: str) -> bool:
    """Whether a column holds only numbers and empty cells."""
    return all(str(row[name])[:1].isdigit() or row[name] in (None, "-") for row in rows)


def html_cell(value: object, number: bool) -> str:
    """A cell of an HTML table, in a column of numbers or of texts."""
    text = "–" if value is None or value == "-" else grouped(value)
    style = (
        " class=no" if text in ("NO", "nothing fits") else " class=n" if number or isinstance(value, ByteCell) else ""
    )
    return f"<td{style}>{escape(text)}</td>"
