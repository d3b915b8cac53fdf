"""docs/map.md names every module with the first line of what it says of itself. `python tests/test_map.py` writes it."""

import ast

from paths import ROOT

MAP = ROOT / "docs" / "map.md"
HEAD = """# Where things are

Data flows one way: command line, options, experiment, schedules, machine and watchers, rows, report. Start at
`iosim/machine.py`; a schedule is a text that a machine reads, and everything else stands on that. Each command is a file
of its own name in `iosim/commands`.
"""


def first_line(file):
    text = ast.get_docstring(ast.parse(file.read_text()))
    return text.split("\n\n")[0].replace("\n", " ")


def written():
    parts = [HEAD]
    for folder in (".", "schedules", "gpu"):
        where = ROOT / "iosim" / folder
        rows = [
            f"| `{file.name}` | {first_line(file).replace('|', chr(92) + '|')} |" for file in sorted(where.glob("*.py"))
        ]
        title = "iosim" if folder == "." else f"iosim/{folder}"
        parts.append("\n".join([f"## {title}", "", "| file | what it is |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def test_the_map_names_every_module():
    assert MAP.read_text() == written()


if __name__ == "__main__":
    MAP.write_text(written())
