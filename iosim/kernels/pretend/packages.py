"""Stand-ins for packages that a user's file imports and that are not installed: mocks of `unittest.mock`.

A file of kernels often imports PyTorch for functions that launch them. Those functions are not run here.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock, patch

from ...errors import MissingError

OWN = str(Path(__file__).parents[1])  # iosim's files, which import in the name of the user's
FALSE = [f"__{name}__" for name in ("bool", "lt", "gt", "le", "ge")]


class Anything(MagicMock):
    """A stand-in for an object of a missing package. A function that it decorates stays as it is."""

    def __init__(self, *values: object, **named: object) -> None:
        super().__init__(*values, **named)
        self.__version__ = "0.0.0"
        for name in FALSE:
            setattr(self, name, lambda *_: False)
        self.__hash__, self.__str__ = lambda *_: id(self), lambda *_: repr(self)  # type: ignore[assignment]

    def __call__(self, *values: object, **named: object) -> object:
        function = len(values) == 1 and not named and (callable(values[0]) or hasattr(values[0], "run"))  # a kernel has
        return values[0] if function else self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if isinstance(base, Anything))
        derived = any(isinstance(base, type) and issubclass(base, AnyClass) for base in bases)
        return (AnyClass,) if first is self and not derived else ()


class AnyClass:
    """The base class in place of a class of a missing package. Its subclasses, and their objects, take any keyword."""

    def __init__(self, *values: object, **named: object) -> None:
        vars(self).update(named)

    def __init_subclass__(cls, **named: object) -> None:
        super().__init_subclass__()


def needed(package: str, after: str = "") -> MissingError:
    """The error about a script that cannot do without a missing package."""
    if package != "torch":
        return MissingError(f"{package} is needed for this script, and is not installed{after}")
    return MissingError(f"PyTorch is needed for this script: pip install torch (the CPU build is enough){after}")


def check_known(*values: object) -> None:
    """Raise MissingError if a value comes from a missing package."""
    for value in values:
        if isinstance(value, Anything):
            raise needed(value._extract_mock_name().partition(".")[0].rstrip("()"))


class StandIns(MetaPathFinder, Loader):
    """Finds a stand-in for every module that nothing else finds, if a file of the user imports it.

    Imports by installed packages get no stand-in, because these packages handle missing ones themselves. Neither does
    `packaging`: a script compares versions with it, and a stand-in would decide.
    """

    def __init__(self, own: str, folder: Path) -> None:
        self.own, self.folder = own, str(folder)
        self.missing: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package = name.partition(".")[0]
        there = package in sys.modules and not isinstance(sys.modules[package], Anything)
        file, line = importer()
        if (
            there
            or package in ("triton", "iosim", "packaging", self.own)
            or not self.of_user(file)
            or can_do_without(file, line)
        ):
            return None
        self.missing.add(package)
        return ModuleSpec(name, self, is_package=True)

    def of_user(self, file: str) -> bool:
        """Whether a file is the user's, and not part of an installed package or of Python itself."""
        if file.startswith(self.folder):
            return "-packages" not in file.removeprefix(self.folder)
        return not ("-packages" in file or file.startswith((sys.base_prefix, "<")))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Anything(name=spec.name)  # type: ignore[return-value]

    def exec_module(self, module: ModuleType) -> None:
        pass


def importer() -> tuple[str, int]:
    """The file and the line of the import statement that is running."""
    frame = sys._getframe(2)
    while frame.f_back is not None and ("importlib" in frame.f_code.co_filename or OWN in frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@lru_cache(maxsize=256)
def tried(text: bytes) -> tuple[tuple[int, int], ...]:
    """The lines of a file with this text that stand in a `try`: (first, last) of each."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers]
    return tuple((node.body[0].lineno, node.body[-1].end_lineno or 0) for node in tries)


def can_do_without(file: str, line: int) -> bool:
    """Whether an import stands in a `try` whose `except` says what to do without the package."""
    text = Path(file).read_bytes() if Path(file).is_file() else b""
    return any(first <= line <= last for first, last in tried(text))


@contextmanager
def stand_ins(own: str, folder: Path) -> Iterator[set[str]]:
    """Replace missing packages inside the `with` block, and remove the stand-ins after it. Gives their names."""
    finder, own_find = StandIns(own, folder), importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        """What Python finds of a module: nothing if it is not installed, so that a file can do without it."""
        sys.meta_path.remove(finder)
        try:
            found = own_find(name, package)
        finally:
            sys.meta_path.append(finder)
        return None if found is not None and found.loader is finder else found

    sys.meta_path.append(finder)
    try:
        with patch.object(importlib.util, "find_spec", find_spec):
            yield finder.missing
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, Anything)]:
            del sys.modules[name]
