"""Tables, CSV rows and JSON of `roofline`: like tables.py it only reads results."""

from __future__ import annotations

from typing import Any

from ..counting.report import problem_row
from ..tables import Rows, table
from ..units import format_bytes, format_megabytes


def roofline_rows(found: Any) -> Rows:
    """One flat row a launch: labels, bytes and operations over all heads, then intensity, ridge and seconds."""
    rows = []
    for row in found.rows:
        values = dict(vars(row))
        work = values.pop("work")
        labels = {name: values.pop(name) for name in ("phase", "schedule", "tiling", "Br", "Bc", "fits", "launch")}
        rows.append({**labels, **vars(work), **values})
    return rows


def roofline_json(found: Any) -> dict[str, Any]:
    chip = found.hardware
    peaks = {"hbm_bytes_per_second": chip.hbm_bytes_per_second, "flops_per_second": dict(chip.flops_per_second)}
    ridges = {name: chip.ridge(name) for name in chip.flops_per_second if name != "exp"}
    return {
        "problem": problem_row(found.problem),
        "hardware": {"name": chip.name, **peaks, "ridges": ridges},
        "sram": {"M_bytes": found.M_bytes, "M_words": found.M_bytes // found.problem.word_bytes},
        "unmarked_steps": found.unmarked,
        "nothing_fits": found.nothing_fits,
        "results": roofline_rows(found),
    }


def roofline_text(found: Any) -> str:
    p, chip = found.problem, found.hardware
    size = f"attention: N = {p.N}, Nk = {p.Nk}, d = {p.d}, batch {p.batch} x heads {p.heads} (kv {p.kv_heads})"
    ridges = ", ".join(f"{name} {chip.ridge(name):.1f}" for name in chip.flops_per_second if name != "exp")
    lines = [
        f"{size}, {p.dtype}, {p.acc_dtype} accumulators, mask {p.mask}",
        f"{chip.name}: {format_megabytes(chip.hbm_bytes_per_second)}/s, M = {format_bytes(found.M_bytes)}",
        f"ridge in FLOP/B: {ridges}",
        "",
        table([line(row) for row in found.rows]),
        "",
        "times at the peaks, perfectly overlapped: every word from HBM, and with an L2 that keeps all of a launch",
    ]
    if found.nothing_fits:
        lines.append("no tiles fit: " + ", ".join(found.nothing_fits))
    if found.unmarked:
        lines.append("steps whose exponentials and other operations are not counted: " + ", ".join(found.unmarked))
    return "\n".join(lines)


def line(row: Any) -> dict[str, Any]:
    work = row.work
    return {
        "phase": row.phase,
        "schedule": row.schedule,
        "tiles": f"{row.Br}x{row.Bc}" if row.Br else row.tiling,
        "fits": "yes" if row.fits else "NO",
        "launch": row.launch,
        "bytes": format_megabytes(work.total_bytes),
        "matrix FLOP": f"{work.matrix_flops:.3e}",
        "exp": f"{work.exps:.3e}",
        "other": f"{work.other_ops:.3e}",
        "FLOP/B": "-" if row.intensity is None else f"{row.intensity:.2f}",
        "ridge": f"{row.ridge:.1f}",
        "us": f"{row.seconds * 1e6:.2f}",
        "binds": row.binds,
        "us ideal L2": f"{row.ideal_l2_seconds * 1e6:.2f}",
        "binds then": row.ideal_l2_binds,
    }
