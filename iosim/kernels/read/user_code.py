"""Runs a user's file without a GPU: finds the kernels of a file, or catches the launches of a script.

Statements of a file that fail, such as launches, are skipped. A script runs to its end, and each launch is recorded
with its arguments in place of being run. If PyTorch is installed, a script's tensors take no memory; without it a
script can use `iosim.tensor`.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from ...errors import InputError, IosimError, suggestion
from ..pretend.driver import absent_gpu
from ..pretend.packages import StandIn, stand_ins
from ..pretend.tensors import pretended_tensors
from ..walk.launch import Tensor, Value
from ..walk.places import Fault, place
from .arguments import as_tensor
from .faults import fault
from .kernel import Kernel, KernelLaunch, called, require_triton
from .source import Sources, top_of

# ---------------------------------------------------------------- the kernels of a file


def kernel_of(file: str, name: str | None) -> Kernel:
    """The kernel of a file by its name; without a name, the only kernel."""
    require_triton()
    read = KernelFile(file)
    names = read.names
    if name is None and len(names) == 1:
        name = names[0]
    if name is None and names:
        raise InputError("--kernel", "nothing", ", ".join(names))
    found = None if name is None else read.kernel(name)
    if found is not None:
        return Kernel(found, tuple(read.left_out))
    return kernel_of_run(read, name)


def kernel_of_run(read: KernelFile, name: str | None) -> Kernel:
    """The kernel of a file that is run, since its text does not show the kernel."""
    functions, failed = functions_of_run(read.file)
    names = list(functions) or read.names
    failed = [*read.failed, *(f"{read.file}, {what}" for what in failed)]
    if failed and not names:
        raise Fault(read.file, failed[0].removeprefix(f"{read.file}, "), "a file that can be run")
    if not names:
        raise InputError(read.file, "no kernel", "a file with functions of @triton.jit", read.elsewhere(name))
    if name is None and len(names) > 1:
        raise InputError("--kernel", "nothing", ", ".join(names))
    name = names[0] if name is None else name
    if name not in functions:
        hints = [near_kernel(functions, suggestion(name, names)), read.elsewhere(name), *failed[:1]]
        raise Fault("--kernel", name, ", ".join(names), "; ".join(hint for hint in hints if hint))
    return Kernel(functions[name])


def near_kernel(functions: Mapping[str, object], hint: str) -> str:
    """A suggestion with the line of the kernel that it names."""
    near = next((function for name, function in functions.items() if repr(name) in hint), None)
    return hint if near is None else f"{hint} ({Kernel(near).definition()})"


def functions_of_file(file: str) -> tuple[dict[str, object], list[str]]:
    """(the kernels of a file by name, the errors of what they need and could not be run).

    Kernels are functions of `@triton.jit`, tuned ones included, in the order of the file. If the file's text shows
    none, the file is run.
    """
    read = KernelFile(file)
    found = {name: kernel for name in read.names if (kernel := read.kernel(name)) is not None}
    return (found, read.failed) if found else functions_of_run(file)


def functions_of_run(file: str) -> tuple[dict[str, object], list[str]]:
    """(the kernels of a file that is run, the errors of statements that could not be run)."""
    from triton.runtime.jit import KernelInterface

    module, failed = run_file(file)
    return {name: value for name, value in vars(module).items() if isinstance(value, KernelInterface)}, failed


class KernelFile:
    """The kernels of a file, read from its syntax tree. Only what they name is run, and sees a GPU."""

    def __init__(self, file: str) -> None:
        check_file(file)
        self.file, path = file, Path(file).resolve()
        try:
            self.sources = Sources(path, self.pretend_tensors)
        except SyntaxError as error:
            raise Fault(file, fault(error, path), "a file that can be run") from None
        self.source = self.sources.first
        self.names = self.source.kernels()
        self.pretended = False

    def pretend_tensors(self) -> None:
        """Pretend tensors and a GPU once PyTorch is imported."""
        if not self.pretended and "torch" in sys.modules and not isinstance(sys.modules["torch"], StandIn):
            self.pretended = True
            self.stack.enter_context(pretended_tensors())

    def kernel(self, name: str) -> object | None:
        """The kernel of this name; None if the text does not show it, or if what it needs cannot be run."""
        from triton.runtime.jit import KernelInterface

        own = self.source.name.partition(".")[0]
        self.pretended = False
        with ExitStack() as self.stack:
            for each in (stand_ins(own, self.sources.top), absent_gpu(), self.sources, redirect_stdout(sys.stderr)):
                self.stack.enter_context(each)
            with suppress(AttributeError):
                found = self.source.value(name)
                if isinstance(found, KernelInterface):
                    with suppress(InputError):  # the interpreter's functions call nothing
                        list(called(Kernel(found).function))  # what it calls in other files is read here as well
                    return found
        return None

    @property
    def failed(self) -> list[str]:
        """The errors of statements that a kernel needs and that could not be run."""
        return [text.removeprefix(f"{self.file}, ") for text in self.sources.failed]

    @property
    def left_out(self) -> list[str]:
        """The decorators that were left out."""
        return self.sources.left_out

    def elsewhere(self, name: str | None) -> str:
        """A hint if a kernel is made inside a function."""
        inside = self.source.inside()
        line = inside.get(name or next(iter(inside), ""))
        return f"line {line} makes it inside a function: give a script that launches it (--script)" if line else ""


def check_file(file: str) -> None:
    """Raise InputError unless a Python file of this name exists."""
    if "\0" in file or not file.endswith(".py"):
        raise InputError("FILE", file, "a Python file with kernels")
    if not Path(file).is_file():
        raise InputError("FILE", file, "a Python file with kernels", "there is no such file")


def run_file(file: str) -> tuple[ModuleType, list[str]]:
    """(the module of a file, under the name of its package if it is inside one; errors of statements)."""
    check_file(file)
    path = Path(file).resolve()
    top = top_of(path)
    name = ".".join(path.relative_to(top).with_suffix("").parts)
    own = name.partition(".")[0]
    try:
        with folder_on_path(top), stand_ins(own, top / own if "." in name else top), absent_gpu():
            if "." in name:
                return importlib.import_module(name), []
            spec = importlib.util.spec_from_file_location("kernels_of_user_" + name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            return module, run_statements(path, module)
    except IosimError:
        raise
    except (Exception, SystemExit) as error:
        raise Fault(file, fault(error, path), "a file that can be run") from None


@contextmanager
def folder_on_path(folder: Path) -> Iterator[None]:
    """A context in which modules of a folder can be imported."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def run_statements(path: Path, module: ModuleType) -> list[str]:
    """Run a file, one statement after the other. The errors of those that fail, such as a launch without a GPU."""
    import __future__

    import ast

    flags, failed = 0, []
    for statement in ast.parse(path.read_bytes(), str(path)).body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            flags |= sum(getattr(__future__, name.name).compiler_flag for name in statement.names)
        try:
            with redirect_stdout(sys.stderr):
                exec(compile(ast.Module([statement], []), str(path), "exec", flags, True), vars(module))
        except (Exception, SystemExit) as error:
            failed.append(fault(error, path))
    return failed


# ---------------------------------------------------------------- the launches of a script


@dataclass(frozen=True)
class Caught(KernelLaunch):
    """A launch of a script."""

    path: Path
    number: int
    unknown: tuple[str, ...] = ()
    """Arguments that are neither parameters of the kernel nor options of a launch."""

    @property
    def line(self) -> str:
        """The line of the script with the launch."""
        return f"{self.path.name}, line {self.number}"

    @property
    def quoted(self) -> str:
        """The line of the script with the launch, and its text."""
        return place(str(self.path), self.number).replace(str(self.path), self.path.name, 1)

    def check(self) -> None:
        """Raise InputError for arguments that the kernel does not have."""
        for name in self.unknown:
            raise self.kernel.unknown(name, name.removeprefix("argument "))

    @property
    def key(self) -> tuple[object, ...]:
        """The key of a launch. Launches with the same key have the same answer."""
        grid = "" if callable(self.grid) else str(self.grid)
        arguments = tuple((name, described(value)) for name, value in self.arguments.items())
        return id(self.kernel.found), grid, arguments, self.num_warps, self.num_stages


def described(value: Value) -> object:
    """The properties of an argument that decide the answer."""
    if isinstance(value, Tensor):
        data = None if value.data is None else value.data.tobytes()
        return value.dtype, value.shape, value.reach, value.offset, data
    return repr(value)


def caught_launches(file: str, capability: int = 90) -> tuple[list[Caught], str | None]:
    """(the launches of a script in order, the error that ended it early or None)."""
    require_triton()
    if "\0" in file or not Path(file).is_file():
        raise InputError("--script", file, "a Python file that launches kernels")
    path = Path(file).resolve()
    found: list[Caught] = []
    early = None
    with ExitStack() as stack:
        for each in (
            folder_on_path(path.parent),
            stand_ins(path.stem, path.parent),
            absent_gpu(capability),
            launches_caught(found, path),
            tensors(),
            redirect_stdout(sys.stderr),
        ):
            stack.enter_context(each)
        try:
            run_as_main(path)
        except IosimError:
            raise
        except SystemExit:
            pass
        except Exception as error:
            early = fault(error, path)
    return found, early


def run_as_main(path: Path) -> None:
    """Run a file as Python does with a file on its command line."""
    import runpy

    before = sys.argv
    sys.argv = [str(path)]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before


def tensors() -> AbstractContextManager[None]:
    """A context in which PyTorch's tensors take no memory, if PyTorch is installed."""
    return nullcontext() if find_spec("torch") is None else pretended_tensors()


def without_pytorch(file: str) -> str:
    """The end of a message about a script that names PyTorch, if it is not installed; else nothing."""
    if find_spec("torch") is not None or not re.search(r"\btorch\b", Path(file).read_text(errors="replace")):
        return ""
    return (
        "; PyTorch is not installed, so its tensors have no shapes here: pip install torch (its CPU build is enough), "
        "or give the script tensors of iosim.tensor"
    )


def note(path: Path, found: object, values: tuple[Value, ...], named: Mapping[str, Value]) -> Caught:
    """The caught launch of a kernel with its arguments."""
    kernel, number = Kernel(found), line_of(path)
    given = {**dict(zip(kernel.parameters, values, strict=False)), **named}
    arguments = {}
    for name in kernel.parameters:
        if name in given:
            value = given[name]
            tensor = as_tensor(value, f"{path.name}, line {number}: argument {name}")
            arguments[name] = value if tensor is None else tensor
    warps, stages = (n if isinstance(n := given.get(name), int) else None for name in ("num_warps", "num_stages"))
    more = tuple(f"argument {k + 1}" for k in range(len(kernel.parameters), len(values)))
    unknown = tuple(f"argument {name}" for name in named if name not in {*kernel.parameters, *options_of_launches()})
    return Caught(kernel, given.get("grid"), arguments, warps, stages, path, number, more + unknown)


def options_of_launches() -> set[str]:
    """The keywords of a launch that are not arguments of its kernel."""
    from triton.backends.nvidia.compiler import CUDAOptions

    return {"grid", "warmup", "device", "stream", "device_type", "bin_ids", *CUDAOptions.__dataclass_fields__}


def line_of(path: Path) -> int:
    """The line of the script that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename != str(path):
        frame = frame.f_back
    return frame.f_lineno


@contextmanager
def launches_caught(found: list[Caught], path: Path) -> Iterator[None]:
    """Append each launch of a Triton kernel in a script to `found`, in place of running it."""
    from triton import testing
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    def run(self: object, *values: Value, **named: Value) -> None:
        found.append(note(path, self, values, named))

    def once(function: Callable[[], Value], *values: Value, **named: Value) -> float:
        function()
        return 1.0

    before = JITFunction.run, Autotuner.run, testing.do_bench
    JITFunction.run, Autotuner.run, testing.do_bench = run, run, once
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run, testing.do_bench = before
