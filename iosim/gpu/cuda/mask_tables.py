"""A mask in CUDA: active tiles as tables of bits, visible tokens as a C expression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, InternalError
from ...masks.atoms import Documents, Stripes
from ...masks.expression import Atom, Join, evaluate
from ...masks.files import MaskFile
from ...masks.mask import BoundMask, Mask
from ...masks.reach import Seen, ends

if TYPE_CHECKING:
    from ...core.mask_types import BoundMask as AnyBoundMask
    from ...core.mask_types import Mask as AnyMask
    from ...core.typing import Bools
    from ...masks.functions import MaskFunction

BitWords = NDArray[np.uint32]

MOST_BITS = 2**33  # a table of 1 GiB
CONSTANT_BYTES = 12 * 1024  # tables up to this size are constants of the source; larger ones are arguments


# ---------------------------------------------------------------- C expressions

SUM, PRODUCT, ALONE = 5, 6, 9  # precedences of + and -, of * / %, and of an expression without an operator


def infix(sign: str, level: int) -> Callable[[CText, CText | int], CText]:
    """A method that joins two expressions by an operator of this precedence."""

    def join(left: CText, right: CText | int) -> CText:
        right = right if isinstance(right, CText) else CText(str(right))
        if sign in "/%" and left.level == SUM and " - " in left.text:
            raise InternalError(f"C rounds {left.text} / {right.text} up where Python rounds it down")
        return CText(f"{left.inside(level)} {sign} {right.inside(level + 1)}", level)

    return join


class CText:
    """A C expression of numbers that are never negative. The operators of Python make larger ones, with parentheses
    only where C needs them. `level` is the precedence of the operator that was applied last."""

    def __init__(self, text: str, level: int = ALONE):
        self.text, self.level = text, level

    def inside(self, level: int) -> str:
        """The text as an operand of an operator of this level."""
        return self.text if self.level >= level else f"({self.text})"

    __or__, __and__ = infix("||", 1), infix("&&", 2)
    __lt__, __le__, __gt__, __ge__ = infix("<", 4), infix("<=", 4), infix(">", 4), infix(">=", 4)
    __add__, __sub__ = infix("+", SUM), infix("-", SUM)
    __mul__, __floordiv__, __mod__ = infix("*", PRODUCT), infix("/", PRODUCT), infix("%", PRODUCT)
    __ne__ = infix("!=", 3)  # type: ignore[assignment]  # of an object it is a bool

    def __eq__(self, other: CText | int) -> CText:  # type: ignore[override]  # as above
        return CText("true") if isinstance(other, CText) and self.text == other.text else infix("==", 3)(self, other)

    def __invert__(self) -> CText:
        return CText(f"!{self.inside(ALONE)}", ALONE - 1)


def joined(op: str, texts: list[str]) -> str:
    """C expressions, each in parentheses or without an operator, joined by an operator of masks."""
    return f"!{texts[0]}" if op == "~" else f"({f' {op}{op} '.join(texts)})"


# ---------------------------------------------------------------- tables


class Tables:
    """The tables that the kernels of one program need, by name. Each is made when it is first used.

    Tables of bits: `active` (tiles that are not empty) and `whole` (tiles in which nothing is hidden), Tr x Tc; `any_q`
    and `any_k`, the row tiles and key tiles with any active tile; `active96_32`, the active tiles of 32 keys that begin
    anew with each 96, as with a share; `file0` and so on, the files of the mask. Tables of numbers: `first64` and
    `count64`, for each tile of 64 rows the first of the keys that it needs (masks/reach.py), and their number,
    `reach64` if they begin at the first key of all; `document0` and so on, the document of each token.
    """

    def __init__(self, mask: AnyMask):
        assert isinstance(mask, BoundMask), "a dense mask needs no tables"
        self.mask: BoundMask = mask
        self.words: dict[str, BitWords] = {}
        self._files: dict[MaskFile | MaskFunction, str] = {}
        self._named: dict[Documents, str] = {}

    def use(self, name: str, mask: AnyBoundMask | None = None) -> str:
        """The name of a table, made if not there yet. Tiles of other sizes have their own, as `active_64x1`."""
        own = mask or cast("AnyBoundMask", self.mask)
        sizes = own.rows_q, own.rows_k
        named = name if sizes == (self.mask.rows_q, self.mask.rows_k) else f"{name}_{sizes[0]}x{sizes[1]}"
        named += "_from_end" * own.from_end
        if named not in self.words:
            self.words[named] = bits(self._tiles(name, own))
        return named

    def needed(self, seen: Seen, first: bool) -> str:
        """The name of the table of the first keys that query tiles need, or of their numbers of keys."""
        rows = int(seen.size_of_tiles)
        name = f"{'first' if first else 'count' if seen.cut else 'reach'}{rows}"
        if name not in self.words:
            found = [(start, end - start) for _, start, end in ends(self.mask, rows, seen.cut)]
            self.words[name] = np.array([pair[not first] for pair in found], np.uint32)
        return name

    def cells(self, block: int, size: int) -> tuple[str, int, int]:
        """(name, columns, keys of a column) of the table of the active tiles of `size` keys that begin anew in each
        `block`: a tile's bit is in the column where it starts."""
        m, unit = self.mask, gcd(block, size)
        name, columns = f"active{block}_{size}", -(-m.Nk // unit)
        if name not in self.words:
            blocks = (range(first, min(first + block, m.Nk), size) for first in range(0, m.Nk, block))
            starts, table = np.concatenate([*blocks]), np.zeros((m.Tr, columns), bool)
            for i, seen in enumerate(m.keys_seen()):
                table[i, starts // unit] = np.logical_or.reduceat(seen, starts)
            self.words[name] = bits(table)
        return name, columns, unit

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

    def _tiles(self, name: str, mask: AnyBoundMask) -> Bools:
        """The table of bits with this name, as booleans."""
        if name == "whole":
            return self.whole
        table = mask.table
        return table if name == "active" else np.asarray(table.any(axis={"any_q": 1, "any_k": 0}[name]))

    @property
    def whole(self) -> Bools:
        """The tiles (Tr x Tc) in which the mask hides nothing: those in which its negation sees nothing."""
        hidden = Mask(f"~({self.mask})", Join("~", (self.mask.mask.expr,)))
        return ~replace(self.mask, mask=hidden).table

    # ------------------------------------------------------------------ tokens

    def visible(self) -> str:
        """A C expression: whether query x sees key y, both positions of tokens of type int."""
        return evaluate(self.mask.mask.expr, self._atom, joined)

    def _atom(self, atom: Atom) -> str:
        """The C expression of one atom, in parentheses if it has an operator."""
        m, x, y, see = self.mask, "x", "y", atom.row.see
        assert see is not None, "as in Atom.sees"
        if atom.tiles:
            x, y = f"(x / {m.rows_q})", f"(y / {m.rows_k})"
        elif atom.shape and (shift := m.Nk - m.N):
            if isinstance(atom.shape, Stripes):
                shift %= atom.shape.size  # C has negative remainders
            x = f"(x {'-' if shift < 0 else '+'} {abs(shift)})"
        return cast("CText", see(CText(x), CText(y), self._value(atom))).inside(ALONE)

    def _value(self, atom: Atom) -> int | Callable[[CText], CText] | Callable[[CText, CText], CText]:
        """The value of an atom in C. Documents and files are read from tables."""
        if isinstance(atom.value, int):
            return min(atom.value, 2**31 - 1)  # an int; no position is larger
        if isinstance(atom.value, Documents):
            return self._documents(atom.value)
        return self._file(atom.value) if isinstance(atom.value, MaskFile) else self._function(atom.value)

    def _documents(self, documents: Documents) -> Callable[[CText], CText]:
        """The document of a position, from a table of the document of each token."""
        if documents not in self._named:
            self._named[documents] = f"document{len(self._named)}"
            lengths = documents.lengths
            self.words[self._named[documents]] = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
        name = self._named[documents]
        return lambda position: CText(f"{name}[{position.text}]")

    def _file(self, file: MaskFile) -> Callable[[CText, CText], CText]:
        """The number of a file at two positions."""
        m = self.mask
        name, columns = self._named_bits(file, file.size, lambda: file.data)
        rows, keys = file.entry(m.N, m.Nk, m.rows_q, m.rows_k)

        def number(x: CText, y: CText) -> CText:
            row, column = (x // rows, y // keys) if (rows, keys) != (1, 1) else (x, y)
            return CText(f"bit({name}, {(row * columns + column).text})")

        return number

    def _function(self, function: MaskFunction) -> Callable[[CText, CText], CText]:
        """What a function of a file says of two positions."""
        N, Nk = self.mask.N, self.mask.Nk
        name, columns = self._named_bits(function, (N, Nk), lambda: function.matrix(N, Nk))
        return lambda x, y: CText(f"bit({name}, {(x * columns + y).text})")

    def _named_bits(
        self, owner: MaskFile | MaskFunction, shape: tuple[int, int], matrix: Callable[[], Bools]
    ) -> tuple[str, CText]:
        """(the name of the table with the bits of a file or a function, its columns)."""
        if prod(shape) > MOST_BITS:
            raise InputError("--mask", f"{prod(shape)} pairs in a file", f"at most {MOST_BITS} on a GPU")
        if owner not in self._files:
            self._files[owner] = f"file{len(self._files)}"
            self.words[self._files[owner]] = bits(matrix())
        return self._files[owner], CText(f"{shape[1]}LL")


def bits(table: Bools) -> BitWords:
    """The booleans of a table as words of 32 bits, the first in the lowest bit."""
    flat = np.asarray(table, bool).ravel()
    packed = np.packbits(flat, bitorder="little")
    padded = np.zeros(-(-max(1, len(packed)) // 4) * 4, np.uint8)
    padded[: len(packed)] = packed
    return padded.view("<u4")
