"""Charts of the rows of a sweep, and of traffic against M or N with the floor and the order that are proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, log2
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.options import NUMBERS, flag
from ..counting.given import memories
from ..counting.sweep_axes import AXES, Sweep
from ..drawing.asked import Asked, PictureKind, first_of, is_axis
from ..drawing.chart import AXIS_TITLES, Chart, ChartLine, size
from ..drawing.picture import Picture
from ..drawing.proven import floor_label, floor_line, order_line
from ..drawing.sheet import Sheet
from ..errors import NO_PYARROW, InputError, MissingError, suggestion
from ..units import dtype_bytes, parse_bytes

if TYPE_CHECKING:
    import pandas as pd

    from ..drawing.proven import Place

SPLITS = (  # columns that may split lines further, in this order
    "tiling", "schedule", "policy", "dtype", "acc_dtype", "mask", "d", "dv", "N", "Nk", "heads", "kv_heads", "batch",
    "M_bytes", "hardware",
)  # fmt: skip
POINTS_AN_OCTAVE = 8
MOST_LINES = 8  # lines of a chart, without the proven ones
UNFIT = " (does not fit)"
MOST_POINTS = 100_000  # of a chart
MOST_SIZE = 1e300  # of a number that is drawn; the reciprocal is the least
MOST_CHARTS = 12  # charts of a sheet
ONE_CHART = ("tiling", "schedule", "policy")  # rows that differ in these are lines of one chart


def sheet_of_rows(rows: pd.DataFrame, x: str, y: str, by: tuple[str, ...], steps: bool = False) -> Sheet:
    """Lines of column y against column x, one for each value of `by` and of other columns in which rows differ.

    More than MOST_LINES lines stand in several charts, one for each problem.
    """
    known, names = known_rows(rows, x, y, by)
    about = ", ".join(in_common(known, x, y))
    title = f"{AXIS_TITLES.get(y, y)}, against {AXIS_TITLES.get(x, x)}" + (f": {about}" if about else "")
    groups = known.groupby(names, sort=False).ngroups if names else 1
    apart = [name for name in names if name not in (*by, *ONE_CHART)]
    if groups <= MOST_LINES or not apart:
        return Sheet(title, [replace(from_rows(rows, x, y, by, steps), title=title)])
    charts = [chart for _, chart in rows.groupby(apart, sort=False)]
    if len(charts) > MOST_CHARTS:
        widest = max(apart, key=lambda name: known[name].nunique())
        found = f"{groups} lines in {len(charts)} charts, for all {', '.join(apart)}"
        hint = f"--where {widest}={known[widest].iloc[0]} keeps the rows of one {widest}; or draw -x {widest}"
        raise InputError("rows", found, f"at most {MOST_CHARTS} charts", hint)
    values = [tuple(part.iloc[0][name] for name in apart) for part in charts]
    heads = [", ".join(map(value_text, apart, found)) for found in values]
    lines = tuple(name for name in names if name not in apart)  # in every chart, so that labels are alike
    drawn = [part_of_sheet(from_rows(part, x, y, lines, steps), head) for part, head in zip(charts, heads, strict=True)]
    return Sheet(title, drawn, abreast(values))


def abreast(values: Sequence[tuple[object, ...]]) -> int:
    """The number of charts in a row. `values` are those of the columns that tell the charts apart, chart by chart.

    If 2 to 4 values of one follow each other again and again, each of them has a column of the sheet.
    """
    for column in zip(*values, strict=True):
        width = len(set(column))
        again = all(value == column[k % width] for k, value in enumerate(column))
        if 2 <= width <= 4 and len(column) > width and again:
            return width
    return 2 if len(values) <= 4 else 3


def part_of_sheet(chart: Chart, title: str) -> Chart:
    """A chart with a title, for a sheet with common labels. So dashes mark what does not fit, and not the label."""
    lines = [replace(line, label=line.label.removesuffix(UNFIT)) for line in chart.lines]
    return replace(chart, title=title, lines=lines)


def known_rows(rows: pd.DataFrame, x: str, y: str, by: tuple[str, ...]) -> tuple[pd.DataFrame, list[str]]:
    """The rows with x and y, and the columns that tell lines apart: `by`, and those of `splits` that leave one y for
    each x."""
    check_columns(rows, x, y, by)
    rows = rows.assign(**{x: numbers("-x", rows[x]), y: numbers("-y", rows[y])})
    known = rows.dropna(subset=[x, y])
    if known.empty:
        raise InputError("rows", "none", f"rows with {x} and {y}")
    names = [*by, *splitting(known, x, by, [c for c in splits() if c not in (x, y, *by)])]
    if known.duplicated([x, *names]).any():
        raise InputError("--by", ",".join(names), f"columns that leave one {y} for each {x}")
    return known, names


def splits() -> list[str]:
    """The columns that may split lines: SPLITS, and then those of all other options."""
    from ..counting.columns import option_columns

    return list(dict.fromkeys((*SPLITS, *option_columns())))


def splitting(rows: pd.DataFrame, x: str, by: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Those of the columns in which rows of the same x and `by` differ."""
    names: list[str] = []
    for column in (c for c in columns if c in rows.columns and rows[c].nunique() > 1):
        several = rows.groupby([x, *by, *names], dropna=False)[column].nunique()  # one where it follows, as Nk from N
        if several.max() > 1:
            names.append(column)
    return names


def from_rows(
    rows: pd.DataFrame, x: str, y: str, by: tuple[str, ...], steps: bool = False, asked: bool = False
) -> Chart:
    """The chart of some rows, with at most MOST_LINES lines. With `asked`, options of a problem gave the rows."""
    known, names = known_rows(rows, x, y, by)
    check_points(len(known))
    # Lines stand in the order of all rows, also of those without a y.
    order = rows.groupby(names, sort=False, dropna=False).ngroup() if names else rows.index.to_series() * 0
    groups = [group for _, group in known.groupby(order.loc[known.index])]
    if len(groups) > MOST_LINES:
        raise too_many_lines(known, names, len(groups), asked)
    lines = [line_of_rows(names, group.sort_values(x), x, y) for group in groups]
    return Chart(f"{AXIS_TITLES.get(y, y)}, against {AXIS_TITLES.get(x, x)}", x, y, lines, steps)


def too_many_lines(known: pd.DataFrame, names: list[str], lines: int, asked: bool) -> InputError:
    """The error about a chart with too many lines. With `asked`, it names options; else columns."""
    if asked:
        options = ", ".join("--M" if name == "M_bytes" else flag(name) for name in names if name != "tiling")
        hint = "name fewer schedules, as --schedule flash1,flash2, or fewer other values"
        return InputError(options, f"{lines} lines", f"at most {MOST_LINES} lines", hint)
    widest = max(names, key=lambda name: known[name].nunique())
    found, hint = f"{lines} lines, for all {', '.join(names)}", f"keep the rows of fewer values of {widest}"
    return InputError("--by", found, f"at most {MOST_LINES} lines", hint)


def rows_where(rows: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    """The rows whose columns have the values of texts as `N=4096`, `schedule=flash1,flash2` or `M_bytes=100KB`."""
    for text in where:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError("--where", text, "COLUMN=VALUE, as N=4096, or several values as N=1024,4096")
        column = rows[of_columns(rows, "--where", name.strip())]
        wanted = [value.strip(), *(part.strip() for part in value.split(","))]
        kept = column.isin(map(number_of, wanted)) if column.dtype.kind in "iuf" else column.astype(str).isin(wanted)
        if not kept.any():
            there = [str(one) for one in column.unique()]
            raise InputError("--where", text, f"a {name} that is there: {', '.join(there[:MOST_LINES])}")
        rows = rows[kept]
    return rows


def number_of(text: str) -> float:
    """The number of a text, as 4096, 4K, 100KB or 1.5; that of no column for any other text."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(parse_bytes(text, 1, "--where"))
    except InputError:
        return float("nan")


COLUMN_MEANT = {"M": "M_bytes", "bytes": "total_bytes", "words": "total", "traffic": "total"}


def check_columns(rows: pd.DataFrame, x: str, y: str, by: tuple[str, ...]) -> None:
    """Raise InputError for a column that is not there."""
    for option, name in (("-x", x), ("-y", y), *(("--by", b) for b in by)):
        of_columns(rows, option, name)


def of_columns(rows: pd.DataFrame, option: str, name: str) -> str:
    """The name of a column. InputError for one that is not there."""
    if name not in rows.columns:
        known = [*map(str, rows.columns)]
        meant = COLUMN_MEANT.get(name)
        hint = f"did you mean {meant!r}?" if meant in known else suggestion(name, known)
        raise InputError(option, name, ", ".join(known), hint)
    return name


def numbers(option: str, column: pd.Series) -> pd.Series:
    """A column as numbers. Counts above 2^63, which pandas keeps as objects or texts, become floats.

    Raises InputError for a column that holds anything else.
    """
    if column.dtype.kind not in "iuf":
        try:
            if column.dtype.kind == "b":
                raise ValueError
            column = column.map(lambda value: float("nan") if value is None else float(value)).astype(float)
        except (TypeError, ValueError, OverflowError):
            raise InputError(option, str(column.name), "a column of numbers") from None
    sizes = column.dropna().astype(float).abs()
    wrong = sizes[(sizes > MOST_SIZE) | ((sizes > 0) & (sizes < 1 / MOST_SIZE))]
    if len(wrong):
        allowed = f"numbers from {1 / MOST_SIZE:g} to {MOST_SIZE:g} in size, or 0"
        raise InputError(option, f"{column.loc[wrong.index[0]]} in {column.name}", allowed, "leave out such rows")
    return column


def check_points(points: int) -> None:
    """Raise InputError for a chart of more points than can be drawn."""
    if points > MOST_POINTS:
        hint = "a coarser axis, as --N 1K:1M:x2, or fewer rows"
        raise InputError("plot", f"{points} points", f"at most {MOST_POINTS} in a chart", hint)


def line_of_rows(names: list[str], group: pd.DataFrame, x: str, y: str) -> ChartLine:
    """The line of some rows; its label says their values in the columns `names`."""
    fits = [bool(f) for f in group["fits"].fillna(True)] if "fits" in group.columns else [True] * len(group)
    first = group.iloc[0]
    label = ", ".join(value_text(name, first[name]) for name in names if first[name] != "ideal") or AXIS_TITLES.get(
        y, y
    )
    label += "" if any(fits) else UNFIT
    key = str(first["schedule"]) if "schedule" in names else ""
    return ChartLine(label, group[x].tolist(), group[y].tolist(), fits, key=key)


def value_text(name: str, value: int | str) -> str:
    """A value of a column as labels show it."""
    if name in ("schedule", "policy", "dtype", "mask", "hardware"):
        return str(value)
    if name == "tiling":
        return f"{value} tiles"
    return f"M = {size(int(value))}" if name == "M_bytes" else f"{name} = {value}"


def traffic_chart(
    values: Mapping[str, object],
    schedules: tuple[str, ...] = (),
    tiles: str | None = None,
    multiple: str | int = 1,
    around: int | None = None,
) -> Chart:
    """Words that each schedule moves against M, or against N if N is an axis. Dense attention has the floor and the
    order beside them.

    `values` are axes and options of a sweep, by name. Without an axis, M goes over `octaves`, which reach
    beyond the M `around`, or the one M that is given, on both sides.
    """
    import pandas as pd

    from ..counting.sweep import Chunks
    from ..schedules import find

    if around is None and values.get("M") is not None and not any(is_axis(values.get(name)) for name in ("N", "M")):
        around = parse_bytes(first_of(values["M"]), dtype_bytes(first_of(values.get("dtype") or "fp16")))
    x, plan = sweep_of(values, schedules, tiles, multiple, around)
    made = Chunks(plan)
    found = [made.with_problems(number) for number in range(len(made))]
    rows = pd.concat([chunk.to_frame().assign(problem=problems) for chunk, problems in found], ignore_index=True)
    lines = from_rows(rows, x, "total", ("schedule",), asked=True).lines
    families = {find(name).family for name in rows["schedule"].unique()}
    if len(families) == 1:
        lines = [*lines, *proven_lines(rows, x, families.pop())]
    chart = Chart(title_of(rows, x), x, "total", lines)
    return chart if around is None else chart.around(float(around))


def sweep_of(
    values: Mapping[str, object], schedules: tuple[str, ...], tiles: str | None, multiple: str | int, around: int | None
) -> tuple[str, Sweep]:
    """(the column on the x axis, the sweep) of a chart of traffic."""
    from ..counting.sweep_axes import build

    axes = {name: value for name, value in values.items() if name in AXES}
    options = {name: value for name, value in values.items() if name not in AXES}
    many = [name for name in ("N", "M") if any(c in str(axes.get(name, "")) for c in ",:")]
    if len(many) > 1:
        example = f"as --N {axes['N']} --M {first_of(axes['M'])}, or --N {first_of(axes['N'])} --M {axes['M']}"
        raise InputError("--N, --M", f"{axes['N']} and {axes['M']}", "several values of one of them", example)
    if not many:
        axes["M"] = octaves(axes, around)
    try:
        plan = build(axes, schedules, tiles, multiple, (), None, **options)
    except InputError as fault:
        if many and (fault.where, fault.found) == ("--M", "nothing"):
            allowed = "one value beside several --N, as --M 100KB"
            raise InputError("--M", "nothing", allowed, "or give --tiles as 128x64") from None
        raise
    check_points(plan.rows)
    return ("N" if many == ["N"] else "M_bytes"), plan


def title_of(rows: pd.DataFrame, x: str) -> str:
    """The title of a chart of traffic: what all its points have in common."""
    about, problems = in_common(rows, x, "total"), list(dict.fromkeys(rows["problem"]))
    for name, value in problems[0].unusual().items():
        if name not in (*OF_PROBLEM, x) and all(getattr(p, name) == value for p in problems):
            about.append(value_text(name, value))
    return "Words moved between HBM and SRAM: " + ", ".join(about)


OF_PROBLEM: dict[str, str | int | None] = {"N": None, "Nk": "N", "d": None, "dv": "d", "heads": 1, "kv_heads": "heads"}
OF_PROBLEM |= {"batch": 1, "dtype": None, "M_bytes": None, "hardware": None, "mask": "dense"}
"""{column that a title names where all rows have one value: the value that it need not name, or the column of it}."""


def in_common(rows: pd.DataFrame, x: str, y: str) -> list[str]:
    """What the rows have in common, as texts: `N = 4096`, `M = 100 KiB`, `mask causal`."""
    first, found = rows.iloc[0], list[str]()
    for name, usual in OF_PROBLEM.items():
        if name in (x, y) or name not in rows or rows[name].isna().any() or rows[name].nunique() != 1:
            continue
        if first[name] != (first[usual] if usual in rows else usual):
            found.append(f"mask {first[name]}" if name == "mask" else value_text(name, first[name]))
    return found


def octaves(values: Mapping[str, object], around: int | None = None) -> list[int]:
    """Sizes of SRAM in bytes, 8 in each octave, from one that holds tiles of a few rows to one that holds all of K and
    V. They go from at least half of `around` to at least twice as much."""
    from ..counting.sweep_axes import read_counts, split

    N, d = (read_counts({**values}, name) or [1] for name in ("N", "d"))
    word = [dtype_bytes(name) for name in split(values.get("dtype")) or ["fp16"]]
    low = ceil(log2(8 * min(d) * min(word)))
    high = max(low + 4, min(60, ceil(log2(4 * max(N) * max(d) * max(word)))))
    if around is not None:
        low, high = max(0, min(low, floor(log2(around)) - 1)), min(60, max(high, ceil(log2(around)) + 1))
    return sorted(
        {round(2 ** (k / POINTS_AN_OCTAVE)) for k in range(low * POINTS_AN_OCTAVE, high * POINTS_AN_OCTAVE + 1)}
    )


def proven_lines(rows: pd.DataFrame, x: str, family: str) -> list[ChartLine]:
    """The line of the floor of each problem that the rows differ in. A single problem has the line of the order as
    well."""
    apart = splitting(rows, x, (), [name for name in splits() if name not in (x, *ONE_CHART)])
    if not apart:
        places = places_of(rows, x)
        return [*floor_line(places, family), *order_line(places, family)]
    found: dict[tuple[float, ...], ChartLine] = {}  # by its words: options such as --splits leave the floor as it is
    for _, group in rows.groupby(apart, sort=False):
        values = [value_text(name, group.iloc[0][name]) for name in apart]
        for line in floor_line(places_of(group, x), family, *values):
            found.setdefault((*line.x, *line.y), line)
    return (
        [replace(line, label=floor_label(family)) for line in found.values()] if len(found) == 1 else [*found.values()]
    )


def places_of(rows: pd.DataFrame, x: str) -> list[Place]:
    """The problem and M at each x of rows that have one problem there."""
    import pandas as pd

    found = []
    for row in rows.drop_duplicates(x).sort_values(x).to_dict("records"):
        M_bytes = int(row["M_bytes"]) if pd.notna(row["M_bytes"]) else None
        found.append((float(row[x]), row["problem"], M_bytes))
    return found


def read_rows(file: str) -> pd.DataFrame:
    """The rows of a CSV, JSON lines or Parquet file, whose name says which, or of a folder of such parts."""
    import pandas as pd

    if parts := sorted(map(str, Path(file).glob("part-*"))):
        return pd.concat([read_rows(part) for part in parts], ignore_index=True)
    try:
        if file.endswith(".parquet"):
            return pd.read_parquet(file)
        return pd.read_json(file, lines=True) if file.endswith((".jsonl", ".ndjson")) else pd.read_csv(file)
    except ImportError:
        raise MissingError(NO_PYARROW) from None
    except (OSError, ValueError) as error:
        raise InputError("file", file, "a CSV, JSON lines or Parquet file of rows", str(error).split("\n")[0]) from None


def of_traffic(asked: Asked) -> Picture:
    """The picture of traffic against M or N. Several GPUs are an axis of M."""
    choice = asked.choice
    if choice.hardware is not None:
        places = memories({}, choice.M, choice.hardware)
        sizes = [str(place.M) for place in places]
        choice = choice._replace(M=",".join(dict.fromkeys(sizes)))
    axes = dict(asked.values) if choice.M is None else {**asked.values, "M": choice.M}
    return Picture(Sheet.of(traffic_chart(axes, choice.schedules, choice.tiles, asked.multiple)))


TRAFFIC = PictureKind(of_traffic, several=(*NUMBERS, "M", "hardware"))
