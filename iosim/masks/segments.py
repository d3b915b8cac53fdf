"""Segments of positions, within which attention stays: chunks of one size, and documents of given lengths."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

from ..errors import InputError
from .expression import Atom, Expr, atoms

SEGMENTED = ("chunk", "documents")


@lru_cache(maxsize=256)
def ends(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The position after the last token of each document."""
    return tuple(accumulate(lengths))


def segment(atom: Atom, position: int) -> int:
    """The number of the segment that a position lies in."""
    return position // atom.size if atom.kind == "chunk" else bisect_right(ends(atom.lengths), position)


def edges(atom: Atom, first: int, last: int) -> Iterable[int]:
    """The positions at which the segments of first..last start, and the one at which the last of them ends."""
    low, high = segment(atom, first), segment(atom, last) + 1
    if atom.kind == "chunk":
        return range(low * atom.size, high * atom.size + 1, atom.size)
    return (0, *ends(atom.lengths))[low : high + 1]


def check_lengths(expr: Expr, N: int, Nk: int) -> None:
    """Raise InputError for documents that do not have all queries and all keys."""
    for atom in atoms(expr):
        total = sum(atom.lengths)
        if atom.kind == "documents" and (N, Nk) != (total, total):
            raise InputError(
                "--mask documents", f"{total} tokens in all", f"lengths that add up to N = {N} and to Nk = {Nk}",
                "give padding as a document of its own",
            )  # fmt: skip
