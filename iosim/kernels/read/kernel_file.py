"""The kernels of a user's file, without a GPU: read from its text, or found by running it.

Statements of a file that is run and that fail, such as launches, are skipped.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

from ...errors import InputError, IosimError, suggestion
from ..pretend.cuda import absent_gpu
from ..pretend.packages import StandIn, stand_ins
from ..pretend.tensors import pretended_tensors
from ..walk.places import Fault
from .faults import Overtime, fault, limited
from .kernel import Kernel, called, require_triton
from .source import Sources, flags_of, top_of


def kernel_of(file: str, name: str | None, seconds: float | None = None) -> Kernel:
    """The kernel of a file by its name; without a name, the only kernel. What is run of the file may take so many
    seconds."""
    require_triton()
    try:
        with limited(seconds):
            return kernel_in(file, name)
    except Overtime as error:
        where, _, _ = fault(error, Path(file).resolve()).rpartition(": ")
        raise Fault(file, f"no end after {seconds:g} s, {where}", "a file that ends", "or a larger --timeout") from None


def kernel_in(file: str, name: str | None) -> Kernel:
    """The kernel of a file by its name; without a name, the only kernel."""
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
    from ...schedules import SCHEDULES

    if "\0" in file or not file.endswith(".py"):
        hint = f"see iosim schedules {file}" if file in SCHEDULES else ""
        raise InputError("FILE", file, "a Python file with kernels", hint)
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
    import ast

    tree, failed = ast.parse(path.read_bytes(), str(path)), []
    for statement in tree.body:
        try:
            with redirect_stdout(sys.stderr):
                exec(compile(ast.Module([statement], []), str(path), "exec", flags_of(tree), True), vars(module))
        except (Exception, SystemExit) as error:
            failed.append(fault(error, path))
    return failed
