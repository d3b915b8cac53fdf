"""Runs a user's file of masks. Its errors become one message, and what it prints goes to stderr.

If the file imports PyTorch and it is not installed, its names can be imported and written in annotations. Any other use
of them is an error, so that no mask is made of values that are not there.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TypeVar

from ..errors import InputError, IosimError, MissingError

T = TypeVar("T")
RUNS = "a file and a function that can be run"


def module_of(path: str, text: str) -> ModuleType:
    """The module of a file with this text, after it was run. Its name is not `__main__`.

    Modules beside the file are forgotten again, since another file may have others of the same name.
    """
    module, before = ModuleType(f"masks_of_user_{Path(path).stem}"), set(sys.modules)
    module.__file__, folder = path, Path(path).resolve().parent
    try:
        exec(compile(text, path, "exec", dont_inherit=True), vars(module))
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == folder:
                del sys.modules[name]
    return module


def imports_torch(text: str) -> bool:
    """Whether a text of Python imports PyTorch anywhere."""
    import ast

    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return False  # running it says why
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return any(name.partition(".")[0] == "torch" for name in names)


def run(what: Callable[[], T], path: str, where: str) -> T:
    """What the user's code gives. InputError for any error in it, and MissingError for a package that is missing."""
    try:
        with ExitStack() as stack:
            for each in (folder_on_path(path), absent_torch(path), redirect_stdout(sys.stderr)):
                stack.enter_context(each)
            return what()
    except IosimError:
        raise
    except ImportError as error:
        raise MissingError(f"{where}: {error} ({place(error, path)})") from None
    except (Exception, SystemExit) as error:
        shown = f"{type(error).__name__}: {error}"
        raise InputError(where, shown, RUNS, place(error, path)) from None


def place(error: BaseException, path: str) -> str:
    """The last line of the user's file that an error passed, with its text."""
    from linecache import getline
    from traceback import extract_tb

    if isinstance(error, SyntaxError):
        return f"{path}, line {error.lineno} `{(error.text or '').strip()}`"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path and frame.lineno]
    return f"{path}, line {lines[-1]} `{getline(path, lines[-1]).strip()}`" if lines else path


@contextmanager
def folder_on_path(path: str) -> Iterator[None]:
    """A context in which the modules beside a file can be imported, as Python does for a script."""
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


# ---------------------------------------------------------------- PyTorch, where it is not installed


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    if "torch" in sys.modules:
        return not isinstance(sys.modules["torch"], AbsentModule)
    spec = find_spec("torch")
    return spec is not None and not isinstance(spec.loader, AbsentTorch)


class Absent:
    """A name of PyTorch that is not there. It may stand in an annotation. Any use of it raises MissingError."""

    def __init__(self, name: str, path: str) -> None:
        self._name, self._path = name, path

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}", self._path)

    def __getitem__(self, key: object) -> Absent:
        return self

    def __or__(self, other: object) -> Absent:
        return self

    __ror__ = __or__

    def used(self, *_: object, **__: object) -> NoReturn:
        advice = "pip install torch (its CPU build is enough)"
        raise MissingError(f"PyTorch is not installed, and {self._path} uses {self._name}: {advice}")

    __call__ = __iter__ = __len__ = __bool__ = __array__ = __index__ = __mro_entries__ = __enter__ = used
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = used  # type: ignore[assignment]
    __hash__ = object.__hash__


class AbsentModule(ModuleType):
    """A module of PyTorch that is not there."""

    __path__: MutableSequence[str] = []  # noqa: RUF012  # as modules have it

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}", vars(self)["_path"])


class AbsentTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of PyTorch where nothing else does."""

    def __init__(self, path: str) -> None:
        self.path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = name.partition(".")[0] == "torch"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if own else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = AbsentModule(spec.name)
        vars(module)["_path"] = self.path
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def absent_torch(path: str) -> Iterator[None]:
    """A context in which the names of PyTorch can be imported though it is not installed."""
    if has_torch():
        yield
        return
    finder = AbsentTorch(path)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, AbsentModule)]:
            del sys.modules[name]
