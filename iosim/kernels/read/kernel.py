"""A kernel of Triton: its parameters, its configurations, its lines in the user's file, and a launch of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from ...errors import InputError, MissingError, suggestion
from ..pretend.packages import Anything
from ..walk.launch import Tensor, Value, is_descriptor
from ..walk.places import Fault, place

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction

WARPS, STAGES = 4, 3  # Triton's defaults
ADVICE = "pip install 'iosim[triton]' (about 1 GB; no GPU and no PyTorch are needed)"


def require_triton() -> None:
    """Raise MissingError if Triton is not installed."""
    from importlib.util import find_spec

    if find_spec("triton") is None:
        raise MissingError(f"Triton is not installed: {ADVICE}")


@dataclass(frozen=True)
class Configuration:
    """A choice of constants, warps and stages, such as one of `@triton.autotune`."""

    constants: Mapping[str, Value] = field(default_factory=dict)
    num_warps: int | None = None
    num_stages: int | None = None
    pre_hook: Callable[[dict[str, Value]], Value] | None = None
    """A function that changes the arguments of a launch, as the blocks of tensor descriptors."""

    @classmethod
    def of(cls, config) -> Configuration:  # type: ignore[no-untyped-def]
        """The configuration of a `triton.Config`."""
        return cls(config.kwargs, config.num_warps, config.num_stages, config.pre_hook)


class Kernel:
    """A function of `@triton.jit`, with the configurations and heuristics of its other decorators."""

    def __init__(self, found: object) -> None:
        require_triton()
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.jit import JITFunction, KernelInterface

        self.found = found
        self.heuristics: dict[str, Callable[[Mapping[str, Value]], Value]] = {}
        self.configurations: list[Configuration] = []
        self.stand_ins: set[str] = set()  # packages that its file imports and that are not installed
        while isinstance(found, KernelInterface) and hasattr(found, "fn") and not isinstance(found, JITFunction):
            if isinstance(found, Heuristics):
                self.heuristics = {**found.values, **self.heuristics}
            elif isinstance(found, Autotuner):
                self.configurations = [Configuration.of(config) for config in found.configs]
            found = found.fn
        if not isinstance(found, JITFunction):
            raise InputError("kernel", str(found), "a function with @triton.jit", "is TRITON_INTERPRET set?")
        if "Gluon" in type(found).__name__:
            name = found.__name__
            raise InputError(f"kernel {name}", "a kernel of Gluon", "a kernel of Triton's language (@triton.jit)")
        self.function = found
        self.name: str = found.__name__
        self.parameters: list[str] = list(found.arg_names)

    @property
    def constants(self) -> list[str]:
        """The parameters that are compile-time constants."""
        return [p.name for p in self.function.params if p.is_constexpr]

    @property
    def required(self) -> list[str]:
        """The parameters that have no default."""
        return [p.name for p in self.function.params if not p.has_default]

    def definition(self, parameter: str | None = None) -> str:
        """The line of its `def` in the user's file, or the line with its `parameter`."""
        line = first_line(self.function)
        if parameter is not None:
            (tree,) = ast.parse(self.function.src).body
            assert isinstance(tree, ast.FunctionDef)
            line += next((a.lineno for a in tree.args.args if a.arg == parameter), 1) - 1
        return place(file_of(self.function), line)

    def choices(self, given: Mapping[str, Value]) -> list[Configuration]:
        """The configurations that agree with the given constants. A kernel without configurations has one, without
        constants."""
        left = [c for c in self.configurations if all(given.get(k, v) == v for k, v in c.constants.items())]
        whole = {name for c in self.configurations for name in c.constants} <= set(given)
        return (left[:1] if whole else left) or [Configuration()]

    def check(self, given: Mapping[str, Value]) -> None:
        """Raise InputError for arguments that are missing or unknown, or that cannot be constants."""
        for name in given:
            if name not in self.parameters:
                raise self.unknown(f"argument {name}", name)
        missing = [name for name in self.required if name not in given]
        if missing:
            where = self.definition(missing[0] if len(missing) == 1 else None)
            options = ("--const" if name in self.constants else "--arg" for name in missing)
            hint = " ".join(f"{option} {name}=..." for option, name in zip(options, missing, strict=True))
            if any(name not in self.constants for name in missing):
                hint += "; a tensor as X=fp16[8,4096,64], a number as N=4096"
            what = f"no value for {', '.join(missing)}"
            raise Fault(f"{where}: kernel {self.name}", what, "a value for each parameter", hint)
        for name in self.constants:
            if isinstance(given.get(name), Tensor):
                where = self.definition(name)
                raise Fault(where, f"{name} is {given[name]}", "a constant of the compilation", f"--const {name}=...")

    def unknown(self, where: str, name: str) -> Fault:
        """The error for an argument that is not a parameter."""
        allowed = f"{', '.join(self.parameters)} ({self.definition()})"
        return Fault(where, "no such parameter", allowed, suggestion(name, self.parameters))

    def completed(self, given: Mapping[str, Value], chosen: Configuration) -> dict[str, Value]:
        """The arguments, with those that a configuration and heuristics add. Given values take precedence. Options of a
        launch, as `waves_per_eu`, are left out where they are no parameters."""
        options = options_of_launches() - {*self.parameters}
        values = {name: value for name, value in {**chosen.constants, **given}.items() if name not in options}
        if chosen.pre_hook is not None:
            values = {name: copy(value) if is_descriptor(value) else value for name, value in values.items()}
            tensors = {name: Anything(name) for name, value in values.items() if isinstance(value, Tensor)}
            with suppress(Exception):  # a hook may also fill tensors, which are not there
                chosen.pre_hook({**values, **tensors})
        for name, rule in self.heuristics.items():
            if name not in values:
                try:
                    values[name] = rule(values)
                except Exception as error:
                    what = f"{type(error).__name__}: {error}"
                    hint = f"give --const {name}=..."
                    raise InputError(f"heuristic {name}", what, "a rule that can be run", hint) from None
        return values


@dataclass(frozen=True)
class KernelLaunch:
    """A launch of a kernel: its grid (a tuple or a function of the arguments) and its arguments. Warps and stages are
    None where the launch does not set them."""

    kernel: Kernel
    grid: Value
    arguments: Mapping[str, Value]
    num_warps: int | None
    num_stages: int | None

    def completed(self, chosen: Configuration) -> dict[str, Value]:
        """The arguments with a configuration, with those that it and heuristics add."""
        return self.kernel.completed(self.arguments, chosen)

    def options(self, chosen: Configuration, values: Mapping[str, Value]) -> tuple[int, int]:
        """(warps, stages), as the launch, the configuration or Triton sets them. If a kernel has a parameter num_warps,
        a launch sets both by that name."""
        warps, stages = (n if isinstance(n := values.get(f"num_{name}"), int) else 0 for name in ("warps", "stages"))
        warps = self.num_warps or warps or chosen.num_warps or WARPS
        return warps, self.num_stages or stages or chosen.num_stages or STAGES


@cache
def options_of_launches() -> frozenset[str]:
    """The keywords of a launch that are not arguments of its kernel, for GPUs of NVIDIA and of AMD."""
    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

    own = {"grid", "warmup", "device", "stream", "device_type", "bin_ids"}
    return frozenset(own.union(CUDAOptions.__dataclass_fields__, HIPOptions.__dataclass_fields__))


# ---------------------------------------------------------------- functions in the user's file


def first_line(function: JITFunction) -> int:
    """The line of a function's `def`, below its decorators."""
    lines = enumerate(function.raw_src)
    start: int = function.starting_line_number
    return start + next((k for k, line in lines if line.lstrip().startswith("def ")), 0)


def file_of(function: JITFunction) -> str:
    """The file that a function stands in."""
    return str(function.fn.__code__.co_filename)


def function_of(function: JITFunction, source: str) -> JITFunction | None:
    """The function with this source: a kernel, or a function that it calls."""
    return next((each for each in called(function) if each.src == source), None)


def of_triton(function: JITFunction) -> bool:
    """Whether a function is one of Triton's own, such as `tl.sum`."""
    return str(getattr(function.fn, "__module__", "")).partition(".")[0] == "triton"


def called(function: JITFunction) -> Iterator[JITFunction]:
    """A function, and the functions of `@triton.jit` that it may call, at any depth."""
    from triton.runtime.jit import JITFunction

    seen: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or not isinstance(one, JITFunction):
            continue
        seen.add(id(one))
        yield one
        names = getattr(one.fn, "__globals__", {})
        for node in ast.walk(ast.parse(one.src)):
            if isinstance(node, ast.Name):
                waiting.append(names.get(node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                waiting.append(getattr(names.get(node.value.id), node.attr, None))


def names_on(source: str, number: int) -> set[str]:
    """The names on a line of a text of Python, or in the statement that begins there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or 0):
            simple = not hasattr(node, "body")
            if simple:
                return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return set()
