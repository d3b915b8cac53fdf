"""Answers of `tune` as tables, CSV rows and JSON. Nothing is counted in this file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NotRequired, TypedDict

from ..counting.asked import header, size_line
from ..counting.bounds import as_row, bounds, bounds_table
from ..counting.columns import COLUMNS, flags, more_columns
from ..counting.notes import notes_on_mask, notes_on_tiles
from ..counting.report import problem_row, unfit_lines
from ..counting.result import more_sizes, tile_sizes, verdict
from ..counting.sentence import answer_lines, answer_of, winners
from ..grid import ByteCell, Grid
from ..tables import Rows, ratio
from ..units import format_bytes
from . import gap
from .gap import ratio_to_floor

if TYPE_CHECKING:
    from ..counting.result import Result
    from ..grid import Piece
    from ..tables import Row
    from .curve import CurveStep
    from .least import Best, Curve, PublishedTiles, ResultWithBlocks

LESS_IMPORTANT = ("SRAM bytes", "blocks", "x N^2d^2/M", "bytes", "rule's M")  # left out first to last


# ---------------------------------------------------------------- one M


def tune_rows(best: Best) -> Rows:
    """The rows of the CSV: the best of each schedule, then the published tiles."""
    problem = {**problem_row(best.problem), "M_bytes": best.M_bytes, "M_words": best.M_words}
    entries = [("best", "", r) for r in best.results] + [("published", c.label, r) for c, r in best.published]
    more = more_columns(best.problem, [r.more_tiles for _, _, r in entries])
    chosen = ["options"] * any(r.options for _, _, r in entries)
    none_fits = ["needs_M_bytes", "most_blocks"] * (best.least_blocks > 1)
    columns = ("role", "label", *COLUMNS, "ratio_to_winner", "blocks", *none_fits, *chosen, *more)
    rows = []
    for role, label, result in entries:
        values = {**problem, **vars(result), "role": role, "label": label, "ratio_to_winner": best.ratio(result)}
        values |= {"more_tiles": more_sizes(result.more_tiles), "options": more_sizes(result.options)}
        rows.append({name: values[name] for name in columns})
    return rows


def tune_json(best: Best) -> Row:
    """The keys of the JSON."""

    def row(result: ResultWithBlocks) -> Row:
        values = {**asdict(result), "ratio_to_winner": best.ratio(result)}
        if best.least_blocks == 1:
            del values["needs_M_bytes"], values["most_blocks"]
        return values

    return {
        "problem": problem_row(best.problem),
        "sram": {"M_bytes": best.M_bytes, "M_words": best.M_words},
        "space": space_json([r.schedule for r in best.results], best, best.left_out),
        "bounds": [as_row(bound) for bound in best.bounds],
        "winner": None if best.winner is None else row(best.winner),
        "results": [row(r) for r in best.results],
        "published": [{"label": c.label, "source": c.source, **row(r)} for c, r in best.published],
        "answer": answer_of(best),
        "notes": notes_on_best(best),
    }


def notes_on_best(best: Best) -> list[str]:
    """Notes on the answer for one M. The time model finds tiles for tensor cores too."""
    return [*notes_on_mask(best), *notes_on_tiles(best, instead=", or --by time with --hardware h100 or h200")]


def space_json(schedules: Sequence[str], found: Best | Curve, left_out: Sequence[str]) -> Row:
    """The space that was searched, for the key `space` of the JSON."""
    return {
        "schedules": list(schedules),
        "left_out": list(left_out),
        "tile_multiple": found.tile_multiple,
        "least_blocks": found.least_blocks,
        "tiles": "every Br x Bc of these multiples, last tiles ragged, the whole footprint inside M",
        "options": "splits whose shares hold a key tile; pages of 1 to 256 rows, powers of two; what is given is fixed",
        "least": "bytes over all heads",
    }


def tune_pieces(best: Best) -> list[Piece]:
    """The answer for people: the question, the best tiles of each schedule, published tiles, the bounds, a sentence."""
    first = winner_line(best)
    if best.left_out:
        first += "not in the space: " + ", ".join(best.left_out) + "\n"
    results = Grid([result_row(best, r) for r in best.results], LESS_IMPORTANT, winners(best.results))
    published = Grid([{"choice": c.label, **result_row(best, r)} for c, r in best.published], LESS_IMPORTANT)
    above = header(best.problem, best.M_bytes) + first
    parts: list[Piece] = [above, results, "", "published:", published, "", bounds_table(best.bounds)]
    return [*parts, *unfit_lines(best), "", *answer_lines(best)]


def winner_line(best: Best) -> str:
    """The line that says which schedule and tiles move least."""
    least = f"least with {best.least_blocks} blocks" if best.least_blocks > 1 else "least"
    winner = best.winner
    if winner is None or winner.total_bytes is None:
        return "nothing fits\n" if best.least_blocks == 1 else f"{least}: none that fits\n"
    tiles = tile_sizes(winner) + flags(winner.options)
    return f"{least}: {winner.schedule}{tiles}, {winner.total} words, {winner.total_bytes} B\n"


def result_row(best: Best, r: ResultWithBlocks) -> Row:
    """A result as a row of the table."""
    return {
        "schedule": r.schedule,
        "tiles": (tile_sizes(r).strip() or r.tiling) + flags(r.options),
        "blocks": r.blocks,
        "fits": why_none_fits(r) or verdict(r),
        "SRAM bytes": r.smem_peak_bytes,
        "total words": r.total,
        "bytes": None if r.total_bytes is None else ByteCell(r.total_bytes),
        "x least": ratio(best.ratio(r)),
        "x N^2d^2/M": ratio(r.ratio_to_bound),
        "x floor": ratio(r.ratio_to_floor),
    }


def why_none_fits(r: ResultWithBlocks) -> str:
    """The reason why no tiling with the least number of blocks fits; an empty string if none is known."""
    if r.most_blocks is not None:
        return f"none: at most {r.most_blocks} block" + "s" * (r.most_blocks != 1)
    return "" if r.needs_M_bytes is None else f"none: needs {r.needs_M_bytes} B"


# ---------------------------------------------------------------- the curve


class CurveRow(TypedDict):
    """A step of the curve, with the bounds at its M in words. The last three columns exist only if some step
    has them."""

    M_bytes: int
    M_words: int
    schedule: str
    Br: int | None
    Bc: int | None
    total: int
    total_bytes: int
    order_words: float | None
    saha_ye_words: float | None
    compulsory_words: float | None
    ratio_to_bound: float | None
    floor_words: int | None
    ratio_to_floor: float | None
    blocks: NotRequired[int | None]
    options: NotRequired[str]
    more_tiles: NotRequired[str]


class PublishedRow(TypedDict):
    """Published tiles at the M that they really need. `rule_M_bytes` is the M that their rule was given."""

    label: str
    schedule: str
    Br: int | None
    Bc: int | None
    rule_M_bytes: int | None
    M_bytes: int
    total: int
    total_bytes: int
    least_bytes: int | None
    ratio_to_least: float | None
    source: str


def curve_rows(found: Curve) -> list[CurveRow]:
    """One row for each step of the curve."""
    filled = {name for name in ("blocks", "options", "more_tiles") if any(getattr(s, name) for s in found.steps)}
    return [curve_row(found, step, filled) for step in found.steps]


def curve_row(found: Curve, step: CurveStep, filled: set[str]) -> CurveRow:
    """The row of one step. `filled` names those of the last three columns that the curve has."""
    p, family = found.problem, found.space[0].family
    words = {b.name.removeprefix(f"{family}: "): b.words for b in bounds(p, step.M_bytes, family=family)}
    order = words.get("N^2 d^2 / M")
    floor, share = ratio_to_floor(p, step, family)
    row: CurveRow = {
        "M_bytes": step.M_bytes,
        "M_words": step.M_bytes // p.word_bytes,
        "schedule": step.schedule,
        "Br": step.Br,
        "Bc": step.Bc,
        "total": step.total,
        "total_bytes": step.total_bytes,
        "order_words": order,
        "saha_ye_words": words.get("Saha and Ye 2024"),
        "compulsory_words": words["compulsory"],
        "ratio_to_bound": step.total / order if order else None,
        "floor_words": floor,
        "ratio_to_floor": share,
    }
    if "blocks" in filled:
        row["blocks"] = step.blocks
    if "options" in filled:
        row["options"] = more_sizes(step.options)
    if "more_tiles" in filled:
        row["more_tiles"] = more_sizes(step.more_tiles)
    return row


def published_rows(found: Curve) -> list[PublishedRow]:
    """One row for each of the published tiles."""
    return [published_row(*entry) for entry in found.published]


def published_row(tiles: PublishedTiles, rule_M: int | None, r: Result, least: CurveStep | None) -> PublishedRow:
    """The row of published tiles, their result, and the step of the least traffic at the M that they need."""
    assert r.smem_peak_bytes is not None and r.total is not None and r.total_bytes is not None  # tiles were given
    best = None if least is None else least.total_bytes
    return {
        "label": tiles.label,
        "schedule": r.schedule,
        "Br": r.Br,
        "Bc": r.Bc,
        "rule_M_bytes": rule_M,
        "M_bytes": r.smem_peak_bytes,
        "total": r.total,
        "total_bytes": r.total_bytes,
        "least_bytes": best,
        "ratio_to_least": r.total_bytes / best if best else None,
        "source": tiles.source,
    }


def curve_json(found: Curve) -> Row:
    """The keys of the JSON."""
    names = [s.name for s in found.space]
    return {
        "problem": problem_row(found.problem),
        "space": space_json(names, found, [s.name for s in found.left_out]),
        "curve": curve_rows(found),
        "published": published_rows(found),
        "answer": " ".join(gap.answer_lines(found)),
    }


def curve_pieces(found: Curve) -> list[Piece]:
    """The answer for people: the question, the steps, and published tiles."""
    p = found.problem
    lines = [f"{size_line(p)}, {p.dtype}, {p.acc_dtype} accumulators{p.cache_text}, mask {p.mask}"]
    blocks = f" with {found.least_blocks} blocks" if found.least_blocks > 1 else ""
    names = ", ".join(s.name for s in found.space)
    lines.append(f"least traffic{blocks} over {names}: {len(found.steps)} breakpoints")
    if found.left_out:
        lines.append("not in the space: " + ", ".join(s.name for s in found.left_out))
    steps = [
        {
            "from M": format_bytes(row["M_bytes"]),
            "schedule": row["schedule"],
            "tiles": (tile_sizes(step).strip() or "ideal") + flags(step.options),
            **({"blocks": step.blocks} if found.least_blocks > 1 else {}),
            "total words": row["total"],
            "bytes": ByteCell(row["total_bytes"]),
            "x N^2d^2/M": ratio(row["ratio_to_bound"]),
            "x floor": ratio(row["ratio_to_floor"]),
        }
        for step, row in zip(found.steps, curve_rows(found), strict=True)
    ]
    published = [
        {
            "choice": row["label"],
            "tiles": f"{row['Br']}x{row['Bc']}",
            "needs": format_bytes(row["M_bytes"]),
            "rule's M": "-" if row["rule_M_bytes"] is None else format_bytes(row["rule_M_bytes"]),
            "total words": row["total"],
            "x least": ratio(row["ratio_to_least"]),
        }
        for row in published_rows(found)
    ]
    tables: list[Piece] = [
        Grid(steps, LESS_IMPORTANT),
        "",
        "published, at the M that they need:",
        Grid(published, LESS_IMPORTANT),
    ]
    return [*lines, "", *tables, "", *gap.answer_lines(found)]
