"""The answer of `iosim training` as a table, CSV rows and JSON. It only reads results."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ..counting.asked import header
from ..counting.report import problem_row
from ..counting.result import Result
from ..counting.sentence import BASELINE
from ..grid import ByteCell, Grid
from ..tables import Row, ratio
from ..units import binary

if TYPE_CHECKING:
    from ..grid import Piece
    from .training import Training, TrainingStep

STEP_COLUMNS = (
    "combination", "tiling", "fits", "recomputed", "stored_bytes", "reads", "writes", "total", "dropout_mask_bytes",
    "total_bytes", "flops", "ratio_to_standard",
)  # fmt: skip
SCHEDULE_COLUMNS = ("schedule", "Br", "Bc", "fits", "sram_peak_bytes", "reads", "writes", "total_bytes")


def training_json(found: Training) -> Row:
    """The keys of the JSON answer: problem, SRAM, and a result for each step."""
    return {
        "problem": problem_row(found.problem),
        "sram": {"M_bytes": found.M_bytes, "M_words": found.M_words},
        "results": [asdict(step) for step in found.steps],
        "answer": " ".join(answer_lines(found)),
    }


def training_rows(found: Training) -> list[Row]:
    """A flat row for each step, with the columns of its forward and its backward pass at the end."""
    problem = {**problem_row(found.problem), "M_bytes": found.M_bytes, "M_words": found.M_words}
    rows = []
    for step in found.steps:
        parts = {
            f"{side}_{name}": getattr(result, name)
            for side, result in (("forward", step.forward), ("backward", step.backward))
            for name in SCHEDULE_COLUMNS
        }
        row = {**problem, **{name: getattr(step, name) for name in STEP_COLUMNS}, "unfused": ",".join(step.unfused)}
        rows.append({**row, "stored": "+".join(step.stored), **parts})
    return rows


def training_pieces(found: Training) -> list[Piece]:
    """The answer for people: the problem, a table with a row for each step, and notes."""
    rows = [
        {
            "combination": step.combination,
            "forward": schedule_and_tiles(step.forward),
            "backward": schedule_and_tiles(step.backward),
            "fits": {True: "yes", False: "NO", None: "-"}[step.fits],
            "stored": ", ".join(step.stored) or "nothing",
            "stored bytes": step.stored_bytes,
            "forward bytes": bytes_cell(step.forward, " twice" if step.recomputed else ""),
            "backward bytes": bytes_cell(step.backward),
            "total bytes": None if step.total_bytes is None else ByteCell(step.total_bytes),
            "GFLOP": None if step.flops is None else f"{step.flops / 1e9:.1f}",
            "x standard": ratio(step.ratio_to_standard),
        }
        for step in found.steps
    ]
    less_important = ("GFLOP", "stored bytes", "backward bytes", "forward bytes", "stored", "backward")
    return [
        header(found.problem, found.M_bytes),
        Grid(rows, less_important),
        *notes_on_totals(found),
        "",
        *answer_lines(found),
    ]


def schedule_and_tiles(result: Result) -> str:
    """A pass as `flash2 128x64`."""
    return result.schedule + (f" {result.Br}x{result.Bc}" if result.Br else "")


def bytes_cell(result: Result, after: str = "") -> ByteCell | str:
    """The cell with the bytes that a pass moves, or `nothing fits`."""
    return "nothing fits" if result.total_bytes is None else ByteCell(result.total_bytes, after)


def notes_on_totals(found: Training) -> list[str]:
    """A line for each step with unfused passes: which, and the bytes of their dropout masks."""
    lines = [
        f"{step.combination}: unfused {', '.join(step.unfused)}"
        + (f"; dropout masks {binary(step.dropout_mask_bytes)} more" if step.dropout_mask_bytes else "")
        for step in found.steps
        if step.unfused
    ]
    return ["", *lines] if lines else []


# ---------------------------------------------------------------- the answer in a sentence


def answer_lines(found: Training) -> list[str]:
    """The sentences on the step that fits and moves the fewest bytes: its advantage, and what it stores and computes
    for it."""
    fitting = [step for step in found.steps if step.fits is not False and step.total_bytes]
    if not fitting:
        return ["Nothing that was counted fits in this SRAM."]
    best, *others = sorted(fitting, key=lambda step: step.total_bytes or 0)
    if best.ratio_to_standard is None or best.combination == BASELINE:
        lines = [f"{named(best)} moves the fewest bytes of what was counted."]
    else:
        lines = [f"{named(best)} moves {less_or_more(best.ratio_to_standard)} bytes than {BASELINE}."]
    standard = next((step for step in found.steps if step.combination == BASELINE), best)
    if standard is not best and standard.flops and standard.stored_bytes and best.flops:
        stored = less_or_more(best.stored_bytes / standard.stored_bytes) if best.stored_bytes else "no"
        lines.append(f"It stores {stored} bytes between the passes, and computes {best.flops / standard.flops:.3g} "
                     "times as many FLOPs.")  # fmt: skip
    after = next((step for step in others if step.combination != best.combination), None)
    if after is not None:
        share = (after.total_bytes or 0) / (best.total_bytes or 1)
        lines.append(f"{named(after)} is next, with {share:.3g} times the bytes.")
    return lines if found.M_bytes else [*lines, "Whether it fits is not known without M."]


def named(step: TrainingStep) -> str:
    """A step with the tiles of both passes: `flash2 (410x15, backward 6x216)`."""
    tiles = [f"{r.Br}x{r.Bc}" for r in (step.forward, step.backward) if r.Br]
    return step.combination + (f" ({tiles[0]}, backward {tiles[1]})" if len(tiles) == 2 else "")


def less_or_more(share: float) -> str:
    """The text `3.48x fewer` for 0.287, and `2x more` for 2."""
    return f"{1 / share:.3g}x fewer" if share <= 1 else f"{share:.3g}x more"
