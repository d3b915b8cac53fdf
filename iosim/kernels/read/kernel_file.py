"""The kernels of a user's file, which is imported without a GPU.

Statements that fail, such as a use of a package that is not there, are left out, in the file and in those of its
package that it imports. A launch in a file does nothing.
"""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from ...errors import InputError, suggestion
from ..pretend.cuda import absent_gpu
from ..pretend.packages import stand_ins
from ..pretend.tensors import torch_of
from ..walk.places import Fault
from .faults import Overtime, fault, limited
from .kernel import Kernel, require_triton

INSIDE = "one that is made inside of a function needs a script that launches it (--script)"


def kernel_of(file: str, name: str | None, seconds: float | None = None) -> Kernel:
    """The kernel of a file by its name; without a name, the only kernel. The file may take so many seconds."""
    require_triton()
    try:
        with limited(seconds):
            functions, failed, missing = functions_of(file)
    except Overtime as error:
        where, _, _ = fault(error, Path(file).resolve()).rpartition(": ")
        raise Fault(file, f"no end after {seconds:g} s, {where}", "a file that ends", "or a larger --timeout") from None
    names = [each for each, found in functions.items() if defined_in(found, Path(file).resolve())]
    name = names[0] if name is None and len(names) == 1 else name
    if name in functions:
        kernel = Kernel(functions[name])
        kernel.stand_ins = missing
        return kernel
    if failed and not names:
        raise Fault(file, failed[0].removeprefix(f"{file}, "), "a file that can be run")
    if not names:
        raise InputError(file, "no kernel", "a file with functions of @triton.jit", INSIDE)
    if name is None:
        raise InputError("--kernel", "nothing", ", ".join(names))
    hints = [near_kernel(functions, suggestion(name, names)), *failed[:1]]
    raise Fault("--kernel", name, ", ".join(names), "; ".join(hint for hint in hints if hint))


def near_kernel(functions: Mapping[str, object], hint: str) -> str:
    """A suggestion with the line of the kernel that it names."""
    near = next((function for name, function in functions.items() if repr(name) in hint), None)
    return hint if near is None else f"{hint} ({Kernel(near).definition()})"


def defined_in(kernel: object, path: Path) -> bool:
    """Whether a kernel stands in a file, and is not imported there."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel.__code__.co_filename == str(path)  # type: ignore[attr-defined, no-any-return]


def functions_of(file: str) -> tuple[dict[str, object], list[str], set[str]]:
    """(the kernels of a file by their names, the errors of statements that were left out, packages with stand-ins)."""
    from triton.runtime.jit import KernelInterface

    check_file(file)
    path = Path(file).resolve()
    files = UserFiles(path)
    before = set(sys.modules)
    with ExitStack() as stack:
        missing = stack.enter_context(stand_ins(path.stem, files.top))
        for each in (
            folder_on_path(files.top),
            absent_gpu(),
            no_launches(),
            torch_of(path.read_text(errors="replace")),
            files.found(),
            redirect_stdout(sys.stderr),
        ):
            stack.enter_context(each)
        try:
            module = import_module(files.name)
        except (SyntaxError, ImportError) as error:
            raise Fault(file, fault(error, path), "a file that can be run") from None
        finally:
            for name in [name for name in sys.modules if name not in before and files.owns(name)]:
                del sys.modules[name]
    kernels = {name: value for name, value in vars(module).items() if isinstance(value, KernelInterface)}
    return kernels, files.failed, missing


@contextmanager
def no_launches() -> Iterator[None]:
    """A context in which a launch does nothing."""
    from unittest import mock

    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    with mock.patch.object(JITFunction, "run", mock.Mock()), mock.patch.object(Autotuner, "run", mock.Mock()):
        yield


class UserFiles(MetaPathFinder):
    """Finds the modules of the user's package, or of the folder of a file that is in no package."""

    def __init__(self, path: Path) -> None:
        self.path, self.top = path, path.parent
        while (self.top / "__init__.py").exists():
            self.top = self.top.parent
        name = ".".join(path.relative_to(self.top).with_suffix("").parts).removesuffix(".__init__")
        self.name = name if "." in name else f"kernels_of_user_{name}"
        self.failed: list[str] = []

    @contextmanager
    def found(self) -> Iterator[None]:
        """A context in which they are found first, also in place of installed ones."""
        hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if self.owns(name)}
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            sys.modules.update(hidden)

    def owns(self, name: str) -> bool:
        """Whether a module belongs to the package of the file."""
        return name.partition(".")[0] == self.name.partition(".")[0]

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not self.owns(name):
            return None
        if "." not in self.name:
            return ModuleSpec(name, Statements(name, str(self.path), self.failed), origin=str(self.path))
        found = PathFinder.find_spec(name, [str(self.top)] if path is None else path)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = Statements(name, found.loader.path, self.failed)
        return found


class Statements(SourceFileLoader):
    """Runs a file, one statement after the other, and notes the errors of those that fail."""

    def __init__(self, name: str, path: str, failed: list[str]) -> None:
        super().__init__(name, path)
        self.failed = failed

    def exec_module(self, module: ModuleType) -> None:
        tree, path = ast.parse(self.get_data(self.path), self.path), Path(self.path)
        imports = [s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
        flags = sum({getattr(__future__, alias.name).compiler_flag for s in imports for alias in s.names})
        for statement in tree.body:
            try:
                exec(compile(ast.Module([statement], []), self.path, "exec", flags, True), vars(module))
            except (Exception, SystemExit) as error:
                self.failed.append(f"{path}, {fault(error, path)}")


def check_file(file: str) -> None:
    """Raise InputError unless a Python file of this name exists."""
    from ...schedules import SCHEDULES

    if "\0" in file or not file.endswith(".py"):
        hint = f"see iosim schedules {file}" if file in SCHEDULES else ""
        raise InputError("FILE", file, "a Python file with kernels", hint)
    if not Path(file).is_file():
        raise InputError("FILE", file, "a Python file with kernels", "there is no such file")


def folder_on_path(folder: Path) -> AbstractContextManager[object]:
    """A context in which modules of a folder can be imported."""
    from unittest import mock

    return mock.patch.object(sys, "path", [str(folder), *sys.path])
