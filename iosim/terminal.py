"""Plain text that fits a terminal: wide tables are split into stacked parts; long lines wrap at spaces.

No number is ever cut. Text that goes into a pipe or a file does not pass through here.
"""

from __future__ import annotations

import re
from textwrap import wrap

RULER = re.compile(r"-+(  -+)*")
LEAST_TEXT = 24  # characters: a column of text may be made this narrow


def fit(text: str, width: int) -> str:
    """The text with no line longer than `width` characters, except a single longer word."""
    lines, out, k = text.split("\n"), list[str](), 0
    while k < len(lines):
        end = end_of_table(lines, k)
        if end > k:
            out += fit_table(lines[k:end], width)
        else:
            end = k + 1
            long = len(lines[k]) > width
            out += wrapped(lines[k], width) if long else [lines[k]]
        k = end
    return "\n".join(out)


def wrapped(line: str, width: int) -> list[str]:
    """A long line in lines of at most `width` characters, broken only at spaces: options such as --tile-multiple stay
    whole."""
    return wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def columns(ruler: str) -> list[slice[int, int, None]]:
    """The places of a table's columns, from the line of dashes below its head."""
    return [slice(*match.span()) for match in re.finditer("-+", ruler)]


def end_of_table(lines: list[str], k: int) -> int:
    """The number of the first line after the table that starts at line k; k if no table starts there."""
    if k + 1 >= len(lines) or not lines[k].strip() or not RULER.fullmatch(lines[k + 1]):
        return k
    gaps = [slice(span.stop, span.stop + 2) for span in columns(lines[k + 1])]
    end = k + 2
    while end < len(lines) and lines[end].strip() and not any(lines[end][gap].strip() for gap in gaps):
        end += 1
    return end


def fit_table(lines: list[str], width: int) -> list[str]:
    """The lines of a table, split into parts if it is too wide. Each part repeats the first columns, which identify a
    row."""
    if max(map(len, lines)) <= width:
        return lines
    spans = columns(lines[1])
    cells = [[line[span].strip() for span in spans] for line in (lines[0], *lines[2:])]
    right = [all(line[span.stop - 1 : span.stop].strip() for line in lines) for span in spans]  # aligned right
    widths = [span.stop - span.start for span in spans]
    keys = labels(cells[1:], widths, width)
    out: list[str] = []
    for group, room in groups(widths, keys, width):
        out += [""] * bool(out) + part(cells, group, room, right)
    return out


def labels(rows: list[list[str]], widths: list[int], width: int) -> int:
    """The number of first columns that identify every row; 1 if they would take more than 60 % of the width."""
    for n in range(1, len(widths)):
        if sum(widths[:n]) + 2 * n > 0.6 * width:
            break
        if len({tuple(row[:n]) for row in rows}) == len(rows):
            return n
    return 1


def groups(widths: list[int], keys: int, width: int) -> list[tuple[list[int], list[int]]]:
    """The (columns, their widths) of each part. A wide column of text is wrapped to the width that is left if that is
    at least LEAST_TEXT."""
    found: list[tuple[list[int], list[int]]] = []
    first = list(range(keys)), [min(widths[0], 2 * width // 5)] if keys == 1 else widths[:keys]
    group, room = list(first[0]), list(first[1])
    for column in range(keys, len(widths)):
        left = width - sum(room) - 2 * len(room)
        if min(widths[column], LEAST_TEXT if widths[column] > 2 * LEAST_TEXT else widths[column]) > left:
            if len(group) > keys:
                found.append((group, room))
            group, room = list(first[0]), list(first[1])
            left = width - sum(room) - 2 * len(room)
        group.append(column)
        room.append(min(widths[column], max(left, LEAST_TEXT)) if widths[column] > LEAST_TEXT else widths[column])
    return [*found, (group, room)]


def part(cells: list[list[str]], group: list[int], room: list[int], right: list[bool]) -> list[str]:
    """The lines of some columns of a table. A cell that is longer than its room goes over several lines."""
    out = []
    for row in cells:
        texts = [wrap(row[c], w, break_long_words=False) or [""] for c, w in zip(group, room, strict=True)]
        for k in range(max(map(len, texts))):
            words = [text[k] if k < len(text) else "" for text in texts]
            shown = [x.rjust(w) if right[c] else x.ljust(w) for x, c, w in zip(words, group, room, strict=True)]
            out.append("  ".join(shown).rstrip())
        if row is cells[0]:
            out.append("  ".join("-" * w for w in room))
    return out
