"""A sweep as a file of CSV, JSON lines or Parquet, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from ..counting.columns import RESULT_COLUMNS
from ..errors import InputError, MissingError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ..answer import Type

Out = str | AbstractContextManager[TextIO]
"""The name of a file, or an open one."""


@dataclass(frozen=True)
class Lines:
    """The rows of a chunk as lines of text. Their number is its length."""

    text: str
    rows: int

    def __len__(self) -> int:
        return self.rows


def write_lines(header: str, out: Out, pieces: Iterable[Lines]) -> None:
    """Write the lines of all chunks after a header. Nothing is written if the first chunk fails."""
    with open(out, "w", newline="") if isinstance(out, str) else out as file:
        for lines in pieces:
            file.write(header + lines.text)
            header = ""


class Rows(Protocol):
    """Rows in chunks, each a DataFrame: the columns that are `shown`, the types of all that there may be, and whether
    int64 holds all counts."""

    @property
    def shown(self) -> Sequence[str]: ...

    @property
    def types(self) -> Mapping[str, Type]: ...

    @property
    def int64(self) -> bool: ...

    def rows_of_part(self, asked: int = 0) -> int: ...

    def __getitem__(self, number: int, /) -> pd.DataFrame: ...


def write_parquet(grid: Rows, out: Out, tables: Iterable[pd.DataFrame]) -> None:
    """Write tables of a grid as Parquet, a group of rows at a time. It needs pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    types = grid.types
    columns = {name: parquet_types(types[name], grid.int64 or name not in RESULT_COLUMNS) for name in grid.shown}
    wanted = pa.schema([(name, arrow) for name, (arrow, _) in columns.items()])
    dtypes = {name: dtype for name, (_, dtype) in columns.items()}
    writer = None
    for rows in groups_of_rows(tables, grid.rows_of_part()):
        try:
            table = pa.Table.from_pandas(rows.astype(dtypes), wanted, preserve_index=False)
        except pa.ArrowInvalid:
            raise InputError(
                "--format", "parquet", "counts of at most 38 digits in Parquet", "CSV has no limit"
            ) from None
        writer = writer or parquet.ParquetWriter(out, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def groups_of_rows(tables: Iterable[pd.DataFrame], most: int) -> Iterator[pd.DataFrame]:
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


def parquet_types(kind: Type, int64: bool) -> tuple[pa.DataType, str]:
    """The type of a column in Parquet, and in pandas. Counts that int64 might not hold are decimals of 38 digits."""
    import pyarrow as pa

    return {
        "string": (pa.dictionary(pa.int32(), pa.string()), "category"),
        "boolean": (pa.bool_(), "boolean"),
        "number": (pa.float64(), "float64"),
        "integer": (pa.int64(), "Int64") if int64 else (pa.decimal128(38, 0), "object"),
    }[kind]
