"""The text of SVG pictures: their frame, texts, lines and legends. Written without a library.

A page's style sheet may set the colours of what has a class.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import NamedTuple

from .colours import INK

SHEET_WIDTH = 720  # so that text of 12 pixels is readable on a page that is 500 pixels wide
LINE_GAP = 15
THIN = 0.7  # pixels between points of a line
# Attributes for viewers without style sheets; a style sheet overrides them.
PLAIN = {
    "grid": 'stroke="#dcdcdc" stroke-width="0.7"',
    "mark": 'stroke="#555" stroke-width="1.2" stroke-dasharray="2 3"',
    "empty": 'fill="#eef2f5"',
    "tile": 'fill="#0072b2"',
}


def svg_frame(width: float, height: float, title: str, inside: str) -> str:
    """An SVG picture of this size, in pixels, around its content."""
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" style="max-width:{width:g}px"'
    font = 'font-family="sans-serif" font-size="12" fill="currentColor"'
    return f"<svg {box} {font}><title>{escape(title)}</title>{inside}</svg>"


def svg_file(width: float, height: float, title: str, inside: str) -> str:
    """The text of an SVG file of this size, in pixels, on white."""
    whole = svg_frame(width, height, title, '<rect width="100%" height="100%" fill="#fff"/>' + inside)
    size = f' xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + whole.replace(" viewBox", size + " viewBox", 1) + "\n"


BOLD = 1.15  # the width of bold letters over that of others


def head_svg(title: str) -> tuple[list[str], float]:
    """The title of a sheet, in as many lines as it needs, and the pixels from the top that it takes."""
    lines = broken(title, (SHEET_WIDTH - 28) / BOLD, 14)
    return [label(14, 24 + 18 * k, line, "start", INK, 14, bold=True) for k, line in enumerate(lines)], 12 + 18 * len(
        lines
    )


def label(x: float, y: float, text: str, anchor: str, colour: str = "", size: float = 12, bold: bool = False) -> str:
    """A text at a place; `anchor` is start, middle or end."""
    fill = f' fill="{colour}"' if colour else ""
    fill += (f' font-size="{size:g}"' if size != 12 else "") + (' font-weight="bold"' if bold else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(text)}</text>'


def text_width(text: str, size: float = 12) -> float:
    """The width of a text in pixels, with room to spare: fonts differ from viewer to viewer."""
    narrow = sum(letter in " ijlt.,:;|()[]'" for letter in text)
    return size * (0.34 * narrow + 0.62 * (len(text) - narrow))


def broken(text: str, width: float, size: float = 12) -> list[str]:
    """A text broken between words into lines of at most `width` pixels."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def segment(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line in a style of PLAIN."""
    return f'<path class="{style}" {PLAIN[style]} d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


class Stroke(NamedTuple):
    """The look of a line: its colour, width in pixels, dashes and opacity. It is cut off outside of `clip`."""

    colour: str
    width: float
    dashes: str = ""
    tint: float = 1.0
    clip: str = ""


def polyline(points: list[tuple[float, float]], stroke: Stroke, steps: bool = False) -> str:
    """A line through points. With `steps`, it keeps each value until the next x."""
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in thinned(stairs(points) if steps else points))
    look = f'stroke="{stroke.colour}" stroke-width="{stroke.width}"'
    look += f' stroke-dasharray="{stroke.dashes}"' if stroke.dashes else ""
    look += f' stroke-opacity="{stroke.tint:g}"' if stroke.tint < 1 else ""
    look += ' stroke-linejoin="round" stroke-linecap="round"'
    look += f' clip-path="url(#{stroke.clip})"' if stroke.clip else ""
    return f'<polyline points="{where}" fill="none" {look}/>'


def thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, without those close to the last one kept. The first and the last stay."""
    found = points[:1]
    for point in points[1:-1]:
        if max(abs(point[0] - found[-1][0]), abs(point[1] - found[-1][1])) >= THIN:
            found.append(point)
    return found + points[-1:] * (len(points) > 1)


def stairs(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a line that keeps each value until the next x."""
    corners = [(after[0], point[1]) for point, after in pairwise(points)]
    return [one for pair in zip(points, [*corners, points[-1]], strict=True) for one in pair][: 2 * len(points) - 1]
