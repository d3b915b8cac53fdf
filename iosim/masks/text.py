"""The parser of a mask's text, such as `causal&window:64|file:PATH`. It also reads the files that the text names."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from ..errors import InputError, suggestion
from ..units import LARGEST_COUNT, parse_count
from .expression import Atom, Expr, Join, MaskFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WHERE = "--mask"
ALLOWED = (
    "dense, causal, window:W, sink:K, global:G, strided:S, dilated:W:S, chunk:C, documents:A,B,..., file:PATH, joined "
    "by &, |, ~ and parentheses; sizes in tokens, or in tiles as 2b"
)
LEAST = {"window": 0, "sink": 0, "global": 0, "strided": 1, "chunk": 1}
MASK_NAMES = ("dense", "causal", *LEAST, "dilated", "documents", "file")
LONGEST, DEEPEST = 2000, 50
LARGEST_FILE = 2**30  # bytes

_TOKEN = re.compile(r"\s*([&|~()]|file:[^&|()\s]*|[^&|~()\s]+)")


def parse_expression(text: str) -> Expr:
    """The expression that a mask's text stands for; InputError for any other text."""
    if not isinstance(text, str):
        raise InputError(WHERE, text, ALLOWED)
    if len(text) > LONGEST:
        raise InputError(WHERE, text, f"at most {LONGEST} characters")
    return _Parser(text).parse()


class _Parser:
    """A parser by recursive descent: ~ binds tightest, then &, then |."""

    def __init__(self, text: str):
        self.text, self.words, self.at, self.depth = text, _TOKEN.findall(text), 0, 0

    def parse(self) -> Expr:
        """The expression of the whole text."""
        expr = self.join("|")
        if self.at < len(self.words):
            unexpected = self.words[self.at]
            hint = "unbalanced parentheses" if unexpected == ")" else f"join {unexpected!r} by & or |"
            raise self.error(hint)
        return expr

    def error(self, hint: str) -> InputError:
        """An InputError about this text, with a hint."""
        return InputError(WHERE, self.text, ALLOWED, hint)

    def take(self, *words: str) -> bool:
        """Whether the next word is one of these. If so, the parser moves past it."""
        found = self.at < len(self.words) and self.words[self.at] in words
        self.at += found
        return found

    def join(self, op: str) -> Expr:
        """Operands joined by `op`. A single operand is returned as it is."""
        parts = [self.operand(op)]
        while self.take(op):
            parts.append(self.operand(op))
        return parts[0] if len(parts) == 1 else Join(op, tuple(parts))

    def operand(self, op: str) -> Expr:
        """An operand of `op`. It may contain operators that bind tighter."""
        return self.join("&") if op == "|" else self.unary()

    def unary(self) -> Expr:
        """An atom or a bracket, after any number of ~."""
        negated = False
        while self.take("~"):
            negated = not negated
        expr = self.bracket() if self.take("(") else self.atom()
        return Join("~", (expr,)) if negated else expr

    def bracket(self) -> Expr:
        """The expression in parentheses, after the opening one."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"at most {DEEPEST} parentheses may be nested")
        expr = self.join("|")
        if not self.take(")"):
            raise self.error("unbalanced parentheses")
        self.depth -= 1
        return expr

    def atom(self) -> Expr:
        """The predicate that the next word names."""
        word = self.words[self.at] if self.at < len(self.words) else ""
        if word in ("", "&", "|", ")"):
            raise self.error("a mask is missing " + (f"before {word!r}" if word else "at the end"))
        self.at += 1
        name, colon, value = word.partition(":")
        if name not in MASK_NAMES:
            raise self.error(spelt(word) or suggestion(name, MASK_NAMES) or f"there is no mask {name!r}")
        if name == "file":
            return Atom("file", file=read_file(value))
        if name in LEAST:
            return sized(name, value, word)
        if name == "dilated":
            return self.dilated(value, word)
        if name == "documents":
            lengths = tuple(parse_count(one, f"{WHERE} ({word})", 1, LARGEST_COUNT) for one in value.split(","))
            return Atom(name, lengths=lengths)
        if colon and (name, value) != ("causal", "b"):
            raise self.error("`causal` or `causal:b`" if name == "causal" else "`dense` takes no number")
        return Atom(name, tiles=bool(colon))

    def dilated(self, value: str, word: str) -> Expr:
        """W keys on either side of the query, S apart: a window W * S wide, joined with a stride of S."""
        first, _, second = value.partition(":")
        keys, stride = sized("window", first, word), sized("strided", second, word)
        if keys.tiles != stride.tiles:
            raise self.error("W and S of dilated:W:S both in tokens, or both in tiles")
        return Join("&", (Atom("window", keys.size * stride.size, keys.tiles), stride))


def spelt(word: str) -> str:
    """The hint for masks with commas between them, and for `window=512`; an empty text for any other word."""
    names = [re.split("[:=]", part)[0] for part in word.split(",")]
    if not all(name in MASK_NAMES for name in names):
        return ""
    masks = [part.replace("=", ":") for part in word.split(",")]
    return f"write {'&'.join(masks)}" + (f" (both) or {'|'.join(masks)} (either)" if len(masks) > 1 else "")


def sized(name: str, value: str, word: str) -> Atom:
    """The predicate `name:value` of a number of tokens, or of tiles if it ends with b."""
    count = parse_count(value.removesuffix("b"), f"{WHERE} ({word})", LEAST[name], LARGEST_COUNT)
    return Atom(name, count, value.endswith("b"))


def read_file(path: str) -> MaskFile:
    """The matrix of a file. A file that has not changed is not read again."""
    allowed = "file:PATH of a readable .npy, block mask (.npz) or 0/1 text file"
    try:
        if not os.path.isfile(path):
            raise InputError(WHERE, f"file:{path}", allowed, "there is no such file")
        state = os.stat(path)
        if state.st_size > LARGEST_FILE:
            raise InputError(WHERE, f"file:{path}", f"at most {LARGEST_FILE} bytes")
        return _load(path, state.st_mtime_ns, state.st_size)
    except InputError:
        raise
    except Exception as fault:  # for a broken file NumPy raises errors of many classes
        raise InputError(WHERE, f"file:{path}", allowed, str(fault)) from fault


def check_archive(path: str) -> None:
    """Raise ValueError for arrays that take more memory than a file may have bytes, before they take it."""
    import zipfile

    from numpy.lib import format as npy

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
def _load(path: str, mtime: int, size: int) -> MaskFile:
    import numpy as np

    if path.endswith(".npz"):
        check_archive(path)
        with np.load(path, allow_pickle=False) as arrays:
            return block_mask(path, dict(arrays))
    if path.endswith(".npy"):
        data = np.load(path, allow_pickle=False, mmap_mode="r")  # takes no memory for what the file lacks
        data = data.reshape(data.shape[-2:]) if data.ndim > 2 and data.shape[:-2] == (1,) * (data.ndim - 2) else data
    else:
        from .text_matrix import read_text_matrix

        return MaskFile(path, read_text_matrix(path))
    if data.ndim != 2 or not data.size or data.dtype.kind not in "buif" or not ((data == 0) | (data == 1)).all():
        raise ValueError("it is no matrix of 0 and 1")
    return MaskFile(path, data.astype(bool))


def block_mask(path: str, arrays: dict[str, NDArray[np.int64]]) -> MaskFile:
    """A BlockMask of PyTorch's FlexAttention, from the arrays of its fields.

    For each row of blocks, the first `kv_num_blocks` of `kv_indices` are visible. Blocks without a hidden pair
    may be listed separately, in `full_kv_num_blocks` and `full_kv_indices`. `BLOCK_SIZE` is 128 unless given.
    """
    import numpy as np

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
    return MaskFile(path, data, block)


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
