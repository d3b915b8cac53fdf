"""Pictures of times on a GPU: a roofline with a ceiling for each resource, and times against N.

A roofline is operations a second against operations a byte. Memory has three roofs: of HBM, the L2 and shared memory.
A schedule has a mark for each, at the bytes that it moves there, which lies below that roof. Times against N are
bounds, beside kept measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from ..answer import numbered
from ..counting.on_gpu import lead_on_gpu
from ..counting.sentence import class_of
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
from ..timing.bound import OF_MEMORY, rates_of, thing_of
from .roofline import (
    ALL,
    ATTENTION,
    Roofline,
    measured_beside,
    measured_sentence,
    phase_of,
    roofline,
)

if TYPE_CHECKING:
    from ..core.tiling import Rule
    from ..counting.report import Report
    from ..hardware import Hardware
    from .roofline import RooflineRow


MOST_RESULTS = 8


def roofline_sheet(found: Roofline) -> Sheet:
    """The sheet of a roofline: the roofs of a GPU, and marks for all launches of each schedule at its least time."""
    rows = [row for row in found.rows if row.launch == ALL and row.work.matrix_flops and row.result.tiling in OWN]
    if not rows:
        raise InputError("--schedule", ", ".join(found.nothing_fits) or "nothing", "schedules with matrix products")
    if len(rows) > MOST_RESULTS:
        raise InputError("--schedule", f"{len(rows)} results", f"at most {MOST_RESULTS}", "name some with --schedule")
    chip = found.hardware
    marks = [marks_of(row, chip) for row in rows]
    x = [x for line in marks for x in line.x]
    y = [y for line in marks for y in line.y]
    flat = ceilings(found, rows)
    top = max([*flat.values(), *y])
    ends = min(x) / 4, 2 * max([*x, top / chip.hbm_bytes_per_second])
    frame = {"x": ends, "y": (min(y) / 4, 2 * top)}
    chart = Chart("", "intensity", "flops_per_second", [*marks, *roofs(found, flat, top, ends)], frame=frame)
    return Sheet(f"Roofline of {chip.name}: {size_of(found)}", [chart])


OWN = ("ideal", "paper", "best", "given")  # rules of tiles that are not published ones


def size_of(found: Roofline) -> str:
    """The problem of a roofline, with the options that are not at their defaults."""
    p = found.problem
    keys = f", Nk = {p.Nk}" if p.Nk != p.N else ""
    said = ("Nk", "heads", "dtype", "acc_dtype", *(["kv_heads"] if p.kv_heads == p.heads else []))
    more = [f", {name} = {value}" for name, value in p.unusual().items() if name not in said]
    return f"N = {p.N}{keys}, d = {p.d}, {numbered(p.heads, 'head')}, {p.dtype}{''.join(more)}"


def ceilings(found: Roofline, rows: Sequence[RooflineRow]) -> dict[str, float]:
    """The FLOPs a second that products allow, and those that the exponentials of these schedules do: of the schedule
    that takes fewest for its FLOPs."""
    rates = rates_of(found.hardware, found.problem.dtype)
    share = max((row.work.matrix_flops / row.work.exps for row in rows if row.work.exps), default=0.0)
    flat = {"matrix": rates.get("matrix", 0), "exp": share * rates.get("exp", 0)}
    return {name: float(rate) for name, rate in flat.items() if rate}


def roofs(found: Roofline, flat: Mapping[str, float], top: float, ends: tuple[float, float]) -> list[ChartLine]:
    """The roofs: of memory, which rise to the highest ceiling, and the ceilings."""
    dtype = found.problem.dtype
    rates = rates_of(found.hardware, dtype)
    rising = [
        ChartLine.of(text, {ends[0]: ends[0] * rates[name], top / rates[name]: top}, "roof")
        for name, text in OF_MEMORY.items()
        if name in rates
    ]
    level = [ChartLine.of(thing_of(name, dtype), dict.fromkeys(ends, rate), "floor") for name, rate in flat.items()]
    return [*rising, *level]


def marks_of(row: RooflineRow, chip: Hardware) -> ChartLine:
    """The FLOPs a second of a row at its least time: a mark at its FLOPs a byte of shared memory, of the L2 and of HBM,
    of those whose rate is stated."""
    result, work = row.result, row.work
    bytes_ = {
        "memory": row.times["memory"] * chip.hbm_bytes_per_second,
        "l2": work.l2_bytes,
        "shared": work.smem_read_bytes + work.smem_write_bytes,
    }
    x = sorted(work.matrix_flops / many for name, many in bytes_.items() if row.times.get(name))
    tiles = f" {result.Br}x{result.Bc}" if result.Br else ""
    label = f"{result.schedule}{tiles}" + ("" if row.phase == "prefill" else f", {row.phase}")
    speed = work.matrix_flops / row.at_least_seconds
    return ChartLine(label, x, [speed] * len(x), [bool(result.fits)] * len(x), key=result.schedule)


MOST_SCHEDULES = 4
MOST_SIZES = 16


def time_sheet(asked: Asked) -> Sheet:
    """The microseconds of schedules against N: a line for the bound of each schedule, and one for each kernel of
    PyTorch that was measured."""
    choice, values = asked.choice, asked.values
    names = tuple(schedule.name for schedule in find_all(choice.schedules or ("standard-tiled", "flash1", "flash2")))
    if len(names) > MOST_SCHEDULES:
        raise InputError("--schedule", f"{len(names)} schedules", f"at most {MOST_SCHEDULES}")
    beside = any(find(name).family == ATTENTION for name in names)
    options = choice._asdict() | {"schedules": names}
    kept: dict[str, dict[float, float]] = {}
    rows: dict[str, dict[int, RooflineRow]] = {}
    for N in sizes(values):
        found = roofline(**options, **replace(asked, values={**values, "N": N}).fields)
        for one in measured_beside(found.hardware, found.problem) if beside else ():
            kept.setdefault(one.kernel, {})[N] = 1e6 * one.seconds
        for row in found.rows:
            if row.launch == ALL and row.result.tiling in OWN and row.result.tiling != "paper":
                rows.setdefault(row.result.schedule, {})[N] = row
    if not rows:
        size = f"an SRAM of {load(choice.hardware or '').sram_bytes} B"
        raise InputError("--hardware", size, "a GPU on which some tile fits", "or give --tiles as 64x64")
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
    """The least microseconds of a schedule, against N."""
    times = [1e6 * row.at_least_seconds for row in rows.values()]
    return ChartLine(
        f"{name}, at least", [*map(float, rows)], times, [bool(row.result.fits) for row in rows.values()], key=name
    )


EXAMPLE_GPU = "h100"  # for the roofline, if no hardware is given
MOST_ROOFLINE = 3  # most schedules in the roofline


def roofline_section(
    found: Report, best: str | None, names: Sequence[str], hardware: str | None, rule: Rule | None
) -> str:
    """The section of a page on the roofline, for the first of these schedules, with the least time of the `best`; empty
    if there is nothing to draw. Tiles are those of least time, unless they are given."""
    schedules = [find(name) for name in names][:MOST_ROOFLINE]
    try:
        chip = load(hardware or EXAMPLE_GPU)
        M_bytes = (hardware and found.M_bytes) or chip.sram_bytes
        under = found.under._replace(chip=chip, implies=False)
        phase = phase_of(found.problem, chip, M_bytes, schedules, rule or "best", under)
        sheet = roofline_sheet(Roofline(found.problem, chip, M_bytes, [phase]))
    except IosimError:
        return ""
    example = "" if hardware else " No hardware was asked for, so this is an example."
    words = (
        "How fast each schedule can compute, at the rates of the GPU's data sheet. Its marks from left to right are at "
        f"its operations a byte of shared memory, of the L2 and of HBM, each below the roof of that memory.{example}"
    )
    own = [result for result in phase.report.results if result.schedule == best and result.fits]
    leads = [lead_on_gpu(r, chip, none=class_of(found.problem, M_bytes, r)) for r in own or phase.best]
    lines = [*leads, *measured_sentence(chip, phase)]
    drawn = chart_svg(replace(sheet.charts[0], title=sheet.title))
    text = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return section(f"On a GPU: {chip.name}", text + drawn, words, legend_of(sheet.charts[0]))


def of_roofline(asked: Asked) -> Picture:
    """The picture of a roofline on one GPU."""
    found = roofline(**asked.choice._asdict(), **asked.fields)
    return Picture(roofline_sheet(found), (*found.notes,))


def of_time(asked: Asked) -> Picture:
    """The picture of least times."""
    return Picture(time_sheet(asked))


ROOFLINE = PictureKind(of_roofline, needs=("N", "d", "hardware"))
TIME = PictureKind(of_time, needs=("N", "d", "hardware"), several=("N",))
