"""Tables for people: which columns a terminal shows, how wide they are, and how numbers are written.

Numbers have their digits in groups of three, as 90,177,536; CSV and JSON have them plain. A pipe gets all columns. A
terminal gets a table by rich. If it is too narrow, headings and columns of text are folded and columns stand closer.
Then the least important columns are left out, and a line says which. Other lines are broken at spaces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .units import binary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from .tables import Rows

LEAST_TEXT = 20  # characters: a column of text may fold to this width
LONGEST_PIECE = 20  # characters; longer words are broken
MOST_TEXT = 300  # characters of a cell; a longer one ends in a note
GAPS = (2, 1)  # characters between columns, and on a narrow terminal
NUMBER = re.compile(r"[1-9]\d*(\.\d+)?")


class ByteCell(int):
    """A number of bytes as a cell of a table, which shows it in binary units: `172 MiB`.

    `after` is a text that follows the number.
    """

    after: str = ""

    def __new__(cls, size: int, after: str = "") -> ByteCell:
        cell = super().__new__(cls, size)
        cell.after = after
        return cell

    def __str__(self) -> str:
        return binary(int(self)) + self.after

    __repr__ = __str__


class Grid(NamedTuple):
    """A table for people.

    `spare` names the columns that a narrow terminal may leave out, in the order in which they are left out. `best` are
    the indices of the rows that are highlighted. With `tall`, headings of several words may take several lines. `folds`
    names the columns whose cells may break at every space. `csv` says where the columns are that are left out.
    """

    rows: Rows
    spare: tuple[str, ...] = ()
    best: Collection[int] = ()
    tall: bool = False
    folds: Collection[str] = ()
    csv: str = "--csv"


class ForPeople(Protocol):
    """Rows with declared columns (answer.py), which people see as a Grid."""

    def grid(self) -> Grid: ...


Piece = str | ForPeople
Pieces = Sequence[Piece]
"""An answer for people: texts and tables, one below the other."""


def plain(pieces: Pieces) -> str:
    """The pieces as plain text with all columns and digits."""
    return "\n".join(piece if isinstance(piece, str) else table(piece.grid().rows) for piece in pieces)


def table(rows: Rows) -> str:
    """Rows as plain text in aligned columns, however wide. None is shown as `-`."""
    if not rows:
        return "(no rows)"
    cells = [list(rows[0]), *[[grouped(value) for value in row.values()] for row in rows]]
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    numeric = [all(is_number(line[c]) for line in cells[1:]) for c in range(len(widths))]
    lines = [
        "  ".join(x.rjust(w) if n else x.ljust(w) for x, w, n in zip(line, widths, numeric, strict=True)).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


# ---------------------------------------------------------------- what a terminal shows


class Layout(NamedTuple):
    """The columns that are shown, with their widths, those that are left out, and the characters between two."""

    widths: dict[str, int]
    left_out: tuple[str, ...]
    gap: int


def layout(grid: Grid, width: int) -> Layout:
    """The columns that fit into a width. Spare columns are left out first. Then headings and texts may be broken at
    every space, and the other columns are left out from the right. The first one always stays."""
    cells = {name: [shown(row[name]) for row in grid.rows] for name in grid.rows[0]}
    widths = {name: max(map(len, (name, *texts))) for name, texts in cells.items()}
    least = {
        name: foldable([*(name.split(" ") if grid.tall else [name]), *texts], 1 if name in grid.folds else LEAST_TEXT)
        for name, texts in cells.items()
    }
    left_out: list[str] = []
    others = [*widths][1:]

    def gap() -> int:
        return next((g for g in GAPS if sum(least[n] for n in widths) + g * (len(widths) - 1) <= width), 0)

    for name in [*(n for n in grid.spare if n in widths), *(n for n in reversed(others) if n not in grid.spare)]:
        if name not in grid.spare and not gap():
            least = {n: foldable([*n.split(" "), *cells[n]], 1) for n in cells}
        if gap():
            break
        left_out.append(name)
        del widths[name]
    between = gap() or GAPS[0]
    room = width - between * (len(widths) - 1) - sum(widths.values())
    for name in sorted(widths, key=lambda n: widths[n] - least[n], reverse=True):
        cut = min(max(0, -room), widths[name] - least[name])
        widths[name] -= cut
        room += cut
    return Layout(widths, tuple(n for n in grid.rows[0] if n in left_out), between)


def foldable(texts: Sequence[str], least: int = LEAST_TEXT) -> int:
    """The least width of a column: that of its longest piece, and at least `least` for text that can be folded."""
    whole, piece = max(map(len, texts)), max(len(piece.rstrip(" ")) for text in texts for piece in word_pieces(text))
    return min(whole, max(piece, least))


def word_pieces(text: str) -> list[str]:
    """The pieces of a text between which a line may break: after a space, a comma or a slash, and in long words. A
    number is one piece, and so is each number of a text with its unit."""
    if is_number(text) and not re.search("[a-zA-Z]", text):
        return [text]
    found = re.split(r"(?<=[ ,/])(?!(?<=\d,)\d{3}|(?<=\d )(?:[KMGTP]i)?B\b)", text)
    cuts = range(0, max([1, *map(len, found)]), LONGEST_PIECE)
    return [part for piece in found for k in cuts if (part := piece[k : k + LONGEST_PIECE])] or [""]


def folded(text: str, width: int) -> str:
    """The text in lines of at most this width. Only a single longer piece may exceed it."""
    lines, line = list[str](), ""
    for piece in word_pieces(text):
        if line and len(line) + len(piece.rstrip(" ")) > width:
            lines.append(line.rstrip(" "))
            line = ""
        line += piece
    return "\n".join([*lines, line])


def grouped(value: object) -> str:
    """A cell for people: digits in groups of three, bytes in binary units, a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, ByteCell):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    if NUMBER.fullmatch(text):
        whole, point, decimals = text.partition(".")
        return f"{int(whole):,}{point}{decimals}"
    return text


def shown(value: object) -> str:
    """A cell as a terminal shows it, which cuts long texts."""
    text = grouped(value)
    if len(text) <= MOST_TEXT:
        return text
    return text[:MOST_TEXT].rpartition(" ")[0].rstrip(",;") + f" … ({len(text)} characters: see --csv)"


def is_number(text: str) -> bool:
    """Whether a cell is aligned as a number."""
    return text[:1].isdigit() or text == "-"


def print_pieces(pieces: Pieces) -> None:
    """Print an answer on a terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    for piece in pieces:
        if isinstance(piece, str):
            console.out("\n".join(line for long in piece.split("\n") for line in wrapped(long, console.width)))
        else:
            print_grid(piece.grid(), console)


def wrapped(line: str, width: int) -> list[str]:
    """A line in lines of at most `width` characters, broken only at spaces: options such as --tile-multiple stay whole,
    and so do sizes with their unit. Later lines are indented by two spaces more than the first."""
    from textwrap import wrap

    if len(line) <= width:
        return [line]
    whole = re.sub(r"(?<=\d) (?=(?:[KMGTP]i)?B\b)", "\0", line)
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    found = wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\0", " ") for part in found]


def print_grid(grid: Grid, console: Console) -> None:
    """Print a table by rich, which honours NO_COLOR."""
    from rich import box
    from rich.table import Table

    if not grid.rows:
        console.out(table(grid.rows))
        return
    found = layout(grid, console.width)
    padding = (0, found.gap - 1, 0, 0)
    drawn = Table(box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=False, header_style="bold")
    for name, wide in found.widths.items():
        number = all(is_number(shown(row[name])) for row in grid.rows)
        drawn.add_column(cell(folded(name, wide)), justify="right" if number else "left", width=wide, no_wrap=True)
    for k, row in enumerate(grid.rows):
        texts = [folded(shown(row[name]), wide) for name, wide in found.widths.items()]
        drawn.add_row(*map(cell, texts), style="bold green" if k in grid.best else "")
    console.print(drawn)
    if found.left_out:
        names = ", ".join(found.left_out)
        console.print(cell(f"not shown: {names} (a wider terminal shows them, {grid.csv} has all)"), style="dim")


def cell(text: str) -> Text:
    """A cell as a `rich` text, without markup. What does not fit runs over the edge."""
    from rich.text import Text

    return Text(text, style="bold red" if text in ("NO", "nothing fits") or text.startswith("none:") else "")
