"""Rows of a sweep as CSV, JSON lines or Parquet, chunk by chunk.

The bytes of CSV and JSON are those of `DataFrame.to_csv` and of `json.dumps`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from ..counting.columns import RESULT_COLUMNS
from ..errors import NO_PYARROW, InputError, MissingError
from ..tables import csv_cell

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ..answer import Type
    from ..cells import Cells, Chunk
    from ..counting.sweep import Chunks
    from .questions import Asked


@cache
def csv_text(text: str) -> str:
    """A text as a cell of CSV, quoted where it must be, and never a formula of a spreadsheet."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([csv_cell(text), ""])
    return out.getvalue().removesuffix(",")


def header(names: Sequence[str]) -> bytes:
    """The first line of CSV, in UTF-8."""
    return (",".join(map(csv_text, names)) + "\n").encode()


def lines_of_csv(rows: Chunk) -> bytes:
    """The rows as lines of CSV, in UTF-8."""
    none = "" if len(rows.columns) > 1 else '""'  # a line without a value would be empty

    def text(cell: object) -> str:
        return none if cell is None else csv_text(cell) if isinstance(cell, str) else repr(cell)

    return lines_of(rows, ["", *"," * (len(rows.columns) - 1)], "\n", text)


def lines_of_json(rows: Chunk) -> bytes:
    """The rows as JSON lines."""
    before = [("," if k else "{") + json.dumps(name) + ":" for k, name in enumerate(rows.columns)]
    return lines_of(rows, before, "}\n", lambda cell: repr(cell) if type(cell) in (int, float) else json.dumps(cell))


def lines_of(rows: Chunk, before: Sequence[str], end: str, text: Callable[[object], str]) -> bytes:
    """The rows as lines, with a text before each cell and one at the end."""
    columns = [texts_of(cells, shared, text) for shared, cells in zip(before, rows.columns.values(), strict=True)]
    return "".join(map("".join, zip(*columns, [end] * len(rows), strict=True))).encode()


def texts_of(cells: Cells, before: str, text: Callable[[object], str]) -> list[str]:
    """The text of each cell, with another before it. Each value of a column is written once, which takes a third of
    the time in a usual sweep."""
    if cells.values.dtype.kind == "O":
        return [before + text(cell) for cell in cells.to_list()]
    distinct, places = cells.labels, cells.values
    if not distinct:
        values, places = np.unique(cells.values, return_inverse=True)
        distinct = values.tolist()
    found = np.array([before + text(value) for value in distinct], object)[places]
    return cast("list[str]", np.where(cells.absent, before + text(None), found).tolist())


LINES = {"csv": lines_of_csv, "jsonl": lines_of_json}


class Sink(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> object: ...


Out = str | AbstractContextManager[Sink]
"""The name of a file, or an open one."""


def write_lines(header: bytes, out: Out, pieces: Iterable[bytes]) -> None:
    """Write the lines of all chunks after a header. Nothing is written if the first chunk fails."""
    with open(out, "wb") if isinstance(out, str) else out as file:
        for lines in pieces:
            file.write(header + lines)
            header = b""


def write_parquet(grid: Chunks | Asked, out: Out, chunks: Iterable[Chunk]) -> None:
    """Write chunks of a grid as Parquet, a group of rows at a time. It needs pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingError(NO_PYARROW) from None
    types = grid.types
    columns = {name: parquet_types(types[name], grid.int64 or name not in RESULT_COLUMNS) for name in grid.shown}
    wanted = pa.schema([(name, arrow) for name, (arrow, _) in columns.items()])
    dtypes = {name: dtype for name, (_, dtype) in columns.items()}
    writer = None
    for rows in groups_of_rows(chunks, grid.rows_of_part()):
        try:
            table = pa.Table.from_pandas(rows.astype(dtypes), wanted, preserve_index=False)
        except (pa.ArrowInvalid, OverflowError):
            allowed = f"counts {'below 2^63' if grid.int64 else 'of at most 38 digits'} in Parquet"
            raise InputError("--format", "parquet", allowed, "CSV has no limit") from None
        writer = writer or parquet.ParquetWriter(out, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def groups_of_rows(chunks: Iterable[Chunk], most: int) -> Iterator[pd.DataFrame]:
    """The rows in tables of about `most` rows. A chunk that begins at or after the next multiple of `most` starts a
    new table. So the joined parts of a sweep have the same groups as a sweep to one file."""
    import pandas as pd

    group: list[pd.DataFrame] = []
    first, end = 0, most
    for rows in chunks:
        if first >= end:
            yield pd.concat(group, ignore_index=True)
            group, end = [], first - first % most + most
        group.append(rows.to_frame())
        first += len(rows)
    if group:
        yield pd.concat(group, ignore_index=True)


def parquet_types(kind: Type, int64: bool) -> tuple[pa.DataType, str]:
    """The type of a column in Parquet, and in pandas. Counts that int64 might not hold are decimals of 38 digits."""
    import pyarrow as pa

    return {
        "string": (pa.dictionary(pa.int32(), pa.string()), "category"),
        "boolean": (pa.bool_(), "boolean"),
        "number": (pa.float64(), "float64"),
        "integer": (pa.int64(), "Int64") if int64 else (pa.decimal128(38, 0), "object"),
    }[kind]
