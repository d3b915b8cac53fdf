"""The answer of `iosim tune --by time` as tables, CSV rows, JSON and a sentence. It only reads results."""

from __future__ import annotations

from dataclasses import asdict

from ..counting.report import problem_row
from ..grid import ByteCell, Grid, Piece
from ..tables import Row
from .fastest_tiles import LIMIT_SECONDS, FastestAnswer, FastestTiles, TimedTiles


def pairs(found: FastestAnswer) -> list[tuple[FastestTiles, TimedTiles]]:
    """Each result with its fastest tiles, and then with those of least traffic."""
    return [(one, tiles) for one in found.results for tiles in (one.fastest, one.least) if tiles is not None]


def fastest_rows(found: FastestAnswer) -> list[Row]:
    """One flat row for each choice of tiles."""
    best = found.results[0].fastest.seconds if found.results else 0.0
    return [
        {**asdict(tiles), "seconds_over_fastest": tiles.seconds / best, "candidates": one.candidates,
         "in_full": one.in_full}
        for one, tiles in pairs(found)
    ]  # fmt: skip


def fastest_json(found: FastestAnswer) -> Row:
    """The answer as the keys of its JSON."""
    return {
        "problem": problem_row(found.problem),
        "hardware": found.hardware.name,
        "limit_seconds": LIMIT_SECONDS,
        "results": fastest_rows(found),
        "not_predicted": found.not_predicted,
        "answer": sentence(found),
    }


def fastest_pieces(found: FastestAnswer) -> list[Piece]:
    """The answer as text: a table, the sentence, how it was found, and schedules without a prediction."""
    rows: list[Row] = [
        {
            "schedule": tiles.schedule,
            "best in": tiles.chosen_by,
            "tiles": tiles.tiles,
            "blocks": tiles.blocks,
            "us": f"{tiles.seconds * 1e6:.1f}",
            "x fastest": f"{tiles.seconds / found.results[0].fastest.seconds:.3f}",
            "bound by": tiles.bound_by,
            "bytes": ByteCell(tiles.sm_bytes),
        }
        for _, tiles in pairs(found)
    ]
    notes = [f"{name}: not predicted: {reason}" for name, reason in found.not_predicted.items()]
    head = f"generated kernels on {found.hardware.name}, times by the model\n"
    return [
        head,
        Grid(rows, ("blocks", "bytes"), frozenset({0})),
        *([""] if notes else []),
        *notes,
        "",
        sentence(found),
    ]


def sentence(found: FastestAnswer) -> str:
    """The sentence that names the fastest tiles, their advantage, and the number of candidates."""
    if not found.results:
        return "No schedule can be predicted."
    one = found.results[0]
    best, least = one.fastest, one.least
    text = f"{best.schedule} with {best.tiles} is fastest by the model: {best.seconds * 1e6:.1f} us"
    if least is not None and (least.Br, least.Bc) != (best.Br, best.Bc):
        text += f", and {least.seconds / best.seconds:.2f}x faster than {least.tiles}, which moves least"
    how = f"all {one.candidates} candidates were predicted"
    if one.in_full < one.candidates:
        how = f"{one.candidates} candidates were predicted on a shorter problem, and {one.in_full} of them in full"
    return f"{text}; {how}."
