"""Rows of a sweep as lines of CSV or JSON, many at a time (digits.py).

The bytes are those of `DataFrame.to_csv` and of `json.dumps`, which take several times as long.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np

from ..tables import csv_cell
from .digits import joined, quad, quads_of_floats, quads_of_integers, quads_of_texts

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from .digits import Flags, Quad

    Values = NDArray[np.int64] | NDArray[np.bool_] | NDArray[np.float64] | NDArray[np.object_]

ROWS = 4096  # rows that are written together, so that their columns fit into a cache


@cache
def csv_text(text: str) -> str:
    """A text as a cell of CSV, quoted where it must be, and never a formula of a spreadsheet."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([csv_cell(text), ""])
    return out.getvalue().removesuffix(",")


json_text = cache(json.dumps)


@dataclass(frozen=True)
class Form:
    """The format of lines: the text before each cell, cells of text, cells without a value, truths, the end of a
    line."""

    before: Callable[[int, str], str]
    text: Callable[[str], str]
    none: str
    truths: tuple[str, str]
    end: str


CSV = Form(lambda k, name: "," if k else "", csv_text, "", ("False", "True"), "\n")
JSON = Form(lambda k, name: ("," if k else "{") + json_text(name) + ":", json_text, "null", ("false", "true"), "}\n")


def header(names: Sequence[str]) -> str:
    """The first line of CSV."""
    return ",".join(map(csv_text, names)) + "\n"


def lines(rows: pd.DataFrame, form: Form) -> str:
    """The rows as lines of text."""
    if form is CSV and len(rows.columns) == 1:  # a line without a value would be empty
        form = replace(form, none='""')
    columns = {str(name): Column.of(rows[name]) for name in rows.columns}
    parts = ({n: c.part(k) for n, c in columns.items()} for k in range(0, len(rows), ROWS))
    return b"".join(joined(list(quads_of_rows(part, form))) for part in parts).decode()


def quads_of_rows(columns: dict[str, Column], form: Form) -> Iterator[Quad]:
    """The lines as columns of four bytes. Text that is the same in all lines is one column."""
    shared, length = "", 0
    for k, (name, column) in enumerate(columns.items()):
        shared, length = shared + form.before(k, name), len(column.values)
        if column.constant:
            shared += column.texts(form, 1)[0]
        else:
            yield from quads_of_constant(shared, length)
            yield from column.quads(form)
            shared = ""
    yield from quads_of_constant(shared + form.end, length)


def quads_of_constant(text: str, length: int) -> Iterator[Quad]:
    """A text that is the same in all rows, as columns of four bytes."""
    whole = text.encode()
    for k in range(0, len(whole), 4):
        yield np.broadcast_to(quad(whole[k : k + 4]), (length,))


@dataclass(frozen=True)
class Column:
    """A column of a table: its values, and which are missing. With `labels` the values are indices into them."""

    values: Values
    absent: Flags
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, column: pd.Series) -> Column:
        """The Column of a pandas column."""
        import pandas as pd

        absent = column.isna().to_numpy()
        if isinstance(column.dtype, pd.CategoricalDtype):
            return cls(column.cat.codes.to_numpy(), absent, tuple(map(str, column.cat.categories)))
        kind = {"Int64": "int64", "boolean": "bool"}.get(str(column.dtype))
        if kind is not None:
            return cls(column.to_numpy(kind, na_value=0), absent)
        return cls(column.to_numpy(), absent)

    def part(self, start: int) -> Column:
        """The ROWS rows of the column from `start` on."""
        return replace(self, values=self.values[start : start + ROWS], absent=self.absent[start : start + ROWS])

    @property
    def constant(self) -> bool:
        """Whether all rows have the same value, or none has any."""
        if self.absent[0] or self.values.dtype == object:
            return bool(self.absent.all())
        return bool((self.values == self.values[0]).all() and not self.absent.any())

    def texts(self, form: Form, first: int | None = None) -> list[str]:
        """The texts of all cells, or of the `first` ones, made one by one."""
        values = cast("list[object]", self.values[:first].tolist())
        if self.labels:
            values = [self.labels[int(str(k))] for k in values]
        cells = [
            form.truths[x] if isinstance(x, bool) else form.text(x) if isinstance(x, str) else repr(x) for x in values
        ]
        return [form.none if none else cell for cell, none in zip(cells, self.absent[:first].tolist(), strict=True)]

    def quads(self, form: Form) -> list[Quad]:
        """The cells as columns of four bytes."""
        kind = self.values.dtype.kind
        if self.labels or kind == "b":
            names = [form.text(label) for label in self.labels] or form.truths
            labels = quads_of_texts(name.encode() for name in names)
            quads = [label.take(self.values.astype(np.intp), mode="clip") for label in labels]
        elif kind == "i" and self.values.min() >= 0:
            quads = quads_of_integers(cast("NDArray[np.int64]", self.values))
        elif kind == "f":
            quads = quads_of_floats(cast("NDArray[np.float64]", self.values))
        else:
            return quads_of_texts(text.encode() for text in self.texts(form))
        return self.with_none(quads, form) if self.absent.any() else quads

    def with_none(self, quads: list[Quad], form: Form) -> list[Quad]:
        """The columns, with the text for no value in rows without one. It has at most four bytes."""
        none = [quad(form.none.encode()), *[quad(b"")] * len(quads)]
        return [np.where(self.absent, blank, column) for blank, column in zip(none, quads, strict=False)]
