"""The moves of tiles in a file of events that `iosim trace` or `iosim explain --trace` wrote.

A tensor's width is the right edge of its rightmost tile, and its height the lower edge of its lowest. A file of
`explain` gives the bytes of each word. For other files they are those of the given type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import NO_PYARROW, InputError, MissingError, suggestion
from ..files import form_of
from ..reading import check_no_device
from .event_file import MOST_EVENTS, check_length

if TYPE_CHECKING:
    from .reuse_distance import Numbers

STORES = {"load": (0,), "store": (1,), "atomic": (0, 1)}  # an atomic operation loads and stores
PLACE = ("row", "rows", "column", "columns")
Line = Mapping[str, object]


@dataclass(frozen=True)
class MovesOfFile:
    """The moves of a file: rows (tensor, is store, row, rows, column, columns), with each tensor's shape and bytes of
    a word."""

    names: list[str]
    table: Numbers
    shapes: list[tuple[int, ...]]
    widths: list[int]
    peak_words: int | None
    """The most words that were on chip, if the file says."""

    @property
    def tensors(self) -> dict[str, tuple[int, int]]:
        """{tensor: (words read, words written)}."""
        tensor, store, _, rows, _, columns = self.table.T
        sums = np.zeros((len(self.names), 2), np.int64)
        np.add.at(sums, (tensor, store), rows * columns)
        return {name: (read, written) for name, (read, written) in zip(self.names, sums.tolist(), strict=True)}

    @property
    def total_bytes(self) -> int:
        """The bytes that these tensors move."""
        return sum(sum(pair) * width for pair, width in zip(self.tensors.values(), self.widths, strict=True))


def moves_of_file(path: str, word_bytes: int, tensors: tuple[str, ...] = ()) -> MovesOfFile:
    """The moves in a file of events, of all tensors or of those asked for. Raises InputError for a file of
    another kind."""
    numbers: dict[str, int] = {}
    widths: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    seen: dict[str, None] = {}
    peak = None
    with lines_of(path) as lines:
        for number, line in enumerate(lines, 1):
            kind, name = str(line.get("event")), str(line.get("name"))
            peak = highest(peak, line.get("resident_words"))
            if line.get("schedule"):
                raise InputError(f"{path}, event {number}", "a column schedule", "the events of one schedule")
            if kind not in STORES:
                continue
            seen[name] = None
            if tensors and name not in tensors:
                continue
            place = [whole(line, key, path, number) for key in PLACE]
            widths.setdefault(name, whole(line, "word_bytes", path, number) if line.get("word_bytes") else word_bytes)
            rows += [(numbers.setdefault(name, len(numbers)), store, *place) for store in STORES[kind]]
            check_length(len(rows), MOST_EVENTS)
    for name in tensors:
        if name not in seen:
            raise InputError("--tensors", name, f"{', '.join(seen)}: what {path} moves", suggestion(name, seen))
    if not rows:
        raise InputError("--trace", path, "a file with loads and stores, of iosim trace or iosim explain --trace")
    table = np.array(rows, np.int64)
    return MovesOfFile(list(numbers), table, shapes_of(table, len(numbers)), [widths[name] for name in numbers], peak)


def shapes_of(table: Numbers, tensors: int) -> list[tuple[int, ...]]:
    """The shape of each tensor, from the ends of its tiles. Rows before the first belong to it as well."""
    found: list[tuple[int, ...]] = []
    for number in range(tensors):
        _, _, row, rows, column, columns = table[table[:, 0] == number].T
        if row.min() < 0:
            table[table[:, 0] == number, 2] -= row.min()
        found.append((int((row + rows).max() - min(0, row.min())), int((column + columns).max())))
    return found


def highest(before: int | None, value: object) -> int | None:
    """The larger of two numbers of words, either of which may be absent."""
    if value in (None, ""):
        return before
    return max(before or 0, int(str(value)))


def whole(line: Line, key: str, path: str, number: int) -> int:
    """A whole number of an event."""
    text = str(line.get(key))
    if not text.removeprefix("-").isdigit():
        raise InputError(f"{path}, event {number}: {key}", text, "a whole number, as iosim trace writes it")
    return int(text)


@contextmanager
def lines_of(path: str) -> Iterator[Iterable[Line]]:
    """The events of a CSV, JSON lines or Parquet file, one by one."""
    try:
        kind = form_of(path, "trace")
    except InputError as error:
        raise InputError("--trace", path, error.allowed) from None
    if kind == "perfetto":
        raise InputError("--trace", path, "a file that ends in .csv, .jsonl or .parquet")
    try:
        check_no_device(path)
        if kind == "parquet":
            yield from_parquet(path)
            return
        with open(path, newline="", encoding="utf-8") as file:
            if kind == "jsonl":
                yield map(object_of, file)
            else:
                import csv

                yield csv.DictReader(file)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("--trace", path, "a file of iosim trace", str(error)) from None


def object_of(text: str) -> Line:
    """The event of a JSON line."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{text.strip()[:40]} is no event")
    return found


def from_parquet(path: str) -> Iterator[Line]:
    """The events of a Parquet file."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingError(NO_PYARROW) from None
    for batch in parquet.ParquetFile(path).iter_batches():
        yield from batch.to_pylist()
