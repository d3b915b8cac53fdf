"""Axes of a sweep that are options of the problem or of the search: one sweep for each value, one after the other, all
with the same columns. Imports NumPy, as grid.py does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from . import grid
from .errors import InputError
from .experiment import OPTIONS, check_names
from .problem import DENSE, Attention
from .report import COLUMNS, EVERY_COLUMN
from .units import MOST_POINTS, parse_count

COUNTS = ("splits", "page_size")
AXES = (*COUNTS, "gqa")


@dataclass(frozen=True)
class Sweeps:
    """Several sweeps of the same columns."""

    parts: tuple[grid.Sweep, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


def build(
    values: dict[str, Any], schedules: Any = (), tiles: Any = None, tile_multiple: Any = 1,
    columns: tuple[str, ...] = (), **options: Any,
) -> grid.Sweep | Sweeps:  # fmt: skip
    """As `grid.build`, where `tile_multiple` and the options in AXES may be lists or ranges."""
    lists = {name: values_of(name, options.pop(name)) for name in AXES if name in options}
    multiples = counts("tile_multiple", tile_multiple)
    parts = [
        grid.build(values, schedules, tiles, multiple, **options, **dict(zip(lists, point, strict=True)))
        for multiple in multiples
        for point in product(*lists.values())
    ]
    for part in parts:
        check_packing(part)
    if sum(part.points for part in parts) > MOST_POINTS:
        raise InputError("sweep", f"{sum(part.points for part in parts)} grid points", f"at most {MOST_POINTS}")
    if len(parts) > 1 and not columns:
        needed = {name for part in parts for name in part.shown} | ({"tile_multiple"} if len(multiples) > 1 else set())
        columns = (*COLUMNS, *(name for name in EVERY_COLUMN if name in needed and name not in COLUMNS))
    parts = [replace(part, columns=columns) for part in parts]
    return parts[0] if len(parts) == 1 else Sweeps(tuple(parts))


def values_of(name: str, value: Any) -> list[Any]:
    return counts(name, value) if name in COUNTS else grid.split(value)


def counts(name: str, value: Any) -> list[int]:
    where = "--" + name.replace("_", "-")
    return grid.read_axis(value, where, lambda text: parse_count(text, where))


def check_packing(sweep: grid.Sweep) -> None:
    """Packed heads do not go with every mask: said before anything is written."""
    for mask, n in product(sweep.axes["mask"], sweep.axes["N"]):
        if mask is not DENSE:
            Attention(n, 1, mask=mask, **sweep.options)


def chunks(plan: Any) -> Iterator[Any]:
    """DataFrames of a sweep, or of several."""
    for part in getattr(plan, "parts", (plan,)):
        yield from grid.chunks(part)


def sweep(schedules: Any = (), tiles: Any = None, tile_multiple: int = 1, **values: Any) -> Any:
    """A whole sweep as one DataFrame: `sweep(N="1024:8192:x2", d=[64, 128], M="16KB:256KB:x2")`."""
    import pandas as pd

    check_names("sweep", values, (*grid.AXES, *OPTIONS), ("schedules", "tiles", "tile_multiple"))
    axes = {name: values.pop(name) for name in grid.AXES if name in values}
    plan = build(axes, schedules, tiles, tile_multiple, **values)
    return pd.concat(list(chunks(plan)), ignore_index=True)
