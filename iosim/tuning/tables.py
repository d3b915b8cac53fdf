"""Tables, CSV rows and JSON of `tune`: like tables.py it only reads results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..counting.bounds import as_row, bounds
from ..counting.columns import COLUMNS, more_columns, more_sizes
from ..counting.report import bounds_table, header, notes, problem_row, tile_sizes, verdict
from ..tables import Rows, ratio, table
from ..units import format_bytes, format_megabytes


def tuned_rows(tuned: Any) -> Rows:
    """CSV: the best of each schedule, then the published choices."""
    problem = {**problem_row(tuned.problem), "M_bytes": tuned.M_bytes, "M_words": tuned.M_words}
    entries = [("best", "", r) for r in tuned.results] + [("published", c.label, r) for c, r in tuned.published]
    more = more_columns(tuned.problem, [r.more_tiles for _, _, r in entries])
    chosen = ["options"] * any(r.options for _, _, r in entries)
    why_not = ["needs_M_bytes", "most_blocks"] * (tuned.least_blocks > 1)
    columns = ("role", "label", *COLUMNS, "ratio_to_winner", "blocks", *why_not, *chosen, *more)
    rows = []
    for role, label, result in entries:
        values = {**problem, **vars(result), "role": role, "label": label, "ratio_to_winner": tuned.ratio(result)}
        values |= {"more_tiles": more_sizes(result.more_tiles), "options": more_sizes(result.options)}
        rows.append({name: values[name] for name in columns})
    return rows


def tuned_json(tuned: Any) -> dict[str, Any]:
    def row(result: Any) -> dict[str, Any]:
        values = {**asdict(result), "ratio_to_winner": tuned.ratio(result)}
        if tuned.least_blocks == 1:
            del values["needs_M_bytes"], values["most_blocks"]
        return values

    return {
        "problem": problem_row(tuned.problem),
        "sram": {"M_bytes": tuned.M_bytes, "M_words": tuned.M_words},
        "space": space_json([r.schedule for r in tuned.results], tuned, tuned.left_out),
        "bounds": [as_row(bound) for bound in tuned.bounds],
        "winner": None if tuned.winner is None else row(tuned.winner),
        "results": [row(r) for r in tuned.results],
        "published": [{"label": c.label, "source": c.source, **row(r)} for c, r in tuned.published],
    }


def space_json(schedules: Sequence[str], found: Any, left_out: Sequence[str]) -> dict[str, Any]:
    """What was searched."""
    return {
        "schedules": list(schedules),
        "left_out": list(left_out),
        "tile_multiple": found.tile_multiple,
        "least_blocks": found.least_blocks,
        "tiles": "every Br x Bc of these multiples, last tiles ragged, the whole footprint of the text inside M",
        "options": "splits whose shares hold a key tile; pages of 1 to 256 rows, powers of two; what is given is fixed",
        "least": "bytes over all heads",
    }


def tuned_text(tuned: Any) -> str:
    best = tuned.winner
    least = f"least with {tuned.least_blocks} blocks" if tuned.least_blocks > 1 else "least"
    if best is None:
        first = "nothing fits\n" if tuned.least_blocks == 1 else f"{least}: none that fits\n"
    else:
        tiles = tile_sizes(best) + flags(best.options)
        first = f"{least}: {best.schedule}{tiles}, {best.total} words, {format_megabytes(best.total_bytes)}\n"
    if tuned.left_out:
        first += "not in the space: " + ", ".join(tuned.left_out) + "\n"
    parts = [header(tuned) + first, table([result_row(tuned, r) for r in tuned.results]), "", "published:"]
    parts += [table([{"choice": c.label, **result_row(tuned, r)} for c, r in tuned.published]), ""]
    return "\n".join([*parts, table(bounds_table(tuned.bounds)), *notes(tuned)])


def flags(options: Any) -> str:
    """As the command line takes them."""
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in options.items())


def result_row(tuned: Any, r: Any) -> dict[str, Any]:
    return {
        "schedule": r.schedule,
        "tiles": (tile_sizes(r).strip() or r.tiling) + flags(r.options),
        "blocks": r.blocks,
        "fits": why_not(r) or verdict(r),
        "SRAM bytes": r.sram_peak_bytes,
        "total words": r.total,
        "bytes": None if r.total_bytes is None else format_megabytes(r.total_bytes),
        "x least": ratio(tuned.ratio(r)),
        "x N^2d^2/M": ratio(r.ratio_to_bound),
        "x floor": ratio(r.ratio_to_floor),
    }


def why_not(r: Any) -> str:
    """Why nothing with so many blocks fits."""
    if r.most_blocks is not None:
        return f"none: at most {r.most_blocks} block" + "s" * (r.most_blocks != 1)
    return "" if r.needs_M_bytes is None else f"none: needs {r.needs_M_bytes} B"


def curve_rows(found: Any) -> list[dict[str, Any]]:
    """One row a breakpoint, with the bounds at its M in words."""
    p, rows, family = found.problem, [], found.space[0].family
    last = {name for name in ("blocks", "options", "more_tiles") if any(getattr(s, name) for s in found.steps)}
    for step in found.steps:
        M_words = step.M_bytes // p.word_bytes
        words = {b.name.removeprefix(f"{family}: "): b.words for b in bounds(p, M_words, family=family)}
        order: Any = words.get("N^2 d^2 / M")
        rows.append(
            {
                "M_bytes": step.M_bytes,
                "M_words": M_words,
                **{name: getattr(step, name) for name in ("schedule", "Br", "Bc", "total", "total_bytes")},
                "order_words": order,
                "saha_ye_words": words.get("Saha and Ye 2024"),
                "compulsory_words": words["compulsory"],
                "ratio_to_bound": step.total / order if order else None,
                **{name: value for name, value in more_of(step).items() if name in last},
            }
        )
    return rows


def more_of(step: Any) -> dict[str, Any]:
    """What stands at the end of a row, where any step of the curve has it."""
    return {
        "blocks": step.blocks,
        "options": more_sizes(step.options),
        "more_tiles": more_sizes(step.more_tiles),
    }


def published_rows(found: Any) -> list[dict[str, Any]]:
    """Published tiles at the M that they really need. `rule_M_bytes` is the M that a rule was given."""
    rows = []
    for choice, given, r, least in found.published:
        best = None if least is None else least.total_bytes
        row = {"label": choice.label, "schedule": r.schedule, "Br": r.Br, "Bc": r.Bc, "rule_M_bytes": given}
        row |= {"M_bytes": r.sram_peak_bytes, "total": r.total, "total_bytes": r.total_bytes, "least_bytes": best}
        rows.append({**row, "ratio_to_least": None if best is None else r.total_bytes / best, "source": choice.source})
    return rows


def curve_json(found: Any) -> dict[str, Any]:
    names = [s.name for s in found.space]
    return {
        "problem": problem_row(found.problem),
        "space": space_json(names, found, [s.name for s in found.left_out]),
        "curve": curve_rows(found),
        "published": published_rows(found),
    }


def curve_text(found: Any) -> str:
    p = found.problem
    size = f"attention: N = {p.N}, Nk = {p.Nk}, d = {p.d}, batch {p.batch} x heads {p.heads} (kv {p.kv_heads})"
    lines = [f"{size}, {p.dtype}, {p.acc_dtype} accumulators, mask {p.mask}"]
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
            "bytes": format_megabytes(row["total_bytes"]),
            "x N^2d^2/M": ratio(row["ratio_to_bound"]),
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
    return "\n".join([*lines, "", table(steps), "", "published, at the M that they need:", table(published)])
