"""Launches that a script makes again: a key of what was handed to a launch, which is found without looking further."""

from __future__ import annotations

from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from ..pretend.values import VALUES, WRITES
from ..walk.launch import Value, is_descriptor

PLAIN = (int, float, str, bool, type(None))


class Differs(Exception):
    """An object of which it is not known whether it is the same again."""


def key_of(kernel: object, number: int, values: tuple[Value, ...], named: Mapping[str, Value]) -> object:
    """The key of a launch at a line of the script; None if launches with equal keys might differ.

    It holds while the tensors of the arguments are kept.
    """
    layer = kernel
    while layer is not None:  # heuristics may read what changes
        if type(layer).__name__ == "Heuristics":
            return None
        layer = getattr(layer, "fn", None)
    try:
        return id(kernel), number, tuple(map(part_of, values)), tuple((n, part_of(v)) for n, v in named.items())
    except Differs:
        return None


def part_of(value: Value) -> object:
    """What decides the answer of an argument or of a grid. Raises Differs where that is not known."""
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, tuple | list):
        return tuple(map(part_of, value))
    if isinstance(value, FunctionType):
        return of_function(value)
    if isinstance(value, ModuleType | BuiltinFunctionType | type):
        return id(value)
    if is_descriptor(value):
        return part_of(value.base), tuple(value.shape), tuple(value.strides), tuple(value.block_shape)
    if type(value).__module__ in ("torch", "triton.language.core") and type(value).__name__ in ("dtype", "constexpr"):
        return repr(value)
    if not hasattr(value, "untyped_storage"):
        raise Differs
    return value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), of_values(value)  # type: ignore[attr-defined]


def of_values(tensor: object) -> object:
    """What decides the integers of a pretended tensor: the tensor that keeps them, and that nothing was written."""
    kept = getattr(tensor, VALUES, None)
    return None if kept is None else (id(kept), WRITES[0])


def of_function(function: FunctionType) -> object:
    """The code of a function, and all that it reads from outside."""
    code, names = function.__code__, function.__globals__
    if any(isinstance(constant, CodeType) for constant in code.co_consts):
        raise Differs
    cells = tuple(part_of(cell.cell_contents) for cell in function.__closure__ or ())
    read = tuple(id(v) if callable(v := names.get(n)) else part_of(v) for n in code.co_names)
    return code, part_of(function.__defaults__), cells, read
