"""`iosim training`."""

from __future__ import annotations

from ..commands.answer import Output, answer_all
from ..commands.command import M_OR_TILES, D, N, named_command
from ..commands.options import (
    CHOICE,
    PLACES,
    TILES,
    memory_options,
    multiple_option,
    outputs,
    problem_asked,
    problem_options,
    repeated_option,
    text_option,
    tiles_option,
    visit_option,
)
from ..counting.given import Asked


@named_command(
    "training", needs=(N, D, M_OR_TILES), axes=PLACES, first="heads kv_heads causal mask hardware tiles unfused"
)
@problem_options
@memory_options
@tiles_option("paper, best, or Br x Bc as 128x64 (query rows first).")
@text_option(
    "--backward-tiles", "Tiles of the backward pass (default: --tiles).", metavar="TILES", heading=CHOICE, kind=TILES
)
@multiple_option
@repeated_option(
    "--combination",
    "combinations",
    "Only these ways of forward and backward: a,b or repeated.",
    metavar="NAMES",
    heading=CHOICE,
)
@text_option(
    "--unfused",
    "Passes that standard runs as kernels of their own: scale, mask-add, mask-fill, dropout.",
    metavar="NAMES",
)
@visit_option
@outputs
@problem_asked
def command(
    asked: Asked,
    backward_tiles: str | None,
    combinations: tuple[str, ...],
    unfused: str | None,
    output: Output,
) -> None:
    """Forward and backward together, and what stays in HBM between them: S and P, nothing, or O with row statistics.

    Example: iosim training --N 1024 --d 64 --heads 16 --batch 64 --M 192KB --unfused mask-add,dropout
    """
    from .training import training

    choice, fields = asked.choice, {**asked.fields, "backward_tiles": backward_tiles}
    fields |= {"tiles": choice.tiles, "tile_multiple": choice.tile_multiple, "paper_model": choice.paper_model}
    fields |= {"combinations": combinations, "unfused": () if unfused is None else unfused}
    answer_all([(place.label, training(**place.fields, **fields)) for place in asked.places], output)
