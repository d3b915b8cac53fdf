"""What the playground asks iosim: a question as a command line, its answer as text and table, and a chart over M.

It runs in a browser, where there is no NumPy; so it uses what `iosim count` uses, and the drawing of charts.
"""

import io
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout

import iosim
from iosim.commands.cli import main
from iosim.drawing.chart import Chart, ChartLine
from iosim.drawing.chart_svg import Panel, Room, looks, room_for
from iosim.drawing.svg import svg_frame
from iosim.units import binary

FIELDS = ("N", "d", "heads", "kv-heads", "M", "hardware", "mask", "schedule")
USUAL = "standard-tiled,flash1,flash2"
PLACES = [2 ** (k / 4) for k in range(-20, 20)]
"""The 40 sizes of the curve, over M."""
MULTIPLE = 16
NO_NUMPY = "this question needs NumPy, which this page leaves out; on your machine iosim answers it"


def choices():
    """The names that the form offers, as JSON."""
    names = [name for name, one in iosim.SCHEDULES.items() if one.family == iosim.SCHEDULES["flash2"].family]
    return json.dumps({"hardware": [row["name"].lower() for row in iosim.hardware()], "schedules": names})


def line_of(asked):
    """The command line, after `iosim`, that asks for the filled fields of the form."""
    return ["count", *(word for name in FIELDS if asked.get(name) for word in (f"--{name}", asked[name]))]


def run(line):
    """(exit code, what is printed, what is said beside it) of a command line."""
    out, beside = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(beside):
        try:
            main(line, prog_name="iosim")
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except ModuleNotFoundError as error:
            code = print(f"Error: {error if error.name != 'numpy' else NO_NUMPY}", file=beside) or 3
    return code, out.getvalue(), beside.getvalue()


def answer(text):
    """The answer to the question of a JSON text, as JSON: its line, its text, and its table unless it is a fault."""
    asked = json.loads(text)
    line = line_of(asked)
    code, said, beside = run(line)
    found = {"line": shlex.join(["iosim", *line]), "text": said, "beside": beside, "fault": bool(code)}
    if not code:
        report = counted(asked)
        grid = report.counts().grid()
        found["sentence"] = said.partition("\n")[0]
        found["head"] = [*grid.rows[0]]
        found["rows"] = [[shown(cell) for cell in row.values()] for row in grid.rows]
        found["best"] = [*grid.best]
    return json.dumps(found)


def shown(cell):
    return "-" if cell is None else f"{cell:,}" if type(cell) is int else str(cell)


def keywords(asked, *names):
    """The filled fields as iosim.count takes them."""
    found = {name.replace("-", "_"): asked[name] for name in names if asked.get(name)}
    return {name: int(value) if name in ("N", "d", "heads", "kv_heads") else value for name, value in found.items()}


def counted(asked):
    return iosim.count(**keywords(asked, *FIELDS))


def curve(text, width=720):
    """As JSON: a chart, as SVG of this width, of the least words of each schedule and the floor, at 40 sizes around M;
    and a note on tiles that are not tried."""
    asked = json.loads(text)
    report = counted(asked)
    lines, note = lines_of(asked, report.M_bytes)
    if not lines:
        return json.dumps({"svg": "", "note": note or "No schedule fits in an SRAM near this size."})
    lines += floor_of(report.problem, sorted({size for line in lines for size in line.x}))
    chart = Chart("Words moved, and the floor", "M_bytes", "total", lines)
    panel = Panel(chart, looks(chart.lines), Room(width, 400, room_for(chart.lines)), "inside")
    low, high = chart.limits("x")
    mark = (report.M_bytes, "M") if low <= report.M_bytes <= high else None
    parts = [*panel.axes(mark), *panel.lines(), *panel.labels_at_ends()]
    return json.dumps({"svg": svg_frame(width, 400, chart.title, "".join(parts)), "note": note})


def lines_of(asked, M):
    """(a line for each schedule with the best tiles that fit, a note on tiles that are not tried)."""
    given = keywords(asked, "N", "d", "heads", "kv-heads", "mask")
    if asked.get("hardware"):
        given |= {"acc_dtype": "fp32", "tile_multiple": MULTIPLE}
    names = dict.fromkeys(one.partition(":")[0].strip() for one in (asked.get("schedule") or USUAL).split(","))
    coarse = set()
    counts = {name: {size: words for size in sizes(M) if (words := least(given, name, size, coarse))} for name in names}
    note = (
        f"From M = {binary(min(coarse))} on only tiles in multiples of {MULTIPLE} are tried: others need NumPy."
        if coarse
        else ""
    )
    return [ChartLine.of(name, points) for name, points in counts.items() if points], note


def sizes(M):
    return sorted({round(M * place) for place in PLACES})


def least(given, name, M, coarse):
    """Words with the best tiles of a schedule, None where none fit; an M that needs NumPy for it goes to `coarse`."""
    try:
        (result, *_) = iosim.count(**given, M=M, schedules=name, tiles="best").results
    except iosim.IosimError:  # too small for anything
        return None
    except ModuleNotFoundError:
        if given.get("tile_multiple") == MULTIPLE:
            return None
        coarse.add(M)
        return least({**given, "tile_multiple": MULTIPLE}, name, M, coarse)
    return result.total if result.fits else None


def floor_of(problem, places):
    """The line of the floor; none where it is not known."""
    try:
        return [ChartLine.of("floor", {M: iosim.floor(problem, M).words for M in places}, "floor")]
    except (iosim.IosimError, ModuleNotFoundError):
        return []
