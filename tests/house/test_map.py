"""docs/map.md lists every module with the first line of its docstring. `python tests/house/test_map.py` writes it."""

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT

MAP = ROOT / "docs" / "map.md"
ROOMS = ("core", "masks", "steps", "oracles", "search", "schedules", "counting", "tuning", "tracing", "cuda", "predict",
         "studies", "gpu", "gpu/ncu", "gpu/profile", "gpu/tuned", "kernels", "calibrate", "sweeps", "pictures",
         "commands")  # fmt: skip
HEAD = """# Where things are

A room is a folder of `iosim/` (a Python package). Rooms stand here in reading order. A room imports only rooms above
it, and the files of the root; the table in `tests/house/test_layers.py` says which. Start at `iosim/core/machine.py`: a
schedule is a function that a machine runs, and everything else stands on that. Then read one schedule,
`iosim/schedules/flash.py`. [api.md](api.md) has the names that a script may use, with their types.
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


def in_order(room):
    """The files of a room: first those that its package's docstring names, in that order, then the others by name."""
    folder = ROOT / "iosim" / room
    text = docstring(folder / "__init__.py")
    files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
    return sorted(files, key=lambda file: text.find(file.name) if file.name in text else len(text))


def written():
    root = [file for file in sorted((ROOT / "iosim").glob("*.py"))]
    parts = [
        HEAD,
        *(
            section(f"iosim/{room}", first_line(ROOT / "iosim" / room / "__init__.py"), in_order(room))
            for room in ROOMS
        ),
    ]
    return "\n".join([*parts, section("iosim", "Values and edges that every room may use.", root)])


def test_the_map_names_every_module():
    assert MAP.read_text() == written()


def test_every_room_is_in_the_map():
    folders = {str(file.parent.relative_to(ROOT / "iosim")) for file in (ROOT / "iosim").rglob("__init__.py")}
    assert folders - {"."} == set(ROOMS)


if __name__ == "__main__":
    MAP.write_text(written())
