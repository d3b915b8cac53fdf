"""Where the texts of an SVG stand."""

import re
from html import unescape

from iosim.drawing.svg import text_width


def boxes(text):
    """(text, left, top, right, bottom) of every text of an SVG, in its own pixels."""
    found, dx, dy = [], 0.0, 0.0
    for tag in re.finditer(r'<g transform="translate\(([\d.]+) ([\d.]+)\)">|</g>|<text ([^>]*)>([^<]*)</text>', text):
        if tag[0] == "</g>":
            dx = dy = 0.0
        elif tag[1]:
            dx, dy = float(tag[1]), float(tag[2])
        else:
            where = dict(re.findall(r'([\w-]+)="([^"]*)"', tag[3]))
            words, size = unescape(tag[4]), float(where.get("font-size", 12))
            width = text_width(words, size)
            x = float(where["x"]) + dx - {"start": 0, "middle": width / 2, "end": width}[where["text-anchor"]]
            y = float(where["y"]) + dy
            found.append((words, x, y - 0.75 * size, x + width, y + 0.2 * size))
    return found


def overlapping(found, gap=3):
    """Pairs of texts whose boxes overlap, or stand beside each other with less than `gap` pixels between them."""
    return [
        (a[0], b[0])
        for k, a in enumerate(found)
        for b in found[k + 1 :]
        if a[1] < b[3] + gap and b[1] < a[3] + gap and a[2] < b[4] and b[2] < a[4]
    ]


def size_of(text):
    """(width, height) of an SVG in pixels."""
    return tuple(map(float, re.search(r'width="([\d.]+)" height="([\d.]+)"', text).groups()))


def faults_of(text):
    """What is wrong with the texts of an SVG: pairs that overlap, and those outside."""
    width, height = size_of(text)
    found = boxes(text)
    outside = [b[0] for b in found if not (b[1] >= 0 and b[3] <= width and b[2] >= 0 and b[4] <= height)]
    return overlapping(found) + outside
