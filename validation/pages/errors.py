"""How far predictions are from what was measured: |predicted / measured - 1|."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from statistics import median

from validation.pages.text import Row, groups, read

FAR = 0.2  # what is farther off is listed as not explained
LEAST_DRAM_BYTES = 1_000_000  # with less, most of the traffic is code and constants

Claims = dict[str, object]


def errors(rows: list[Row], name: str) -> list[float]:
    """Errors of the ratios in a column; rows without one are left out."""
    return [abs(float(row[name]) - 1) for row in rows if row.get(name)]


def dram_errors(rows: list[Row]) -> list[float]:
    """Errors of DRAM bytes, where the traffic is worth a ratio."""
    return errors(big(rows), "dram_ratio")


def time_errors(rows: list[Row]) -> list[float]:
    return errors(rows, "time_ratio")


def big(rows: list[Row]) -> list[Row]:
    """Rows whose DRAM traffic is worth a ratio."""
    return [r for r in rows if dram_measured(r) >= LEAST_DRAM_BYTES]


def at_the_edge(rows: list[Row]) -> list[Row]:
    """Rows of shapes that just about fill the L2: their prediction is a range."""
    return [r for r in big(rows) if r.get("dram_at_the_edge") == "True"]


def off_the_edge(rows: list[Row]) -> list[Row]:
    """Rows of all other shapes."""
    return [r for r in rows if r.get("dram_at_the_edge") != "True"]


def in_range(r: Row) -> bool:
    """Whether the measured DRAM bytes lie in the predicted range."""
    return float(r["dram_least_predicted"]) <= dram_measured(r) <= float(r["dram_most_predicted"])


def dram_measured(r: Row) -> float:
    """Bytes read and written."""
    return sum(float(r.get(name) or 0) for name in ("dram_read_bytes", "dram_write_bytes", "dram_measured"))


def ours(folder: Path) -> list[Row]:
    """Rows of our kernels, in all sets."""
    return [row for name, part in groups(folder).items() if not name.startswith("torch") for row in part]


def spread(rows: list[Row]) -> dict[str, object]:
    """Table cells: how many have DRAM traffic, then medians and worst errors of DRAM bytes and of time."""
    dram, time = dram_errors(rows), time_errors(rows)
    cells: dict[str, object] = {"shapes": len(rows), "with DRAM": len(dram)}
    for name, found in (("DRAM", dram), ("time", time)):
        cells[f"{name} median"] = f"{median(found):.1%}" if found else ""
        cells[f"{name} worst"] = f"{max(found):.1%}" if found else ""
    return cells


def claims(folder: Path) -> Claims:
    """The errors by set of shapes, rounded up to a percent, and what did not agree."""
    found: Claims = {"faults": [r["faults"] for r in read(folder, "rows.csv") if r["faults"]]}
    for name, part in groups(folder).items():
        pairs = {"dram_ratio": dram_errors(part), "time_ratio": time_errors(part)}
        found[name] = {key: {"median": ceil(median(e) * 100) / 100, "worst": ceil(max(e) * 100) / 100}
                       for key, e in pairs.items() if e}  # fmt: skip
    return found
