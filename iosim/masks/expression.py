"""The expression of a mask: atoms such as `causal` or `window:64`, joined by & | ~. Nothing is counted here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, TypeVar

from ..errors import InputError
from .atoms import BY_NAME, Documents, Shape

if TYPE_CHECKING:
    from ..core.typing import Size, Test
    from .atoms import Of, Row
    from .files import MaskFile
    from .functions import MaskFunction

    Value = int | Documents | MaskFile | MaskFunction

T = TypeVar("T")


@dataclass(frozen=True)
class Atom:
    """One predicate: the one of the row `kind` of atoms.py, with its number, documents, file or function as
    `value`.

    A number counts tiles if `tiles` is set, else tokens.
    """

    kind: str
    value: Value = 0
    tiles: bool = False

    @property
    def row(self) -> Row:
        """The row of the table."""
        return BY_NAME[self.kind]

    @property
    def file(self) -> MaskFile | None:
        """The file whose matrix says what is visible; None for any other atom."""
        if isinstance(self.value, int | Documents):
            return None
        from .functions import MaskFunction

        return None if isinstance(self.value, MaskFunction) else self.value

    @property
    def function(self) -> MaskFunction | None:
        """The function of a Python file that says what is visible; None for any other atom."""
        if isinstance(self.value, int | Documents):
            return None
        from .functions import MaskFunction

        return self.value if isinstance(self.value, MaskFunction) else None

    @cached_property
    def shape(self) -> Shape | None:
        """What its counts follow from; None if it must be looked at pair by pair."""
        return None if self.row.shape is None else self.row.shape(self.value)

    def sees(self, r: Size, y: Size, shift: Size, n: Value | Of[object] | None = None) -> Test:
        """Whether queries of numbers r see keys y. `shift` is Nk - N, or 0 for tiles. `n` replaces the value."""
        see = self.row.see
        assert see is not None, "the parser puts other atoms in place of one that stands for them"
        return see(r + shift if self.shape else r, y, self.value if n is None else n)


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


def evaluate(expr: Expr, of: Callable[[Atom], T], join: Callable[[str, list[T]], T]) -> T:
    """The value of an expression. `of` gives the value of each atom, and `join(op, values)` makes one of several."""
    if isinstance(expr, Atom):
        return of(expr)
    return join(expr.op, [evaluate(part, of, join) for part in expr.parts])


def joined(op: str, tests: list[Test]) -> Test:
    """Booleans, or arrays of them, joined by an operator of expressions."""
    if op == "~":
        return not tests[0] if isinstance(tests[0], bool) else ~tests[0]
    return reduce(and_ if op == "&" else or_, tests)


def unit(expr: Expr) -> str:
    """`tokens` or `tiles` if all atoms agree, else `mixed`. Atoms without a shape are always mixed."""
    counted = [atom for atom in atoms(expr) if atom != DENSE]
    found = {"mixed" if atom.shape is None else "tiles" if atom.tiles else "tokens" for atom in counted}
    return found.pop() if len(found) == 1 else "mixed" if found else "tokens"


def check_lengths(expr: Expr, N: int, Nk: int) -> None:
    """Raise InputError for documents that do not have all keys, or not all queries."""
    for documents in (atom.value for atom in atoms(expr) if isinstance(atom.value, Documents)):
        total = sum(documents.lengths)
        if Nk < N:
            raise InputError("--Nk", Nk, f"at least N = {N} with documents", "each query is one of their tokens")
        if total != Nk:
            allowed = f"lengths that add up to Nk = {Nk}"
            hint = "give padding as a document of its own"
            raise InputError("--mask documents", f"{total} tokens in all", allowed, hint)


DENSE = Atom("dense")
