"""The matrices of 0 and 1 that `file:PATH` names: .npy files, block masks of FlexAttention (.npz), and text files."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ..errors import InputError

if TYPE_CHECKING:
    from ..core.typing import Bools

WHERE = "--mask"
LARGEST_FILE = 2**30  # bytes
CHUNK_BYTES = 2**22  # of a text file that are read at once; it needs about two bytes of memory a digit
NEWLINES, DROPPED = b"\n\r", b" ,\t\v\f\x1c\x1d\x1e\x1f"


@dataclass(frozen=True, eq=False)
class MaskFile:
    """The matrix of 0 and 1 that a file holds. It is equal only to itself, because the file may change.

    `block` is set for a FlexAttention block mask: each number then stands for that many queries x keys.
    """

    path: str
    packed: NDArray[np.uint8]
    """The rows, eight numbers a byte."""
    columns: int
    block: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(rows, columns) of the matrix."""
        return len(self.packed), self.columns

    @property
    def data(self) -> Bools:
        """The matrix."""
        return np.unpackbits(self.packed, axis=1, count=self.columns).view(bool)

    def at(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Bools:
        """The numbers in these rows and columns, (rows, columns)."""
        return np.unpackbits(self.packed[rows], axis=1, count=self.columns).view(bool)[:, columns]

    def fits(self, N: int, Nk: int) -> bool:
        """Whether the matrix has a number for each pair of tokens, or of blocks if it has blocks."""
        return self.size == self.shape(N, Nk)

    def shape(self, N: int, Nk: int) -> tuple[int, int]:
        """The shape that fits N queries and Nk keys."""
        rows, keys = self.block or (1, 1)
        return tiles(N, Nk, rows, keys)

    def entry(self, N: int, Nk: int, rows_q: int, rows_k: int) -> tuple[int, int]:
        """The queries and keys that one number stands for. Raises InputError if the matrix fits neither the tokens nor
        the tiles."""
        if self.fits(N, Nk):
            return self.block or (1, 1)
        found, in_tiles = self.size, tiles(N, Nk, rows_q, rows_k)
        if self.block is None and found == in_tiles:
            return rows_q, rows_k
        if self.block:
            (height, width), shape = self.block, self.shape(N, Nk)
            allowed, hint = f"{shape}, for blocks of {height}x{width} over {N} x {Nk} tokens", ""
        else:
            allowed, hint = f"tile shape {in_tiles} or token shape ({N}, {Nk})", self.own_tiles(N, Nk)
        raise InputError(f"{WHERE} file:{self.path}", found, allowed, hint)

    def own_tiles(self, N: int, Nk: int) -> str:
        """A hint: the option with the tiles that a file of tiles is for. Empty if no equal tiles cover all tokens."""
        rows, columns = self.size
        return f"its tiles are those of --tiles {N // rows}x{Nk // columns}" if not (N % rows or Nk % columns) else ""


def tiles(N: int, Nk: int, rows: int, keys: int) -> tuple[int, int]:
    """The numbers of tiles of rows x keys that cover N x Nk tokens."""
    return -(-N // rows), -(-Nk // keys)


def read_file(path: str) -> MaskFile:
    """The matrix of a file. A file of the same bytes is not parsed again; others may have its time and size."""
    allowed = "file:PATH of a readable .npy, block mask (.npz) or 0/1 text file"
    try:
        if not os.path.isfile(path):
            raise InputError(WHERE, f"file:{path}", allowed, "there is no such file")
        if os.path.getsize(path) > LARGEST_FILE:
            raise InputError(WHERE, f"file:{path}", f"at most {LARGEST_FILE} bytes")
        with open(path, "rb") as file:
            digest = file_digest(file, "sha256").digest()
        return _load(path, digest)
    except InputError:
        raise
    except Exception as fault:  # for a broken file NumPy raises errors of many classes
        raise InputError(WHERE, f"file:{path}", allowed, str(fault)) from fault


def check_archive(path: str) -> None:
    """Raise ValueError for arrays that take more memory than a file may have bytes, before they take it."""
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > LARGEST_FILE:
            raise ValueError(f"its arrays have more than {LARGEST_FILE} bytes")
        for member in archive.infolist():
            with archive.open(member) as file:
                read = {1: npy.read_array_header_1_0, 2: npy.read_array_header_2_0}[npy.read_magic(file)[0]]
                shape, _, dtype = read(file)
            if prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"{member.filename} is shorter than its shape {shape} says")


@lru_cache(maxsize=32)
def _load(path: str, digest: bytes) -> MaskFile:
    if path.endswith(".npz"):
        check_archive(path)
        with np.load(path, allow_pickle=False) as arrays:
            return block_mask(path, dict(arrays))
    if path.endswith(".npy"):
        return MaskFile(path, *npy_matrix(path))
    matrix = read_text_matrix(path)
    return MaskFile(path, np.packbits(matrix, axis=1), matrix.shape[1])


def npy_matrix(path: str) -> tuple[NDArray[np.uint8], int]:
    """(packed rows, columns) of the matrix of a .npy file, without axes of length 1 in front. ValueError unless all its
    numbers are 0 or 1."""
    data = np.load(path, allow_pickle=False, mmap_mode="r")  # takes no memory for what the file lacks
    data = data.reshape(data.shape[-2:]) if data.ndim > 2 and data.shape[:-2] == (1,) * (data.ndim - 2) else data
    if data.ndim != 2 or not data.size or data.dtype.kind not in "buif":
        raise ValueError("it is no matrix of 0 and 1")
    found: list[NDArray[np.uint8]] = []
    rows = max(1, CHUNK_BYTES // (data.shape[1] * data.itemsize))
    for x in range(0, len(data), rows):  # a part at a time, read anew: what was read of a map would stay in memory
        part = np.load(path, allow_pickle=False, mmap_mode="r").reshape(data.shape)[x : x + rows]
        if data.dtype != bool and not ((part == 0) | (part == 1)).all():
            raise ValueError("it is no matrix of 0 and 1")
        found.append(np.packbits(part != 0, axis=1))
    return np.concatenate(found), data.shape[1]


def block_mask(path: str, arrays: dict[str, NDArray[np.int64]]) -> MaskFile:
    """A BlockMask of PyTorch's FlexAttention, from the arrays of its fields.

    For each row of blocks, the first `kv_num_blocks` of `kv_indices` are visible. Blocks without a hidden pair
    may be listed separately, in `full_kv_num_blocks` and `full_kv_indices`. `BLOCK_SIZE` is 128 unless given.
    """
    numbers, indices = one_head(arrays, "kv_num_blocks", 1), one_head(arrays, "kv_indices", 2)
    size = np.broadcast_to(arrays.get("BLOCK_SIZE", np.array(128)), 2)
    block = int(size[0]), int(size[1])
    columns = -(-int(arrays["seq_lengths"][1]) // block[1]) if "seq_lengths" in arrays else indices.shape[1]
    data = np.zeros((len(indices), columns), bool)
    lists = [(numbers, indices)]
    if "full_kv_num_blocks" in arrays:
        lists.append((one_head(arrays, "full_kv_num_blocks", 1), one_head(arrays, "full_kv_indices", 2)))
    for counts, places in lists:
        row, place = (np.arange(places.shape[1]) < counts[:, None]).nonzero()
        data[row, places[row, place]] = True
    if min(block) < 1 or not data.size:
        raise ValueError("it has no blocks")
    return MaskFile(path, np.packbits(data, axis=1), data.shape[1], block)


def one_head(arrays: dict[str, NDArray[np.int64]], name: str, axes: int) -> NDArray[np.int64]:
    """An array of a block mask, without its axes of batch and heads: all of them must have the same blocks."""
    if name not in arrays:
        raise ValueError(f"it has no array {name}")
    array = arrays[name]
    if array.ndim < axes or array.dtype.kind not in "iu" or not array.size or (array < 0).any():
        raise ValueError(f"{name} is no array of whole numbers over rows of blocks")
    heads = array.reshape(-1, *array.shape[array.ndim - axes :])
    if (heads != heads[0]).any():
        raise ValueError("its heads or batches differ; save one of them")
    return heads[0]


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
