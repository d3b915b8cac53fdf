"""Tables, JSON and CSV of rows and reports. It only reads results and knows nothing of machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Protocol

from . import __version__
from .units import format_bytes, format_megabytes

if TYPE_CHECKING:
    from .bounds import Bound
    from .experiment import Report, Result
    from .problem import Attention

PROBLEM_COLUMNS = ("N", "Nk", "d", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "M_bytes", "M_words")
RESULT_COLUMNS = (
    "schedule", "tiling", "Br", "Bc", "fits", "sram_peak_words", "sram_peak_bytes", "reads", "writes", "total",
    "read_bytes", "write_bytes", "total_bytes", "flops", "ratio_to_bound", "ratio_to_standard",
)  # fmt: skip
COLUMNS = PROBLEM_COLUMNS + RESULT_COLUMNS
OPTIONS = ("lse", "keep_p", "elementwise", "count_init", "splits", "page_size", "gqa")
EVERY_COLUMN = (*COLUMNS, *OPTIONS, "tile_multiple", "more_tiles")

Row = dict[str, object]
"""Cells by the names of their columns."""
Rows = Sequence[Mapping[str, object]]
"""Rows of a table; all have the columns of the first."""


class Headed(Protocol):
    """An answer about one problem and one SRAM."""

    @property
    def problem(self) -> Attention: ...

    @property
    def M_bytes(self) -> int | None: ...

    @property
    def M_words(self) -> int | None: ...


class Answered(Headed, Protocol):
    """An answer with a result for each schedule and tiling."""

    @property
    def results(self) -> Sequence[Result]: ...


class Tiled(Protocol):
    """Whatever has tile sizes; without Br it has none to show."""

    @property
    def Br(self) -> int | None: ...

    @property
    def Bc(self) -> int | None: ...

    @property
    def more_tiles(self) -> Mapping[str, int]: ...


def to_json(value: Mapping[str, object], argv: list[str]) -> str:
    """The JSON text of an answer: schema, version, argv, then the answer's keys. Infinities and NaN become null."""
    import json

    whole = {"schema": 1, "iosim": __version__, "argv": argv, **value}
    try:
        return json.dumps(whole, indent=1, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(finite(whole), indent=1, allow_nan=False) + "\n"


def finite(value: object) -> object:
    """The value with None for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def report_json(report: Report) -> Row:
    """A report as the keys of its JSON."""
    return {
        "problem": problem_row(report.problem),
        "sram": {"M_bytes": report.M_bytes, "M_words": report.M_words},
        "bounds": [asdict(bound) for bound in report.bounds],
        "results": [asdict(result) for result in report.results],
    }


def problem_row(p: Attention) -> Row:
    """The fields of a problem as cells."""
    names = ("N", "Nk", "d", "dv", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "lse", "keep_p")
    row = {name: getattr(p, name) for name in (*names, "elementwise", "count_init", "splits", "page_size", "gqa")}
    return {**row, "mask": str(p.mask)}


def report_rows(report: Report) -> list[Row]:
    """One flat row for each result, with the columns of a sweep."""
    problem = {**problem_row(report.problem), "M_bytes": report.M_bytes, "M_words": report.M_words}
    columns = (*COLUMNS, *more_columns(report.problem, [r.more_tiles for r in report.results]))
    rows = [{**problem, **vars(r), "more_tiles": more_sizes(r.more_tiles)} for r in report.results]
    return [{name: row[name] for name in columns} for row in rows]


def more_columns(problem: Attention, more_tiles: Iterable[object]) -> tuple[str, ...]:
    """The columns at the end of a row: options that are not at their defaults, and `more_tiles` if any tiling has more
    than Br and Bc. Then a row holds all that its counts depend on."""
    unusual = [name for name in OPTIONS if getattr(problem, name) != getattr(type(problem), name)]
    return (*unusual, *(["more_tiles"] if any(more_tiles) else []))


def more_sizes(sizes: Mapping[str, object]) -> str:
    """Tile sizes as `--tiles` takes them after the first slash: `depth=8/rows_o=4`."""
    return "/".join(f"{name}={size}" for name, size in sizes.items())


def to_csv(rows: Rows, columns: tuple[str, ...] | None = None) -> str:
    """The CSV text of rows; a cell that is None is empty."""
    import csv
    import io

    names = list(columns or (rows[0] if rows else ()))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    return out.getvalue()


def report_text(report: Report) -> str:
    """A report as plain text: what was asked, the results, the bounds, and what does not fit."""
    parts = [header(report), table(count_table(report)), "", table(bounds_table(report.bounds))]
    return "\n".join([*parts, *notes(report)])


def header(report: Headed) -> str:
    """The lines above every table: the problem and the SRAM."""
    p = report.problem
    size = f"attention: N = {p.N}, Nk = {p.Nk}, d = {p.d}, batch {p.batch} x heads {p.heads} (kv {p.kv_heads}"
    size += ", packed)" if p.gqa == "pack" else ")"
    types = f"{p.dtype} in HBM, {p.acc_dtype} accumulators, mask {p.mask}"
    memory = "M not given"
    if report.M_bytes is not None:
        memory = f"M = {format_bytes(report.M_bytes)}".rstrip(")")
        memory += (", " if "(" in memory else " (") + f"{report.M_words} {p.dtype} words)"
    return f"{size}\n{types}, {memory}\n"


def count_table(report: Answered) -> list[Row]:
    """The results as the rows that `iosim count` shows."""
    return [
        {
            "schedule": r.schedule,
            "tiles": r.tiling + tile_sizes(r),
            "fits": verdict(r),
            "SRAM words": r.sram_peak_words,
            "reads": r.reads,
            "writes": r.writes,
            "total words": r.total,
            "bytes": None if r.total_bytes is None else format_megabytes(r.total_bytes),
            "x N^2d^2/M": ratio(r.ratio_to_bound),
            "x standard": ratio(r.ratio_to_standard),
        }
        for r in report.results
    ]


def tile_sizes(result: Tiled) -> str:
    """Tile sizes as `--tiles` takes them, after a space; nothing if there are none."""
    if not result.Br:
        return ""
    return f" {result.Br}x{result.Bc}" + ("/" + more_sizes(result.more_tiles) if result.more_tiles else "")


def narrow_table(report: Answered) -> list[Row]:
    """The columns of `count_table` that fit a terminal of 80 columns."""
    names = {"total words": "words", "x N^2d^2/M": "x bound"}
    left_out = ("SRAM words", "reads", "writes")
    return [{names.get(k, k): v for k, v in row.items() if k not in left_out} for row in count_table(report)]


def verdict(result: Result) -> str:
    """Whether a result fits, as tables show it."""
    if result.total is None:
        return "nothing fits"
    return {True: "yes", False: "NO", None: "-"}[result.fits]


def notes(report: Answered) -> list[str]:
    """Lines below a table that say how far each result that does not fit is above M."""
    lines = []
    for r in report.results:
        if r.fits is False and r.sram_peak_bytes is not None and report.M_bytes:
            share = excess(r.sram_peak_bytes / report.M_bytes)
            lines.append(f"{r.schedule} {r.tiling}: needs {r.sram_peak_bytes} B of SRAM, {share} x M: does not fit")
    return ["", *lines] if lines else []


def excess(share: float) -> str:
    """A number above 1 in three digits, or in as many digits as show that it is above 1."""
    return next((text for digits in range(3, 17) if (text := f"{share:.{digits}g}") != "1"), "more than 1")


def result_text(result: Result) -> str:
    """One result in words, with units."""
    if result.total_bytes is None or result.sram_peak_bytes is None:
        return f"{result.schedule} ({result.tiling} tiles): nothing fits"
    tiles = f"{result.tiling} tiles" + tile_sizes(result)
    lines = [
        f"{result.schedule}, {tiles}: {result.reads} words read, {result.writes} written, {result.total} in all "
        f"({format_megabytes(result.total_bytes)}); SRAM peak {result.sram_peak_words} words, "
        f"{format_bytes(result.sram_peak_bytes)}; fits: {verdict(result)}"
    ]
    lines += [f"  {name}: {t['reads']} words read, {t['writes']} written" for name, t in result.tensors.items()]
    return "\n".join(lines)


def detail_table(report: Answered) -> list[Row]:
    """Rows of words for each tensor and each step."""
    rows: list[Row] = []
    for r in report.results:
        label = {"schedule": r.schedule, "tiling": r.tiling}
        rows += [{**label, "part": f"tensor {name}", **t} for name, t in r.tensors.items()]
        rows += [{**label, "part": f"step {i}", **step} for i, step in enumerate(r.steps, 1)]
    return rows


def detail_rows(report: Report) -> list[Row]:
    """The rows of `detail_table` for CSV, each with the columns of the problem and of the tiling."""
    rows = {(row["schedule"], row["tiling"]): row for row in report_rows(report)}
    names = [*PROBLEM_COLUMNS, "schedule", "tiling", "Br", "Bc", "fits"]
    details = detail_table(report)
    return [{**{name: rows[d["schedule"], d["tiling"]][name] for name in names}, **d} for d in details]


def bounds_table(bounds: list[Bound]) -> list[Row]:
    """Bounds as rows of a table."""
    return [
        {
            "bound": b.name,
            "words": "-" if b.words is None else b.words if isinstance(b.words, int) else f"{b.words:.1f}",
            "kind": b.kind,
            "holds here": {True: "yes", False: "no", None: "-"}[b.valid],
            "valid": b.condition,
        }
        for b in bounds
    ]


def ratio(value: float | None) -> str:
    """A ratio as tables show it."""
    return "-" if value is None else f"{value:.3f}"


def table(rows: Rows) -> str:
    """Rows as plain text in aligned columns. Nothing is wrapped and no number is cut."""
    if not rows:
        return "(no rows)"
    cells = [list(rows[0]), *[["-" if v is None else str(v) for v in row.values()] for row in rows]]
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    numeric = [all(line[c][:1].isdigit() or line[c] == "-" for line in cells[1:]) for c in range(len(widths))]
    lines = [
        "  ".join(x.rjust(w) if n else x.ljust(w) for x, w, n in zip(line, widths, numeric, strict=True)).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def print_rich(rows: Rows) -> None:
    """Print rows on a terminal: by rich, which honours NO_COLOR, or as plain text in parts if they are too wide."""
    from rich.console import Console
    from rich.table import Table

    from .narrow import fit

    console, plain = Console(), table(rows)
    rulers = plain.split("\n")[1:2]
    if not rows or len(rulers[0]) + len(rows[0]) + 3 > console.width:  # two borders a column and one more
        print(fit(plain, console.width))
        return
    grid = Table()
    for name in rows[0]:
        number = all(str(row[name])[:1].isdigit() or row[name] in (None, "-") for row in rows)
        grid.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*["-" if v is None else str(v) for v in row.values()])
    console.print(grid)
