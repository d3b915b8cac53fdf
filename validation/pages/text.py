"""What the pages read from a measurement's CSVs, and how it is written on a page."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

from validation import shapes

ROOT = Path(__file__).resolve().parent.parent.parent
CORE_FIRST = ("standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q")  # then the others

Row = dict[str, str]


def read(folder: Path, name: str) -> list[Row]:
    """The rows of a CSV of a measurement; none if the file is not there."""
    path = folder / name
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def whole(folder: Path) -> bool:
    """Whether all parts were measured: such a folder fills the pages, any other is a second GPU."""
    return (folder / "sweep_rows.csv").exists()


def others(folder: Path) -> list[Path]:
    """The measurements of other GPUs beside this one."""
    return [path.parent for path in sorted(folder.parent.glob("*/rows.csv")) if not whole(path.parent)]


def about(folder: Path) -> dict[str, str]:
    """What is known of the GPU: its name, driver, clocks, and the date."""
    return {key: str(value) for key, value in json.loads((folder / "about.json").read_text()).items()}


def device(folder: Path) -> str:
    """One line on the GPU that was measured."""
    gpu = about(folder)
    return (f"{gpu['name']}, driver {gpu['driver']}, SM clock {gpu['sm_clock']}, memory clock {gpu['memory_clock']}, "
            f"{gpu['date']}; all files are in {link(folder)}.")  # fmt: skip


def link(folder: Path, name: str = "") -> str:
    """A link from a page here or in docs/hardware to a file of the measurement, or to its folder."""
    where = folder.resolve().relative_to(ROOT).as_posix()
    return f"[{name or folder.name}](../../{where}/{name})"


def groups(folder: Path) -> dict[str, list[Row]]:
    """Rows by set of shapes: our kernels, then each kernel of PyTorch."""
    mine = read(folder, "rows.csv")
    theirs = explained(folder)
    found = {
        "chosen, looked at": [r for r in mine if r["part"] == "generated" and r["held_out"] == "False"],
        "chosen, held out": [r for r in mine if r["part"] == "generated" and r["held_out"] == "True"],
        **{label: [r for r in mine if r["part"] == name] for name, (_, label) in shapes.DRAWS.items()},
        "tuned": [r for r in mine if r["part"] == "tuned"],
        **by(theirs, "kernel"),
    }
    return {name: rows for name, rows in found.items() if rows}


def explained(folder: Path) -> list[Row]:
    """The best explanation of each launch of a fused kernel of PyTorch."""
    return [r for r in read(folder, "torch_rows.csv") if r["best"] == "True"]


def by(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    """Rows by what they have in a column."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found


def by_schedule(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by schedule: the core ones first, tuned kernels last."""
    found = by(rows, "schedule")
    order = {name: number for number, name in enumerate(CORE_FIRST)}
    return dict(sorted(found.items(), key=lambda item: ("tuned" in item[0], order.get(item[0], len(order)))))


# ---------------------------------------------------------------- how it is written


def table(rows: list[dict[str, object]]) -> str:
    """A table in Markdown."""
    if not rows:
        return "(not measured)"
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(cell(row.get(name, "")) for name in names) + " |" for row in rows)])


def cell(value: object) -> str:
    return str(value).replace("|", "\\|")  # a mask may have one


def shown(text: str | None, digits: int = 3) -> str:
    """A number of a CSV with so many digits, or nothing."""
    return f"{float(text):.{digits}f}" if text else ""


def extent(values: Iterable[float], form: str = ".2f") -> str:
    """`least to most`, or the one value that all are."""
    found = sorted(values)
    return " to ".join(dict.fromkeys(format(x, form) for x in (found[0], found[-1]))) if found else ""


def most(values: Iterable[float], form: str = ".1%") -> str:
    """The largest, or nothing."""
    found = list(values)
    return format(max(found), form) if found else ""
