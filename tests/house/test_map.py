"""docs/map.md lists every module with the first line of its docstring. `python tests/house/test_map.py` writes it."""

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT

MAP = ROOT / "docs" / "map.md"
PACKAGES = ("core", "masks", "steps", "oracles", "search", "schedules", "counting", "tuning", "tracing", "cuda",
            "predict", "distributed", "studies", "gpu", "gpu/ncu", "gpu/profile", "gpu/tuned", "kernels", "kernels/read", "kernels/pretend", "kernels/walk", "kernels/compiled", "calibrate", "sweeps",
            "batches", "pictures", "commands")  # fmt: skip
HEAD = """# Where things are

This page lists every file of `iosim/`. Each folder is a Python package. The packages are in reading order: a package
imports only packages above it, and files of the root. The table in `tests/house/test_layers.py` says which.

Start at `iosim/core/machine.py`. A schedule is a function that a machine runs, and all else is built on that. Then
read one schedule, `iosim/schedules/flash.py`. `python tests/house/test_api_reference.py` prints
the names that a script may use, with their types.
"""


def docstring(file):
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def first_line(file):
    return docstring(file).split("\n\n")[0].replace("\n", " ")


def section(title, about, files):
    rows = [f"| `{file.name}` | {first_line(file).replace('|', chr(92) + '|')} |" for file in files]
    return (
        "\n".join([f"## {title}", "", *([about, ""] if about else []), "| file | what it is |", "|---|---|", *rows])
        + "\n"
    )


def in_order(package):
    """The files of a package: first those that its docstring names, in that order, then the others by name."""
    folder = ROOT / "iosim" / package
    text = docstring(folder / "__init__.py")
    files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
    return sorted(files, key=lambda file: text.find(file.name) if file.name in text else len(text))


def written():
    root = [file for file in sorted((ROOT / "iosim").glob("*.py"))]
    parts = [
        HEAD,
        *(
            section(f"iosim/{package}", first_line(ROOT / "iosim" / package / "__init__.py"), in_order(package))
            for package in PACKAGES
        ),
    ]
    about = "Files that every package but `steps` and `oracles` may import."
    return "\n".join([*parts, section("iosim", about, root)])


def test_the_map_names_every_module():
    assert MAP.read_text() == written()


def test_every_room_is_in_the_map():
    folders = {str(file.parent.relative_to(ROOT / "iosim")) for file in (ROOT / "iosim").rglob("__init__.py")}
    assert folders - {"."} == set(PACKAGES)


if __name__ == "__main__":
    MAP.write_text(written())
