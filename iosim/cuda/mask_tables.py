"""A mask in CUDA: active tiles as tables of bits, visible tokens as a C expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..masks.expression import Atom, Expr, Join, MaskFile
from ..masks.mask import BoundMask
from ..masks.reach import reaches

if TYPE_CHECKING:
    from ..core.typing import Bools, Mask

BitWords = NDArray[np.uint32]

MOST_BITS = 2**33  # a table of 1 GiB
CONSTANT_BYTES = 12 * 1024  # tables up to this size are constants of the source; larger ones are arguments


class Tables:
    """The tables that the kernels of one program need, by name. Each is made when it is first used.

    Tables of bits: `active` (tiles that are not empty) and `whole` (tiles in which nothing is hidden), Tr x Tc; `any_q`
    and `any_k`, the row tiles and key tiles with any active tile; `file0` and so on, the files of the mask. Tables of
    numbers: `reach`, for each row tile the number of keys up to the last one that it sees; `document0` and so on, the
    document of each token.
    """

    def __init__(self, mask: Mask):
        assert isinstance(mask, BoundMask), "a dense mask needs no tables"
        self.mask: BoundMask = mask
        self.words: dict[str, BitWords] = {}
        self._files: dict[str, MaskFile] = {}
        self._named: dict[Atom, str] = {}

    def use(self, name: str) -> str:
        """The name of a table, which is made if it is not there yet."""
        if name not in self.words:
            self.words[name] = self._reach() if name == "reach" else bits(self._tiles(name))
        return name

    def is_constant(self, name: str) -> bool:
        """Whether a table is small enough for the source; else it is an argument of the kernels."""
        return self.words[name].nbytes <= CONSTANT_BYTES

    @property
    def constants(self) -> str:
        """The small tables as source."""
        texts = []
        for name, words in self.words.items():
            if self.is_constant(name):
                values = ", ".join(f"{int(word):#x}" for word in words)
                texts.append(f"__constant__ const unsigned {name}[{len(words)}] = {{{values}}};\n")
        return "".join(texts)

    @property
    def arguments(self) -> dict[str, BitWords]:
        """The large tables, which kernels take as arguments."""
        return {name: words for name, words in self.words.items() if not self.is_constant(name)}

    def _reach(self) -> BitWords:
        return np.array([keys for _, keys in reaches(self.mask)], np.uint32)

    def _tiles(self, name: str) -> Bools:
        """The table of bits with this name, as booleans."""
        if name == "whole":
            return self._whole()
        table = self.mask.table
        return table if name == "active" else np.asarray(table.any(axis={"any_q": 1, "any_k": 0}[name]))

    def _whole(self) -> Bools:
        """The tiles (Tr x Tc) in which the mask hides nothing."""
        mask, starts = self.mask, np.arange(0, self.mask.Nk, self.mask.rows_k)
        table = np.ones((mask.Tr, mask.Tc), bool)
        chunk = max(1, 2**22 // mask.Nk)
        for i in range(mask.Tr):
            for x in range(i * mask.rows_q, min((i + 1) * mask.rows_q, mask.N), chunk):
                rows = min(chunk, (i + 1) * mask.rows_q - x, mask.N - x)
                table[i] &= np.logical_and.reduceat(mask.visible(x, rows, 0, mask.Nk).all(axis=0), starts)
        return table

    # ------------------------------------------------------------------ tokens

    def visible(self, expr: Expr | None = None) -> str:
        """A C expression: whether query x sees key y, both positions of tokens of type int."""
        expr = self.mask.mask.expr if expr is None else expr
        if isinstance(expr, Join):
            parts = [self.visible(part) for part in expr.parts]
            joined = f" {expr.op}{expr.op} ".join(parts)
            return f"!{parts[0]}" if expr.op == "~" else f"({joined})"
        if expr.kind == "documents":
            return self._documents(expr)
        return self._file(expr) if expr.file else self._atom(expr)

    def _atom(self, atom: Atom) -> str:
        m, size = self.mask, min(atom.size, 2**31 - 1)  # an int; no position is larger
        x, y = (f"(x / {m.rows_q})", f"(y / {m.rows_k})") if atom.tiles else ("x", "y")
        shift = 0 if atom.tiles else m.Nk - m.N
        return {
            "causal": f"({y} <= {x} + ({shift}))",
            "window": f"({x} - {y} <= {size} && {y} - {x} <= {size})",
            "global": f"({x} < {size} || {y} < {size})",
            "sink": f"({y} < {size})",
            "strided": f"({x} % {size} == {y} % {size})",
            "chunk": f"({x} / {size} == {y} / {size})",
            "dense": "true",
        }[atom.kind]

    def _documents(self, atom: Atom) -> str:
        """Whether x and y lie in the same document, from a table of the document of each token."""
        if atom not in self._named:
            self._named[atom] = f"document{len(self._named)}"
            self.words[self._named[atom]] = np.repeat(np.arange(len(atom.lengths), dtype=np.uint32), atom.lengths)
        name = self._named[atom]
        return f"({name}[x] == {name}[y])"

    def _file(self, atom: Atom) -> str:
        assert atom.file is not None
        m, data = self.mask, atom.file.data
        if data.size > MOST_BITS:
            raise InputError("--mask", f"{data.size} pairs in a file", f"at most {MOST_BITS} on a GPU")
        name = next((n for n, owner in self._files.items() if owner is atom.file), None)
        if name is None:
            name = f"file{len(self._files)}"
            self._files[name] = atom.file
            self.words[name] = bits(data)
        if atom.file.block:
            rows, keys = atom.file.block
            return f"bit({name}, x / {rows} * {data.shape[1]}LL + y / {keys})"
        if data.shape == (m.N, m.Nk):
            return f"bit({name}, x * {m.Nk}LL + y)"
        return f"bit({name}, x / {m.rows_q} * {m.Tc}LL + y / {m.rows_k})"


def bits(table: Bools) -> BitWords:
    """The booleans of a table as words of 32 bits, the first in the lowest bit."""
    flat = np.asarray(table, bool).ravel()
    packed = np.packbits(flat, bitorder="little")
    padded = np.zeros(-(-max(1, len(packed)) // 4) * 4, np.uint8)
    padded[: len(packed)] = packed
    return padded.view("<u4")
