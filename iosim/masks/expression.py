"""The expression of a mask: atoms such as `causal` or `window:64`, joined by & | ~. Nothing is counted here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.typing import Bools


@dataclass(frozen=True, eq=False)
class MaskFile:
    """The matrix of 0 and 1 that a file holds. It is equal only to itself, because the file may change.

    `block` is set for a FlexAttention block mask: each number then stands for that many queries x keys.
    """

    path: str
    data: Bools
    block: tuple[int, int] | None = None

    def fits(self, N: int, Nk: int) -> bool:
        """Whether the matrix has a number for each pair of tokens, or of blocks if it has blocks."""
        return self.data.shape == self.shape(N, Nk)

    def shape(self, N: int, Nk: int) -> tuple[int, int]:
        """The shape that fits N queries and Nk keys."""
        rows, keys = self.block or (1, 1)
        return -(-N // rows), -(-Nk // keys)


@dataclass(frozen=True)
class Atom:
    """One predicate. `kind` is dense, causal, window, sink, global, strided, chunk, documents or file. `size` counts
    tiles if `tiles` is set, else tokens. `lengths` are those of the documents."""

    kind: str
    size: int = 0
    tiles: bool = False
    file: MaskFile | None = None
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Join:
    """Several expressions joined into one: `op` is & or | between all parts, or ~ before the only one."""

    op: str
    parts: tuple[Atom | Join, ...]


Expr = Atom | Join


def atoms(expr: Expr) -> Iterator[Atom]:
    """All atoms of an expression, from left to right."""
    if isinstance(expr, Atom):
        yield expr
    else:
        for part in expr.parts:
            yield from atoms(part)


def unit(expr: Expr) -> str:
    """`tokens` or `tiles` if all atoms agree, else `mixed`. Files are always mixed."""
    found = {"mixed" if atom.file else "tiles" if atom.tiles else "tokens" for atom in atoms(expr) if atom != DENSE}
    return found.pop() if len(found) == 1 else "mixed" if found else "tokens"


DENSE = Atom("dense")
