"""The picture of a roofline: operations a second against operations a byte, below the roof of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..answer import numbered
from ..errors import InputError
from .chart import Chart, ChartLine
from .sheet import Sheet

if TYPE_CHECKING:
    from ..studies.ideal_roofline import RooflineRow
    from ..studies.roofline import Roofline

MOST_SCHEDULES = 8


def roofline_sheet(found: Roofline) -> Sheet:
    """The sheet of a roofline: a mark for all launches of each schedule at the peaks, and one for its prediction."""
    rows = [row for row in found.rows if row.launch == "all" and row.intensity and row.work.matrix_flops]
    if not rows:
        raise InputError("--schedule", ", ".join(found.nothing_fits) or "nothing", "schedules with matrix products")
    if len(rows) > MOST_SCHEDULES:
        raise InputError("--schedule", f"{len(rows)} results", f"at most {MOST_SCHEDULES}", "name some with --schedule")
    p, chip = found.problem, found.hardware
    marks = [mark(row, row.bound_seconds, "at the peaks") for row in rows]
    marks += [mark(row, row.predicted_seconds, "predicted") for row in rows if row.predicted_seconds]
    peak, speed = chip.flops_per_second[p.dtype], chip.hbm_bytes_per_second
    ridge = peak / speed
    x = [min([ridge / 8, *(one.x[0] / 2 for one in marks)]), max([ridge * 8, *(one.x[0] * 2 for one in marks)])]
    roof = ChartLine.of(f"roof: HBM, {p.dtype} products", {x[0]: x[0] * speed, ridge: peak, x[1]: peak}, "floor")
    y = [min([x[0] * speed, *(one.y[0] / 2 for one in marks)]), 2 * peak]
    frame = {"x": (x[0], x[1]), "y": (y[0], y[1])}
    keys = f", Nk = {p.Nk}" if p.Nk != p.N else ""
    size = f"N = {p.N}{keys}, d = {p.d}, {numbered(p.heads, 'head')}, {p.dtype}"
    chart = Chart("", "intensity", "flops_per_second", [*marks, roof], frame=frame)
    return Sheet(f"Roofline of {chip.name}: {size}", [chart])


def mark(row: RooflineRow, seconds: float, what: str) -> ChartLine:
    """A line of one point: the matrix operations a second of a row that takes so long."""
    tiles = f" {row.Br}x{row.Bc}" if row.Br else ""
    phase = "" if row.phase == "prefill" else f"{row.phase}, "
    label, speed = f"{row.schedule}{tiles}, {phase}{what}", row.work.matrix_flops / seconds
    return ChartLine(label, [row.bound_intensity], [speed], [row.fits], key=row.schedule)
