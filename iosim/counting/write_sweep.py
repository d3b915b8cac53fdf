"""Writes a sweep to a file, chunk by chunk: CSV, JSON lines or Parquet. A file is written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TextIO

from ..column_types import type_of
from ..errors import InputError, MissingError
from ..files import written_whole
from .columns import RESULT_COLUMNS
from .row_text import CSV, JSON, Form, header, lines
from .sweep import Chunks

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from .sweep_axes import Sweep

    Tables = Iterator[pd.DataFrame]

Out = str | AbstractContextManager[TextIO]
"""The name of a file, or an open one."""
Progress = Callable[[int], object]
"""A function that is called with the number of rows of each chunk that is written."""


class Grid(Protocol):
    """Tables of rows, in order. `shown` are their columns, and `int64` says whether all counts are below 2^63."""

    @property
    def shown(self) -> tuple[str, ...]: ...

    @property
    def int64(self) -> bool: ...

    def rows_of_part(self) -> int: ...

    def __iter__(self) -> Tables: ...


def write(sweep: Sweep, path: str, kind: str, progress: Progress = lambda rows: None) -> None:
    """Write a sweep to a file as csv, jsonl or parquet."""
    with written_whole(path) as temporary:
        WRITERS[kind](Chunks(sweep), temporary, progress)


def write_csv(grid: Grid, out: Out, progress: Progress, tables: Tables | None = None) -> None:
    """Write a grid as CSV with one header."""
    with open(out, "w", newline="") if isinstance(out, str) else out as file:
        write_lines(tables or iter(grid), file, CSV, progress, header(grid.shown))


def write_jsonl(grid: Grid, out: Out, progress: Progress, tables: Tables | None = None) -> None:
    """Write a grid as one JSON object a line."""
    with open(out, "w") if isinstance(out, str) else out as file:
        write_lines(tables or iter(grid), file, JSON, progress)


def write_lines(tables: Tables, file: TextIO, form: Form, progress: Progress, before: str = "") -> None:
    """Write the rows of tables as lines, after the text `before`. Nothing is written if the first rows fail."""
    for rows in tables:
        file.write(before + lines(rows, form))
        before = ""
        progress(len(rows))


def write_parquet(grid: Grid, out: Out, progress: Progress, tables: Tables | None = None) -> None:
    """Write a grid as Parquet, a group of rows at a time. It needs pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    columns = {name: parquet_types(name, grid.int64) for name in grid.shown}
    wanted = pa.schema([(name, arrow) for name, (arrow, _) in columns.items()])
    dtypes = {name: dtype for name, (_, dtype) in columns.items()}
    writer = None
    for rows in groups_of_rows(tables or iter(grid), grid.rows_of_part()):
        try:
            table = pa.Table.from_pandas(rows.astype(dtypes), wanted, preserve_index=False)
        except pa.ArrowInvalid:
            raise InputError(
                "--format", "parquet", "counts of at most 38 digits in Parquet", "CSV has no limit"
            ) from None
        writer = writer or parquet.ParquetWriter(out, table.schema)
        writer.write_table(table)
        progress(len(rows))
    if writer:
        writer.close()


def groups_of_rows(tables: Tables, most: int) -> Tables:
    """The rows in tables of about `most` rows. A chunk that begins at or after the next multiple of `most` starts a
    new table. So the gathered parts of a sweep have the same groups as a sweep to one file."""
    import pandas as pd

    group: list[pd.DataFrame] = []
    first, end = 0, most
    for rows in tables:
        if first >= end:
            yield pd.concat(group, ignore_index=True)
            group, end = [], first - first % most + most
        group.append(rows)
        first += len(rows)
    if group:
        yield pd.concat(group, ignore_index=True)


def parquet_types(name: str, int64: bool) -> tuple[pa.DataType, str]:
    """The type of a column in Parquet, and in pandas. Counts that int64 might not hold are decimals of 38 digits."""
    import pyarrow as pa

    exact = int64 or name not in RESULT_COLUMNS
    whole = (pa.int64(), "Int64") if exact else (pa.decimal128(38, 0), "object")
    return {
        "string": (pa.dictionary(pa.int32(), pa.string()), "category"), "boolean": (pa.bool_(), "boolean"),
        "number": (pa.float64(), "float64"), "integer": whole,
    }[type_of(name)]  # fmt: skip


class Writer(Protocol):
    """Writes a grid to a file, or only these `tables` of its rows."""

    def __call__(self, grid: Grid, out: Out, progress: Progress, tables: Tables | None = None) -> None: ...


WRITERS: dict[str, Writer] = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}
