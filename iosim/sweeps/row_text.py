"""Rows of a sweep as CSV, JSON lines or Parquet, chunk by chunk.

The bytes of CSV and JSON are those of `DataFrame.to_csv` and of `json.dumps`, which take several times as long: those
that `str` gives for an integer, and `repr` for a float. A text is stored in columns of four bytes, with four digits in
each. Zero bytes are blanks, which are left out when the columns of a row are joined.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from shutil import copyfileobj
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np

from ..counting.columns import RESULT_COLUMNS
from ..errors import NO_PYARROW, InputError, MissingError
from ..tables import csv_cell

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from ..answer import Type
    from ..cells import Cells, Chunk, Flags, Floats, Whole

    Quad = NDArray[np.uint32]  # four characters a row

ROWS = 4096  # rows that are written together, so that their columns fit into a cache
LEAST_POWER, MOST_POWER = -4, 14  # floats from 10^-4 to below 10^15 are written here, others by repr
SPLITTER = 134217729.0  # 2^27 + 1 halves the digits of a float


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


def header(names: Sequence[str]) -> bytes:
    """The first line of CSV, in UTF-8."""
    return (",".join(map(csv_text, names)) + "\n").encode()


def lines(rows: Chunk, form: Form) -> bytes:
    """The rows as lines of text, in UTF-8."""
    if form is CSV and len(rows.columns) == 1:  # a line without a value would be empty
        form = replace(form, none='""')
    parts = ({n: c[k : k + ROWS] for n, c in rows.columns.items()} for k in range(0, len(rows), ROWS))
    return b"".join(joined(list(quads_of_rows(part, form))) for part in parts)


def quads_of_rows(columns: dict[str, Cells], form: Form) -> Iterator[Quad]:
    """The lines as columns of four bytes. Text that is the same in all lines is one column."""
    shared, length = "", 0
    for k, (name, cells) in enumerate(columns.items()):
        shared, length = shared + form.before(k, name), len(cells.values)
        if is_constant(cells):
            shared += texts(cells[:1], form)[0]
        else:
            yield from quads_of_constant(shared, length)
            yield from quads_of(cells, form)
            shared = ""
    yield from quads_of_constant(shared + form.end, length)


def quads_of_constant(text: str, length: int) -> Iterator[Quad]:
    """A text that is the same in all rows, as columns of four bytes."""
    whole = text.encode()
    for k in range(0, len(whole), 4):
        yield np.broadcast_to(quad(whole[k : k + 4]), (length,))


def is_constant(cells: Cells) -> bool:
    """Whether all cells have the same value, or none has any."""
    values, absent = cells.values, cells.absent
    if absent[0] or values.dtype == object:
        return bool(absent.all())
    return bool((values == values[0]).all() and not absent.any())


def texts(cells: Cells, form: Form) -> list[str]:
    """The text of each cell, made one by one."""
    return [text_of(cell, form) for cell in cells.to_list()]


def text_of(cell: object, form: Form) -> str:
    """The text of a cell."""
    if isinstance(cell, bool):
        return form.truths[cell]
    return form.none if cell is None else form.text(cell) if isinstance(cell, str) else repr(cell)


def quads_of(cells: Cells, form: Form) -> list[Quad]:
    """The cells as columns of four bytes."""
    values, kind = cells.values, cells.values.dtype.kind
    if cells.labels or kind == "b":
        names = [form.text(label) for label in cells.labels] or form.truths
        labels = quads_of_texts(name.encode() for name in names)
        quads = [label.take(values.astype(np.intp), mode="clip") for label in labels]
    elif kind == "i" and values.min() >= 0:
        quads = quads_of_integers(cast("Whole", values))
    elif kind == "f":
        quads = quads_of_floats(cast("Floats", values))
    else:
        return quads_of_texts(text.encode() for text in texts(cells, form))
    return with_none(quads, cells.absent, form) if cells.absent.any() else quads


def with_none(quads: list[Quad], absent: Flags, form: Form) -> list[Quad]:
    """The columns, with the text for no value in rows without one. It has at most four bytes."""
    none = [quad(form.none.encode()), *[quad(b"")] * len(quads)]
    return [np.where(absent, blank, column) for blank, column in zip(none, quads, strict=False)]


# ---------------------------------------------------------------- numbers as columns of four bytes


class Tables(NamedTuple):
    """The texts of 0 to 9999, four characters each, in two halves. In the second half leading or trailing zeros are
    blanks."""

    leading: Quad
    """The texts whose second half has no leading zeros."""
    trailing: Quad
    """The texts whose second half has no trailing zeros."""
    first: Quad
    """As `trailing`, but 0 has one zero."""
    last: Quad
    """As `leading`, but 0 has one zero."""


@cache
def tables() -> Tables:
    """The texts of 0 to 9999."""
    digits = (np.arange(10_000)[:, None] // np.array([1000, 100, 10, 1]) % 10).astype(np.uint8)
    full = digits + np.uint8(ord("0"))
    leading = np.where(np.maximum.accumulate(digits, axis=1) > 0, full, 0)
    trailing = np.where(np.maximum.accumulate(digits[:, ::-1], axis=1)[:, ::-1] > 0, full, 0)
    first, last = trailing.copy(), leading.copy()
    first[0, 0] = last[0, 3] = ord("0")
    return Tables(*(np.concatenate([full, half]).view(np.uint32).ravel() for half in (leading, trailing, first, last)))


def quads_of_texts(texts: Iterable[bytes]) -> list[Quad]:
    """Texts without zero bytes as columns of four bytes."""
    whole = np.array(list(texts), "S")
    quads = -(-max(1, whole.itemsize) // 4)
    columns = whole.astype(f"S{4 * quads}").view(np.uint32).reshape(len(whole), quads)
    return [columns[:, k] for k in range(quads)]


def quad(text: bytes) -> np.uint32:
    """A text of at most four bytes as a number, with blanks after it."""
    return np.frombuffer(text.ljust(4, b"\0"), np.uint32)[0]


def quads_of_integers(values: Whole) -> list[Quad]:
    """Integers as columns of four bytes. None may be negative."""
    return quads_of_groups(groups_of(values))


def groups_of(values: Whole) -> list[Whole]:
    """The digits of integers in groups of four, the highest first; as many as the largest integer needs."""
    most, groups = int(values.max(initial=0)), list[np.ndarray]()
    while most >= 10_000:
        higher = values // 10_000
        groups.insert(0, values - 10_000 * higher)
        values, most = higher, most // 10_000
    return [values, *groups]


def quads_of_groups(groups: list[Whole]) -> list[Quad]:
    """Groups of four digits as text, without zeros in front."""
    text, found = tables(), list[np.ndarray]()
    blank: Flags | bool = True  # whether all groups before this one are zero
    for group in groups[:-1]:
        found.append(text.leading.take(group + 10_000 * np.asarray(blank)))
        blank = (group == 0) & blank
    return [*found, text.last.take(groups[-1] + 10_000 * np.asarray(blank))]


class Decimal(NamedTuple):
    """Floats in decimal: integers over powers of ten, and whether each is in doubt, so that `repr` must be called."""

    digits: Whole
    power: Whole
    doubtful: Flags


@cache
def powers() -> tuple[Floats, Floats, Floats, Whole]:
    """(10^0 to 10^22, which floats hold exactly; their upper halves; their lower halves; 10^0 to 10^18 as integers)."""
    power = np.array([10.0**k for k in range(23)])
    upper = SPLITTER * power - (SPLITTER * power - power)
    return power, upper, power - upper, np.array([10**k for k in range(19)])


def shortest(x: Floats) -> Decimal:
    """The decimals of fewest digits that read back as the floats, which are from 10^-4 to below 10^15.

    Fifteen digits are tried first. An integer below 2^53 is divided by a power of ten with one rounding, so this test
    is exact. For 17 digits the product x 10^k is computed together with its rounding error, so it is exact as well. A
    decimal of 16 digits reads back as x if it differs by less than half a unit in the last place of x. The rounding
    error of a product is that of Dekker (1971).
    """
    power, upper, lower, _ = powers()
    limits = np.array([float(f"1e{k}") for k in range(LEAST_POWER + 1, MOST_POWER + 1)])
    k = MOST_POWER + 2 - LEAST_POWER - np.searchsorted(limits, x, side="right")  # 17 digits: those of x 10^k
    fifteen = np.rint(x * power.take(k - 2))
    short = fifteen / power.take(k - 2) == x
    scale = power.take(k)
    product = x * scale
    wide = SPLITTER * x
    head = wide - (wide - x)
    tail, up, low = x - head, upper.take(k), lower.take(k)
    error = ((head * up - product) + head * low + tail * up) + tail * low
    whole = np.rint(error)
    rest = error - whole  # x 10^k is seventeen + rest
    seventeen = product.astype(np.int64) + whole.astype(np.int64)
    sixteen = seventeen // 10
    above = (seventeen - 10 * sixteen) + rest
    distance = np.minimum(np.abs(above), 10 - above)
    mantissa, exponent = np.frexp(x)
    half_unit = np.ldexp(scale, exponent - 54)
    unsure = (np.abs(rest) == 0.5) | (above == 5) | (np.abs(distance - half_unit) < 1e-6) | (mantissa == 0.5)
    digits = np.where(distance < half_unit, 10 * (sixteen + (above > 5)), seventeen)
    digits = np.where(short, 100 * fifteen.astype(np.int64), digits)
    return Decimal(digits, k, unsure & ~short)


def quads_of_floats(values: Floats) -> list[Quad]:
    """Floats as columns of four bytes. NaN is blank."""
    usual = (values >= 10.0**LEAST_POWER) & (values < 10.0 ** (MOST_POWER + 1))
    found = shortest(np.where(usual, values, 1.0))
    quads = quads_of_decimals(found)
    others = np.flatnonzero((~usual | found.doubtful) & ~np.isnan(values))
    texts = quads_of_texts(repr(x).encode() for x in values[others].tolist())
    quads += [np.zeros(len(values), np.uint32) for _ in range(len(texts) - len(quads))]
    unusual = ~usual | found.doubtful
    if unusual.any():
        for k, quad in enumerate(quads):
            quad[unusual] = 0
            if k < len(texts):
                quad[others] = texts[k]
    return quads


def quads_of_decimals(found: Decimal) -> list[Quad]:
    """Decimals as text: all digits before the point, and those after it up to the last that is not zero."""
    ten, text, k = powers()[3], tables(), found.power
    whole = np.where(k > 18, 0, found.digits // ten.take(np.minimum(k, 18)))
    after = found.digits - whole * ten.take(np.where(k > 18, 0, k))
    cut = ten.take(np.maximum(k - 8, 0))
    eight = after // cut * ten.take(np.maximum(8 - k, 0))  # the first eight digits after the point, then twelve more
    twelve = (after % cut) * ten.take(np.minimum(20 - k, 12))
    groups = [eight // 10_000, eight % 10_000, twelve // 10**8, twelve // 10_000 % 10_000, twelve % 10_000]
    ends: Flags | bool = True  # whether all groups after this one are zero
    decimals: list[Quad] = []
    for group in groups[:0:-1]:
        decimals.insert(0, text.trailing.take(group + 10_000 * np.asarray(ends)))
        ends = (group == 0) & ends
    first = text.first.take(groups[0] + 10_000 * np.asarray(ends))
    point = np.full(len(whole), quad(b"."))
    return [*quads_of_groups(groups_of(whole)), point, first, *decimals]


def joined(columns: list[Quad]) -> bytearray:
    """The rows of columns of four bytes, one after the other, without blanks."""
    room = bytearray(4 * len(columns[0]) * len(columns))
    whole = np.frombuffer(room, np.uint32).reshape(len(columns[0]), len(columns))
    for k, column in enumerate(columns):
        whole[:, k] = column
    return room.translate(None, b"\0")


class Sink(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> object: ...


Out = str | AbstractContextManager[Sink]
"""The name of a file, or an open one."""


@dataclass(frozen=True)
class Lines:
    """The rows of some chunks as lines: their text, or the name of a file that has it. Their number is its length."""

    text: bytes | str
    rows: int
    chunks: int = 1

    def __len__(self) -> int:
        return self.rows

    def put(self, file: Sink) -> None:
        """Write the lines. A file that has them is removed."""
        if isinstance(self.text, bytes):
            file.write(self.text)
            return
        with open(self.text, "rb") as found:
            copyfileobj(found, file)
        os.unlink(self.text)


def write_lines(header: bytes, out: Out, pieces: Iterable[Lines]) -> int:
    """Write the lines of all chunks after a header, and return their number. Nothing is written if the first chunk
    fails."""
    rows = 0
    with open(out, "wb") if isinstance(out, str) else out as file:
        for lines in pieces:
            file.write(header)
            lines.put(file)
            header, rows = b"", rows + len(lines)
    return rows


class Rows(Protocol):
    """Rows in chunks: the columns that are `shown`, the types of all that there may be, and whether int64 holds all
    counts."""

    @property
    def shown(self) -> Sequence[str]: ...

    @property
    def types(self) -> Mapping[str, Type]: ...

    @property
    def int64(self) -> bool: ...

    def rows_of_part(self, asked: int = 0) -> int: ...

    def __getitem__(self, number: int, /) -> Chunk: ...


def write_parquet(grid: Rows, out: Out, chunks: Iterable[Chunk]) -> None:
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
        except pa.ArrowInvalid:
            raise InputError(
                "--format", "parquet", "counts of at most 38 digits in Parquet", "CSV has no limit"
            ) from None
        writer = writer or parquet.ParquetWriter(out, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def groups_of_rows(chunks: Iterable[Chunk], most: int) -> Iterator[pd.DataFrame]:
    """The rows in tables of about `most` rows. A chunk that begins at or after the next multiple of `most` starts a
    new table. So the gathered parts of a sweep have the same groups as a sweep to one file."""
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
