"""Runs a user's file of masks. Its errors become one message, and what it prints goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from ..errors import InputError, IosimError, MissingError

T = TypeVar("T")
RUNS = "a file and a function that can be run"
TORCH = "pip install torch (its CPU build is enough)"


def module_of(path: str, text: str) -> tuple[ModuleType, dict[str, bytes]]:
    """(the module of a file with this text, after it was run, {file: text} of the modules beside it). Its name is not
    `__main__`.

    Modules beside the file are forgotten again, since another file may have others of the same name.
    """
    beside: dict[str, bytes] = {}
    module, before = ModuleType(f"masks_of_user_{Path(path).stem}"), set(sys.modules)
    module.__file__, folder = path, Path(path).resolve().parent
    try:
        exec(compile(text, path, "exec", dont_inherit=True), vars(module))
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == folder:
                beside[file] = text_of(file)
                del sys.modules[name]
    return module, beside


def text_of(file: str) -> bytes:
    """The text of a file; empty if it is gone."""
    return Path(file).read_bytes() if Path(file).is_file() else b""


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
        with folder_on_path(path), redirect_stdout(sys.stderr):
            return what()
    except IosimError:
        raise
    except ImportError as error:
        advice = f": {TORCH}" if str(error.name).partition(".")[0] == "torch" else ""
        raise MissingError(f"{where}: {error} ({place(error, path)}){advice}") from None
    except (Exception, SystemExit) as error:
        shown = f"{type(error).__name__}: {error}"
        raise InputError(where, shown, RUNS, place(error, path)) from None


def place(error: BaseException, path: str) -> str:
    """The last line of the user's file that an error passed, with its text."""
    from linecache import checkcache, getline
    from traceback import extract_tb

    if isinstance(error, SyntaxError):
        return f"{path}, line {error.lineno} `{(error.text or '').strip()}`"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path and frame.lineno]
    checkcache(path)
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
