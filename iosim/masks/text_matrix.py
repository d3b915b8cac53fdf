"""Reads a matrix of 0 and 1 from a text file, some MB at a time. It needs about two bytes of memory a digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_BYTES = 2**22
NEWLINES, DROPPED = b"\n\r", b" ,\t\v\f\x1c\x1d\x1e\x1f"


def read_text_matrix(path: str) -> NDArray[np.bool_]:
    """The matrix of a file with one row on each line. Spaces, commas and empty lines are dropped.

    Raises ValueError for another character and for rows that differ in length.
    """
    parts: list[NDArray[np.uint8]] = []
    columns, open_row = 0, 0  # characters of a row, and of the unfinished row at the end of the last chunk
    with open(path, "rb") as file:
        while raw := file.read(CHUNK_BYTES):
            text = raw.translate(None, DROPPED)
            columns, open_row = row_length(text, columns, open_row)
            digits = np.frombuffer(text.translate(None, NEWLINES), np.uint8) - ord("0")
            if digits.size and digits.max() > 1:
                raise ValueError("it is no matrix of 0 and 1")
            parts.append(digits)
    if open_row:
        columns = same_length(columns, open_row)
    if not columns:
        raise ValueError("it is no matrix of 0 and 1")
    return np.concatenate(parts).view(bool).reshape(-1, columns)


def row_length(text: bytes, columns: int, open_row: int) -> tuple[int, int]:
    """(the length of all complete rows so far, the length of the unfinished row at the end of the text)."""
    ends = np.flatnonzero(np.isin(np.frombuffer(text, np.uint8), np.frombuffer(NEWLINES, np.uint8)))
    if not ends.size:
        return columns, open_row + len(text)
    lengths = np.diff(ends, prepend=-1) - 1
    lengths[0] += open_row
    for length in np.unique(lengths[lengths > 0]).tolist():
        columns = same_length(columns, length)
    return columns, len(text) - 1 - int(ends[-1])


def same_length(columns: int, length: int) -> int:
    """The length of a row. ValueError if the rows before it have another length."""
    if columns not in (0, length):
        raise ValueError("its rows differ in length")
    return length
