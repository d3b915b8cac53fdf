"""Reads the code that Inductor writes (output_code.py): the launches of a graph in order, with their arguments.

The code is not run. Its function `call` is a list of statements without a branch, so its syntax tree is followed: names
stand for buffers with a type, a shape and strides. Written for the code of PyTorch 2.13; other code is refused at the
line that is not known. The code that Inductor left behind is a file, or is in a folder of TORCH_COMPILE_DEBUG=1 or of
Inductor's cache.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ..read.arguments import checked_dtype
from ..walk.launch import DTYPES, Tensor

if TYPE_CHECKING:
    from ..walk.numbers import Elements


ALLOWED = "code that Inductor writes for a GPU with sizes that are known, as output_code.py"
CHECKS = {"assert_size_stride", "assert_alignment"}
EMPTY = {"empty_strided_cuda", "empty_strided_cpu", "empty_strided_cpu_pinned"}
SAME = {"copy_if_misaligned"}
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Buffer:
    """A tensor of the code. Its type is `unknown` where the code does not say it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = UNKNOWN
    offset: int = 0
    source: str = ""
    """The input that it is, or a view of."""

    def tensor(self, dtype: str = "", data: Elements | None = None) -> Tensor:
        """The tensor as an argument of a kernel."""
        return Tensor(dtype or self.dtype, self.shape, data, self.strides, self.offset)

    @property
    def words(self) -> int:
        return self.tensor("fp32").words

    @property
    def word_bytes(self) -> int:
        return DTYPES[self.dtype][1]


@dataclass(frozen=True)
class Result:
    """What an operator returns, or an item of it. Its shape is known once the code asserts it."""

    operator: str
    item: int | None = None


Argument = Buffer | Result | int | float | str | bool | None | tuple[object, ...]


@dataclass(frozen=True)
class Call:
    """One launch of a step: a Triton kernel, or an operator of PyTorch."""

    name: str
    line: int
    arguments: tuple[Argument, ...]
    named: dict[str, Argument]
    is_kernel: bool = False


@dataclass
class OutputCode:
    """A graph that Inductor compiled: its Triton kernels by name, and its launches in order."""

    name: str
    kernels: dict[str, str]
    calls: list[Call] = field(default_factory=list)
    data: dict[str, Elements] = field(default_factory=dict)
    """{input: its integers in the order of memory}, where they are known."""


def read_code(text: str, where: str) -> OutputCode:
    """The launches of a text that Inductor wrote."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(where, str(error), ALLOWED) from None
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    if "call" not in functions:
        raise InputError(where, "no function call(args)", ALLOWED)
    if any(name.startswith("partition_") for name in functions):
        raise InputError(
            where, "a graph in partitions (CUDA graphs)", ALLOWED, "compile without mode='reduce-overhead'"
        )
    reader = Reader(where, input_types(functions))
    found = OutputCode(graph_name(text), dict(kernels_of(tree)))
    reader.read(functions["call"].body, found)
    return found


def graph_name(text: str) -> str:
    """The name of a graph, as `0_forward`; empty if the text has none."""
    first = text.partition("\n")[0]
    return first.partition("['")[2].partition("']")[0] if first.startswith("# AOT ID") else ""


def kernels_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, source) of each Triton kernel."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "async_compile.triton":
            name, source, *_ = (arg.value for arg in node.args if isinstance(arg, ast.Constant))
            yield str(name), str(source)


def input_types(functions: dict[str, ast.FunctionDef]) -> dict[str, str]:
    """{input: type}, from the function that makes inputs for a benchmark."""
    made = next((functions[name] for name in ("get_args", "benchmark_compiled_module") if name in functions), None)
    found = {}
    for node in ast.walk(made) if made else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            types = [word.value for word in node.value.keywords if word.arg == "dtype"]
            if types:
                found[node.targets[0].id] = type_of_text(ast.unparse(types[0]), "dtype")
    return found


def type_of_text(text: str, where: str) -> str:
    """The type of a text such as `torch.bfloat16`."""
    return checked_dtype(text, where)


class Reader:
    """Follows the statements of `call`. `names` has the value of each name."""

    def __init__(self, where: str, types: dict[str, str]) -> None:
        self.where, self.types = where, types
        self.names: dict[str, Argument] = {}
        self.inputs: set[str] = set()
        self.calls: list[Call] = []
        self.kernels: dict[str, str] = {}

    def read(self, body: Sequence[ast.stmt], found: OutputCode) -> None:
        """Add the launches of some statements to `found`."""
        self.calls, self.kernels = found.calls, found.kernels
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Follow one statement."""
        if isinstance(node, ast.With):
            for inner in node.body:
                self.statement(inner)
        elif isinstance(node, ast.Assign):
            self.assign(node.targets[0], node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.call(node.value)
        elif not isinstance(node, ast.Delete | ast.Return | ast.Pass | ast.Expr | ast.Import | ast.ImportFrom):
            raise self.fault(node)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Follow an assignment. The names that take `args` are the inputs."""
        if isinstance(value, ast.Name) and value.id == "args":
            names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            for name in names:
                self.names[ast.unparse(name)] = Result("input")
            self.inputs = {ast.unparse(name) for name in names}
        elif isinstance(target, ast.Name):
            self.names[target.id] = self.value(value)
        else:
            raise self.fault(target)

    def value(self, node: ast.expr) -> Argument:
        """The value of an expression."""
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            whole, item = self.value(node.value), node.slice.value
            return Result(whole.operator, item) if isinstance(whole, Result) and isinstance(item, int) else whole
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self.value(part) for part in node.elts)
        if isinstance(node, ast.Attribute):
            return ast.unparse(node)
        try:
            found: Argument = ast.literal_eval(node)
        except ValueError:
            raise self.fault(node) from None
        return found

    def name(self, node: ast.Name) -> Argument:
        """The value of a name."""
        if node.id not in self.names:
            dynamic = re.fullmatch(r"[su]\d+", node.id)
            raise self.fault(node, f"{node.id}, a size that is not known (dynamic shapes)" if dynamic else "")
        return self.names[node.id]

    def call(self, node: ast.Call) -> Argument:
        """Follow a call: an allocation, a view, a check, or a launch."""
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        if last in CHECKS:
            self.checked(node)
            return None
        if name == "args.clear" or last in ("set_device", "get_raw_stream", "wait", "synchronize"):
            return None
        arguments = tuple(self.value(arg) for arg in node.args)
        if last in EMPTY:
            shape, strides, dtype = arguments
            return Buffer(sizes(shape), sizes(strides), type_of_text(str(dtype), self.where))
        if last == "_reinterpret_tensor" or last == "reinterpret_tensor":
            return self.view(node, arguments)
        if last in SAME:
            return arguments[0]
        named = {word.arg: self.value(word.value) for word in node.keywords if word.arg and word.arg != "stream"}
        if last == "run" and name.removesuffix(".run") in self.kernels:
            self.calls.append(Call(name.removesuffix(".run"), node.lineno, arguments, named, True))
            return None
        operator = name.removeprefix("torch.ops.").removesuffix(".default")
        self.calls.append(Call(operator, node.lineno, arguments, named))
        return Result(operator)

    def view(self, node: ast.Call, arguments: tuple[Argument, ...]) -> Buffer:
        """A buffer with another shape."""
        whole, shape, strides, *offset = arguments
        more = offset[0] if offset else 0
        if not isinstance(whole, Buffer) and isinstance(node.args[0], ast.Name):
            whole = self.shaped(node.args[0].id, Buffer(sizes(shape), sizes(strides)))
        if not isinstance(whole, Buffer) or not isinstance(more, int):
            raise self.fault(node)
        return replace(whole, shape=sizes(shape), strides=sizes(strides), offset=whole.offset + more)

    def checked(self, node: ast.Call) -> None:
        """Take the shape that the code asserts of an input or of a result."""
        if ast.unparse(node.func).endswith("assert_size_stride") and isinstance(node.args[0], ast.Name):
            shape, strides = (sizes(self.value(arg)) for arg in node.args[1:3])
            if isinstance(self.names.get(node.args[0].id), Result):
                self.names[node.args[0].id] = self.shaped(node.args[0].id, Buffer(shape, strides))

    def shaped(self, name: str, found: Buffer) -> Buffer:
        """An input or a result with a shape, and with its type where that is known."""
        own = self.names.get(name)
        item = own.item if isinstance(own, Result) else None
        if isinstance(own, Result) and "scaled_dot_product" in own.operator and "attention" in own.operator:
            return replace(found, dtype=self.type_of_attention(own.operator, item))
        return replace(found, dtype=self.types.get(name, UNKNOWN), source=name if name in self.inputs else "")

    def type_of_attention(self, operator: str, item: int | None) -> str:
        """The type of an output of attention: that of Q, and fp32 for the log-sum-exp."""
        last = next(call for call in reversed(self.calls) if call.name == operator)
        tensors = [value.dtype for value in last.arguments if isinstance(value, Buffer)]
        lse = item == 1 and "backward" not in operator
        return "fp32" if lse else tensors[0] if item in (0, 1, 2) else UNKNOWN

    def fault(self, node: ast.AST, why: str = "") -> InputError:
        """The error for code that is not known."""
        return InputError(f"{self.where}, line {getattr(node, 'lineno', '?')}", why or ast.unparse(node), ALLOWED)


def sizes(value: Argument) -> tuple[int, ...]:
    """A value as a tuple of sizes."""
    if isinstance(value, tuple) and all(isinstance(n, int) for n in value):
        return tuple(n for n in value if isinstance(n, int))
    raise InputError("Inductor's code", str(value), "sizes that are known", "compile without dynamic=True")


def renumbered(codes: Sequence[OutputCode]) -> None:
    """Number the graphs of a script from 0, in their order. PyTorch goes on counting from script to script."""
    numbers: dict[str, int] = {}
    for code in codes:
        number, line, kind = code.name.partition("_")
        if line and number.isdigit():
            code.name = f"{numbers.setdefault(number, len(numbers))}_{kind}"


OPTION = "--inductor"
NAME = "output_code.py"
PLACES = f"a file {NAME}, or a folder with such files: that of TORCH_COMPILE_DEBUG=1, or Inductor's cache"
MARK = "async_compile"


def codes_of(path: str) -> list[tuple[OutputCode, str]]:
    """(the launches of a graph, its place) for each graph of a file or a folder, in the order of their names."""
    if "\0" in path or not Path(path).exists():
        raise InputError(OPTION, path, PLACES, "there is no such file or folder")
    found = []
    for file in files_of(Path(path)):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(OPTION, str(file), PLACES, str(error)) from None
        if file.name == NAME or (MARK in text and "def call(" in text):
            found.append((read_code(text, str(file)), str(file)))
    if not found:
        raise InputError(OPTION, path, PLACES, "it has no code of Inductor")
    return found


def files_of(path: Path) -> list[Path]:
    """The file itself, or the files of a folder: those called output_code.py if there are any, else all of Python."""
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob(NAME), key=natural) or sorted(path.rglob("*.py"), key=natural)
    return [file for file in files if file.is_file()]


def natural(path: Path) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]
