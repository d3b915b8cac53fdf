"""`iosim training`."""

from __future__ import annotations

import click

from ..counting.given import counts, memory
from .answer import Output, answer
from .options import memory_options, outputs, problem_options, text_option


@click.command("training")
@problem_options
@memory_options
@text_option("--tiles", "paper, best, or Br x Bc as 128x64 (query rows first).")
@text_option("--backward-tiles", "Tiles of the backward pass (default: --tiles).")
@text_option("--tile-multiple", "Use only tile sizes that are multiples of this.", default="1", show_default=True)
@click.option(
    "--combination", "combinations", multiple=True, metavar="NAME", help="Only this one, as flash2; repeatable."
)
@text_option("--unfused", "Passes that standard runs as kernels of their own: scale, mask-add, mask-fill, dropout.",
             metavar="NAMES")  # fmt: skip
@outputs
def command(
    m: str | None, m_elements: str | None, hardware: str | None, tiles: str | None, backward_tiles: str | None,
    tile_multiple: str, combinations: tuple[str, ...], unfused: str | None, output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """Forward and backward together, and what stays in HBM between them: S and P, nothing, or O with row statistics.

    Example: iosim training --N 1024 --d 64 --heads 16 --batch 64 --M 192KB --unfused mask-add,dropout
    """
    from ..studies import training, training_tables
    from ..units import parse_count

    values = counts(given)
    size = memory(m, m_elements, hardware)
    multiple = parse_count(tile_multiple, "--tile-multiple")
    names = [] if unfused is None else unfused.split(",")
    found = training.training(
        M=size, combinations=combinations, tiles=tiles, backward_tiles=backward_tiles, tile_multiple=multiple,
        unfused=names, **values,
    )  # fmt: skip
    json = training_tables.training_json(found) if output.as_json else None
    answer(training_tables.training_rows(found), json, output, training_tables.training_text(found))
