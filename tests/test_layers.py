"""What may import what. Read from the source, so that a lazy import counts as well; and what a count really loads."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "iosim"
FILES = {str(file.relative_to(PACKAGE)): file for file in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(file.read_text()) for name, file in FILES.items()}


def modules(name):
    """Absolute names of all modules that a file imports, at its top or in a function. `iosim.x` for `from . import x`
    where x is a module of the package, else `iosim`."""
    folder = ["iosim", *Path(name).parts[:-1]]
    found = set()
    for node in ast.walk(TREES[name]):
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
    "machine.py": {"errors", "mistakes", "problem"},
    "mistakes.py": {"errors"},
    "watchers.py": {"elementwise", "errors", "machine"},
    "bounds.py": {"problem"},
    "softmax.py": set(),
    "elementwise.py": set(),
    "mask_expr.py": set(),
    "mask_closed.py": {"elementwise", "mask_expr"},
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
        "machine.py": 3,
        "bounds.py": 3,
        "watchers.py": 4,
    }
    for name, level in below.items():
        for module in own(name):
            assert below[f"{module}.py"] < level, f"{name} imports {module}"


@pytest.mark.parametrize("name", [*CORE, "machine.py", "folded.py", "tiling.py", "experiment.py", "report.py"])
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
    allowed = {"machine", "softmax", "masks", "problem", "tiling", "errors", "reference", "spans"}
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


@pytest.mark.parametrize("name", FILES)
def test_files_and_functions_are_short(name):
    assert len(FILES[name].read_text().splitlines()) < 300
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name


CUDA = {str(file.relative_to(PACKAGE)): file for file in sorted(PACKAGE.rglob("*")) if file.suffix in (".cu", ".cuh")}
# Strings, comments, directives.
NO_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|//.*|/\*[^*]*\*/|^[ \t]*#(?:.*\\\n)*.*', re.M)
MARK = re.compile(r"\b(?:__global__|__device__|DEVICE|STEP)\b")


def cuda_functions(text):
    """(first line, number of lines) of every function: from the word that marks it to the brace that closes it."""
    text = NO_CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for mark in MARK.finditer(text):
        depth, end = 0, mark.start()
        while depth or text[end] != "}":
            end += 1
            depth += (text[end] in "({") - (text[end] in ")}")
        yield text.count("\n", 0, mark.start()) + 1, text.count("\n", mark.start(), end) + 1


def test_functions_of_cuda_are_found():
    text = """#define DEVICE __device__ \\
    __forceinline__
DEVICE int one(int x) { return x; }  // {
struct S {
    template <int N> DEVICE void three(float (&x)[N] = {}) {
        asm("{\\n \\"}");
    }
};
extern "C" __global__ void
six(int n) {
#pragma unroll
    for (int i = 0; i < n; i++) { one(i); }
    /* } */ if (n) {}
}
"""
    assert list(cuda_functions(text)) == [(3, 1), (5, 3), (9, 6)]


@pytest.mark.parametrize("name", CUDA)
def test_cuda_files_and_functions_are_short(name):
    text = CUDA[name].read_text()
    assert len(text.splitlines()) < 300
    found = list(cuda_functions(text))
    assert found and [(line, lines) for line, lines in found if lines > 60] == []


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
