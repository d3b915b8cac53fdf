"""Answers: plain values, and tables whose columns are declared once. Every form of an answer follows from them.

These are: tables on a terminal of any width, the text of a pipe, CSV, JSON, a DataFrame, a notebook's tables, and the
types of columns in docs/schema.json and in Parquet. An answer knows its values and columns, and none of these forms.

To make an answer, declare its columns beside the values, and derive a dataclass from `Answer`:

    LAUNCHES: Columns[Launch] = (
        Column("schedule", "string", "schedule"),
        Column("Br"),  # in CSV only: it has no heading
        Column("tiles", None, "tiles", cell=lambda launch: f"{launch.Br}x{launch.Bc}"),  # for people only: no type
        Column("total_bytes", "integer", "bytes", "bytes", spare=1),
        Column("ratio_to_floor", "number", "x floor", ".3f"),
    )

    @dataclass(frozen=True, repr=False)
    class Launches(Answer):
        problem: Attention
        launches: list[Launch]

        def table(self) -> Table:
            return Table(LAUNCHES, self.launches, best=[0])

        def pieces(self) -> Pieces:
            return [header(self.problem), self.table(), "", "The first launch is fastest."]

        def to_dict(self) -> Row:
            return {"problem": problem_row(self.problem), "results": self.table().to_rows()}

        def summary(self) -> str:
            return asked(self.problem)

`table()` has the rows of the CSV, which are also those of the DataFrame. `pieces()` are the texts and tables that
people read. `to_dict()` has the keys of the JSON, `summary()` is for `repr`, and `notes` go to stderr. An answer that
is no more than a table is a `Table` with a title; it needs no class of its own. A command hands any of them to
`commands.answer.answer_all`. Columns that only some answers have are left out of the tuple that is given to `Table`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import get_annotations
from typing import TYPE_CHECKING, Generic, Literal, Never, TypeVar, cast

from .grid import ByteCell, Grid, is_number, plain, shown
from .grid import Piece as Piece
from .grid import Pieces as Pieces
from .tables import Row as Row
from .tables import Rows as Rows

if TYPE_CHECKING:
    import pandas as pd

PLAIN: dict[str, Type] = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
Type = Literal["integer", "number", "string", "boolean", "object"]
R = TypeVar("R", contravariant=True)
W = TypeVar("W")


@dataclass(frozen=True, eq=False, repr=False)
class Column(Generic[R]):
    """A column of a table with rows of type R: objects, or mappings from names to cells."""

    name: str
    """The name in CSV, JSON and a DataFrame. Without `of` a cell is the attribute or the entry of this name."""
    type: Type | None = "integer"
    """The type as JSON Schema names it; any cell may be None. None: the column is for people only."""
    heading: str | None = None
    """The heading for people. None: people do not see the column."""
    cell: str | Callable[[R], object] = ""
    """How people see a cell: "" as it is, "bytes" in binary units, "yes or NO", "yes or no", or a format as ".3f"; or
    a function of the row, for a cell that depends on others."""
    spare: int = 0
    """The place of the column among those that a narrow terminal leaves out, from 1. Those with 0 are left out last."""
    of: Callable[[R], object] | None = None
    """The cell of a row, if it is not the attribute or the entry `name`."""
    folds: bool = False
    """Whether a narrow terminal may break cells at every space."""

    def value(self, row: R) -> object:
        """The cell in CSV, JSON and a DataFrame. An entry that a mapping lacks is None."""
        if self.of is not None:
            return self.of(row)
        return row.get(self.name) if isinstance(row, Mapping) else getattr(row, self.name)

    def seen(self, row: R) -> object:
        """The cell as people see it."""
        if callable(self.cell):
            return self.cell(row)
        value = self.value(row)
        if value is None or not self.cell:
            return value
        if self.cell == "bytes":
            return ByteCell(cast("int", value))
        if " or " in self.cell:
            yes, no = self.cell.split(" or ")
            return yes if value else no
        return format(value, self.cell)

    def within(self, part: Callable[[W], R]) -> Column[W]:
        """The column for rows that have such a row as a part."""
        cell = self.cell
        seen = (lambda whole: cell(part(whole))) if callable(cell) else cell
        return Column(self.name, self.type, self.heading, seen, self.spare, lambda whole: self.value(part(whole)))

    def always(self, value: object) -> Column[object]:
        """The column with the same cell in all rows, for what a whole table has in common."""
        return Column(self.name, self.type, self.heading, of=lambda row: value)


Columns = Sequence[Column[R]]
"""The columns of a table, in the order of the CSV."""


def in_order(columns: Columns[R], names: Iterable[str]) -> list[Column[R]]:
    """The columns with these names, in the order of the names. Raises KeyError for a name that no column has."""
    known = {column.name: column for column in columns}
    return [known[name] for name in names]


def types_of(columns: Columns[Never]) -> dict[str, Type]:
    """The type of each column of the CSV, by its name."""
    return {column.name: column.type for column in columns if column.type is not None}


def columns_of(kind: type, *own: Column[R]) -> list[Column[R]]:
    """A column for each field of a dataclass or TypedDict that holds a number, a text, or True and False. Its type is
    that of the field's annotation. `own` are columns that say more; they take the place of the fields they name."""
    given = {column.name: column for column in own}
    found: list[Column[R]] = []
    for base in reversed(kind.__mro__):
        for name, annotation in get_annotations(base).items():
            declared = plain_type(annotation)
            if name in given or declared:
                found.append(given.get(name, Column(name, declared)))
    return found


def plain_type(annotation: object) -> Type | None:
    """The type of a column for a field with this annotation; None for lists, maps and objects."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = str(getattr(annotation, "__forward_arg__", text))
    return PLAIN.get(text.replace("NotRequired[", "").rstrip("]").split(" ")[0])


class Answer:
    """An answer of a function. `print` shows what the command prints; a notebook shows the same as tables."""

    def table(self) -> Table:
        """The rows of the command's CSV, with their columns."""
        raise NotImplementedError

    def pieces(self) -> Pieces:
        """The texts and tables that the command prints."""
        return [self.table()]

    def to_dict(self) -> Row:
        """The keys of the command's JSON."""
        raise NotImplementedError

    def summary(self) -> str:
        """The answer in a few words, for `repr`."""
        raise NotImplementedError

    @property
    def notes(self) -> Sequence[str]:
        """Notes on the answer, which the command writes to stderr."""
        return []

    def to_rows(self) -> Rows:
        """The rows of the command's CSV: cells by the names of their columns."""
        return self.table().to_rows()

    def to_frame(self) -> pd.DataFrame:
        """The rows of the command's CSV as a DataFrame of pandas. Whole numbers stay whole beside empty cells."""
        from .cells import Chunk

        rows = self.to_rows()
        return Chunk.of(rows, rows[0] if rows else ()).to_frame()

    def __str__(self) -> str:
        return "\n".join([plain(self.pieces()), *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def _repr_html_(self) -> str:
        """The answer as a notebook shows it: numbers as on a terminal, and all columns."""
        parts = [html_text(piece) if isinstance(piece, str) else html_table(piece.grid()) for piece in self.pieces()]
        return "\n".join([*parts, *(html_text(f"note: {note}") for note in self.notes)])


@dataclass(frozen=True, repr=False)
class Table(Answer, Sequence["Mapping[str, object]"]):
    """Rows with declared columns: a part of an answer, or an answer of its own. It is a sequence of its rows."""

    columns: Columns[Never]
    """The columns, in the order of the CSV."""
    rows: Sequence[object]
    """The rows, of the type that the columns are for."""
    title: str = ""
    """The question, of a table that is an answer."""
    json: Row = field(default_factory=dict)
    """The keys of the command's JSON; without any, the rows as `results`."""
    text: Pieces = ()
    """The texts and tables that the command prints; without any, this table."""
    notes: Sequence[str] = ()
    """Notes on the answer."""
    shown: Columns[Never] = ()
    """The columns for people, in their order; without any, those of `columns` that have a heading. If none has one, all
    are shown under their names."""
    best: Collection[int] = ()
    """The indices of the rows that are highlighted."""
    tall: bool = False
    """Whether headings of several words may take several lines."""
    csv: str = "--csv"
    """Where the columns are that a narrow terminal leaves out."""

    def types(self) -> dict[str, Type]:
        """The type of each column of the CSV, by its name."""
        return types_of(self.columns)

    def table(self) -> Table:
        return self

    def to_rows(self) -> list[Row]:
        return [self.cells(row) for row in self.rows]

    def cells(self, row: object) -> Row:
        """The cells of a row by the names of their columns."""
        return {column.name: column.value(cast("Never", row)) for column in self.columns if column.type is not None}

    def grid(self) -> Grid:
        """The table as people see it."""
        seen = [column for column in self.shown or self.columns if column.heading is not None]
        seen = seen or [replace(column, heading=column.name) for column in self.columns if column.type is not None]
        titles = [(str(column.heading), column) for column in seen]
        rows = [{title: column.seen(cast("Never", row)) for title, column in titles} for row in self.rows]
        spare = sorted((column.spare, title) for title, column in titles if column.spare)
        folds = [title for title, column in titles if column.folds]
        return Grid(rows, tuple(title for _, title in spare), self.best, self.tall, folds, self.csv)

    def pieces(self) -> Pieces:
        return self.text or [self]

    def to_dict(self) -> Row:
        return self.json or {"results": self.to_rows()}

    def summary(self) -> str:
        return f"{self.title}; {numbered(len(self.rows), 'row')}"

    def __getitem__(self, k):  # type: ignore[no-untyped-def]
        return self.to_rows()[k] if isinstance(k, slice) else self.cells(self.rows[k])

    def __iter__(self) -> Iterator[Row]:
        return map(self.cells, self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def rounded(number: float) -> str:
    """A number in three digits, and from 1,000 on as a whole number in groups."""
    return f"{number:,.0f}" if number >= 999.5 else f"{number:.3g}"


def numbered(count: int, thing: str) -> str:
    """A count with its noun: `1 row`, `2 rows`."""
    return f"{count:,} {thing}" + "s" * (count != 1)


def type_of(value: object) -> Type:
    """The type of a column that has this value."""
    known: dict[type, Type] = {bool: "boolean", int: "integer", float: "number"}
    return next((kind for python_type, kind in known.items() if isinstance(value, python_type)), "string")


# ---------------------------------------------------------------- a notebook

CELL = "text-align: {}; white-space: nowrap"


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
