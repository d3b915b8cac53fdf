"""The parts of docs/hardware/predictions.md: how far predictions are off, and the constants that they use."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from statistics import median

from iosim import lru, timing, works
from iosim.gpu import predict
from validation.pages.errors import dram_errors, ours, spread, time_errors
from validation.pages.text import about, by_schedule, groups, link, others, table

FITTED = (  # module, name, what it is, what it was fitted on
    (lru, "APART", "mean and deviation of the room of a partition, as shares of its size: for data, since a write, for "
     "dirty data", "buffers, arrays, and the shapes that were measured in several places, on one H200"),
    (predict, "PROFILER_BYTES", "dirty bytes that the profiler leaves in the L2", "reads of large buffers on one H200"),
    (works, "UNDER_WAY", "requests for single words that a warp has under way",
     "tiles with unaligned rows on one H200"),
    (timing, "LIGHTER", "how many times as fast as `normalise` a step without its division is, if `denormalise` was "
     "not measured", "not measured: estimated from accesses and operations"),
)  # fmt: skip


def claim(folder: Path) -> str:
    """The claim, of every GPU that was measured."""
    return "\n".join(f"- {claim_of(one)}" for one in (folder, *others(folder)))


def claim_of(folder: Path) -> str:
    rows = ours(folder)
    dram, time = dram_errors(rows), time_errors(rows)
    return (
        f"**{about(folder)['name']}, {len(rows)} shapes.** DRAM bytes are {median(dram):.1%} off in the median and "
        f"{max(dram):.1%} at worst; time is {median(time):.1%} off in the median and {max(time):.1%} at worst."
    )


def schedules(folder: Path) -> str:
    """A row a schedule, of our kernels."""
    return table([{"schedule": name, **spread(rows)} for name, rows in by_schedule(ours(folder)).items()])


def sets(folder: Path) -> str:
    """A row a set of shapes."""
    return table([{"set": name, **spread(rows)} for name, rows in groups(folder).items()])


def second(folder: Path) -> str:
    """The same of the other GPUs."""
    return "\n\n".join(f"{about(one)['name']}, {link(one, 'rows.csv')}:\n\n{sets(one)}" for one in others(folder))


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
    return f"Every shape has a row in {link(folder, 'rows.csv')}; all constants are in {link(folder, 'hardware.toml')}."


PARTS: dict[str, Callable[[Path], str]] = {
    "claim": claim, "schedules": schedules, "sets": sets, "second": second, "measured": measured, "fitted": fitted,
    "rows": rows,
}  # fmt: skip
