"""The moves of tiles in a file of events that `iosim trace` or `iosim explain --trace` wrote.

A tensor's width is the right edge of its rightmost tile, and its height the lower edge of its lowest. A file of
`explain` gives the bytes of each word. For other files they are those of the given type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.event_count import check_length
from ..errors import NO_PYARROW, InputError, MissingError, suggestion
from ..files import form_of
from ..reading import check_no_device

if TYPE_CHECKING:
    import pandas as pd

    from .reuse_distance import Numbers

STORES = {"load": [0], "store": [1], "atomic": [0, 1]}  # an atomic operation loads and stores
PLACE = ("row", "rows", "column", "columns")
SIGNED = ("row", "column")
MOST_DIGITS = 15
WIDTH, RESIDENT = "word_bytes", "resident_words"


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
        small = int(rows.max()) * int(columns.max()) * len(rows) < 2**63
        sums = np.zeros((len(self.names), 2), np.int64 if small else object)
        np.add.at(sums, (tensor, store), rows.astype(sums.dtype) * columns)
        return {name: (read, written) for name, (read, written) in zip(self.names, sums.tolist(), strict=True)}

    @property
    def total_bytes(self) -> int:
        """The bytes that these tensors move."""
        return sum(sum(pair) * width for pair, width in zip(self.tensors.values(), self.widths, strict=True))


def moves_of_file(path: str, word_bytes: int, tensors: Sequence[str] = ()) -> MovesOfFile:
    """The moves in a file of events, of all tensors or of those asked for. Raises InputError for a file of
    another kind."""
    events = read_events(path)
    if "schedule" in events:
        raise InputError(path, "a column schedule", "the events of one schedule")
    moves = events[events["event"].isin([*STORES])] if {"event", "name", *PLACE} <= {*events} else events[:0]
    known = moves["name"].unique() if len(moves) else []
    for name in (name for name in tensors if name not in known):
        raise InputError("--tensors", name, f"{', '.join(known)}: what {path} moves", suggestion(name, known))
    if not len(moves):
        raise InputError("--trace", path, "a file with loads and stores, of iosim trace or iosim explain --trace")
    wanted = moves[moves["name"].isin(tensors)] if tensors else moves
    rows = wanted.assign(store=wanted["event"].map(STORES)).explode("store")
    check_length(len(rows))
    names = rows["name"].unique().tolist()
    columns = [rows["name"].map(names.index), rows["store"], *(whole(rows, key, path) for key in PLACE)]
    table = np.column_stack(columns).astype(np.int64)  # numbers of 15 digits at most
    peak = max(map(int, {*texts_of(events, RESIDENT, path)})) if has(events, RESIDENT) else None
    widths = {name: word_bytes for name in names}
    if has(rows, WIDTH):
        widths = dict(zip(rows["name"][::-1], whole(rows, WIDTH, path, word_bytes)[::-1].tolist(), strict=True))
    return MovesOfFile(names, table, shapes_of(table, len(names)), [widths[name] for name in names], peak)


def has(rows: pd.DataFrame, column: str) -> bool:
    """Whether a column is there and not empty."""
    return column in rows and rows[column].replace("", np.nan).notna().any()


def whole(rows: pd.DataFrame, column: str, path: str, absent: int = 0) -> Numbers:
    """A column of whole numbers of at most MOST_DIGITS digits; `absent` where it is empty and may be."""
    import pandas as pd

    return pd.to_numeric(texts_of(rows, column, path, absent, MOST_DIGITS)).to_numpy(np.int64)


def texts_of(rows: pd.DataFrame, column: str, path: str, absent: int = 0, digits: int = 100) -> pd.Series[str]:
    """A column of whole numbers as texts."""
    texts = rows[column].astype("string")
    if column not in PLACE:
        texts = texts.fillna("").replace("", str(absent))
    sign = "-?" if column in SIGNED else ""
    wrong = ~texts.fillna("").str.fullmatch(f"{sign}[0-9]{{1,{digits}}}(\\.0)?")
    if wrong.any():
        where = f"{path}, event {texts.index[wrong][0] + 1}: {column}"
        allowed = f"a whole number of at most {digits} digits, as iosim trace writes it"
        raise InputError(where, str(rows[column][wrong].iloc[0]), allowed)
    return texts.str.removesuffix(".0")


def shapes_of(table: Numbers, tensors: int) -> list[tuple[int, ...]]:
    """The shape of each tensor, from the ends of its tiles. Rows before the first belong to it as well."""
    found: list[tuple[int, ...]] = []
    for number in range(tensors):
        mine = table[:, 0] == number
        table[mine, 2] -= min(0, table[mine, 2].min())
        _, _, row, rows, column, columns = table[mine].T
        found.append((int((row + rows).max()), int((column + columns).max())))
    return found


def read_events(path: str) -> pd.DataFrame:
    """The events of a CSV, JSON lines or Parquet file."""
    import pandas as pd

    try:
        kind = form_of(path, "events")
    except InputError as error:
        raise InputError("--trace", path, error.allowed) from None
    if kind == "perfetto":
        raise InputError("--trace", path, "a file that ends in .csv, .jsonl or .parquet")
    try:
        check_no_device(path)
        if kind == "parquet":
            return pd.read_parquet(path)
        if kind == "jsonl":
            return pd.read_json(path, lines=True, dtype=False)
        return pd.read_csv(path, dtype="string", keep_default_na=False)
    except ImportError:
        raise MissingError(NO_PYARROW) from None
    except (OSError, ValueError) as error:
        raise InputError("--trace", path, "a file of iosim trace", str(error).split("\n")[0]) from None
