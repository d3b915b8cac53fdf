"""A report as rows, tables, JSON and text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ..units import binary, format_bytes

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .bounds import Bound
    from .count import Report, Result

from ..grid import ByteCell, Grid, Piece, plain
from ..notebook import numbered
from ..tables import Answered, Headed, Row, excess, ratio
from .bounds import as_row
from .columns import COLUMNS, PROBLEM_COLUMNS, more_columns, more_sizes, tile_sizes
from .least_room import room_notes
from .sentence import answer_lines, answer_of, winners
from .skipping import group_notes, mask_notes
from .tensor_tiles import tile_notes

LESS_IMPORTANT = ("writes", "reads", "SRAM words", "x N^2d^2/M", "bytes")  # in the order of leaving out


def report_json(report: Report) -> Row:
    """A report as the keys of its JSON."""
    return {
        "problem": problem_row(report.problem),
        "sram": {"M_bytes": report.M_bytes, "M_words": report.M_words},
        "bounds": [as_row(bound) for bound in report.bounds],
        "results": [asdict(result) for result in report.results],
        "answer": answer_of(report),
        "notes": notes_on_report(report),
    }


def problem_row(p: Attention) -> Row:
    """The fields of a problem as cells."""
    names = ("N", "Nk", "d", "dv", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "lse", "keep_p")
    row = {name: getattr(p, name) for name in (*names, "elementwise", "count_init", "splits", "page_size", "top_k",
                                              "key_block", "gqa",
                                              "register_bytes", "stages")}  # fmt: skip
    return {**row, "mask": str(p.mask), "latent": p.latent, "kv_dtype": p.cache_dtype, "kv_scales": p.kv_scales}


def report_rows(report: Report) -> list[Row]:
    """One flat row for each result, with the columns of a sweep."""
    problem = {**problem_row(report.problem), "M_bytes": report.M_bytes, "M_words": report.M_words}
    columns = (*COLUMNS, *more_columns(report.problem, [r.more_tiles for r in report.results]))
    rows = [{**problem, **vars(r), "more_tiles": more_sizes(r.more_tiles)} for r in report.results]
    return [{name: row[name] for name in columns} for row in rows]


def report_text(report: Report) -> str:
    """A report as plain text."""
    return plain(report_pieces(report))


def report_pieces(report: Report, detail: bool = False) -> list[Piece]:
    """A report for people: what was asked, the results, the bounds, what does not fit, and the answer in a sentence.

    With `detail` it also has the words of each tensor and of each launch.
    """
    counted = Grid(count_table(report), LESS_IMPORTANT, winners(report.results))
    details: list[Piece] = ["", Grid(detail_table(report))] if detail else []
    return [
        header(report),
        counted,
        "",
        bounds_grid(report.bounds),
        *details,
        *notes(report),
        "",
        *answer_lines(report),
    ]


def header(report: Headed) -> str:
    """The lines above every table: the problem and the SRAM."""
    p = report.problem
    values = f", dv = {p.dv}" if p.dv != p.d else ""
    size = f"attention: N = {p.N}, Nk = {p.Nk}, d = {p.d}{values}, batch {p.batch} x heads {p.heads} (kv {p.kv_heads}"
    size += ", packed)" if p.gqa == "pack" else ")"
    types = f"{p.dtype} in HBM, {p.acc_dtype} accumulators{p.cache_text}, mask {p.mask}"
    memory = "M not given"
    if report.M_bytes is not None:
        memory = f"M = {format_bytes(report.M_bytes)}".rstrip(")")
        memory += (", " if "(" in memory else " (") + f"{report.M_words} {p.dtype} words)"
    return f"{size}\n{types}, {memory}{divided_text(p)}\n"


def divided_text(p: Attention) -> str:
    """The registers and stages of a chip that is more than one SRAM, after its M; an empty text for one SRAM."""
    if not p.divided:
        return ""
    return f", {format_bytes(p.register_bytes)} of registers for tiles, {numbered(p.stages, 'stage')} in flight"


def count_table(report: Answered) -> list[Row]:
    """The results as the rows that `iosim count` shows."""
    return [
        {
            "schedule": r.schedule,
            "tiles": r.tiling + tile_sizes(r),
            "fits": verdict(r),
            "SRAM words": r.sram_peak_words,
            **divided_cells(r, report.problem),
            "reads": r.reads,
            "writes": r.writes,
            "total words": r.total,
            "bytes": None if r.total_bytes is None else ByteCell(r.total_bytes),
            "x N^2d^2/M": ratio(r.ratio_to_bound),
            "x standard": ratio(r.ratio_to_standard),
            "x floor": ratio(r.ratio_to_floor),
        }
        for r in report.results
    ]


def divided_cells(result: Result, problem: Attention) -> Row:
    """Cells on shared memory and registers, if tiles may be in both."""
    if not problem.divided:
        return {}
    return {"shared bytes": result.smem_peak_bytes, "register bytes": result.register_peak_bytes}


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
            needed = r.smem_peak_bytes or r.sram_peak_bytes
            what = "shared memory" if report.problem.divided else "SRAM"
            hint = "; it would with more registers" if r.limit == "registers" else ""
            share = excess(needed / report.M_bytes)
            lines.append(f"{r.schedule} {r.tiling}: needs {needed} B of {what}, {share} x M: does not fit{hint}")
    return ["", *lines] if lines else []


def result_text(result: Result) -> str:
    """One result in words, with units."""
    if result.total_bytes is None or result.sram_peak_bytes is None:
        return f"{result.schedule} ({result.tiling} tiles): nothing fits"
    tiles = f"{result.tiling} tiles" + tile_sizes(result)
    lines = [
        f"{result.schedule}, {tiles}: {result.reads} words read, {result.writes} written, {result.total} in all "
        f"({binary(result.total_bytes)}); SRAM peak {result.sram_peak_words} words, "
        f"{format_bytes(result.sram_peak_bytes)}; fits: {verdict(result)}"
    ]
    lines += [f"  {name}: {t['reads']} words read, {t['writes']} written" for name, t in result.tensors.items()]
    return "\n".join(lines)


def detail_table(report: Answered) -> list[Row]:
    """Rows with the words of each tensor and of each launch."""
    rows: list[Row] = []
    for r in report.results:
        label = {"schedule": r.schedule, "tiling": r.tiling}
        rows += [{**label, "part": f"tensor {name}", **t} for name, t in r.tensors.items()]
        rows += [{**label, "part": f"launch {i}", **launch} for i, launch in enumerate(r.steps, 1)]
    return rows


def detail_rows(report: Report) -> list[Row]:
    """The rows of `detail_table` for CSV, each with the columns of the problem and of the tiling."""
    rows = {(row["schedule"], row["tiling"]): row for row in report_rows(report)}
    names = [*PROBLEM_COLUMNS, "schedule", "tiling", "Br", "Bc", "fits"]
    details = detail_table(report)
    return [{**{name: rows[d["schedule"], d["tiling"]][name] for name in names}, **d} for d in details]


def notes_on_mask(report: Answered) -> list[str]:
    """Notes on schedules that skip nothing under the report's mask, and on query heads that share nothing."""
    return [*mask_notes(report.problem, (r.schedule for r in report.results)), *group_notes(report.problem)]


def notes_on_tiles(report: Answered, instead: str = "") -> list[str]:
    """A note on winners whose tiles tensor cores cannot use; `instead` names what finds others beside
    --tile-multiple."""
    return tile_notes([(report.problem, report.results[k]) for k in winners(report.results)], instead)


def notes_on_report(report: Report) -> list[str]:
    """Notes on a count. Only those who ask for the best tiles alone hear of tensor cores."""
    tiles = notes_on_tiles(report) if report.tiles == "best" else []
    return [*notes_on_mask(report), *tiles, *room_notes(report)]


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


def bounds_grid(bounds: list[Bound]) -> Grid:
    """Bounds as a table for people."""
    return Grid(bounds_table(bounds), ("valid", "kind"))


def bound_rows(bounds: list[Bound]) -> list[Row]:
    """Bounds as rows of one CSV. Columns that only a floor fills come last."""
    rows = [as_row(bound) for bound in bounds]
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]
