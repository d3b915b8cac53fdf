"""The API reference is made from the docstrings of public names. `python tests/house/test_api_reference.py` prints it."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT

HEAD = """# API reference

`import iosim` gives every name whose title begins with `iosim.`. Import the others from the file that stands above
them. This page is written from their docstrings.

Sizes are in rows or positions, and counts in words (one word is one scalar); what is in bytes says so. A type `S` is
`int`, or `Size` where one walk counts many problems.
"""
ABOUT = {
    "Questions": "Each is a command of the same name. docs/python.md shows ten of them. `help` lists every option "
    "with its default.",
    "Answers": "Every answer is an `Answer`. A DataFrame is the answer of `sweep` alone.",
    "Schedules": "docs/adding-a-schedule.md goes through a schedule from beginning to end.",
    "Machines": "A schedule calls the six primitives of a machine: `tiles`, `load`, `compute`, `update`, `store` "
    "and `free`.",
    "Watchers": "A watcher is handed to a machine, as in `Folded(problem, traffic)`, and holds its answer after `run`.",
    "Errors": "A fault that a user can mend is an `IosimError`. The exit code of the command line is 2, for a "
    "`CheckError` 1, and for a `MissingError` 3.",
    "Steps": "A schedule names steps in `compute` and `update`. A step writes into its first arguments. `flops` and `work` "
    "mark what a step computes, `Operands` how a kernel reads its arguments.",
}
SECTIONS = {
    "Counting": {"counting/question.py": ["count"], "sweeps/run.py": ["sweep"]},
    "Questions": {
        "tuning/least.py": ["tune", "curve"], "tuning/proven.py": ["bounds"], "batches/answer.py": ["batch"],
        "tuning/over_N.py": ["over_N", "OverN"], "tuning/inverse.py": ["least_M", "AtMost", "WithinFloor"], "studies/fastest.py": ["fastest"], "studies/roofline.py": ["roofline"],
        "studies/memory.py": ["memory"], "distributed/answer.py": ["links"], "gpu/ask.py": ["verify", "profile"],
        "studies/events.py": ["trace"], "studies/cache_answer.py": ["cache"], "pictures/plot.py": ["plot"], "pictures/report.py": ["report"],
        "counting/schedule_text.py": ["schedules"], "hardware.py": ["hardware"], "commands/questions.py": ["help"],
    },
    "Answers": {
        "answer.py": ["Answer", "Table", "Column"], "counting/report.py": ["Report"], "counting/result.py": ["Result"], "counting/bounds.py": ["Bound"],
        "tuning/best.py": ["Best", "ResultWithBlocks"], "tuning/every_M.py": ["Curve"], "tuning/proven.py": ["Bounds"],
        "batches/answer.py": ["Batched"], "distributed/answer.py": ["Links"], "distributed/counted.py": ["LinkResult"], "studies/fastest.py": ["Fastest"], "studies/roofline.py": ["Roofline"], "counting/step.py": ["Step"],
        "gpu/cpu_runs.py": ["Checks"], "gpu/verify_run.py": ["Verdicts"], "gpu/profile/run.py": ["Explanations"], "studies/events.py": ["Events"], "drawing/picture.py": ["Picture"],
    },
    "Floors": {"counting/floors.py": ["floor", "Floor"]},
    "Kernels": {
        "kernels/explain.py": ["explain", "Explained"], "kernels/ways.py": ["Way"],
        "kernels/read/arguments.py": ["tensor"], "kernels/prune.py": ["prune"],
    },
    "The problem and its tiles": {"core/problem.py": ["Attention", "Tensor"], "core/tiling.py": ["Tiling"]},
    "Schedules": {"schedules/registry.py": ["Schedule", "SCHEDULES", "register"]},
    "Machines": {
        "core/machine.py": ["Machine", "Block"], "core/shapes.py": ["Tile"], "core/folded.py": ["Folded"], "core/numeric.py": ["Numeric"],
    },
    "Watchers": {"core/watchers.py": ["Traffic", "Capacity", "Flops", "Trace"], "core/machine.py": ["Watcher"]},
    "Errors": {
        "errors.py": ["IosimError", "InputError", "ScheduleError", "FoldingError", "CapacityError", "CheckError",
                      "MissingError", "InternalError"],
    },
    "Steps": {
        "steps/softmax.py": ["zeros", "minus_infinity", "scores", "hide", "softmax_rows", "online_softmax", "accumulate",
                             "normalise", "denormalise", "log_sum_exp", "merge", "drop", "keep", "flops", "work", "Operands"],
    },
}  # fmt: skip
TYPES = {
    "core/typing.py": ["Size", "Array", "Bools", "Arrays", "Step", "Values"],
    "core/shapes.py": ["Shape"],
    "core/machine.py": ["ScheduleText", "Input", "ScheduleLike"],
    "core/mask_types.py": ["MaskLine", "Mask", "Dropout"],
    "schedules/registry.py": ["TrafficFormula", "FootprintFormula", "Example", "Answer"],
    "counting/sweep_axes.py": ["AxisValue"],
}  # fmt: skip


@cache
def tree(file):
    return ast.parse((ROOT / "iosim" / file).read_text())


def parameters(node):
    """The parameters of a function, each with its type and default, without `self`."""
    a = node.args
    defaults = [None] * (len(a.args) - len(a.defaults)) + a.defaults
    texts = [with_default(arg, value) for arg, value in zip(a.args, defaults, strict=True)]
    texts += [f"*{ast.unparse(a.vararg)}"] if a.vararg else ["*"] if a.kwonlyargs else []
    texts += [with_default(arg, value) for arg, value in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    texts += [f"**{ast.unparse(a.kwarg)}"] if a.kwarg else []
    return [text for text in texts if text != "self"]


def with_default(arg, value):
    between = " = " if arg.annotation else "="
    return ast.unparse(arg) + (between + ast.unparse(value) if value is not None else "")


def signature(name, node):
    """`name(parameters) -> type`; a property is `name: type`."""
    returns = ast.unparse(node.returns) if node.returns else ""
    if any(ast.unparse(mark) == "property" for mark in node.decorator_list):
        return f"{name}: {returns}"
    given = parameters(node)
    inside = ", ".join(given)
    if len(name) + len(inside) + len(returns) > 110:
        inside = "".join(f"\n    {text}," for text in given) + "\n"
    return f"{name}({inside})" + (f" -> {returns}" if returns and name != "__init__" else "")


def documented(body):
    """(assignment, docstring) of each assignment with a docstring below it."""
    for node, after in zip(body, body[1:], strict=False):
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and after.value.value
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(text, str):
            yield node, re.sub(r"\n *", "\n", text)


def item(code, text):
    return f"- `{code}`: " + re.sub(r"\n(?=.)", "\n  ", text)


def fields_of(node):
    """The fields of a class that have docstrings: those of its body with their defaults, and those that it sets."""
    start = [method for method in node.body if isinstance(method, ast.FunctionDef) and method.name == "__init__"]
    own = [item(re.sub(r" = (field\(|lambda).*", "", ast.unparse(a)), text) for a, text in documented(node.body)]
    kept = documented(start[0].body) if start else []
    return own + [item(ast.unparse(a).removeprefix("self.").partition(" = ")[0], text) for a, text in kept]


def methods_of(node):
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef) and ast.get_docstring(n)]
    return [
        item(signature(n.name, n).replace("\n    ", " ").replace(",\n", ""), ast.get_docstring(n))
        for n in methods
        if n.name.strip("_") == n.name or n.name in ("__getitem__", "__iter__", "__len__", "__contains__")
    ]


def of_class(name, node):
    """How a class is called, its docstring, its bases, its fields and its methods."""
    start = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    made = [f"```python\n{signature(name, start[0]).partition(' -> ')[0]}\n```"] if start else []
    lists = ["\n".join(part) for part in (fields_of(node), methods_of(node)) if part]
    bases = [f"`{ast.unparse(base)}`" for base in node.bases if ast.unparse(base) not in ("Generic[S]", "Protocol")]
    return [*made, ast.get_docstring(node), *([f"Base: {', '.join(bases)}."] if bases else []), *lists]


def of_name(file, name):
    """The paragraphs about a function, a class, or a variable with a docstring below it."""
    for node in tree(file).body[::-1]:
        if getattr(node, "name", "") == name and isinstance(node, ast.FunctionDef):
            return [f"```python\n{signature(name, node)}\n```", ast.get_docstring(node)]
        if getattr(node, "name", "") == name:
            return of_class(name, node)
    return [text for node, text in documented(tree(file).body) if name in ast.unparse(node).split()[0]]


def entry(file, name):
    import iosim

    paragraphs = of_name(file, name)
    assert paragraphs and all(paragraphs), f"{file}: {name} has no docstring"
    return "\n\n".join([f"### {f'iosim.{name}' if name in iosim.__all__ else name}", *paragraphs])


def section(title, files):
    parts = [f"## {title}", *([ABOUT[title]] if title in ABOUT else [])]
    for file, names in files.items():
        parts += [f"From iosim/{file}:", *(entry(file, name) for name in names)]
    return "\n\n".join(parts)


def type_of(file, name):
    """A type of the signatures: what it stands for, or the first line about a protocol."""
    body = tree(file).body
    body = [inner for node in body for inner in (node.body if isinstance(node, ast.If) else [node])]
    for node, text in documented(body):
        if re.match(f"{name}(: TypeAlias)? = ", ast.unparse(node)):
            return item(ast.unparse(node), text)
    (node,) = (n for n in body if isinstance(n, ast.ClassDef) and n.name == name)
    return item(name, ast.get_docstring(node).split("\n\n")[0])


def written():
    parts = [HEAD.strip(), *(section(title, files) for title, files in SECTIONS.items())]
    types = "\n".join(type_of(file, name) for file, names in TYPES.items() for name in names)
    about = "Only type checkers load most of them."
    return "\n\n".join([*parts, "## Types in signatures", about, types]) + "\n"


def test_every_name_of_the_reference_has_a_docstring():
    text = written()
    assert text.count("\n### ") == sum(len(names) for files in SECTIONS.values() for names in files.values())


def test_every_public_name_is_in_the_reference():
    import iosim

    shown = {name for files in SECTIONS.values() for names in files.values() for name in names}
    assert set(iosim.__all__) - {"__version__"} <= shown
    assert {name for names in SECTIONS["Errors"].values() for name in names} == {
        node.name for node in tree("errors.py").body if isinstance(node, ast.ClassDef)
    }


if __name__ == "__main__":
    print(written(), end="")
