"""`iosim count`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..counting.given import Asked, Fields
from .answer import Output, answer_all
from .command import M_OR_TILES, D, N, named_command
from .options import (
    PASS,
    PLACES,
    TILES,
    chip_options,
    flag_option,
    gathered,
    memory_options,
    model_option,
    outputs,
    problem_asked,
    problem_options,
    repeated_option,
    text_option,
    tile_options,
    variant_options,
)

if TYPE_CHECKING:
    from ..answer import Answer, Row


class OfStep(NamedTuple):
    """What is asked of a step of both passes."""

    combinations: tuple[str, ...]
    backward_tiles: str | None
    unfused: str | None

    @property
    def fields(self) -> Fields:
        """The options that are given, as arguments of a function."""
        return {name: value for name, value in self._asdict().items() if value not in (None, ())}


@named_command(
    "count",
    needs=(N, D, M_OR_TILES),
    axes=PLACES,
    usual="core",
    first="heads causal mask hardware schedules tiles passes",
)
@problem_options
@model_option
@memory_options
@tile_options
@variant_options
@chip_options
@text_option(
    "--pass",
    "forward, backward, or step: both together, and what is kept in HBM between them.",
    "forward",
    "passes",
    metavar="WHAT",
    kind=PASS,
)
@repeated_option(
    "--combination",
    "combinations",
    "With --pass step: only these ways of forward and backward: a,b or repeated.",
    metavar="NAMES",
)
@text_option(
    "--backward-tiles", "With --pass step: tiles of the backward pass (default: --tiles).", metavar="TILES", kind=TILES
)
@text_option(
    "--unfused",
    "With --pass step: passes that standard runs as kernels of their own: scale, mask-add, mask-fill, dropout.",
    metavar="NAMES",
)
@flag_option("--detail", "Also show the words of each tensor and each launch; with --csv a row for each.")
@outputs
@gathered(of_step=OfStep)
@problem_asked
def command(asked: Asked, passes: str, of_step: OfStep, detail: bool, output: Output) -> None:
    """Words and bytes for each schedule, per tensor, with fit, ratios and bounds; of one pass or of both.

    Example: iosim count --N 8192 --d 128 --M 100KB
    """
    from ..counting.question import count
    from ..counting.report import Report

    fields = {**asked.fields, **of_step.fields, "passes": passes}
    parts: list[tuple[Row, Answer]] = []
    for place in asked.places:
        found = count(**asked.at(place), **fields)
        parts.append((place.label, replace(found, detail=detail) if isinstance(found, Report) else found))
    answer_all(parts, output)
