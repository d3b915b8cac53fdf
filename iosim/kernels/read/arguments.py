"""Arguments of a launch, as texts or values: tensors such as `fp16[H,N,D]`, files of data, and expressions in names."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import InputError, suggestion
from ...units import SAME_TYPES
from ..pretend.packages import check_known
from ..pretend.values import VALUES, values_of
from ..walk.launch import DTYPES, Tensor, Value

if TYPE_CHECKING:
    from ..walk.numbers import Elements

OWN = {
    **{"float8_e4m3fn": "fp8e4nv", "float8e4nv": "fp8e4nv", "float8_e5m2": "fp8e5", "float8e5": "fp8e5"},
    **{"e5m2": "fp8e5", "i1": "bool", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "uint8": "uint8"},
}
ALSO = SAME_TYPES | OWN  # here there are two types fp8, and integers with a sign and without
TENSOR = re.compile(r"\s*([A-Za-z]\w*)\s*\[([^\]]*)\]\s*(?::\s*random\((.*)\))?\s*$")


def tensor(dtype: str, shape: Sequence[int], data: Elements | None = None, *more: int) -> Tensor:
    """A tensor for `iosim.explain`: `tensor("fp16", (8, 4096, 64))`. `data` are needed if addresses depend on them.

    `more` are sizes that were not put into a tuple. Raises InputError for them and for sizes below 1, and MissingError
    for sizes of a package that is not installed.
    """
    check_known(dtype, shape)
    if hasattr(shape, "__index__"):
        given = [shape, *(n for n in (data, *more) if isinstance(n, int))]
        sizes = ", ".join(map(str, given))
        call = f'tensor("{dtype}", ({sizes}{"," * (len(given) == 1)}))'
        raise InputError("tensor", f"the sizes {sizes}", "one tuple of sizes", f"as in iosim.{call}")
    check_known(*shape)
    if not all(hasattr(n, "__index__") and operator.index(n) >= 1 for n in shape):
        raise InputError("tensor", str(tuple(shape)), "sizes that are whole numbers from 1")
    return Tensor(checked_dtype(dtype, "tensor"), tuple(operator.index(n) for n in shape), data)


def checked_dtype(name: str, where: str) -> str:
    """The name of an element type as iosim writes it. Raises InputError for an unknown one."""
    short = name.rsplit(".", 1)[-1].lower()
    short = ALSO.get(short, short)
    if short not in DTYPES:
        raise InputError(where, name, ", ".join(DTYPES), suggestion(short, [*DTYPES, *ALSO]))
    return short


def as_tensor(value: Value, where: str) -> Tensor | None:
    """The Tensor for an object with a dtype and a shape (NumPy, PyTorch); None for other values."""
    if isinstance(value, Tensor):
        return value
    check_known(value)
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None or not hasattr(value, "__getitem__"):
        return None
    import numpy as np

    short, sizes = checked_dtype(str(dtype), where), tuple(int(n) for n in shape)
    if isinstance(value, np.ndarray):
        return Tensor(short, sizes, value)
    stride, offset = getattr(value, "stride", None), getattr(value, "storage_offset", None)
    strides = tuple(int(n) for n in stride()) if callable(stride) else None
    memory = value.untyped_storage()._cdata if hasattr(value, "untyped_storage") else 0
    found = Tensor(short, sizes, None, strides, int(offset()) if callable(offset) else 0, memory)
    return replace(found, data=values_of(value, found.reach)) if hasattr(value, VALUES) else found


# ---------------------------------------------------------------- texts

OPERATORS: dict[type, Callable[..., Value]] = {  # type: ignore[explicit-any]  # functions of Python's operators
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
LARGEST = 1 << 63
MOST_POWER = 64
GRID_EXAMPLE = '--grid "cdiv(N, BM), H" or --grid 128'
MOST_PROGRAMS = (2**31 - 1, 65_535, 65_535)  # on each axis of a grid


def cdiv(a: int, b: int) -> int:
    """The quotient rounded up."""
    return -(-a // b)


FUNCTIONS: dict[str, Callable[..., Value]] = {  # type: ignore[explicit-any]  # of any number of integers
    "cdiv": cdiv,
    "min": min,
    "max": max,
    "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(),
    "stride": lambda t, axis: t.stride(axis),
    "size": lambda t, axis: t.shape[axis],
    "numel": lambda t: t.words,
}


class Names:
    """Values by name, from texts as given on a command line. A text may use other names, in any order."""

    def __init__(self, texts: Mapping[str, str], option: str, more: Mapping[str, Value] | None = None) -> None:
        self.texts, self.option, self.more = texts, option, more or {}
        self.values: dict[str, Value] = {}
        self.under_way: list[str] = []
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        """The value of a name."""
        if name not in self.values:
            if name not in self.texts:
                if name in self.more:
                    return self.more[name]
                raise self.not_given(name)
            if name in self.under_way:
                raise InputError(self.where, self.texts[name], "no circle of names")
            self.under_way.append(name)
            self.values[name] = self.value(self.texts[name])
            self.under_way.pop()
        return self.values[name]

    def not_given(self, name: str) -> InputError:
        """The error for a name that no option gives. The name of a type lacks the sizes of a tensor."""
        if self.under_way and (name in DTYPES or name in ALSO):
            its = self.under_way[-1]
            dtype = ALSO.get(name, name)
            allowed = f"a tensor with its sizes, as {its}={dtype}[8,4096,64]"
            return InputError(self.where, name, allowed, f"or a type of Triton, as {its}=tl.{DTYPES[dtype][0]}")
        hint = suggestion(name, [*self.texts, *FUNCTIONS]) or f"give its value, as --arg {name}=128"
        return InputError(self.where, name, "a name that is given", hint)

    @property
    def example(self) -> str:
        """An example of what the option takes, for messages."""
        if self.under_way:
            return f"a tensor has a type and sizes, as {self.under_way[-1]}=fp16[8,4096,64]"
        return f"one to three of them, as {GRID_EXAMPLE}"

    @property
    def where(self) -> str:
        """The name of the value that is being read, for messages."""
        return f"{self.option} {self.under_way[-1]}" if self.under_way else self.option

    def value(self, text: str) -> Value:
        """The value of a text: a tensor, the data of a file, or an expression."""
        if text.endswith(".npy"):
            return tensor_of_file(text, self.where)
        shaped = TENSOR.match(text)
        if not shaped:
            return self.expression(text)
        sizes = self.expression(f"({shaped[2]},)" if shaped[2].strip() else "()")
        assert isinstance(sizes, tuple)
        for size in sizes:
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise InputError(self.where, text, "sizes that are whole numbers from 1", f"found {size}")
        made = Tensor(checked_dtype(shaped[1], self.where), sizes)
        return made if shaped[3] is None else self.drawn(made, shaped[3])

    def drawn(self, made: Tensor, text: str) -> Tensor:
        """A tensor of random integers from `LOW, HIGH` or `LOW, HIGH, SEED`. HIGH is excluded. The seed is 0 by
        default."""
        import numpy as np

        ends = self.expression(f"({text},)")
        whole = isinstance(ends, tuple) and all(isinstance(n, int) for n in ends)
        if not whole or not isinstance(ends, tuple) or len(ends) not in (2, 3) or not ends[0] < ends[1]:
            raise InputError(
                self.where, f"random({text})", "random(LOW, HIGH) or random(LOW, HIGH, SEED), LOW below HIGH"
            )
        low, high, seed = (*ends, 0)[:3]
        if "int" not in made.dtype:
            raise InputError(self.where, made.dtype, "integers, for random(LOW, HIGH)")
        return replace(made, data=np.random.default_rng(abs(seed)).integers(low, high, made.shape))

    def grid(self, text: str) -> Value:
        """The value of one to three expressions, with or without parentheses around them."""
        value = self.expression(text)
        return value if isinstance(value, tuple) else (value,)

    def expression(self, text: str) -> Value:
        """The value of an expression such as `cdiv(N, BM) * 2`."""
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            allowed = "a number, a name, or an expression such as cdiv(N, BM)"
            raise InputError(self.where, text, allowed, self.example) from None
        try:
            return self.of_node(tree.body, text)
        except (TypeError, ZeroDivisionError, OverflowError, IndexError, AttributeError, RecursionError) as error:
            raise InputError(self.where, text, "an expression that has a value", str(error)) from None

    def of_node(self, node: ast.expr, text: str) -> Value:
        """The value of a node of an expression."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            self.read.add(node.id)
            return self[node.id]
        if isinstance(node, ast.Tuple):
            return tuple(self.of_node(part, text) for part in node.elts)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = self.of_node(node.left, text), self.small_power(node, text)
            return self.small(OPERATORS[type(node.op)](left, right), text)
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](self.of_node(node.operand, text))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
            return OPERATORS[type(node.ops[0])](self.of_node(node.left, text), self.of_node(node.comparators[0], text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and not node.keywords:
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in FUNCTIONS:
                return FUNCTIONS[name](*(self.of_node(part, text) for part in node.args))
            if name in DTYPES or name in ALSO:
                raise self.not_given(name)
            raise InputError(self.where, name, ", ".join(FUNCTIONS), suggestion(name, FUNCTIONS))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("tl", "triton"):
            return getattr(self.more["tl"], node.attr)
        allowed = "numbers, names, + - * // %, and " + ", ".join(FUNCTIONS)
        raise InputError(self.where, text, allowed, self.example)

    def small_power(self, node: ast.BinOp, text: str) -> Value:
        """The right operand of an operation. Raises InputError for a large exponent or shift."""
        value = self.of_node(node.right, text)
        least = 0 if isinstance(node.op, ast.LShift) else -MOST_POWER
        small = isinstance(value, int | float) and least <= value < MOST_POWER
        if isinstance(node.op, ast.Pow | ast.LShift) and not small:
            raise InputError(self.where, text, f"an exponent below {MOST_POWER}")
        return value

    def small(self, value: Value, text: str) -> Value:
        """The value itself. Raises InputError for an integer that a kernel cannot hold."""
        if isinstance(value, int) and abs(value) >= LARGEST:
            raise InputError(self.where, text, "a number of at most 63 bits")
        return value


def tensor_of_file(path: str, where: str) -> Tensor:
    """The tensor in a NumPy file."""
    import numpy as np

    try:
        data = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(where, path, "a file of numpy.save", str(error)) from None
    if not isinstance(data, np.ndarray):
        raise InputError(where, path, "a file with one array")
    return Tensor(checked_dtype(str(data.dtype), where), data.shape, data)


def read_grid(value: Value, text: str = "") -> tuple[int, int, int]:
    """A grid of one to three numbers of programs; `text` is what the user wrote."""
    where, hint = ("--grid", f"from {text!r}") if text else ("grid", "")
    sizes = value if isinstance(value, tuple | list) else (value,)
    shown = f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"
    whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in sizes)
    if not whole or not 1 <= len(sizes) <= 3:
        allowed = "a tuple of one to three whole numbers from 1, such as (cdiv(N, BM), H)"
        raise InputError(where, shown, allowed, hint)
    for n, most in zip(sizes, MOST_PROGRAMS, strict=False):
        if n > most:
            raise InputError(where, shown, f"at most {most} programs on this axis, as CUDA has it", hint)
    x, y, z = (*sizes, 1, 1)[:3]
    return int(x), int(y), int(z)
