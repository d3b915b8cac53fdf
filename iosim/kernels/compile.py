"""Compiles a kernel with Triton, for a GPU that need not be there. Gives its code, shared memory and registers.

The kernel is specialised as Triton's launcher does it, for integers that are 1 or multiples of 16 and for aligned
pointers.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

from ..errors import InputError, IosimError, MissingError
from .arguments import ALIGNED, DTYPES, Tensor, Value, as_tensor
from .code import Code
from .notes import load_widths
from .places import Fault, definition, file_of, first_line, function_of, names_on, of_triton, place
from .read import read_module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARP_SIZE = 32
ADVICE = "pip install 'iosim[triton]' (about 1 GB; no GPU and no PyTorch are needed)"
COMPILES = "what Triton compiles"
USED = re.compile(r"REG:(\d+) STACK:(\d+)")


def require_triton() -> None:
    """Raise MissingError if Triton is not installed."""
    from importlib.util import find_spec

    if find_spec("triton") is None:
        raise MissingError(f"Triton is not installed: {ADVICE}")


class Argument:
    """A tensor as Triton's launcher sees it: a type and an aligned address."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype, self.shape, self.stride = DTYPES[tensor.dtype][0], tensor.shape, tensor.stride
        self.bytes, self.start = tensor.reach * tensor.word_bytes, tensor.offset * tensor.word_bytes

    def data_ptr(self) -> int:
        return ALIGNED + self.start

    def ptr_range(self) -> int:
        return self.bytes


@dataclass(frozen=True)
class Resources:
    """The resources of a multiprocessor that one program needs."""

    smem_bytes: int
    registers: int
    """Registers of one thread."""
    stack_bytes: int
    """Stack bytes of one thread, which hold values that found no register."""
    num_warps: int
    products: str
    """The instructions of its matrix products: `wgmma`, `mma` (tensor cores too) or `simt`."""
    load_widths: Mapping[int, int] = field(default_factory=dict)
    """Load instructions by the bytes that a thread loads at a time."""


@dataclass(frozen=True)
class Configuration:
    """A choice of constants, warps and stages, such as one of `@triton.autotune`."""

    constants: Mapping[str, Value] = field(default_factory=dict)
    num_warps: int | None = None
    num_stages: int | None = None


class Kernel:
    """A function of `@triton.jit`, with the configurations and heuristics of its other decorators."""

    def __init__(self, found: object) -> None:
        require_triton()
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.jit import JITFunction

        self.found = found
        self.heuristics: dict[str, Callable[[Mapping[str, Value]], Value]] = {}
        self.configurations: list[Configuration] = []
        while isinstance(found, Autotuner | Heuristics):
            if isinstance(found, Heuristics):
                self.heuristics = {**found.values, **self.heuristics}
            else:
                self.configurations = [Configuration(c.kwargs, c.num_warps, c.num_stages) for c in found.configs]
            found = found.fn
        if not isinstance(found, JITFunction):
            raise InputError("kernel", str(found), "a function with @triton.jit", "is TRITON_INTERPRET set?")
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

    def check(self, given: Mapping[str, Value]) -> None:
        """Raise InputError for arguments that are missing or unknown, or that cannot be constants."""
        for name in given:
            if name not in self.parameters:
                raise self.unknown(f"argument {name}", name)
        missing = [name for name in self.required if name not in given]
        if missing:
            where = definition(self.function, missing[0] if len(missing) == 1 else None)
            options = ("--const" if name in self.constants else "--arg" for name in missing)
            hint = " ".join(f"{option} {name}=..." for option, name in zip(options, missing, strict=True))
            if any(name not in self.constants for name in missing):
                hint += "; a tensor as X=fp16[8,4096,64], a number as N=4096"
            what = f"no value for {', '.join(missing)}"
            raise Fault(f"{where}: kernel {self.name}", what, "a value for each parameter", hint)
        for name in self.constants:
            if isinstance(given.get(name), Tensor):
                where = definition(self.function, name)
                raise Fault(where, f"{name} is {given[name]}", "a constant of the compilation", f"--const {name}=...")

    def unknown(self, where: str, name: str) -> Fault:
        """The error for an argument that is not a parameter."""
        from ..errors import suggestion

        allowed = f"{', '.join(self.parameters)} ({definition(self.function)})"
        return Fault(where, "no such parameter", allowed, suggestion(name, self.parameters))

    def completed(self, given: Mapping[str, Value], chosen: Configuration) -> dict[str, Value]:
        """The arguments, with those that a configuration and heuristics add. Given values take precedence."""
        values = {**chosen.constants, **given}
        for name, rule in self.heuristics.items():
            if name not in values:
                try:
                    values[name] = rule(values)
                except Exception as error:
                    raise InputError(f"heuristic {name}", f"{type(error).__name__}: {error}", "a rule that can be run",
                                     f"give --const {name}=...") from None  # fmt: skip
        return values


class Compilation:
    """A kernel with the arguments of one launch, for one target (`sm_90`)."""

    def __init__(
        self, kernel: Kernel, given: Mapping[str, Value], target: str, num_warps: int, num_stages: int
    ) -> None:
        kernel.check(given)
        self.kernel = kernel
        self.tensors = {name: t for name, v in given.items() if (t := as_tensor(v, f"argument {name}")) is not None}
        values = {name: Argument(self.tensors[name]) if name in self.tensors else v for name, v in given.items()}
        self.given = given
        self._bind(values, target, {"num_warps": num_warps, "num_stages": num_stages})

    def _bind(self, values: Mapping[str, Value], target: str, options: Mapping[str, int]) -> None:
        """Specialise the kernel as the launcher does."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, make_backend
        from triton.runtime.jit import create_function_from_signature

        function = self.kernel.function
        self.target = GPUTarget("cuda", capability(target), WARP_SIZE)
        self.backend = make_backend(self.target)
        with quoted(self.kernel, self.given):
            binder = create_function_from_signature(function.signature, function.params, self.backend)
            bound, special, _ = binder(**{**options, **values})  # a parameter may be called num_warps
            self.options, self.signature, constants, attributes = function._pack_args(
                self.backend, dict(options), bound, special, dict(options)
            )
        self.bound: dict[str, Value] = dict(bound)
        self.source = ASTSource(function, self.signature, constants, attributes)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that are left in the compiled code: all but constants."""
        return tuple(name for name, type in self.signature.items() if type != "constexpr")

    @property
    def scalars(self) -> dict[str, int]:
        """The integer arguments among `parameters`."""
        return {name: int(v) for name, v in self.bound.items() if name in self.parameters and is_integer(v)}

    @cached_property
    def code(self) -> Code:
        """The kernel's code after Triton's own passes. Tensor descriptors are replaced by addresses with masks."""
        from triton._C.libtriton import ir, passes

        context = ir.context()
        ir.load_dialects(context)
        self.backend.load_dialects(context)
        with quoted(self.kernel, self.given):
            made = self.backend.get_codegen_implementation(self.options)
            module = self.source.make_ir(self.target, self.options, made, self.backend.get_module_map(), context)
            stages: dict[str, Callable[..., object]] = {}  # type: ignore[explicit-any]  # functions of Triton
            self.backend.add_stages(stages, self.options, self.source.language)
            module = stages["ttir"](module, {})
            manager = ir.pass_manager(context)
            passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
            passes.common.add_canonicalizer(manager)
            passes.common.add_cse(manager)
            manager.run(module, "descriptors")
        try:
            return read_module(module, self.kernel.name, self.parameters)
        except InputError as error:
            where = f"{definition(self.kernel.function)}: {error.where}"
            raise Fault(where, str(error.found), error.allowed, error.hint) from None

    @cached_property
    def resources(self) -> Resources:
        """The shared memory and registers of the binary that Triton makes for the GPU."""
        import triton

        with quoted(self.kernel, self.given):
            compiled = triton.compile(self.source, target=self.target, options=self.options.__dict__)
        registers, stack = used(compiled.asm["cubin"])
        ptx = compiled.asm["ptx"]
        products = "wgmma" if "wgmma.mma_async" in ptx else "mma" if "mma.sync" in ptx else "simt"
        warps = compiled.metadata.num_warps
        return Resources(compiled.metadata.shared, registers, stack, warps, products, load_widths(ptx))


def is_integer(value: Value) -> TypeGuard[int]:
    return isinstance(value, int)


def capability(target: str) -> int:
    """The number in a target such as `sm_90`."""
    found = re.fullmatch(r"sm_?(\d{2,3})a?", target)
    if not found:
        raise InputError("--target", target, "a compute capability such as sm_90")
    return int(found[1])


def used(cubin: bytes) -> tuple[int, int]:
    """(registers, stack bytes) of a thread, as cuobjdump (in Triton's wheel) reads them from a binary."""
    import subprocess
    import tempfile
    from pathlib import Path

    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=False)
    found = USED.search(done.stdout)
    if not found:
        raise MissingError(f"{tool} does not say how many registers a program takes: {done.stderr.strip()[:200]}")
    return int(found[1]), int(found[2])


@contextmanager
def quoted(kernel: Kernel, given: Mapping[str, Value]) -> Iterator[None]:
    """Turn errors of Triton's compiler into a Fault with the line of the kernel."""
    from triton.compiler.errors import CompilationError

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "TRITON_DEFAULT_FP_FUSION")
            yield
    except CompilationError as error:
        raise fault_of(kernel, given, error) from None
    except IosimError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}".strip().splitlines()
        raise Fault(f"{definition(kernel.function)}: kernel {kernel.name}", what[0], COMPILES) from None


def fault_of(kernel: Kernel, given: Mapping[str, Value], error: BaseException | None) -> Fault:
    """The compiler's error at the innermost line of the user's file, with the values of the arguments on that line."""
    from triton.compiler.errors import CompilationError

    what, where, names = "", definition(kernel.function), set[str]()
    while isinstance(error, CompilationError):
        what = plain(error.error_message or str(error.__cause__ or "an error"))
        function = function_of(kernel.function, error.src)
        if function is not None and not of_triton(function):
            number = min(int(getattr(error.node, "lineno", 1)), len(error.src.splitlines()))
            where = place(file_of(function), first_line(function) + number - 1)
            names = names_on(error.src, number) if function is kernel.function else set()
        error = error.__cause__
    shown = [f"{name} is {given[name]}" for name in kernel.parameters if name in names and name in given]
    return Fault(where, what, COMPILES, "here " + ", ".join(shown) if shown else "")


def plain(text: str) -> str:
    """The plain text of an error. Triton writes some as `NameError('x is not defined')`."""
    found = re.fullmatch(r"(\w+)\((['\"].*['\"])\)", text, re.S)
    try:
        return f"{found[1]}: {ast.literal_eval(found[2])}" if found else text
    except (SyntaxError, ValueError):
        return text


def kernel_of(file: str, name: str | None) -> Kernel:
    """The kernel of a file by its name; without a name, the only kernel."""
    from .load import functions_of_file

    require_triton()
    return Kernel(found_in(functions_of_file(file), file, name))


def found_in(kernels: Mapping[str, object], file: str, name: str | None) -> object:
    """The kernel of this name among those of a file."""
    from ..errors import suggestion
    from .load import FAILED

    names: Sequence[str] = list(kernels)
    if FAILED and not names:
        raise Fault(file, FAILED[0], "a file that can be run")
    if not names:
        raise InputError(file, "no kernel", "a file with functions of @triton.jit")
    if name is None:
        if len(names) > 1:
            raise InputError("--kernel", "nothing", ", ".join(names))
        name = names[0]
    if name not in kernels:
        hints = [near_kernel(kernels, suggestion(name, names)), *(f"{file}, {what}" for what in FAILED[:1])]
        raise Fault("--kernel", name, ", ".join(names), "; ".join(hint for hint in hints if hint))
    return kernels[name]


def near_kernel(kernels: Mapping[str, object], hint: str) -> str:
    """A suggestion with the line of the kernel that it names."""
    near = next((kernel for name, kernel in kernels.items() if repr(name) in hint), None)
    return hint if near is None else f"{hint} ({definition(Kernel(near).function)})"
