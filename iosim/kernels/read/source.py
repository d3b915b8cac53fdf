"""The kernels of a file from its syntax tree. Of a file only that is run which a kernel names.

A kernel names constants, functions that it calls, and what its decorators take: configurations and heuristics. They are
run where they are first needed, in the file itself and in the files of its package that it imports from. Nothing else
of these files is run, so a package need not be installed, and no GPU is asked for anything.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from pathlib import Path
from types import ModuleType

from .faults import fault

DECORATED = "jit"  # a decorator of a kernel has this in its text
MADE = ("jit(", "autotune(", "heuristics(")  # so has the value of `kernel = triton.jit(function)`
CHANGES = ("append", "extend", "insert", "update", "add", "setdefault")  # methods that change a list, dict or set
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ALWAYS_REAL = {"triton", "iosim", *sys.stdlib_module_names}


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The files of the user's package, which are found by the names under which they are imported.

    Inside of its `with` block, `import` gives modules whose names are run when they are asked for.
    """

    def __init__(self, path: Path, imported: Callable[[], None] = lambda: None) -> None:
        self.path, self.top, self.imported = path, top_of(path), imported
        self.found: dict[str, Source] = {}
        name = ".".join(path.relative_to(self.top).with_suffix("").parts)
        self.first = self.found[name.removesuffix(".__init__")] = Source(path, name, self)

    def source(self, name: str) -> Source | None:
        """The file of a module of the user's package; None for a module of another package."""
        if name not in self.found:
            path = next((path for folder in self.folders(name) if (path := file_of_module(folder, name))), None)
            if path is None:
                return None
            self.found[name] = Source(path, name, self)
        return self.found[name]

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)
        self.before = {name: sys.modules.pop(name) for name in [*sys.modules] if self.owns(name)}
        sys.modules.update({name: source.module for name, source in self.found.items()})

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)
        for name, source in self.found.items():
            if sys.modules.get(name) is source.module:
                del sys.modules[name]
        sys.modules.update(self.before)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        source = self.source(name)
        if source is None:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=source.is_package)
        if source.is_package:
            spec.submodule_search_locations = [str(source.folder)]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.found[spec.name].module

    def exec_module(self, module: ModuleType) -> None:
        pass

    def owns(self, name: str) -> bool:
        """Whether a module belongs to the package of the file."""
        return name.partition(".")[0] == self.first.name.partition(".")[0]

    def folders(self, name: str) -> list[Path]:
        """The folders in which a module of this name may lie: that of the file's package, and those above a folder of
        that name which the file is in."""
        top = name.partition(".")[0]
        around = [folder.parent for folder in self.path.parents if folder.name == top]
        own = around or self.owns(name)
        if top in ALWAYS_REAL or (not own and is_installed(top)):
            return []
        return [self.top, *around]

    @property
    def failed(self) -> list[str]:
        """The errors of statements that were needed and could not be run."""
        return [error for source in self.found.values() for error in source.failed]

    @property
    def left_out(self) -> list[str]:
        """The decorators that were left out."""
        return [text for source in self.found.values() for text in source.left_out]


class Source:
    """A file of Python whose statements are run where a name needs them."""

    def __init__(self, path: Path, name: str, sources: Sources) -> None:
        self.path, self.name, self.sources = path, name.removesuffix(".__init__"), sources
        self.is_package = path.is_dir() or path.name == "__init__.py"
        self.folder = path if path.is_dir() else path.parent
        tree = ast.Module([], []) if path.is_dir() else ast.parse(path.read_bytes(), str(path))
        self.tree = tree
        self.flags = flags_of(tree)
        self.bound = bound_names(tree.body)
        self.own_getattr: object = None
        self.done: set[int] = set()
        self.branches: dict[int, list[ast.stmt]] = {}
        self.failed: list[str] = []
        self.left_out: list[str] = []
        self.module = ModuleType(self.name)  # Triton looks into modules of this very type only
        self.names = vars(self.module)
        self.names.update(
            __file__=str(path),
            __getattr__=self.asked,
            __package__=self.name if self.is_package else self.name.rpartition(".")[0],
        )
        if self.is_package:
            self.names["__path__"] = [str(self.folder)]

    # ------------------------------------------------------------ names

    def kernels(self) -> list[str]:
        """The names that may be kernels, in the order of the file."""
        found = [name for statement in flat(self.tree.body) for name in made_kernels(statement)]
        return list(dict.fromkeys(found))

    def inside(self) -> dict[str, int]:
        """{name: line} of kernels that are made inside a function."""
        top = {id(statement) for statement in flat(self.tree.body)}
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef) and id(node) not in top)
        return {node.name: node.lineno for node in nodes if is_kernel(node)}

    def asked(self, name: str) -> object:
        """The value of a name that is read from the module and is not there yet."""
        if name.startswith("__") and name.endswith("__") and name not in self.bound:
            raise AttributeError(name)
        return self.value(name)

    def value(self, name: str) -> object:
        """The value of a name. Raises AttributeError if it has none."""
        self.need([name])
        if name in self.names:
            return self.names[name]
        inner = self.sources.source(f"{self.name}.{name}") if self.is_package else None
        if inner is not None:
            return inner.module
        if "__getattr__" in self.bound:
            return self.from_own_getattr(name)
        raise AttributeError(f"module {self.name!r} has no attribute {name!r}")

    def from_own_getattr(self, name: str) -> object:
        """The value that the module's own function `__getattr__` gives."""
        if self.own_getattr is None:
            del self.names["__getattr__"]
            self.need(["__getattr__"])
            self.own_getattr, self.names["__getattr__"] = self.names.pop("__getattr__", None), self.asked
        if not callable(self.own_getattr):
            raise AttributeError(name)
        return self.own_getattr(name)

    def need(self, names: Iterable[str], before: int | None = None) -> None:
        """Run the statements that bind these names; with `before`, only those above that line."""
        names = [name for name in names if not self.bind_triton(name)]
        found = [(statement.lineno, name, statement) for name in names for statement in self.bound.get(name, ())]
        for line, name, statement in sorted(found, key=lambda one: one[0]):
            if before is None or line < before:
                self.run(statement, name)
        for name in names:
            if name not in self.names and name not in self.bound and not hasattr(builtins, name):
                self.bind_star(name)

    def bind_star(self, name: str) -> None:
        """Give a name the value that `from module import *` gives it, if any does."""
        for star in self.bound.get("*", ()):
            assert isinstance(star, ast.ImportFrom)
            with suppress(AttributeError, ImportError):
                module = import_module("." * star.level + (star.module or ""), str(self.names["__package__"]))
                self.names[name] = getattr(module, name)

    def bind_triton(self, name: str) -> bool:
        """Whether a name stands for a module of Triton, which is imported whatever condition the import stands in."""
        for statement in self.bound.get(name, ()):
            for inner in flat([statement]):
                if name in bound_by(inner) and imports_triton(inner):
                    self.run(inner, name)
                    return True
        return False

    # ------------------------------------------------------------ statements

    def run(self, statement: ast.stmt, name: str) -> None:
        """Run a statement because of a name that it binds."""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self.run_import(statement, name)
        elif id(statement) in self.done:
            return
        elif isinstance(statement, ast.If):
            self.run_if(statement, name)
        else:
            self.done.add(id(statement))
            if isinstance(statement, ast.FunctionDef) and is_kernel(statement):
                self.define(statement)
            else:
                self.need(loaded_names(head_of(statement)), statement.lineno)
                self.try_to_run([statement])
                if isinstance(statement, FUNCTIONS):
                    self.need(loaded_names(statement))

    def run_import(self, statement: ast.Import | ast.ImportFrom, name: str) -> None:
        """Import one name."""
        for alias in statement.names:
            if name == (alias.asname or alias.name.partition(".")[0]) and (id(alias) not in self.done):
                self.done.add(id(alias))
                one = copy(statement)
                one.names = [alias]
                self.try_to_run([one])

    def run_if(self, statement: ast.If, name: str) -> None:
        """Run the statements that bind a name in the branch that is taken."""
        if id(statement) not in self.branches:
            self.branches[id(statement)] = []  # until it is known; a condition may need what the statement binds
            self.need(loaded_names(statement.test), statement.lineno)
            try:
                taken = self.evaluated(statement.test)
            except Exception:
                taken = True
            self.branches[id(statement)] = statement.body if taken else statement.orelse
        for inner in bound_names(self.branches[id(statement)]).get(name, ()):
            self.run(inner, name)

    def define(self, statement: ast.FunctionDef) -> None:
        """Define a kernel. A decorator that cannot be run, or that hides the kernel, is left out."""
        from triton.runtime.jit import KernelInterface

        bare = copy(statement)
        bare.decorator_list = []
        self.need(loaded_names(head_of(bare)), statement.lineno)
        if not self.try_to_run([bare]):
            return
        made = self.names[statement.name]
        for decorator in reversed(statement.decorator_list):
            self.need(loaded_names(decorator))
            try:
                wrapped = self.evaluated(decorator)(made)  # type: ignore[operator]
                if isinstance(wrapped, KernelInterface) or not isinstance(made, KernelInterface):
                    made = wrapped
                    continue
                why = f"it makes a {type(wrapped).__name__}"
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            where = f"{self.path}, line {decorator.lineno} `@{ast.unparse(decorator).splitlines()[0][:60]}`"
            self.left_out.append(f"{where} of {statement.name} is left out: {why}")
        self.names[statement.name] = made
        self.need(loaded_names(bare))

    def try_to_run(self, statements: list[ast.stmt]) -> bool:
        """Run statements, or note the error."""
        try:
            exec(compile(ast.Module(statements, []), str(self.path), "exec", self.flags, True), self.names)
            self.sources.imported()
            return True
        except (Exception, SystemExit) as error:
            self.failed.append(f"{self.path}, {fault(error, self.path)}")
            return False

    def evaluated(self, expression: ast.expr) -> object:
        """The value of an expression of the file."""
        return eval(compile(ast.Expression(expression), str(self.path), "eval", self.flags, True), self.names)


# ---------------------------------------------------------------- statements and their names


def flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those in `if`, `try`, `with` and loops among them, at any depth, but not in functions."""
    for statement in body:
        yield statement
        if not isinstance(statement, FUNCTIONS):
            for part in ("body", "orelse", "finalbody"):
                yield from flat(getattr(statement, part, ()))
            for handler in getattr(statement, "handlers", ()):
                yield from flat(handler.body)


def bound_names(body: Iterable[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """{name: the statements that bind or change it}. `*` stands for what all of a module's names bind."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in body:
        for name in dict.fromkeys(name for inner in flat([statement]) for name in bound_by(inner)):
            found.setdefault(name, []).append(statement)
    return found


def bound_by(statement: ast.stmt) -> Iterator[str]:
    """The names that one statement binds or changes, without the statements inside it."""
    if isinstance(statement, FUNCTIONS):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in CHANGES:
            yield from root_of(call.func)
    else:
        for part in own_parts(statement):
            for node in ast.walk(part):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id
                elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                    yield from root_of(node)


def imports_triton(statement: ast.stmt) -> bool:
    """Whether a statement imports Triton or something of it."""
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
    if isinstance(statement, ast.ImportFrom) and not statement.level:
        names = [statement.module or ""]
    return any(name.partition(".")[0] == "triton" for name in names)


def own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without the statements inside it."""
    yield from (node for node in ast.iter_child_nodes(statement) if not isinstance(node, ast.stmt))


def root_of(node: ast.expr) -> Iterator[str]:
    """The name at the start of `name.attribute[index]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def head_of(statement: ast.stmt) -> ast.stmt:
    """A statement; of a function the part that is run when it is defined: its decorators, defaults and types."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        statement = copy(statement)
        statement.body = []
    return statement


def loaded_names(tree: ast.AST) -> list[str]:
    """The names that code reads, in order; of a function those that are not its own."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = set[str]()
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        own = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)}
        own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
        own -= {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return list(dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Load) and n.id not in own))


def is_kernel(statement: ast.FunctionDef) -> bool:
    """Whether a function has a decorator such as `@triton.jit`."""
    return any(DECORATED in ast.unparse(decorator) for decorator in statement.decorator_list)


def made_kernels(statement: ast.stmt) -> list[str]:
    """The names of the kernels that a statement makes."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name] if is_kernel(statement) else []
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        text = ast.unparse(statement.value)
        return list(bound_by(statement)) if any(word in text for word in MADE) else []
    return []


def flags_of(tree: ast.Module) -> int:
    """The flags of the compiler that `from __future__ import ...` sets."""
    imports = [s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    return sum({getattr(__future__, alias.name).compiler_flag for s in imports for alias in s.names})


# ---------------------------------------------------------------- files


def top_of(path: Path) -> Path:
    """The folder of a file, or the one with its package if it is inside one."""
    top = path.parent
    while (top / "__init__.py").exists():
        top = top.parent
    return top


def file_of_module(folder: Path, name: str) -> Path | None:
    """The file of a module below a folder; the folder of a package without a file of its own."""
    path = folder.joinpath(*name.split("."))
    for file in (path / "__init__.py", path.with_name(path.name + ".py")):
        if file.is_file():
            return file
    return path if path.is_dir() and next(path.glob("*.py"), None) else None


def is_installed(top: str) -> bool:
    """Whether a package is installed."""
    return importlib.machinery.PathFinder.find_spec(top) is not None
