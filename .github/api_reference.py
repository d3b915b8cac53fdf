"""A hook of mkdocs: api.md, the reference of public names, is made from their docstrings when the site is built.

`python .github/api_reference.py` prints it.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import iosim
from iosim import answer, errors, softmax
from iosim.core import machine, shapes
from iosim.core.options import OF_EVERY_PROBLEM
from iosim.options import all_declared

HEAD = """# API reference

`import iosim` gives every name whose title begins with `iosim.`; [What stays](commands.md#what-stays) says which
scripts may lean on. Import the others from the file that stands below their title. [From Python](python.md)
has examples. This page is made from docstrings.

Sizes are in rows or positions, and counts in words (one word is one scalar); what is in bytes says so. A type `S` is
`int`, or `Size` where one walk counts many problems."""
BESIDE = {  # names of some modules that are not in `import iosim`: what answers, machines, faults and steps are
    answer: ["Answer", "Column"],
    machine: ["Block", "Watcher"],
    shapes: ["Tile"],
    errors: [name for name, found in vars(errors).items() if inspect.isclass(found) and name.endswith("Error")],
    softmax: softmax.__all__,
}
PUBLIC = {name: getattr(iosim, name) for name in iosim.__all__ if name != "__version__"}
NAMES = {f"iosim.{name}": found for name, found in PUBLIC.items()}
NAMES |= {name: getattr(file, name) for file, names in BESIDE.items() for name in names if name not in PUBLIC}
KINDS: dict[str, Callable[[str, Any], bool]] = {  # a name belongs to the first kind that it is of
    "Questions": lambda name, found: name.removeprefix("iosim.")[0].islower() and name.startswith("iosim."),
    "Answers": lambda name, found: inspect.isclass(found) and issubclass(found, answer.Answer),
    "Errors": lambda name, found: inspect.isclass(found) and issubclass(found, Exception),
    "Problems, schedules and machines": lambda name, found: inspect.isclass(found) or not callable(found),
    "Steps": lambda name, found: True,
}


def kind_of(name: str) -> str:
    """The heading under which a name stands."""
    return next(kind for kind, is_it in KINDS.items() if is_it(name, NAMES[name]))


def options() -> str:
    """The options of every problem, which stand as `**options` in the questions, as a table."""
    rows = [*OF_EVERY_PROBLEM.values(), *all_declared()]
    lines = [f"| `{row.name}` | {row.kind.type} | {row.help} |" for row in rows]
    return "\n".join(["## Options of every problem", "", "| `**options` | type | |", "|---|---|---|", *lines])


def call_of(found: Any) -> str:
    """How something is called, with types as they are written."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(inspect.unwrap(found))))


def fields_of(found: type) -> Iterator[tuple[str, str]]:
    """(field, docstring) of the fields of a class that have one below them, in its body or where it sets them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    starts = [node.body for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for body in (tree.body, *starts):
        for node, below in pairwise(body):
            text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and below.value.value
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(text, str):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                yield ast.unparse(target).removeprefix("self."), inspect.cleandoc(text)


def methods_of(found: type) -> Iterator[tuple[str, str | None]]:
    """(how it is called, docstring) of the methods and properties of a class that have a docstring of their own."""
    for name, method in vars(found).items():
        function = method.fget if isinstance(method, property) else method
        if inspect.isfunction(function) and function.__doc__ and (name[0] != "_" or name == "__getitem__"):
            call = name if isinstance(method, property) else f"{name}{call_of(function)}"
            yield re.sub(r"\(self(, )?", "(", call), inspect.getdoc(method)


def entry(name: str, found: Any) -> str:
    """The paragraphs about a name."""
    parts = [f"### {name}", f"From {type_of(found).__module__}:"]
    with suppress(TypeError, ValueError):  # of values, and of errors, which take any arguments
        call = f"{name.removeprefix('iosim.')}{call_of(found)}"
        parts += ["```python\n" + "\n".join(textwrap.wrap(call, 100, subsequent_indent="    ")) + "\n```"]
    parts += [inspect.getdoc(found)]
    if inspect.isclass(found):
        items = [*fields_of(found), *methods_of(found)]
        parts += ["\n".join(f"- `{code}`: " + text.replace("\n", "\n  ") for code, text in items)]
    return "\n\n".join(filter(None, parts))


def type_of(found: Any) -> Any:
    """What a name is: itself, or the class of a value."""
    return found if hasattr(found, "__module__") else type(found)


def page() -> str:
    """The reference as Markdown, kind by kind."""
    names = {kind: [name for name in NAMES if kind_of(name) == kind] for kind in KINDS}
    parts = [HEAD]
    for kind, known in names.items():
        parts += [f"## {kind}", *(entry(name, NAMES[name]) for name in known)]
        parts += [options()] if kind == "Questions" else []
    return "\n\n".join(parts) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """The files of the site, with the reference."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "api.md", content=page()))
    return files


if __name__ == "__main__":
    print(page())
