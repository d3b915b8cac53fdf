"""Compiles a kernel with Triton, for a GPU that need not be there. Gives its code, shared memory and registers.

The kernel is specialised as Triton's launcher does it, for integers that are 1 or multiples of 16 and for aligned
pointers.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType, SimpleNamespace
from typing import TypeGuard

from ...errors import InputError, IosimError, MissingError
from ...hardware import target_meant
from ..walk.code import Code, Type
from ..walk.launch import DTYPES, Descriptor, Launch, Value, is_descriptor
from ..walk.places import Fault, place
from ..walk.requests import Asked
from .arguments import as_tensor
from .asked import asked_of, widths_of
from .kernel import Kernel, file_of, first_line, function_of, names_on, of_triton
from .ttir import read_module

WARP_SIZE = 32
AMD_WAVE = 64
AMD_SEEN = 90
ALIGNED = 256  # bytes: every tensor starts at a multiple, as in PyTorch
HINTS = {  # {words of Triton's error: what to try}
    "Block pointers": "pip install 'triton<3.9' has them, or use tl.make_tensor_descriptor",
    "make_block_ptr": "pip install 'triton<3.9' has them, or use tl.make_tensor_descriptor",
}
COMPILES = "what Triton compiles"
WGMMA = re.compile(r"\bwgmma\.mma_async\.\S*?\.m(\d+)n(\d+)k(\d+)\.\w+\.(\w+)\.\w+\s+\{[^}]*\},\s*(\{?)")
LDMATRIX = re.compile(r"\bldmatrix\.sync\.aligned\.m8n8\.x(\d)")
MATRIX_BYTES = 128  # of the 8 x 8 words of 16 bits that one ldmatrix reads for each of its x1, x2, x4
FACTOR_BYTES = {"f16": 2, "bf16": 2, "tf32": 4}  # of a word of a factor; of 8 bits in other types of wgmma
USED = re.compile(r"REG:(\d+) STACK:(\d+)")


@dataclass(frozen=True)
class Resources:
    """The resources of a multiprocessor that one program needs."""

    smem_bytes: int
    registers: int
    """Registers of one thread."""
    stack_bytes: int
    """Stack bytes of one thread, which hold values that found no register."""
    num_warps: int
    load_widths: Sequence[int] = ()
    """The bytes that a thread loads by each load instruction."""
    product_reads: Mapping[str, int] = field(default_factory=dict)
    """{instruction: bytes that one run of each such instruction reads from shared memory}: see `product_reads`."""


class Compilation:
    """A kernel with the arguments of one launch, for one target (`sm_90`)."""

    def __init__(
        self,
        kernel: Kernel,
        given: Mapping[str, Value],
        target: str,
        num_warps: int,
        num_stages: int,
        options: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        kernel.check(given)
        self.kernel = kernel
        self.descriptors = {name: v for name, v in given.items() if is_descriptor(v)}
        bases = {name: v.base if is_descriptor(v) else v for name, v in given.items()}
        self.tensors = {name: t for name, v in bases.items() if (t := as_tensor(v, f"argument {name}")) is not None}
        values = {name: self.as_launched(name, value) for name, value in given.items()}
        self.given = given
        self._bind(values, target, {"num_warps": num_warps, "num_stages": num_stages, **options})

    def as_launched(self, name: str, value: Value) -> Value:
        """An argument as Triton's launcher sees it."""
        if name not in self.tensors:
            return value
        tensor = self.tensors[name]
        size, start = tensor.reach * tensor.word_bytes, ALIGNED + tensor.offset * tensor.word_bytes
        seen = SimpleNamespace(dtype=DTYPES[tensor.dtype][0], shape=tensor.shape, stride=tensor.stride)
        seen.data_ptr, seen.ptr_range = (lambda: start), (lambda: size)
        if not is_descriptor(value):
            return seen
        value = copy(value)
        value.base = seen
        return value

    def _bind(self, values: Mapping[str, Value], target: str, options: Mapping[str, Value]) -> None:
        """Specialise the kernel as the launcher does."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, make_backend
        from triton.runtime.jit import create_function_from_signature

        function = self.kernel.function
        amd = is_amd(target)
        self.target = GPUTarget("hip", target, AMD_WAVE) if amd else GPUTarget("cuda", capability(target), WARP_SIZE)
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
        own = {name: int(v) for name, v in self.bound.items() if name in self.parameters and is_integer(v)}
        return own | {key: n for name, d in self.descriptors.items() for key, n in numbers_of(name, d)}

    def launch(self, grid: tuple[int, int, int]) -> Launch:
        """The launch of the compiled code on a grid."""
        return Launch(grid, self.scalars, self.tensors)

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
            return read_module(module, self.kernel.name, partial(expanded, self.parameters, self.descriptors))
        except InputError as error:
            where = f"{self.kernel.definition()}: {error.where}"
            raise Fault(where, str(error.found), error.allowed, error.hint) from None

    @cached_property
    def compiled(self):  # type: ignore[no-untyped-def]
        """The binary that Triton makes for the GPU."""
        import triton

        with quoted(self.kernel, self.given):
            return triton.compile(self.source, target=self.target, options=self.options.__dict__)

    @property
    def texts(self) -> Mapping[str, object]:
        """The code of each stage of the compiler."""
        found: Mapping[str, object] = self.compiled.asm
        return found

    @cached_property
    def asked(self) -> dict[int, Asked] | None:
        """{id of a load in the code: the instructions that it becomes}, as far as that is known (read/asked.py)."""
        compiled = self.compiled
        return asked_of(self.code, compiled.asm["ttgir"], compiled.asm["ptx"], compiled.metadata.num_warps)

    @cached_property
    def resources(self) -> Resources:
        """The shared memory and registers of the binary that Triton makes for the GPU."""
        compiled = self.compiled
        registers, stack = used(compiled.asm["cubin"])
        ptx = compiled.asm["ptx"]
        warps = compiled.metadata.num_warps
        reads = product_reads(ptx, warps)
        return Resources(compiled.metadata.shared, registers, stack, warps, widths_of(ptx), reads)


def expanded(names: Sequence[str], descriptors: Mapping[str, Descriptor], types: Sequence[Type]) -> Iterator[str]:
    """The names of the arguments in the compiled code. A descriptor is an address, its sizes and strides in 64 bits,
    truth values, and its sizes and strides as the host gives them."""
    left = list(types)
    for name in names:
        yield name
        left.pop(0)
        if name in descriptors:
            own = [key for key, _ in numbers_of(name, descriptors[name])]
            yield from own
            del left[: len(own)]
            while left and left[0].element == "i1":
                yield f"{name}.flag"
                left.pop(0)
            yield from own
            del left[: len(own)]


def numbers_of(name: str, descriptor: Descriptor) -> Iterator[tuple[str, int]]:
    """The sizes and strides of a descriptor, by name."""
    yield from ((f"{name}.shape.{k}", int(n)) for k, n in enumerate(descriptor.shape))
    yield from ((f"{name}.stride.{k}", int(n)) for k, n in enumerate(descriptor.strides))


def is_integer(value: Value) -> TypeGuard[int]:
    return isinstance(value, int)


def is_amd(target: str) -> bool:
    """Whether a target is a GPU of AMD, such as `gfx942`."""
    return target.startswith("gfx")


def capability(target: str) -> int:
    """The number in a target such as `sm_90`. A GPU of AMD is one of capability 9.0 for scripts that ask."""
    if is_amd(target):
        return AMD_SEEN
    found = re.fullmatch(r"sm_?(\d{2,3})a?", target)
    if not found:
        allowed = "a compute capability such as sm_90, or gfx942 (only words)"
        raise InputError("--target", target, allowed, target_meant(target))
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


def product_reads(ptx: str, warps: int) -> dict[str, int]:
    """{`wgmma` or `ldmatrix`: bytes that all warps read from shared memory if each such instruction of PTX runs once}.

    Four warps together take a wgmma, whose first factor may be in registers; `ldmatrix` brings factors of mma.sync.
    """
    words = [
        (int(n) * int(k) + (0 if registers else int(m) * int(k))) * FACTOR_BYTES.get(type, 1)
        for m, n, k, type, registers in WGMMA.findall(ptx)
    ]
    found = {
        "wgmma": sum(words) * (warps // 4),
        "ldmatrix": sum(map(int, LDMATRIX.findall(ptx))) * MATRIX_BYTES * warps,
    }
    return {name: size for name, size in found.items() if size}


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
        raise Fault(f"{kernel.definition()}: kernel {kernel.name}", what[0], COMPILES) from None


def fault_of(kernel: Kernel, given: Mapping[str, Value], error: BaseException | None) -> Fault:
    """The compiler's error at the innermost line of the user's file, with the values of the arguments on that line."""
    from triton.compiler.errors import CompilationError

    what, where, names = "", kernel.definition(), set[str]()
    while isinstance(error, CompilationError):
        what = plain(error.error_message or str(error.__cause__ or "an error"))
        function = function_of(kernel.function, error.src)
        if function is not None and not of_triton(function):
            number = min(int(getattr(error.node, "lineno", 1)), len(error.src.splitlines()))
            where = place(file_of(function), first_line(function) + number - 1)
            names = names_on(error.src, number) if function is kernel.function else set()
        error = error.__cause__
    hints = [hint for words, hint in HINTS.items() if words in what]
    shown = [f"{name} is {given[name]}" for name in kernel.parameters if name in names and name in given]
    return Fault(where, what, COMPILES, "; ".join([*hints, *(["here " + ", ".join(shown)] if shown else [])]))


def plain(text: str) -> str:
    """The plain text of an error. Triton writes some as `NameError('x is not defined')`."""
    found = re.fullmatch(r"(\w+)\((['\"].*['\"])\)", text, re.S)
    try:
        return f"{found[1]}: {ast.literal_eval(found[2])}" if found else text
    except (SyntaxError, ValueError):
        return text
