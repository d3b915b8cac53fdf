"""`iosim training`."""

from __future__ import annotations

import click

from ..counting.given import counts, memories
from .answer import Output, answer_all
from .options import (
    CHOICE,
    M_OR_TILES,
    PLACES,
    TILES,
    D,
    N,
    Option,
    memory_options,
    multiple_option,
    named_command,
    outputs,
    problem_options,
    text_option,
    tiles_option,
)


@named_command("training", needs=(N, D, M_OR_TILES), axes=PLACES)
@problem_options
@memory_options
@tiles_option("paper, best, or Br x Bc as 128x64 (query rows first).")
@text_option("--backward-tiles", "Tiles of the backward pass (default: --tiles).", metavar="TILES",
             heading=CHOICE, kind=TILES)  # fmt: skip
@multiple_option
@click.option("--combination", "combinations", cls=Option, heading=CHOICE, multiple=True, metavar="NAMES",
              help="Only these ways of forward and backward: a,b or repeated.")  # fmt: skip
@text_option("--unfused", "Passes that standard runs as kernels of their own: scale, mask-add, mask-fill, dropout.",
             metavar="NAMES")  # fmt: skip
@outputs
def command(
    M: str | None, hardware: str | None, tiles: str | None, backward_tiles: str | None,
    tile_multiple: str, combinations: tuple[str, ...], unfused: str | None, output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """Forward and backward together, and what stays in HBM between them: S and P, nothing, or O with row statistics.

    Example: iosim training --N 1024 --d 64 --heads 16 --batch 64 --M 192KB --unfused mask-add,dropout
    """
    from ..studies import training
    from ..units import parse_count

    values, parts = counts(given), []
    multiple = parse_count(tile_multiple, "--tile-multiple")
    for label, size in memories(given, M, hardware):
        found = training.training(
            M=size, combinations=combinations, tiles=tiles, backward_tiles=backward_tiles, tile_multiple=multiple,
            unfused=() if unfused is None else unfused, **values,
        )  # fmt: skip
        parts.append((label, found))
    answer_all(parts, output)
