"""The table, the CSV rows and the JSON of a roofline. It only reads results."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ..counting.asked import divided_text, size_line
from ..counting.report import problem_row
from ..counting.skipping import mask_notes
from ..counting.tensor_tiles import tile_notes
from ..grid import ByteCell, Grid, Piece
from ..tables import Row as Cells
from ..units import format_bytes, format_rate
from .roofline_sentence import answer_lines, winners

if TYPE_CHECKING:
    from .roofline import Roofline, RooflineRow

LESS_IMPORTANT = (
    "exp",
    "other",
    "matrix FLOP",
    "ridge",
    "FLOP/B",
    "bytes",
    "register bytes",
    "shared bytes",
    "limit predicted",
    "limit no L2",
    "us no L2",
    "phase",
    "fits",
    "launch",
)  # columns, left out first to last
LABELS = ("phase", "schedule", "tiling", "Br", "Bc", "fits", "launch")
DASH = "-"


def roofline_rows(found: Roofline) -> list[Cells]:
    """One flat row for each launch: labels, bytes and operations over all heads, intensity, ridge, seconds."""
    rows = []
    for row in found.rows:
        values = {name: value for name, value in vars(row).items() if name != "work"}
        labels = {name: values.pop(name) for name in LABELS}
        rows.append({**labels, **vars(row.work), **values})
    return rows


def roofline_json(found: Roofline) -> Cells:
    """The answer as the keys of its JSON."""
    chip, rates = found.hardware, found.measured_on
    peaks = {"hbm_bytes_per_second": chip.hbm_bytes_per_second, "flops_per_second": dict(chip.flops_per_second)}
    ridges = {name: chip.ridge(name) for name in chip.flops_per_second if name != "exp"}
    return {
        "problem": problem_row(found.problem),
        "hardware": {"name": chip.name, **peaks, "ridges": ridges, "measured_on": rates.name if rates else None},
        "sram": {"M_bytes": found.M_bytes, "M_words": found.M_bytes // found.problem.word_bytes},
        "unmarked_steps": found.unmarked,
        "nothing_fits": found.nothing_fits,
        "results": roofline_rows(found),
        "not_predicted": [asdict(missing) for missing in found.not_predicted],
        "answer": " ".join(answer_lines(found)),
        "notes": notes_on_answer(found),
    }


def notes_on_answer(found: Roofline) -> list[str]:
    """Notes on schedules that skip nothing under the problem's mask, and on winners whose tiles tensor cores cannot
    use."""
    best = [(replace(found.problem, N=1) if row.phase == "decode" else found.problem, row) for row in winners(found)]
    return [*mask_notes(found.problem, (row.schedule for row in found.rows)), *tile_notes(best)]


def roofline_pieces(found: Roofline) -> list[Piece]:
    """The answer for people: the question, a row for each launch, the meaning of the times, omissions, a sentence."""
    p, chip = found.problem, found.hardware
    ridges = ", ".join(f"{name} {chip.ridge(name):.1f}" for name in chip.flops_per_second if name != "exp")
    fastest, memory = winners(found), f"M = {format_bytes(found.M_bytes)}{divided_text(p)}"
    lines: list[Piece] = [
        f"{size_line(p)}, {p.dtype}, {p.acc_dtype} accumulators{p.cache_text}, mask {p.mask}",
        f"{chip.name}: {format_rate(chip.hbm_bytes_per_second)}, {memory}",
        f"ridge in FLOP/B: {ridges}",
        "",
        Grid([line(row, p.divided) for row in found.rows], spare(found), [*map(found.rows.index, fastest)], tall=True),
        "",
        *times_explained(found),
    ]
    if found.nothing_fits:
        lines.append("no tiles fit: " + ", ".join(found.nothing_fits))
    if found.unmarked:
        lines.append("steps whose exponentials and other operations are not counted: " + ", ".join(found.unmarked))
    return [*lines, "", *answer_lines(found)]


def spare(found: Roofline) -> tuple[str, ...]:
    """The columns that a narrow terminal leaves out, first to last: those that say nothing, and the less important."""
    one_phase = len({row.phase for row in found.rows}) == 1
    none_predicted = all(row.predicted_seconds is None for row in found.rows)
    empty = ("phase",) * one_phase + ("us predicted", "limit predicted") * none_predicted
    return tuple(dict.fromkeys((*empty, *LESS_IMPORTANT)))


def times_explained(found: Roofline) -> list[str]:
    """The meaning of the three times, and the reasons why some are not predicted."""
    lines = [
        "us no L2: microseconds at the peaks, perfectly overlapped, if every word comes from HBM",
        "us ideal L2: the same if an L2 keeps all data of a launch",
        "limit: the slowest resource, which binds: memory, matrix (products), exp (exponentials), other (operations)",
    ]
    if found.measured_on is None:
        lines.append(f"us predicted: no rates were measured for {found.hardware.name}: run iosim calibrate there and "
                     "give its file")  # fmt: skip
        return lines
    lines += [
        "us predicted: the time of the generated kernels, one launch after the other, with rates measured on "
        + found.measured_on.name.removesuffix(" (measured)"),
        "limit predicted: the longest part of the prediction: DRAM, L2, or blocks (the work of thread blocks)",
        *found.on_cuda_cores,
    ]
    whom: dict[str, list[str]] = {}
    for one in found.not_predicted:
        whom.setdefault(one.why, []).append(f"{one.schedule} {one.tiles}")
    lines += [f"no prediction for {', '.join(dict.fromkeys(names))}: {why}" for why, names in whom.items()]
    return list(dict.fromkeys(lines))


def line(row: RooflineRow, divided: bool) -> Cells:
    """One launch as the cells that a person reads. Of a `divided` chip they say how much of each part is used."""
    work = row.work
    parts: Cells = {"shared bytes": row.smem_peak_bytes, "register bytes": row.register_peak_bytes} if divided else {}
    return {
        "phase": row.phase,
        "schedule": row.schedule,
        "tiles": f"{row.Br}x{row.Bc}" if row.Br else row.tiling,
        "fits": "yes" if row.fits else "NO",
        **parts,
        "launch": row.launch,
        "bytes": ByteCell(work.total_bytes),
        "matrix FLOP": f"{work.matrix_flops:.3e}",
        "exp": f"{work.exps:.3e}",
        "other": f"{work.other_ops:.3e}",
        "FLOP/B": DASH if row.intensity is None else f"{row.intensity:.2f}",
        "ridge": f"{row.ridge:.1f}",
        "us no L2": f"{row.seconds * 1e6:.2f}",
        "limit no L2": row.binds,
        "us ideal L2": f"{row.ideal_l2_seconds * 1e6:.2f}",
        "limit ideal L2": row.ideal_l2_binds,
        "us predicted": DASH if row.predicted_seconds is None else f"{row.predicted_seconds * 1e6:.2f}",
        "limit predicted": row.predicted_binds or DASH,
    }
