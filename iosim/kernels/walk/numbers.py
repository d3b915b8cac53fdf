"""Integers and truth values of many programs at once, kept in parts so that arrays stay small.

An array has an axis of programs and then those of the tensor; an axis of length 1 stands for equal elements. A number
is the sum of three parts: one depends on the program, one on the lane, and one on both. A mask is
the conjunction of such parts. Most addresses need no part that depends on both, so they cost as little as one program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...errors import InputError

    Integers = NDArray[np.int64]
    Truths = NDArray[np.bool_]
    Elements = NDArray[np.generic]  # type: ignore[explicit-any]  # NumPy's own class holds an Any


def lane_axes(array: Elements) -> tuple[int, ...]:
    """The axes of a tensor's lanes: all but the first."""
    return tuple(range(1, array.ndim))


@dataclass(frozen=True)
class Number:
    """The sum of three parts, which depend on the program, on the lane, and on both (None if there is no such part)."""

    programs: Integers
    lanes: Integers
    mixed: Integers | None = None

    @classmethod
    def of(cls, array: Integers) -> Number:
        """The Number of an array, in separate parts if it is a sum of them."""
        first = array[(slice(None), *[slice(0, 1)] * (array.ndim - 1))]
        if len(array) == 1:
            return cls(first, array - first)
        if array.size == len(array):
            return cls(array, np.zeros_like(first[:1]))
        rest = array - first
        same = bool((rest == rest[:1]).all())
        return cls(first, rest[:1]) if same else cls(first, np.zeros_like(first[:1]), rest)

    @classmethod
    def constant(cls, value: int, rank: int) -> Number:
        """A tensor of this rank with the same integer everywhere."""
        zero = np.zeros((1,) * (rank + 1), np.int64)
        return cls(zero + value, zero)

    @property
    def array(self) -> Integers:
        """The sum of its parts."""
        total = self.programs + self.lanes
        return total if self.mixed is None else total + self.mixed

    @property
    def uniform(self) -> int | None:
        """Its value if all elements are equal, else None."""
        if self.mixed is not None or self.programs.size != 1 or self.lanes.any():
            return None
        return int(self.programs.flat[0])

    @property
    def range(self) -> tuple[int, int]:
        """Bounds on its elements."""
        parts = [part for part in (self.programs, self.lanes, self.mixed) if part is not None]
        return sum(int(part.min()) for part in parts), sum(int(part.max()) for part in parts)

    def each(self, change: Callable[[Integers], Integers]) -> Number:
        """The Number with each part changed, by a change of shape or by a factor."""
        mixed = None if self.mixed is None else change(self.mixed)
        return Number(change(self.programs), change(self.lanes), mixed)

    def __add__(self, other: Number) -> Number:
        mixed = self.mixed if other.mixed is None else other.mixed if self.mixed is None else self.mixed + other.mixed
        return Number(self.programs + other.programs, self.lanes + other.lanes, mixed)

    def __neg__(self) -> Number:
        return self.each(lambda part: -part)

    def __sub__(self, other: Number) -> Number:
        return self + -other

    def __mul__(self, other: Number) -> Number:
        for one, two in ((self, other), (other, self)):
            factor = two.uniform
            if factor is not None:
                return one.each(lambda part, factor=factor: part * factor)  # type: ignore[misc]
        return Number.of(self.array * other.array)


@dataclass(frozen=True)
class Mask:
    """The conjunction of parts: one depends on the program, one on the lane, and any number depend on both."""

    programs: Truths
    lanes: Truths
    mixed: tuple[Truths, ...] = ()

    @classmethod
    def of(cls, array: Truths) -> Mask:
        """The Mask of an array. It depends only on the program if all lanes of each program agree."""
        axes = lane_axes(array)
        yes, no = np.asarray(array.all(axis=axes, keepdims=True)), np.asarray(array.any(axis=axes, keepdims=True))
        if bool((yes == no).all()):
            return cls(yes, np.ones_like(yes[:1]))
        same = len(array) == 1 or bool((array == array[:1]).all())
        return cls(np.ones_like(yes[:1]), array[:1]) if same else cls(no, np.ones_like(yes[:1]), (array,))

    @property
    def array(self) -> Truths:
        """The conjunction of its parts."""
        found = self.programs & self.lanes
        for part in self.mixed:
            found = found & part
        return found

    def each(self, change: Callable[[Truths], Truths]) -> Mask:
        """The Mask with the shape of each part changed."""
        return Mask(change(self.programs), change(self.lanes), tuple(change(part) for part in self.mixed))

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.programs & other.programs, self.lanes & other.lanes, self.mixed + other.mixed)


@dataclass(frozen=True)
class Unknown:
    """A value that nobody knows before the kernel runs, with the error for what may not depend on it."""

    error: InputError


@dataclass(frozen=True)
class Pointer:
    """Addresses: bytes from the start of one argument of the kernel, as far as they are known."""

    argument: int
    """The number of the argument k; ~k for addresses that are loaded from it, whose offset is the address itself."""
    offset: Number | Unknown


@dataclass(frozen=True)
class Choice:
    """Addresses that lead into one argument in some programs, and into another one elsewhere."""

    where: Truths
    """One truth value for each program."""
    yes: Known
    no: Known


Known = Number | Mask | Pointer | Choice | Unknown


def rank_of(value: Known) -> int:
    """The number of axes of a value's lanes; 0 where that is not known."""
    if isinstance(value, Pointer | Choice):
        return rank_of(value.offset if isinstance(value, Pointer) else value.yes)
    return 0 if isinstance(value, Unknown) else value.programs.ndim - 1


def reshaped(value: Known, change: Callable[[Elements], Elements]) -> Known:
    """The value with its arrays in another shape."""
    if isinstance(value, Unknown):
        return value
    if isinstance(value, Choice):
        return Choice(value.where, reshaped(value.yes, change), reshaped(value.no, change))
    if isinstance(value, Pointer):
        offset = value.offset
        return value if isinstance(offset, Unknown) else Pointer(value.argument, offset.each(change))  # type: ignore[arg-type]
    return value.each(change)  # type: ignore[arg-type]


def chosen(where: Truths, yes: Known, no: Known) -> Known | None:
    """`yes` where the condition holds, `no` elsewhere; None for pointers into two arguments in one program."""
    if isinstance(yes, Pointer) and isinstance(no, Pointer) and yes.argument == no.argument:
        offset = chosen(where, yes.offset, no.offset)
        assert isinstance(offset, Number | Unknown)
        return Pointer(yes.argument, offset)
    if isinstance(yes, Pointer | Choice) and isinstance(no, Pointer | Choice):
        return Choice(where.reshape(-1), yes, no) if where.size == len(where) else None
    for value in (yes, no):
        if isinstance(value, Unknown):
            return value
    if isinstance(yes, Number) and isinstance(no, Number):
        by_program = where.size == len(where) and yes.mixed is None and no.mixed is None
        if by_program and yes.lanes.shape == no.lanes.shape and bool((yes.lanes == no.lanes).all()):
            return Number(np.where(where, yes.programs, no.programs), yes.lanes)
        return Number.of(np.where(where, yes.array, no.array))
    if isinstance(yes, Mask) and isinstance(no, Mask):
        return Mask.of(np.where(where, yes.array, no.array))
    return None


def wrapped(number: Number, bits: int) -> Number:
    """A number reduced to `bits` bits. It is returned as it is if it fits."""
    least, most = number.range
    half = 1 << (bits - 1)
    if bits >= 64 or (-half <= least and most < half):
        return number
    array = number.array
    return number if array.min() >= -half and array.max() < half else Number.of((array + half) % (2 * half) - half)
