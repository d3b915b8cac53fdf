"""The meaning of single operations on integers and truth values: a table from their names to functions.

Arithmetic wraps at the width of its type, as on the GPU. Floating-point numbers are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .code import Operation, Type
from .numbers import Choice, Known, Mask, Number, Pointer, Unknown, chosen, rank_of, reshaped, wrapped
from .places import Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .numbers import Elements, Integers, Truths

    Rule = Callable[[Operation, Sequence[Known]], Known]

PLACE_BITS = 44


def as_number(value: Known, operation: Operation) -> Number:
    """A value as an integer; a truth value is 0 or 1. Raises the error of a value that is not known."""
    if isinstance(value, Unknown):
        raise value.error
    if isinstance(value, Mask):
        return Number.of(value.array.astype(np.int64))
    if isinstance(value, Pointer | Choice):
        raise Refusal(operation, "arithmetic on an address as if it were a number")
    return value


def as_mask(value: Known, operation: Operation) -> Mask:
    """A value as a truth value."""
    return value if isinstance(value, Mask) else Mask.of(as_number(value, operation).array & 1 != 0)


def typed(number: Number, type: Type) -> Known:
    """A number in its type: wrapped around, or a truth value for `i1`."""
    return Mask.of(number.array & 1 != 0) if type.bits == 1 else wrapped(number, type.bits)


def unsigned(array: Integers, bits: int) -> NDArray[np.uint64]:
    """The bits of integers, read without a sign."""
    return array.astype(np.uint64) & np.uint64((1 << bits) - 1)


def divided(a: Integers, b: Integers) -> Integers:
    """The quotient rounded towards zero. It is 0 where the divisor is 0: a correct program does not use it."""
    b = np.where(b == 0, 1, b)
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def remainder(a: Integers, b: Integers) -> Integers:
    return a - divided(a, b) * b


def of_unsigned(change: Callable[[NDArray[np.uint64], NDArray[np.uint64]], NDArray[np.uint64]]) -> Rule:
    """The rule of an operation on unsigned integers."""

    def rule(operation: Operation, values: Sequence[Known]) -> Known:
        bits = operation.types[0].bits
        a, b = (unsigned(as_number(value, operation).array, bits) for value in values)
        return typed(Number.of(change(a, b).astype(np.int64)), operation.types[0])

    return rule


def of_arrays(change: Callable[[Integers, Integers], Integers]) -> Rule:
    """The rule of an operation on signed integers."""

    def rule(operation: Operation, values: Sequence[Known]) -> Known:
        a, b = (as_number(value, operation).array for value in values)
        return typed(Number.of(change(a, b)), operation.types[0])

    return rule


def of_numbers(change: Callable[[Number, Number], Number]) -> Rule:
    """The rule of an operation that keeps the parts of numbers separate."""

    def rule(operation: Operation, values: Sequence[Known]) -> Known:
        a, b = (as_number(value, operation) for value in values)
        return typed(change(a, b), operation.types[0])

    return rule


def of_truths(change: Callable[[Truths, Truths], Truths], bits: Callable[[Integers, Integers], Integers]) -> Rule:
    """The rule of an operation on truth values, or on the bits of integers."""

    def rule(operation: Operation, values: Sequence[Known]) -> Known:
        if operation.types[0].bits != 1:
            return of_arrays(bits)(operation, values)
        a, b = (as_mask(value, operation) for value in values)
        return a & b if change is np.logical_and else Mask.of(change(a.array, b.array))

    return rule


def compared(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `arith.cmpi`. Its predicates are those of MLIR: eq ne slt sle sgt sge ult ule ugt uge."""
    if all(isinstance(value, Pointer) for value in values):
        raise Refusal(operation, "a comparison of addresses")
    one, two = (as_number(value, operation) for value in values)
    number = operation.numbers["predicate"]
    if number >= len(COMPARISONS):  # unsigned predicates, which start again with `less`
        bits = operation.operand_types[0].bits
        a, b = unsigned(one.array, bits), unsigned(two.array, bits)
        return Mask.of(COMPARISONS[number - 4](a, b))
    return decided(one - two, number) or Mask.of(COMPARISONS[number](one.array, two.array))


COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def decided(difference: Number, predicate: int) -> Mask | None:
    """The comparison of a difference with 0, if all lanes of each program agree; else None.

    It looks only at the ends of a program's range.
    """
    if difference.mixed is not None or difference.lanes.size == 1 or predicate < COMPARISONS.index(np.less):
        return None
    least, most = difference.programs + difference.lanes.min(), difference.programs + difference.lanes.max()
    truths = COMPARISONS[predicate](least, 0)
    return Mask(truths, np.ones_like(truths[:1])) if (truths == COMPARISONS[predicate](most, 0)).all() else None


def either(operation: Operation, where: Truths, yes: Known, no: Known) -> Known:
    """The one value in programs where the condition holds, and the other one elsewhere."""
    found = chosen(where.reshape(-1, *[1] * max(rank_of(yes), rank_of(no))), yes, no)
    if found is None:
        raise Refusal(operation, "two values of different kinds, by a condition")
    return found


def selected(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `arith.select`."""
    where, yes, no = values
    if isinstance(where, Unknown):
        same = isinstance(yes, Pointer) and isinstance(no, Pointer) and yes.argument == no.argument
        return Pointer(yes.argument, where) if isinstance(yes, Pointer) and same else where
    found = chosen(as_mask(where, operation).array, yes, no)
    if found is None:
        raise Refusal(operation, "a choice between addresses of two arguments, lane by lane")
    return found


def moved(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `tt.addptr`. The distance is in elements of the type that the pointer points to."""
    pointer, distance = values
    if not isinstance(pointer, Pointer):
        raise Refusal(operation, "an address that is no argument of the kernel")
    for part in (pointer.offset, distance):
        if isinstance(part, Unknown):
            return Pointer(pointer.argument, part)
    assert isinstance(pointer.offset, Number)
    step = as_number(distance, operation).each(lambda part: part * operation.operand_types[0].pointee.element_bytes)
    return Pointer(pointer.argument, pointer.offset + step)


def as_address(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `tt.ptr_to_int`. Each argument has a place of its own in memory, at a multiple of 2^44 bytes: it is
    not null, and aligned as PyTorch aligns tensors."""
    pointer = values[0]
    if not isinstance(pointer, Pointer):
        raise Refusal(operation, "an address that is no argument of the kernel")
    if isinstance(pointer.offset, Unknown):
        return pointer.offset
    start = Number.constant(max(pointer.argument + 1, 0) << PLACE_BITS, pointer.offset.lanes.ndim - 1)
    return typed(pointer.offset + start, operation.types[0])


def splat(operation: Operation, values: Sequence[Known]) -> Known:
    """A scalar as a tensor of equal elements, stored with axes of length 1."""
    ones = (1,) * len(operation.types[0].shape)
    return reshaped(values[0], lambda part: part.reshape(len(part), *ones))


def expanded(operation: Operation, values: Sequence[Known]) -> Known:
    return reshaped(values[0], lambda part: np.expand_dims(part, operation.numbers["axis"] + 1))


def same(operation: Operation, values: Sequence[Known]) -> Known:
    """The value itself, for operations that only change its type."""
    value = values[0]
    return typed(value, operation.types[0]) if isinstance(value, Number) and operation.types[0].is_integer else value


def extended_unsigned(operation: Operation, values: Sequence[Known]) -> Known:
    value = as_number(values[0], operation)
    if value.range[0] >= 0:
        return value
    return Number.of(unsigned(value.array, operation.operand_types[0].bits).astype(np.int64))


def whole(part: Elements, shape: Sequence[int]) -> Elements:
    """A part with all axes of its lanes at full length."""
    return np.broadcast_to(part, (len(part), *shape))


def in_order(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `tt.reshape`: the same elements in order, in another shape."""
    old, new = operation.operand_types[0].shape, operation.types[0].shape

    def change(part: Elements) -> Elements:
        equal = part.size == len(part)
        return part.reshape(len(part), *[1] * len(new)) if equal else whole(part, old).reshape(len(part), *new)

    return reshaped(values[0], change)


def transposed(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `tt.trans`: the axes in another order."""
    return reshaped(values[0], lambda part: part.transpose(0, *(axis + 1 for axis in operation.order)))


REDUCTIONS = {
    "arith.addi": np.add,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.ori": np.bitwise_or,
    "arith.andi": np.bitwise_and,
    "arith.xori": np.bitwise_xor,
    "arith.muli": np.multiply,
}


def combined(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `tt.reduce` or `tt.scan` with one operation in the body."""
    body = [o.name for o in operation.regions[0][0].operations[:-1]]
    if len(values) != 1 or len(body) != 1 or body[0] not in REDUCTIONS:
        raise Refusal(operation, f"a reduction by {', '.join(body) or 'nothing'}")
    array = whole(as_number(values[0], operation).array, operation.operand_types[0].shape)
    axis, step = operation.numbers["axis"] + 1, REDUCTIONS[body[0]]
    found = step.reduce(array, axis=axis) if operation.name == "tt.reduce" else step.accumulate(array, axis=axis)
    return typed(Number.of(np.asarray(found, np.int64)), operation.types[0])


def ranged(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of `tt.make_range`: the indices of the lanes."""
    first, end = operation.numbers["start"], operation.numbers["end"]
    return Number(np.zeros((1, 1), np.int64), np.arange(first, end, dtype=np.int64)[None])


def constant(operation: Operation, values: Sequence[Known]) -> Known:
    """The value of `arith.constant`, for integers that are equal in all lanes."""
    if operation.constant is None or not operation.types[0].is_integer:
        raise Refusal(operation, f"a constant of type {operation.types[0].element} or of unequal lanes")
    return typed(Number.constant(operation.constant, len(operation.types[0].shape)), operation.types[0])


RULES: dict[str, Rule] = {
    "arith.constant": constant,
    "arith.addi": of_numbers(Number.__add__),
    "arith.subi": of_numbers(Number.__sub__),
    "arith.muli": of_numbers(Number.__mul__),
    "arith.divsi": of_arrays(divided),
    "arith.remsi": of_arrays(remainder),
    "arith.floordivsi": of_arrays(lambda a, b: a // np.where(b == 0, 1, b)),
    "arith.ceildivsi": of_arrays(lambda a, b: -(-a // np.where(b == 0, 1, b))),
    "arith.divui": of_unsigned(lambda a, b: a // np.where(b == 0, np.uint64(1), b)),
    "arith.remui": of_unsigned(lambda a, b: a % np.where(b == 0, np.uint64(1), b)),
    "arith.maxsi": of_arrays(np.maximum),
    "arith.minsi": of_arrays(np.minimum),
    "arith.maxui": of_unsigned(np.maximum),
    "arith.minui": of_unsigned(np.minimum),
    "arith.shli": of_arrays(lambda a, b: a << np.clip(b, 0, 63)),
    "arith.shrsi": of_arrays(lambda a, b: a >> np.clip(b, 0, 63)),
    "arith.shrui": of_unsigned(lambda a, b: a >> np.minimum(b, np.uint64(63))),
    "arith.andi": of_truths(np.logical_and, np.bitwise_and),
    "arith.ori": of_truths(np.logical_or, np.bitwise_or),
    "arith.xori": of_truths(np.logical_xor, np.bitwise_xor),
    "arith.cmpi": compared,
    "arith.select": selected,
    "arith.extsi": lambda o, v: -as_number(v[0], o) if isinstance(v[0], Mask) else same(o, v),
    "arith.extui": extended_unsigned,
    "arith.trunci": lambda o, v: typed(as_number(v[0], o), o.types[0]),
    "arith.index_cast": same,
    "math.absi": lambda o, v: typed(Number.of(np.abs(as_number(v[0], o).array)), o.types[0]),
    "tt.addptr": moved,
    "tt.ptr_to_int": as_address,
    "tt.splat": splat,
    "tt.unsplat": lambda o, v: reshaped(v[0], lambda part: part.reshape(len(part))),
    "tt.expand_dims": expanded,
    "tt.broadcast": lambda o, v: v[0],
    "tt.reshape": in_order,
    "builtin.unrealized_conversion_cast": in_order,  # a block of a descriptor without an axis of length 1
    "tt.trans": transposed,
    "tt.reduce": combined,
    "tt.scan": combined,
    "tt.make_range": ranged,
    "tt.bitcast": same,
}


def result_of(operation: Operation, values: Sequence[Known]) -> Known:
    """The result of an operation with one result. It is not known if an operand is not, but for addresses."""
    for k, value in enumerate(values):
        if isinstance(value, Choice):
            both = (result_of(operation, [*values[:k], one, *values[k + 1 :]]) for one in (value.yes, value.no))
            return either(operation, value.where, *both)
    if operation.name not in ("tt.addptr", "arith.select") or not any(isinstance(v, Pointer) for v in values):
        for value in values:
            if isinstance(value, Unknown):
                return value
    rule = RULES.get(operation.name)
    if rule is None:
        raise Refusal(operation, f"{operation.name} in an address, a mask or a loop bound")
    return rule(operation, values)
