"""`iosim batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..commands.answer import Output, answer_all, exit_if_impossible, say
from ..commands.command import D, Need, named_command
from ..commands.options import (
    COUNT,
    PLACES,
    chip_options,
    claim_option,
    csv_option,
    file_option,
    flag_option,
    json_option,
    memory_options,
    model_option,
    multiple_option,
    options,
    problem_asked,
    problem_options_without,
    repeated_option,
    text_option,
    tiles_option,
    variants_without,
)
from ..counting.given import Asked, Fields, counts
from ..counting.layers import LAYERS
from ..errors import InputError
from ..files import form_of
from ..options import Kind, one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .answer import Batched
    from .layers import BatchOfLayers

REPLAY = "examples/replay_trace.py replays a trace; each step is a batch, as '--requests' takes it"
OF_REQUESTS = {
    **dict.fromkeys(("--N", "--Nk", "--batch"), "--requests says it, as --requests '12 * 1:3000, 512:4608'"),
    "--gqa": "repeat and pack are ways: --way repeat,pack",
    "--schedule": "ways are named by --way",
    **dict.fromkeys(("--trace", "--max-tokens", "--max-requests", "--step"), REPLAY),
}


def requests_of(value: str | int, option: str) -> object:
    """The requests of a text or a file."""
    from .requests import read_requests

    return read_requests(str(value))


def way_of(value: str | int, option: str) -> object:
    """The name of a way."""
    from .ways import BY_NAME

    return value if str(value).startswith("chunk") else one_of(*BY_NAME)(value, option)


PICTURES = ("html", "svg", "png", "pdf")


@named_command(
    "batch",
    needs=(Need("requests"), D),
    axes=(*PLACES, "chunk"),
    usual="flash2,split-kv,paged,paged-split-kv",
    instead=OF_REQUESTS,
    first="heads kv_heads M hardware layers ways chunk",
)
@text_option(
    "--requests",
    "New tokens : all tokens of each request, as '12 * 1:3000, 512:4608'; or a CSV or JSON-lines file with new, "
    "cached, and prefix or hash_ids.",
    metavar="TEXT|FILE",
    kind=Kind(requests_of),
)
@problem_options_without("N", "Nk", "batch")
@model_option
@text_option(
    "--layers", "Layers of the model (default: 1), or kinds as 'gdn*36, attention*12'.", metavar="LAYERS", kind=LAYERS
)
@memory_options
@repeated_option(
    "--way",
    "ways",
    "Only these ways: a,b or repeated, as repeat,pack,split,paged.",
    metavar="NAMES",
    kind=Kind(way_of, listed=True),
)
@text_option(
    "--chunk",
    "Also prefill in chunks of so many tokens; several as 512,2048.",
    metavar="COUNTS",
    kind=COUNT,
)
@options(tiles_option("best, or Br x Bc as 128x64 (query rows first)."), multiple_option)
@variants_without("gqa")
@chip_options
@claim_option()
@flag_option("--detail", "Also show the words of each tensor and of each request; with --csv a row for each.")
@json_option
@csv_option
@file_option(
    "Write to a file; its ending decides the form: .json, .csv, a picture as .svg, .png or .pdf, or a page as .html."
)
@problem_asked
def command(
    asked: Asked,
    requests: str,
    layers: str | None,
    ways: tuple[str, ...],
    chunk: str | None,
    claim: str | None,
    detail: bool,
    as_json: bool,
    as_csv: bool,
    path: str | None,
) -> None:
    """What one step of a server moves: a batch of unequal requests, by the ways to run it, against the floor.

    With --claim the answer begins with whether a time or a rate is possible on the --hardware; the exit code is 1 if it
    is not.

    Example: iosim batch --requests '12 * 1:3000, 1:9000, 512:4608' --d 128 --heads 32 --kv-heads 8 --causal;
    iosim batch --requests '32 * 1:65536' --d 128 --heads 32 --kv-heads 4 --hardware h100 --claim 816us
    """
    from .question import batch

    form = "" if as_json or as_csv or path in (None, "-") else form_of(path, "batch")
    fields: Fields = {
        **counts(asked.given, required=("d",)),
        "layers": layers or 1,
        "tiles": asked.choice.tiles,
        "tile_multiple": asked.choice.tile_multiple,
        "paper_model": asked.choice.paper_model,
        "ways": [name for text in ways for name in text.split(",")],
        "detail": detail,
        "claim": claim,
        "chunks": chunk or (),
    }
    found = [(place.label, batch(requests, **place.fields, **fields)) for place in asked.places]
    if form in PICTURES:
        draw([with_ways(answer) for _, answer in found], str(path))
    else:
        answer_all(found, Output(as_json or form == "json", as_csv or form == "csv", path))
    exit_if_impossible(answer.claim for _, answer in found)


def with_ways(found: Batched | BatchOfLayers) -> Batched:
    """The answer about layers with attention, whose ways a picture shows."""
    shown = getattr(found, "attention", found)
    if shown is None:
        raise InputError(
            "-o", "a picture", ".json or .csv for layers with a state", "a picture shows ways of attention"
        )
    return cast("Batched", shown)


def draw(found: Sequence[Batched], path: str) -> None:
    """Write the picture of a batch, or its page, to a file."""
    from ..commands.answer import emit
    from ..drawing.draw import save
    from .picture import BatchPicture, batch_page

    if len(found) > 1:
        raise InputError("-o", path, "one SRAM for a picture", "run it once for each")
    say(found[0].notes)
    if path.lower().endswith((".html", ".htm")):
        emit(batch_page(found[0]), path)
    else:
        save(BatchPicture(found[0]), path)
