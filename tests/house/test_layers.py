"""One table says which package may import which, and tests hold it. Others say what a count really loads.

Imports are read from the source, so that those inside functions count as well. Imports under `if TYPE_CHECKING:` do not
count, because they do not run.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT

from iosim.wings import wings

PACKAGE = ROOT / "iosim"
FILES = {str(file.relative_to(PACKAGE)): file for file in sorted(PACKAGE.rglob("*.py"))}

# The house, in reading order. A package may import itself, the root's files, and the packages named here.
COUNTED = {"core", "masks", "steps", "oracles", "search", "schedules", "timing", "counting"}
HOUSE = {
    "core": set(),
    "masks": {"core"},
    "steps": set(),
    "oracles": set(),
    "search": {"core", "masks"},
    "schedules": {"core", "masks", "steps", "oracles", "search"},
    "timing": {"core", "search"},
    "counting": COUNTED,
    "tuning": COUNTED,
    "drawing": COUNTED,
    "commands": COUNTED | {"tuning"},
}
WINGS = {folder: {*HOUSE, *wing.needs} for folder, wing in wings().items()}
PACKAGES = HOUSE | WINGS
# Folders inside a package, in the same way. The files of the package itself may import all of its folders.
FOLDERS = {
    "kernels": {"pretend": set(), "walk": set(), "read": {"pretend", "walk"}},
}
WITHOUT_ROOT = ("steps", "oracles")  # they stand alone
OF_THE_ROOT = {
    "__main__.py": {"commands.cli"},
    "softmax.py": {"steps.softmax"},
    "wings.py": {"errors"},
}  # the start, and the place in 0.1


def named(node):
    """The name that an expression is; None if it is more than a name."""
    return node.id if isinstance(node, ast.Name) else None


def for_types(tree):
    """The nodes under `if TYPE_CHECKING:`."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and named(n.test) == "TYPE_CHECKING"]
    return {id(node) for block in blocks for part in block.body for node in ast.walk(part)}


@cache
def tree_of(name):
    """A file of iosim as a syntax tree."""
    return ast.parse(FILES[name].read_text())


@cache
def modules_of(name):
    """What a file of iosim imports, as `modules` says."""
    return modules(name, tree_of(name))


def modules(name, tree, types=False):
    """The absolute names of all modules that a file imports at run time, and with `types` for type checkers as well.

    `from . import x` imports `iosim.x` if x is a module, else `iosim`.
    """
    folder, found = ["iosim", *Path(name).parts[:-1]], set()
    skipped = set() if types else for_types(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
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
        elif isinstance(node, ast.Call) and named(node.func) in ("import_module", "__import__"):
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.add(first.value)
    return found


def own(name):
    """The modules of iosim that a file imports at run time, without the `iosim.` before them."""
    return {m.removeprefix("iosim").removeprefix(".") for m in modules_of(name) if m.split(".")[0] == "iosim"}


def tops(name):
    return {m.split(".")[0] for m in modules_of(name)}


def package_of(module):
    """The package of a module `core.machine` or a file `core/machine.py`; "" for the root."""
    first, *more = module.removesuffix(".py").replace("/", ".").split(".")
    return first if more or (PACKAGE / first).is_dir() else ""


def test_the_reader_of_imports_reads():
    assert {"core.blame", "core.problem", "errors"} <= own("core/machine.py") and "numpy" in tops("steps/softmax.py")
    assert {"schedules.state", "schedules.registry"} <= own("schedules/state_forward.py")
    assert {"hardware", "commands.answer"} <= own("commands/hardware.py"), "imports in functions are seen"
    tree = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy\nelse:\n    import json\n")
    assert modules("core/x.py", tree) == {"typing", "json"}
    assert package_of("core/machine.py") == package_of("core.machine") == "core" and package_of("errors") == ""


def test_every_module_that_is_imported_is_there():
    """Also in functions without types, which mypy does not read."""
    names = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in FILES} - {"__init__"}
    assert {module for name in FILES for module in own(name)} - {""} <= names


def test_every_folder_is_a_room():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders == {*PACKAGES}


@pytest.mark.parametrize("name", FILES)
def test_a_file_imports_what_its_room_may(name):
    package = package_of(name)
    allowed = PACKAGES[package] | {package} if package else set()
    for module in own(name):
        if name in OF_THE_ROOT:
            assert module in OF_THE_ROOT[name]
        elif package_of(module):
            assert package_of(module) in allowed, f"{name} imports {module}"
        else:
            assert package not in WITHOUT_ROOT, f"{name} imports {module}"


@pytest.mark.parametrize("package", FOLDERS)
def test_folders_of_a_package_import_one_way(package):
    folders = FOLDERS[package]
    for name in (name for name in FILES if package_of(name) == package):
        folder = Path(name).parts[1]
        for module in (m.split(".") for m in own(name) if package_of(m) == package):
            if folder in folders:
                assert module[1:] and module[1] in folders[folder] | {folder}, f"{name} imports {'.'.join(module)}"


def test_rooms_import_one_way():
    packages = list(HOUSE)
    for number, package in enumerate(packages):
        assert HOUSE[package] - {package} <= set(packages[:number]), package
    assert circles({folder: {*wing.needs} for folder, wing in wings().items()}) == set()


def circles(arrows):
    """The nodes on circles, and those that lead to circles. They are left when nodes without arrows are removed
    repeatedly."""
    left = {a: {b for b in bs if b != a and b in arrows} for a, bs in arrows.items()}
    while ends := [a for a, bs in left.items() if not bs]:
        left = {a: bs - {*ends} for a, bs in left.items() if a not in ends}
    return set(left)


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set(), "e": {"d"}}) == {"a", "b", "c"}


def test_no_file_imports_itself_around_a_corner():
    """Imports form no circle, those inside functions included. Only an `__init__` may be imported back."""
    names = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in FILES}
    assert circles({module: own(name) & names.keys() for module, name in names.items() if module}) == set()


def test_types_do_not_know_their_users():
    """Imports for types form no circle either. The list of all public names for type checkers (.pyi) stands aside."""
    names = {name.removesuffix(".py").replace("/", "."): name for name in FILES if not name.endswith("__init__.py")}
    arrows = {}
    for module, name in names.items():
        whole = {m.removeprefix("iosim.") for m in modules(name, tree_of(name), types=True)}
        arrows[module] = whole & names.keys()
    del arrows["kernels.sentence"]  # it tells what kernels.explain found, which calls it
    assert circles(arrows) == set()


def test_scripts_of_validation_have_no_circle():
    folder = ROOT / "validation"
    files = {".".join(f.relative_to(folder).with_suffix("").parts): f for f in folder.rglob("*.py")}
    trees = {name: ast.parse(file.read_text()) for name, file in files.items()}
    tails = {name.rsplit(".", 1)[-1]: name for name in files}
    arrows = {}
    for name, tree in trees.items():
        found = modules(name, tree)
        arrows[name] = {module if module in files else tails.get(module.rsplit(".", 1)[-1]) for module in found}
    assert circles(arrows) == set() and len(files) > 5


# ---------------------------------------------------------------- what stays light, and what stays apart

SCHEDULE_FILES = [name for name in FILES if name.startswith("schedules/")]
TEXT_FILES = [
    name
    for name in SCHEDULE_FILES
    if Path(name).name not in ("__init__.py", "cache.py", "registry.py", "state.py", "ways.py")
]
LIGHT = ["core/machine.py", "core/folded.py", "core/tiling.py", "core/problem.py", "core/watchers.py",
         "counting/count.py", "counting/bounds.py", "counting/report.py", "tables.py", "units.py", "errors.py",
         "masks/mask.py", "masks/closed_form.py", "search/best.py"]  # fmt: skip


@pytest.mark.parametrize("name", LIGHT)
def test_what_a_count_needs_loads_nothing_heavy_at_its_top(name):
    heavy = {"numpy", "pandas", "vl_convert", "rich", "cupy", "click"}
    found = set()
    for node in tree_of(name).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.split(".")[0])
    assert not found & heavy


@pytest.mark.parametrize("name", ["errors.py", "units.py", "core/problem.py", "core/machine.py", "counting/bounds.py"])
def test_the_lowest_layers_need_the_standard_library_only(name):
    assert tops(name) - {"iosim"} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", TEXT_FILES)
def test_texts_know_neither_machine_nor_library(name):
    """A schedule must run on every machine, so its file imports less than the table above allows."""
    assert not {"core.machine", "core.folded", "core.numeric", "core.watchers"} & own(name)
    assert tops(name) <= {"iosim", "__future__", "typing", "collections"}


def test_cupy_is_in_one_place():
    allowed = str(Path("gpu", "device.py"))
    assert [name for name in FILES if "cupy" in tops(name) and name != allowed] == []


def test_only_the_command_line_imports_click():
    with_click = {name for name in FILES if "click" in tops(name)}
    assert {name for name in with_click if not name.startswith("commands/") and "/command_" not in name} == set()
    assert len(with_click) > 10


@pytest.mark.parametrize("name", TEXT_FILES)
def test_no_text_leaves_a_loop(name):
    """No schedule has a break, or a return inside a loop, because the machine refuses a loop that is left early."""
    functions = [n for n in tree_of(name).body if isinstance(n, ast.FunctionDef)]
    texts = [n for n in functions if [a.arg for a in n.args.args] == ["chip", "p", "t"]]  # others may return
    assert texts, "a file of texts has texts"
    for text in texts:
        for node in ast.walk(text):
            assert not isinstance(node, ast.Break), f"{text.name}, line {node.lineno}"
            assert not isinstance(node, ast.Return), f"{text.name}, line {node.lineno}"
    for loop in (n for n in ast.walk(tree_of(name)) if isinstance(n, ast.For | ast.While)):
        for node in ast.walk(loop):
            assert not isinstance(node, ast.Break | ast.Return), f"line {node.lineno}"


NAMES = {"standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q"}


def strings(node):
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.mark.parametrize("name", [n for n in FILES if n != "schedules/__init__.py"])
def test_nothing_asks_which_schedule_it_is(name):
    from iosim.schedules import CORE as core

    assert set(core) == NAMES, "the names looked for are the names there are"
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Compare):
            assert not strings(node) & NAMES, f"line {node.lineno}: {ast.unparse(node)}"
            if any(isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) for op in node.ops):
                sides = {ast.unparse(side) for side in (node.left, *node.comparators)}
                assert not sides & {"schedule", "schedule.name", "s.name"}, f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Match):
            assert not strings(node) & NAMES, f"line {node.lineno}"


def test_all_files_are_walked():
    assert {"commands/cli.py", "commands/count.py", "gpu/cuda/machine.py", "schedules/flash.py"} <= set(FILES)


HEAVY = ("pandas", "vl_convert", "cupy", "numpy", "rich")
PROBE = f"""
import sys
from iosim.commands.cli import main
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
    words = done.stdout.replace(",", "")
    assert "flash2" in words and ("90177536" in words or "--mask" in extra), "it really counted"
    assert done.stderr.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("extra", [("--M", "1KB:4KB:x2"), ("--what", "tune", "--M", "4KB,8KB", "--json")], ids=str)
def test_lines_of_a_sweep_need_no_pandas(extra):
    done = probe("sweep", "--N", "64,128", "--d", "8", "--schedule", "flash2,standard", *extra)
    assert done.returncode == 0 and len(done.stdout.splitlines()) >= 4, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "['numpy']"


def test_the_probe_sees_what_is_loaded():
    done = probe("verify", "--cpu", "--N", "8", "--d", "4", "--tiles", "4x4")
    assert done.returncode == 0 and "'numpy'" in done.stderr


def test_importtime_agrees():
    """`python -X importtime -m iosim count` into a pipe lists nothing heavy either."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "iosim", "count", "--N", "8192", "--d", "128", "--M", "100KB"],
        cwd=ROOT, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert {"click", "iosim"} <= loaded and not loaded & set(HEAVY)


def test_files_of_tests_have_different_names():
    """pytest takes a file without a package by its name alone, so a second one of the same name is not collected."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


if __name__ == "__main__":
    for package in ("", *PACKAGES):
        print(f"\niosim/{package}")
        for name in (name for name in FILES if package_of(name) == package):
            print(f"  {name:40} {(ast.get_docstring(tree_of(name)) or '').partition(chr(10))[0]}")
