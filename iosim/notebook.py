"""The base of all answers of `import iosim`: plain text, a notebook's table, a DataFrame, and the keys of the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .grid import Grid, is_number, plain, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from .grid import Pieces
    from .tables import Row, Rows

CELL = "text-align: {}; white-space: nowrap"


class Answer:
    """An answer of a function. `print` shows what the command prints; a notebook shows the same as tables."""

    def to_dict(self) -> Row:
        """The keys of the command's JSON."""
        raise NotImplementedError

    def to_rows(self) -> Rows:
        """The rows of the command's CSV: cells by the names of their columns."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """The rows of the command's CSV as a DataFrame of pandas. Whole numbers stay whole beside empty cells."""
        import pandas as pd

        rows = self.to_rows()
        return pd.DataFrame({name: column([row[name] for row in rows]) for name in (rows[0] if rows else ())})

    def pieces(self) -> Pieces:
        """The texts and tables that the command prints."""
        raise NotImplementedError

    def summary(self) -> str:
        """The answer in a few words, for `repr`."""
        raise NotImplementedError

    @property
    def notes(self) -> list[str]:
        """Notes on the answer, which the command writes to stderr."""
        return []

    def __str__(self) -> str:
        return "\n".join([plain(self.pieces()), *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def _repr_html_(self) -> str:
        """The answer as a notebook shows it: numbers as on a terminal, and all columns."""
        parts = [html_table(piece) if isinstance(piece, Grid) else html_text(piece) for piece in self.pieces()]
        return "\n".join([*parts, *(html_text(f"note: {note}") for note in self.notes)])


@dataclass(frozen=True, repr=False)
class Table(Answer, Sequence["Mapping[str, object]"]):
    """An answer that is a table. It is a sequence of its rows."""

    title: str
    """The question."""
    rows: Rows
    """Cells by the names of their columns."""
    json: Row = field(default_factory=dict)
    """The keys of the command's JSON."""
    shown: Pieces = ()
    """The texts and tables that the command prints; without any, one table of the rows."""
    remarks: Sequence[str] = ()
    """Notes on the answer."""

    @property
    def notes(self) -> list[str]:
        """Notes on the answer, which the command writes to stderr."""
        return [*self.remarks]

    def to_dict(self) -> Row:
        return self.json

    def to_rows(self) -> Rows:
        return self.rows

    def pieces(self) -> Pieces:
        return self.shown or [Grid(self.rows)]

    def summary(self) -> str:
        return f"{self.title}; {numbered(len(self.rows), 'row')}"

    def __getitem__(self, k):  # type: ignore[no-untyped-def]
        return self.rows[k]

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def column(values: list[object]) -> object:
    """The cells of a column for pandas. Where cells are empty, integers are Int64 and booleans are boolean."""
    import pandas as pd

    known = [value for value in values if value is not None]
    if len(known) in (0, len(values)):
        return values
    if all(isinstance(value, bool) for value in known):
        return pd.array(values, dtype="boolean")
    whole = all(isinstance(value, int) and abs(value) < 2**63 for value in known)
    return pd.array(values, dtype="Int64") if whole else values


def numbered(count: int, thing: str) -> str:
    """A count with its noun: `1 row`, `2 rows`."""
    return f"{count} {thing}" + "s" * (count != 1)


def html_text(text: str) -> str:
    """A text in HTML, with the breaks of its lines; nothing for an empty one."""
    from html import escape

    return f'<pre style="white-space: pre-wrap">{escape(text.rstrip())}</pre>' if text.strip() else ""


def html_table(grid: Grid) -> str:
    """A table in HTML. Highlighted rows are bold."""
    if not grid.rows:
        return html_text("(no rows)")
    cells = [[shown(value) for value in row.values()] for row in grid.rows]
    sides = ["right" if all(map(is_number, column)) else "left" for column in zip(*cells, strict=True)]
    lines = [html_row("th", list(grid.rows[0]), sides)]
    lines += [html_row("td", row, sides, bold=k in grid.best) for k, row in enumerate(cells)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def html_row(tag: str, texts: list[str], sides: list[str], bold: bool = False) -> str:
    """A row of a table in HTML."""
    from html import escape

    weight = "; font-weight: bold" if bold else ""
    style = [CELL.format(side) + weight for side in sides]
    cells = [f'<{tag} style="{s}">{escape(text)}</{tag}>' for text, s in zip(texts, style, strict=True)]
    return f"<tr>{''.join(cells)}</tr>"
