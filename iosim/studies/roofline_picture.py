"""Pictures of times on a GPU: a roofline, and times against N.

A roofline is operations a second against operations a byte, below the roof of the GPU. Times against N are those at the
peaks, beside kept measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from ..answer import numbered
from ..core.tiling import Tiling
from ..counting.sweep_axes import AxisValue, read_counts
from ..drawing.asked import Asked, PictureKind
from ..drawing.chart import Chart, ChartLine
from ..drawing.chart_svg import chart_svg
from ..drawing.page import legend_of, section
from ..drawing.picture import Picture
from ..drawing.sheet import Sheet
from ..errors import InputError, IosimError
from ..hardware import load
from ..schedules import find, find_all
from .ideal_roofline import peaks
from .roofline import Roofline, filled, measured_beside, roofline, time_lines, winners

if TYPE_CHECKING:
    from ..core.tiling import Rule
    from ..counting.report import Report
    from .ideal_roofline import RooflineRow


MOST_RESULTS = 8


def roofline_sheet(found: Roofline) -> Sheet:
    """The sheet of a roofline: a mark for all launches of each schedule at the peaks."""
    rows = [row for row in found.rows if row.launch == "all" and row.intensity and row.work.matrix_flops]
    if not rows:
        raise InputError("--schedule", ", ".join(found.nothing_fits) or "nothing", "schedules with matrix products")
    if len(rows) > MOST_RESULTS:
        raise InputError("--schedule", f"{len(rows)} results", f"at most {MOST_RESULTS}", "name some with --schedule")
    p, chip = found.problem, found.hardware
    marks = [mark(row, row.bound_seconds, "at the peaks") for row in rows]
    peak, speed = chip.flops_per_second[p.dtype], chip.hbm_bytes_per_second
    ridge = peak / speed
    x = [min([ridge / 8, *(one.x[0] / 2 for one in marks)]), max([ridge * 8, *(one.x[0] * 2 for one in marks)])]
    roof = ChartLine.of(f"roof: HBM, {p.dtype} products", {x[0]: x[0] * speed, ridge: peak, x[1]: peak}, "floor")
    y = [min([x[0] * speed, *(one.y[0] / 2 for one in marks)]), 2 * peak]
    frame = {"x": (x[0], x[1]), "y": (y[0], y[1])}
    keys = f", Nk = {p.Nk}" if p.Nk != p.N else ""
    said = ("Nk", "heads", "dtype", "acc_dtype", *(["kv_heads"] if p.kv_heads == p.heads else []))
    more = [f", {name} = {value}" for name, value in p.unusual().items() if name not in said]
    size = f"N = {p.N}{keys}, d = {p.d}, {numbered(p.heads, 'head')}, {p.dtype}{''.join(more)}"
    chart = Chart("", "intensity", "flops_per_second", [*marks, roof], frame=frame)
    return Sheet(f"Roofline of {chip.name}: {size}", [chart])


def mark(row: RooflineRow, seconds: float, what: str) -> ChartLine:
    """A line of one point: the matrix operations a second of a row that takes so long."""
    tiles = f" {row.Br}x{row.Bc}" if row.Br else ""
    phase = "" if row.phase == "prefill" else f"{row.phase}, "
    label, speed = f"{row.schedule}{tiles}, {phase}{what}", row.work.matrix_flops / seconds
    return ChartLine(label, [row.bound_intensity], [speed], [row.fits], key=row.schedule)


MOST_SCHEDULES = 4
MOST_SIZES = 16
PEAKS = "at the peaks, ideal L2"


def time_sheet(asked: Asked) -> Sheet:
    """The microseconds of schedules against N: a line for the bound of each schedule, and one for each kernel of
    PyTorch that was measured."""
    choice, values = asked.choice, asked.values
    names = tuple(schedule.name for schedule in find_all(choice.schedules or ("standard-tiled", "flash1", "flash2")))
    if len(names) > MOST_SCHEDULES:
        raise InputError("--schedule", f"{len(names)} schedules", f"at most {MOST_SCHEDULES}")
    beside = any(find(name).family == "attention" for name in names)
    options = choice._asdict() | {"schedules": names}
    kept: dict[str, dict[float, float]] = {}
    rows: dict[str, dict[int, RooflineRow]] = {}
    for N in sizes(values):
        found = roofline(**options, **replace(asked, values={**values, "N": N}).fields)
        for one in measured_beside(found.hardware, found.problem) if beside else ():
            kept.setdefault(one.kernel, {})[N] = 1e6 * one.seconds
        for row in found.rows:
            if row.launch == "all" and row.tiling != "paper":
                rows.setdefault(row.schedule, {})[N] = row
    lines = [line_of(name, by_N) for name, by_N in rows.items()]
    lines += [ChartLine.of(f"{kernel}, measured", times) for kernel, times in kept.items()]
    named = dict.fromkeys(("d", "heads", "batch", "mask", *values))
    about = ", ".join(
        f"{name} = {values[name]}" for name in named if name not in ("N", "acc_dtype") and values.get(name)
    )
    tiled = f", tiles {choice.tiles}" if choice.tiles else ""
    title = f"Time on {load(choice.hardware or '').name}: {about}{tiled}"
    return Sheet(title, [Chart("", "N", "microseconds", lines)])


def sizes(values: Mapping[str, AxisValue]) -> list[int]:
    """The values of N. Raises InputError for a single one, and for too many."""
    found = read_counts({**values}, "N") or []
    if not 1 < len(found) <= MOST_SIZES:
        raise InputError("--N", str(values.get("N")), f"2 to {MOST_SIZES} values, as 1024:8192:x2")
    return found


def line_of(name: str, rows: Mapping[int, RooflineRow]) -> ChartLine:
    """The microseconds of a schedule at the peaks, against N."""
    seconds = {N: row.ideal_l2_seconds for N, row in rows.items() if row.ideal_l2_seconds is not None}
    times, fits = [1e6 * each for each in seconds.values()], [rows[N].fits for N in seconds]
    return ChartLine(f"{name}, {PEAKS}", [*map(float, seconds)], times, fits, key=name)


EXAMPLE_GPU = "h100"  # for the roofline, if no hardware is given
EXAMPLE_TILES = Tiling(64, 64)  # for the roofline, if no tiles are given: those of least traffic are slow on a GPU
MOST_ROOFLINE = 3  # most schedules in the roofline


def roofline_section(
    found: Report, best: str | None, names: Sequence[str], hardware: str | None, rule: Rule | None
) -> str:
    """The section of a page on the roofline, for the first of these schedules, with the times of the `best`; empty if
    the GPU has no peak for the types. Tiles are those of the page on the GPU that was asked for, and usual ones on an
    example."""
    schedules = [find(name) for name in names][:MOST_ROOFLINE]
    try:
        chip = load(hardware or EXAMPLE_GPU)
        peaks(chip, found.problem)
        M_bytes = (hardware and found.M_bytes) or chip.sram_bytes
        tiles: Rule = rule or ("best" if hardware else EXAMPLE_TILES)
        seen = filled(Roofline(found.problem, chip, M_bytes, []), schedules, tiles, found.under.multiple)
        sheet = roofline_sheet(seen)
    except IosimError:
        return ""
    example = "" if hardware else " No hardware was asked for, so this is an example."
    words = (
        "How fast each schedule can compute at its operations a byte of HBM, at the peaks of the GPU, with its shared "
        f"memory{' and an ideal L2' if chip.l2_bytes else ''}.{example}"
    )
    own = [row for row in seen.rows if row.schedule == best and row.launch == "all" and row.fits]
    lines = "".join(f"<p>{escape(line)}</p>" for row in own or winners(seen) for line in time_lines(seen, row))
    drawn = chart_svg(replace(sheet.charts[0], title=sheet.title))
    return section(f"On a GPU: {chip.name}", lines + drawn, words, legend_of(sheet.charts[0]))


def of_roofline(asked: Asked) -> Picture:
    """The picture of a roofline on one GPU."""
    found = roofline(**asked.choice._asdict(), **asked.fields)
    return Picture(roofline_sheet(found), (*found.notes,))


def of_time(asked: Asked) -> Picture:
    """The picture of times at the peaks."""
    return Picture(time_sheet(asked))


ROOFLINE = PictureKind(of_roofline, needs=("N", "d", "hardware"))
TIME = PictureKind(of_time, needs=("N", "d", "hardware"), several=("N",))
