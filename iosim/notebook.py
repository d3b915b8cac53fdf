"""Answers whose columns are not declared yet (answer.py says how to declare them). Column types are guessed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import answer
from .answer import Column, numbered
from .answer import pandas_cells as column
from .column_types import type_of
from .grid import Grid

if TYPE_CHECKING:
    from .grid import Pieces
    from .tables import Row, Rows

__all__ = ["Answer", "Table", "column", "numbered"]


class Answer(answer.Answer):
    """An answer with the rows of `to_rows`."""

    def to_rows(self) -> Rows:
        """The rows of the command's CSV: cells by the names of their columns."""
        raise NotImplementedError

    def table(self) -> answer.Table:
        """The rows, with columns whose types are guessed from their names."""
        rows = self.to_rows()
        return answer.Table([Column(name, type_of(name)) for name in (rows[0] if rows else ())], rows)


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
