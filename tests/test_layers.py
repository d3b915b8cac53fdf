"""What may import what. Read from the source, so that a lazy import counts as well; and what a count really loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

PACKAGE = ROOT / "iosim"
FILES = {str(file.relative_to(PACKAGE)): file for file in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(file.read_text()) for name, file in FILES.items()}


def walked(tree):
    """All nodes of a file but those that only a type checker reads: what stands under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                yield other
                yield from walked(other)
        else:
            yield node
            yield from walked(node)


def modules(name):
    """Absolute names of all modules that a file imports, at its top or in a function, but not only for types.
    `iosim.x` for `from . import x` where x is a module of the package, else `iosim`."""
    folder = ["iosim", *Path(name).parts[:-1]]
    found = set()
    for node in walked(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = folder[: len(folder) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            here = PACKAGE.parent.joinpath(*base.split("."))
            inner = {a.name for a in node.names if (here / f"{a.name}.py").exists() or (here / a.name).is_dir()}
            found |= {f"{base}.{x}" for x in inner}
            if len(inner) < len(node.names):
                found.add(base)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "__import__"):
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.add(first.value)
    return found


def own(name):
    """The same, of iosim only, without the `iosim.` before them."""
    return {m.removeprefix("iosim").removeprefix(".") for m in modules(name) if m.split(".")[0] == "iosim"}


def tops(name):
    return {m.split(".")[0] for m in modules(name)}


SCHEDULE_FILES = [name for name in FILES if name.startswith("schedules/")]
TEXT_FILES = [name for name in SCHEDULE_FILES if Path(name).name not in ("__init__.py", "registry.py")]

CORE = {
    "errors.py": set(),
    "units.py": {"errors"},
    "problem.py": {"errors", "units"},
    "machine.py": {"errors", "mistakes", "problem", "shapes"},
    "mistakes.py": {"errors"},
    "shapes.py": {"errors"},
    "watchers.py": {"elementwise", "errors", "machine"},
    "bounds.py": {"problem"},
    "softmax.py": set(),
    "elementwise.py": set(),
    "mask_expr.py": set(),
    "mask_closed.py": {"elementwise", "mask_expr", "size"},
    "mask_bands.py": {"mask_closed"},
    "mask_counts.py": {"errors", "mask_bands", "mask_closed", "mask_expr"},
    "masked_search.py": {"elementwise", "errors", "folded", "problem", "watchers"},
}


def test_the_reader_of_imports_reads():
    assert {"errors", "problem"} <= own("machine.py") and "numpy" in tops("softmax.py")
    assert {"schedules.flash", "schedules.registry"} <= own("schedules/linear.py")
    assert {"errors", "problem"} <= own("schedules/registry.py")
    assert {"hardware", "output"} <= own("commands/hardware.py"), "imports in functions are seen"
    assert len(FILES) > 20 and len(TEXT_FILES) >= 2
    assert "typing" not in own("machine.py") and "shapes" in own("machine.py"), "types do not count, the others do"


def test_imports_for_types_only_are_left_out():
    text = "if TYPE_CHECKING:\n    import a\nelse:\n    import b\ndef f():\n    import c\nif other:\n    import d"
    found = [node.names[0].name for node in walked(ast.parse(text)) if isinstance(node, ast.Import)]
    assert found == ["b", "c", "d"]


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_only_what_lies_under_it(name):
    assert own(name) <= CORE[name]


def test_the_core_has_no_circle():
    below = {
        "errors.py": 0,
        "elementwise.py": 0,
        "units.py": 1,
        "problem.py": 2,
        "mistakes.py": 2,
        "shapes.py": 2,
        "machine.py": 3,
        "bounds.py": 3,
        "watchers.py": 4,
    }
    for name, level in below.items():
        for module in own(name):
            assert below[f"{module}.py"] < level, f"{name} imports {module}"


@pytest.mark.parametrize(
    "name", [*CORE, "machine.py", "folded.py", "tiling.py", "best_tiles.py", "experiment.py", "report.py"]
)
def test_the_core_loads_nothing_heavy_at_its_top(name):
    heavy = {"numpy", "pandas", "matplotlib", "rich", "cupy", "click"}
    found = set()
    for node in TREES[name].body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.split(".")[0])
    assert not found & heavy


@pytest.mark.parametrize("name", ["errors.py", "units.py", "problem.py", "machine.py", "bounds.py"])
def test_the_lowest_layers_need_the_standard_library_only(name):
    assert tops(name) - {"iosim"} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", SCHEDULE_FILES)
def test_schedules_import_only_what_a_text_may_know(name):
    allowed = {
        "machine",
        "softmax",
        "masks",
        "problem",
        "tiling",
        "errors",
        "reference",
        "spans",
        "best_tiles",
        "masked_search",
        "reach",
        "shapes",
    }
    allowed |= {"steps_more", "reference_more", "square_tiles", "candidates"}
    allowed |= {"gradients", "reference_backward"}
    for module in own(name):
        assert module in allowed or module == "schedules" or module.startswith("schedules."), module


@pytest.mark.parametrize("name", TEXT_FILES)
def test_texts_know_neither_machine_nor_library(name):
    """The same text must run on every machine: stricter than the rule above, because the code is."""
    assert not {"machine", "folded", "numeric", "watchers", "experiment"} & own(name)
    assert tops(name) <= {"iosim", "__future__", "typing", "collections"}


def test_reports_only_read_results():
    for module in own("report.py"):
        assert module.split(".")[0] not in {"machine", "folded", "numeric", "schedules", "watchers", "tiling", "masks"}


def test_the_machine_knows_no_schedule():
    for name in ("machine.py", "folded.py", "numeric.py", "watchers.py"):
        for module in own(name):
            assert module.split(".")[0] not in {"schedules", "experiment", "report", "cli", "grid"}, name


def test_cupy_is_in_one_place():
    allowed = str(Path("gpu", "device.py"))
    assert [name for name in FILES if "cupy" in tops(name) and name != allowed] == []


def test_what_is_measured_is_written_without_a_gpu():
    """Texts of steps know no device; who measures sides knows nothing but it."""
    assert not {"gpu.device", "gpu.run"} & own("gpu/step_texts.py")


def test_only_the_command_line_imports_click():
    lines = {"cli.py", "options.py", "output.py"} | {name for name in FILES if name.startswith("commands/")}
    assert {name for name in FILES if "click" in tops(name)} <= lines


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("gpu/")])
def test_what_runs_on_a_gpu_knows_no_command_line(name):
    assert not {"cli", "options", "output"} & own(name) and "click" not in tops(name)


@pytest.mark.parametrize("name", TEXT_FILES)
def test_no_text_leaves_a_loop(name):
    """No break: the machine refuses a loop that is left, and a return inside one leaves it as well."""
    functions = [n for n in TREES[name].body if isinstance(n, ast.FunctionDef)]
    texts = [n for n in functions if [a.arg for a in n.args.args] == ["chip", "p", "t"]]  # parts of texts may return
    assert texts, "a file of texts has texts"
    for text in texts:
        for node in ast.walk(text):
            assert not isinstance(node, ast.Break), f"{text.name}, line {node.lineno}"
            assert not isinstance(node, ast.Return), f"{text.name}, line {node.lineno}"
    for loop in (n for n in ast.walk(TREES[name]) if isinstance(n, ast.For | ast.While)):
        for node in ast.walk(loop):
            assert not isinstance(node, ast.Break | ast.Return), f"line {node.lineno}"


NAMES = {"standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q"}


def strings(node):
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.mark.parametrize("name", [n for n in FILES if n != "schedules/__init__.py"])
def test_nothing_asks_which_schedule_it_is(name):
    from iosim.schedules import CORE as core

    assert set(core) == NAMES, "the names looked for are the names there are"
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Compare):
            assert not strings(node) & NAMES, f"line {node.lineno}: {ast.unparse(node)}"
            if any(isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) for op in node.ops):
                sides = {ast.unparse(side) for side in (node.left, *node.comparators)}
                assert not sides & {"schedule", "schedule.name", "s.name"}, f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Match):
            assert not strings(node) & NAMES, f"line {node.lineno}"


def test_all_files_are_walked():
    assert {"cli.py", "commands/count.py", "gpu/cuda.py", "schedules/flash.py"} <= set(FILES)


@pytest.mark.parametrize("name", [n for n in FILES if n not in ("cli.py", "__main__.py")])
def test_commands_are_found_by_name_only(name):
    assert not {module.split(".")[0] for module in own(name)} & {"cli", "commands"}


HEAVY = ("pandas", "matplotlib", "cupy", "numpy", "rich")
PROBE = f"""
import sys
from iosim.cli import main
try:
    main(sys.argv[1:])
finally:
    print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)
"""


def probe(*args):
    return subprocess.run([sys.executable, "-c", PROBE, *args], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("extra", [(), ("--mask", "causal"), ("--json",), ("--csv",)], ids=str)
def test_a_count_loads_nothing_heavy(extra):
    done = probe("count", "--N", "8192", "--d", "128", "--M", "100KB", *extra)
    assert done.returncode == 0, done.stderr
    assert "flash2" in done.stdout and ("90177536" in done.stdout or "--mask" in extra), "it really counted"
    assert done.stderr.strip().splitlines()[-1] == "[]"


def test_the_probe_sees_what_is_loaded():
    done = probe("check", "--N", "8", "--d", "4", "--tiles", "4x4")
    assert done.returncode == 0 and "'numpy'" in done.stderr


def test_importtime_agrees():
    """The same by the interpreter's own list, through python -m iosim, into a pipe."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "iosim", "count", "--N", "8192", "--d", "128", "--M", "100KB"],
        cwd=ROOT, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert {"click", "iosim"} <= loaded and not loaded & set(HEAVY)
