"""`iosim batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.options import VARIANTS
from ..counting.given import Asked
from .answer import Output, answer_all
from .command import INSTEAD, D, Need, named_command
from .options import (
    CHOICE,
    COUNT,
    PLACES,
    chip_options,
    flag_option,
    memory_options,
    multiple_option,
    options,
    outputs,
    problem_asked,
    problem_options_without,
    repeated_option,
    rows,
    text_option,
    tiles_option,
)

if TYPE_CHECKING:
    from ..counting.given import Fields

OF_REQUESTS = {
    **dict.fromkeys(("--N", "--Nk", "--batch"), "--requests says it, as --requests '12 * 1:3000, 512:4608'"),
    "--gqa": "repeat and pack are ways: --way repeat,pack",
    "--schedule": "ways are named by --way",
}


@named_command(
    "batch",
    needs=(Need("requests"), D),
    axes=(*PLACES, "chunk"),
    usual="flash2,split-kv,paged,paged-split-kv",
    instead={**INSTEAD, **OF_REQUESTS},
)
@text_option(
    "--requests",
    "New tokens : all tokens of each request, as '12 * 1:3000, 512:4608'; or a CSV or JSON-lines file with new, "
    "cached, and prefix or hash_ids.",
    metavar="TEXT|FILE",
)
@problem_options_without("N", "Nk", "batch")
@text_option("--layers", "Layers of the model (default: 1).", metavar="COUNT", kind=COUNT)
@memory_options
@repeated_option(
    "--way", "ways", "Only these ways: a,b or repeated, as repeat,pack,split,paged.", metavar="NAMES", heading=CHOICE
)
@text_option(
    "--chunk", "Also prefill in chunks of this many tokens; several as 512,2048.", metavar="COUNTS", kind=COUNT
)
@options(tiles_option("best, or Br x Bc as 128x64 (query rows first)."), multiple_option)
@rows(*(row for row in VARIANTS if row.name != "gqa"))
@chip_options
@flag_option("--detail", "Also show the words of each tensor and of each request; with --csv a row for each.")
@outputs
@problem_asked
def command(
    asked: Asked, requests: str | None, layers: str | None, ways: tuple[str, ...], chunk: str | None, detail: bool,
    output: Output,
) -> None:  # fmt: skip
    """What one step of a server moves: a batch of unequal requests, by the ways to run it, against the floor.

    Example: iosim batch --requests '12 * 1:3000, 1:9000, 512:4608' --d 128 --heads 32 --kv-heads 8 --causal
    """
    from ..batches.answer import batch
    from ..counting.given import counts
    from ..errors import InputError
    from ..units import parse_axis, parse_count

    if requests is None:
        raise InputError("--requests", "nothing", "new tokens : all tokens, as 512:4608", "give --requests")
    choice = asked.choice
    fields: Fields = {
        **counts(asked.given, required=("d",)),
        "ways": [name for text in ways for name in text.split(",")],
        "chunks": parse_axis(chunk, "--chunk", lambda text: parse_count(text, "--chunk")) if chunk else (),
        "layers": 1 if layers is None else parse_count(layers, "--layers"),
        "tiles": choice.tiles,
        "tile_multiple": choice.tile_multiple,
        "paper_model": choice.paper_model,
        "detail": detail,
    }
    answer_all([(place.label, batch(requests, **place.fields, **fields)) for place in asked.places], output)
