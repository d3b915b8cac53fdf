"""The parts of predictions.md: how far predictions are off, and the constants that they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

from iosim.gpu.predict import block_work, l2, predict
from validation.pages.errors import at_the_edge, dram_errors, in_range, off_the_edge, ours, spread, time_errors
from validation.pages.text import Row, about, by_schedule, groups, link, others, table

ON_BUFFERS = "buffers, arrays, and the shapes that were measured in several places, on one H200"
FITTED = (  # module, name, what it is, what it was fitted on; a name that its module lacks is left out
    (l2, "HELD", "what a partition of the L2 holds, as a share of its size", ON_BUFFERS),
    (l2, "TOUCHED",
     "bytes requested from a partition, as a share of its size, before a dirty line is written to DRAM", ON_BUFFERS),
    (l2, "DIRTY", "dirty bytes that a partition holds, as a share of its size", ON_BUFFERS),
    (l2, "SPREAD", "the range is predicted with an L2 that is this share smaller and larger",
     "chosen by hand: nearly twice the deviation of the room that fits those shapes"),
    (predict, "PROFILER_BYTES", "dirty bytes that the profiler leaves in the L2", "reads of large buffers on one H200"),
    (block_work, "UNDER_WAY", "requests for single words that a warp has under way",
     "tiles with unaligned rows on one H200"),
)  # fmt: skip


def claim(folder: Path) -> str:
    """The claim, of every GPU that was measured."""
    return "\n".join(f"- {claim_of(one)}" for one in (folder, *others(folder)))


def claim_of(folder: Path) -> str:
    rows = ours(folder)
    dram, time, edge = dram_errors(rows), time_errors(rows), at_the_edge(rows)
    wide = " to ".join(dict.fromkeys(f"{x:.{0 if x > 10 else 1}f}" for x in least_and_most(map(width, edge))))
    return (
        f"**{about(folder)['name']}, {len(rows)} shapes.** DRAM bytes are {median(dram):.1%} off in the median, and "
        f"{max(dram_errors(off_the_edge(rows))):.1%} at worst away from the edge of the L2 (data clearly smaller or "
        f"larger than it). At the edge a range is predicted, whose upper end is {wide} times the lower one: "
        f"{sum(map(in_range, edge))} of {len(edge)} measurements lie in it. Time is {median(time):.1%} off in the "
        f"median and {max(time):.1%} at worst."
    )


def width(r: Row) -> float:
    """The upper end of a predicted range over the lower one."""
    return float(r["dram_most_predicted"]) / float(r["dram_least_predicted"])


def least_and_most(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def schedules(folder: Path) -> str:
    """A row a schedule, of our kernels."""
    return table([{"schedule": name, **spread(rows)} for name, rows in by_schedule(ours(folder)).items()])


def sets(folder: Path) -> str:
    """A row a set of shapes; the same of the other GPUs beside it."""
    more = {about(one)["name"].split()[1]: groups(one) for one in others(folder)}
    return table([{"set": name, **spread(rows), **{f"{gpu} {column}": cell for gpu, found in more.items()
                                                   for column, cell in spread(found.get(name, [])).items()
                                                   if column.endswith(("median", "worst"))}}
                  for name, rows in groups(folder).items()])  # fmt: skip


AIMS = (("DRAM bytes in the median", dram_errors, median, 0.05), ("DRAM bytes at worst", dram_errors, max, 0.20),
        ("time in the median", time_errors, median, 0.10))  # fmt: skip


def missed(folder: Path) -> str:
    """The sets of shapes that miss an aim, of every GPU that was measured."""
    found = []
    for one in (folder, *others(folder)):
        gpu = about(one)["name"].split()[1]
        for what, errors, middle, aim in AIMS:
            names = [name for name, rows in groups(one).items() if misses(rows, errors, middle, aim)]
            found += [f"{what}: {', '.join(f'`{name}`' for name in names)} ({gpu})"] if names else []
    return f"These sets miss an aim. {'; '.join(found)}."


def misses(
    rows: list[Row], errors: Callable[[list[Row]], list[float]], middle: Callable[[list[float]], float], aim: float
) -> bool:
    """Whether a set of shapes misses one aim; a set without errors of that kind does not."""
    found = errors(rows)
    return bool(found) and middle(found) > aim


BEFORE = {"H200": ("1.1%", "16.1%", "15.0%", "6.7%"), "H100": ("0.6%", "11.3%", "11.3%", "6.6%")}  # version 0.1.0


def simpler(folder: Path) -> str:
    """Two rows a GPU: the errors of version 0.1.0, from rows.csv as it was then, and today's."""
    columns = ("DRAM median", "DRAM worst", "DRAM worst, away from the edge", "time median")
    found = []
    for one in (folder, *others(folder)):
        gpu, rows = about(one)["name"].split()[1], ours(one)
        dram, off = dram_errors(rows), dram_errors(off_the_edge(rows))
        today = (f"{error:.1%}" for error in (median(dram), max(dram), max(off), median(time_errors(rows))))
        found += [{"GPU": gpu, "model": name, **dict(zip(columns, cells, strict=True))}
                  for name, cells in (("0.1.0", BEFORE[gpu]), ("today", today))]  # fmt: skip
    return table(found)


def fitted(folder: Path) -> str:
    """Constants that `iosim calibrate` does not measure."""
    return table([{"constant": f"`{name}`", "value": value(getattr(module, name)), "what it is": what,
                   "fitted on": where} for module, name, what, where in FITTED if hasattr(module, name)])  # fmt: skip


def value(found: object) -> str:
    """A constant as text; numbers of a tuple one after another."""
    if isinstance(found, tuple):
        return ", ".join(map(value, found))
    return f"{found:,}" if isinstance(found, int) else str(found)


def measured(folder: Path) -> str:
    """Constants that `iosim calibrate` measures, by name."""
    text = (folder / "hardware.toml").read_text(encoding="utf-8").partition("[measured]")[2]
    numbers, tables = re.findall(r"^(\w+_\w+) = .*  # ", text, re.M), re.findall(r"^\[measured\.(\w+)\]", text, re.M)
    names = (", ".join(f"`{name}`" for name in found) for found in (numbers, tables))
    return "Numbers: {}. Tables: {}.".format(*names)


def rows(folder: Path) -> str:
    """Where the rows and the constants are."""
    files = (f"{link(one, 'rows.csv')} and {link(one, 'hardware.toml')} of {about(one)['name']}"
             for one in (folder, *others(folder)))  # fmt: skip
    return f"A row for every shape, and all constants: {'; '.join(files)}."


PARTS: dict[str, Callable[[Path], str]] = {
    "claim": claim, "schedules": schedules, "sets": sets, "measured": measured, "fitted": fitted, "simpler": simpler,
    "rows": rows, "missed": missed,
}  # fmt: skip
