"""Runs a user's file and finds its kernels. Missing packages that it imports are replaced by stand-ins.

A file of kernels often imports PyTorch for functions that launch them. Those functions are not run here.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

from ..errors import InputError, IosimError
from .absent import absent_gpu
from .places import Fault

MISSING: list[str] = []
"""Packages that were replaced by stand-ins."""
FAILED: list[str] = []
"""The errors of statements that could not be run, in the file that was read last."""


class Anything:
    """A stand-in for any object of a missing package. It can be called and subclassed, and has every attribute."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name  # not an attribute that a class body could overwrite

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.name}.{name}")

    def __call__(self, *values: object, **named: object) -> object:
        """The stand-in itself. Called as a decorator, it returns the decorated function."""
        return values[0] if len(values) == 1 and not named and callable(values[0]) else self

    def __getitem__(self, key: object) -> Anything:
        return self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if isinstance(base, Anything))
        return (AnyClass,) if first is self else ()

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __or__(self, other: object) -> Anything:
        return self

    __ror__ = __or__

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __repr__(self) -> str:
        return str(self.__dict__["name"])


class AnyAttribute(type):
    """Classes that have every attribute, such as the `apply` of a class of PyTorch."""

    def __getattr__(cls, name: str) -> Anything:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything(f"{cls.__name__}.{name}")


class AnyClass(metaclass=AnyAttribute):
    """The base class in place of a class of a missing package."""


class StandIn(ModuleType):
    """A module of a missing package."""

    __path__: MutableSequence[str] = []  # noqa: RUF012  # as modules have it
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.__name__}.{name}")


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module that nothing else finds, if a file of the user imports it.

    Imports by installed packages get no stand-in, because these packages handle missing ones themselves.
    """

    def __init__(self, own: str, folder: Path) -> None:
        self.own, self.folder = own, str(folder)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = name.partition(".")[0]
        there = package in sys.modules and not isinstance(sys.modules[package], StandIn)
        if not self.of_user(importer()):
            return None
        if there or package in ("triton", "iosim", self.own):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def of_user(self, file: str) -> bool:
        """Whether a file is the user's, and not part of an installed package or of Python itself."""
        if file.startswith(self.folder):
            return "-packages" not in file.removeprefix(self.folder)
        return file == __file__ or not ("-packages" in file or file.startswith((sys.base_prefix, "<")))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if "." not in spec.name and spec.name not in MISSING:
            MISSING.append(spec.name)
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def importer() -> str:
    """The file whose import statement is running."""
    frame = sys._getframe(2)
    while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename


@contextmanager
def stand_ins(own: str, folder: Path) -> Iterator[None]:
    """Replace missing packages inside the `with` block, and remove the stand-ins after it."""
    finder = StandIns(own, folder)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, StandIn)]:
            del sys.modules[name]


def functions_of_file(file: str) -> dict[str, object]:
    """The kernels of a file by name: functions of `@triton.jit`, tuned ones included, in the order of the file."""
    from triton.runtime.jit import KernelInterface

    module = run_file(file)
    return {name: value for name, value in vars(module).items() if isinstance(value, KernelInterface)}


def check_file(file: str) -> None:
    """Raise InputError unless a Python file of this name exists."""
    if "\0" in file or not file.endswith(".py"):
        raise InputError("FILE", file, "a Python file with kernels")
    if not Path(file).is_file():
        raise InputError("FILE", file, "a Python file with kernels", "there is no such file")


def run_file(file: str) -> ModuleType:
    """The module of a file, under the name of its package if it is inside one."""
    check_file(file)
    path = Path(file).resolve()
    top = path.parent
    while (top / "__init__.py").exists():
        top = top.parent
    name = ".".join(path.relative_to(top).with_suffix("").parts)
    own = name.partition(".")[0]
    FAILED.clear()
    try:
        with (
            folder_on_path(top),
            stand_ins(own, top / own if "." in name else top),
            absent_gpu(),
        ):
            if "." in name:
                return importlib.import_module(name)
            spec = importlib.util.spec_from_file_location("kernels_of_user_" + name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            run_statements(path, module)
            return module
    except IosimError:
        raise
    except Exception as error:
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


def run_statements(path: Path, module: ModuleType) -> None:
    """Run a file, one statement after the other. A statement that fails, such as a launch without a GPU, is skipped."""
    import __future__

    import ast

    flags = 0
    for statement in ast.parse(path.read_bytes(), str(path)).body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            flags |= sum(getattr(__future__, name.name).compiler_flag for name in statement.names)
        try:
            with redirect_stdout(sys.stderr):
                exec(compile(ast.Module([statement], []), str(path), "exec", flags, True), vars(module))
        except Exception as error:
            FAILED.append(fault(error, path))


def fault(error: Exception, path: Path) -> str:
    """An error with the line of the user's file."""
    import linecache
    import traceback

    if isinstance(error, SyntaxError):
        return f"line {error.lineno} `{(error.text or '').strip()}`: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"line {lines[-1]} `{linecache.getline(str(path), lines[-1] or 0).strip()}`: " if lines else ""
    return f"{where}{type(error).__name__}: {error}"
