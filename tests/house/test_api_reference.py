"""The API reference is made from the docstrings of public names. `python tests/house/test_api_reference.py` prints it."""

import ast
import inspect
import re
import textwrap
from contextlib import suppress

import pytest

import iosim
from iosim import answer, errors, softmax
from iosim.core import machine, shapes

HEAD = """# API reference

`import iosim` gives every name whose title begins with `iosim.`. Import the others from the file that stands above
them. This page is written from their docstrings.

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


def call_of(found):
    """How something is called, with types as they are written."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(found)))


def fields_of(found):
    """(field, docstring) of the fields of a class that have one below them, in its body or where it sets them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    starts = [node.body for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for body in (tree.body, *starts):
        for node, below in zip(body, body[1:], strict=False):
            text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and below.value.value
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(text, str):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                yield ast.unparse(target).removeprefix("self."), inspect.cleandoc(text)


def methods_of(found):
    """(how it is called, docstring) of the methods and properties of a class that have a docstring of their own."""
    for name, method in vars(found).items():
        function = method.fget if isinstance(method, property) else method
        if inspect.isfunction(function) and function.__doc__ and (name[0] != "_" or name == "__getitem__"):
            call = name if isinstance(method, property) else f"{name}{call_of(function)}"
            yield re.sub(r"\(self(, )?", "(", call), inspect.getdoc(method)


def entry(name, found):
    """The paragraphs about a name."""
    parts = [f"### {name}", f"From {type_of(found).__module__}:"]
    with suppress(TypeError, ValueError):  # of values, and of errors, which take any arguments
        parts += [f"```python\n{name.removeprefix('iosim.')}{call_of(found)}\n```"]
    parts += [inspect.getdoc(found)]
    if inspect.isclass(found):
        items = [*fields_of(found), *methods_of(found)]
        parts += ["\n".join(f"- `{code}`: " + text.replace("\n", "\n  ") for code, text in items)]
    return "\n\n".join(filter(None, parts))


def type_of(found):
    """What a name is: itself, or the class of a value."""
    return found if hasattr(found, "__module__") else type(found)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_reference_has_a_docstring(name):
    assert inspect.getdoc(NAMES[name]) and entry(name, NAMES[name]).count("\n") > 2


def test_fields_and_methods_have_theirs():
    text = entry("iosim.Result", iosim.Result) + entry("Answer", answer.Answer)
    assert "- `fits`: " in text and "- `to_frame()" in text and "\n- `" in entry("iosim.Machine", iosim.Machine)


if __name__ == "__main__":
    print("\n\n".join([HEAD, *(entry(name, found) for name, found in NAMES.items())]))
