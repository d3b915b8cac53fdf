"""`iosim batch`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ..commands.answer import Output, answer_all, say
from ..commands.command import D, Need, named_command
from ..commands.options import (
    COUNT,
    PLACES,
    chip_options,
    csv_option,
    file_option,
    flag_option,
    gathered,
    json_option,
    memory_options,
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
from ..errors import InputError
from ..files import form_of
from ..options import Kind, one_of
from ..units import parse_axis, parse_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..sweeps.folder import About
    from .answer import Batched
    from .trace_rows import Replayed

OF_REQUESTS = {
    **dict.fromkeys(("--N", "--Nk", "--batch"), "--requests says it, as --requests '12 * 1:3000, 512:4608'"),
    "--gqa": "repeat and pack are ways: --way repeat,pack",
    "--schedule": "ways are named by --way",
}


class Target(NamedTuple):
    """The options of a trace, and where an answer goes."""

    max_tokens: str | None
    max_requests: str | None
    step: str | None
    resume: bool
    part_rows: str | None
    as_json: bool
    as_csv: bool
    path: str | None

    @property
    def form(self) -> str:
        """The form that the name of the file asks for, unless --json or --csv do; an empty text for stdout."""
        if self.as_json or self.as_csv or self.path in (None, "-"):
            return ""
        return form_of(self.path, "batch")

    @property
    def output(self) -> Output:
        """The output of an answer about one batch."""
        return Output(self.as_json or self.form == "json", self.as_csv or self.form == "csv", self.path)

    def check_alone(self) -> None:
        """Raise InputError for an option that needs --trace."""
        for name in ("max_tokens", "max_requests", "step", "resume", "part_rows"):
            if getattr(self, name):
                raise InputError(f"--{name.replace('_', '-')}", "no --trace", "--trace FILE.jsonl beside it")

    def policy(self, chunk: str | None) -> dict[str, int]:
        """The limits of a step."""
        from .trace import MAX_REQUESTS, MAX_TOKENS

        return {
            "max_tokens": parse_count(self.max_tokens or MAX_TOKENS, "--max-tokens"),
            "max_requests": parse_count(self.max_requests or MAX_REQUESTS, "--max-requests"),
            "chunk": parse_count(chunk, "--chunk") if chunk else 0,
        }

    def replay(
        self,
        trace: str,
        asked: Asked,
        fields: Fields,
        requests: str | None,
        chunk: str | None,
        ways: tuple[str, ...],
        detail: bool,
    ) -> None:
        """Replay a trace, or answer about one of its steps as a batch."""
        from .answer import batch, policy_of, replay
        from .trace import requests_at

        policy = self.policy(chunk)
        if requests is not None:
            raise InputError("--trace", "--requests as well", "one of the two", "--step shows one step of a trace")
        if self.step is not None:
            found = requests_at(trace, policy_of(**policy), parse_count(self.step, "--step", least=0))
            more: Fields = {**fields, **of_batch(ways, detail)}
            write([(place.label, batch(found, **place.fields, **more)) for place in asked.places], self)
            return
        if ways or detail:
            raise InputError("--trace", "--way or --detail as well", "--step with them, for one step as a batch")
        (place, *others) = asked.places
        if others:
            raise InputError("--M", str(asked.choice.M), "one value with --trace", "run it once for each")
        of_trace: Fields = {"mask": "causal", **fields, **policy}
        self.write(replay(trace, **place.fields, **of_trace))

    def write(self, found: Replayed) -> None:
        """Write the rows of a replay to -o, and its summary to stdout; without -o, --csv writes the rows to stdout."""
        if self.path in (None, "-"):
            if self.resume or self.part_rows:
                raise InputError("-o", "nothing", "a folder as in steps/, with --resume or --part-rows")
            answer_all([({}, found)], Output(self.as_json, self.as_csv))
            return
        assert self.path is not None
        self.write_rows(found, self.path)
        answer_all([({}, found)], Output(self.as_json))

    def write_rows(self, found: Replayed, path: str) -> None:
        """Write the rows of a replay to a file, or in parts to a folder."""
        from ..files import check_file, written_whole
        from ..progress import Meter
        from ..sweeps.run import executor_of, write_file, write_folder
        from .trace_rows import TraceWork

        folder = path.endswith("/") or os.path.isdir(path)
        form = "csv" if self.as_csv or folder else form_of(path, "sweep")
        check_file(form, path)
        part_rows = parse_count(self.part_rows, "--part-rows") if self.part_rows else 0
        if (self.resume or part_rows) and not folder:
            raise InputError("-o", path, "a folder as in steps/, with --resume or --part-rows")
        work = TraceWork(found.traced, form, part_rows)
        with closing(executor_of(None, None)) as executor, closing(Meter(work.rows, True, "steps")) as meter:
            if folder:
                about: About = {"argv": sys.argv[1:], "conventions": CONVENTIONS}
                write_folder(work, path, about, self.resume, executor, meter)
                return
            with written_whole(path) as temporary:
                write_file(work, temporary, executor)


def requests_of(value: str | int, option: str) -> object:
    """The requests of a text or a file."""
    from .requests import read_requests

    return read_requests(str(value))


def way_of(value: str | int, option: str) -> object:
    """The name of a way."""
    from .ways import BY_NAME

    return value if str(value).startswith("chunk") else one_of(*BY_NAME)(value, option)


PICTURES = ("html", "svg", "png", "pdf")
CONVENTIONS = {
    "step": "one launch of a server; steps are numbered from 0",
    "tokens": "of all requests of a step; distinct_tokens counts a block that several have in common once",
    "bytes": "read and written by a way, over all heads and layers; distinct_bytes count each word of Q, K, V, O once",
}


@named_command(
    "batch",
    needs=(Need("requests", ("trace",)), D),
    axes=(*PLACES, "chunk"),
    usual="flash2,split-kv,paged,paged-split-kv",
    instead=OF_REQUESTS,
    first="heads kv_heads M hardware layers ways chunk trace",
)
@text_option(
    "--requests",
    "New tokens : all tokens of each request, as '12 * 1:3000, 512:4608'; or a CSV or JSON-lines file with new, "
    "cached, and prefix or hash_ids.",
    metavar="TEXT|FILE",
    kind=Kind(requests_of),
)
@problem_options_without("N", "Nk", "batch")
@text_option("--layers", "Layers of the model (default: 1).", metavar="COUNT", kind=COUNT)
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
    "Also prefill in chunks of so many tokens; several as 512,2048. With --trace: the most new tokens of an input in a "
    "step.",
    metavar="COUNTS",
    kind=COUNT,
)
@options(tiles_option("best, or Br x Bc as 128x64 (query rows first)."), multiple_option)
@variants_without("gqa")
@chip_options
@flag_option("--detail", "Also show the words of each tensor and of each request; with --csv a row for each.")
@text_option("--trace", "Replay a trace in the format of Mooncake, a row a step.", metavar="FILE")
@text_option("--max-tokens", "With --trace: new tokens of a step (default: 8192).", metavar="COUNT", kind=COUNT)
@text_option("--max-requests", "With --trace: requests of a step (default: 256).", metavar="COUNT", kind=COUNT)
@text_option("--step", "With --trace: only this step, from 0, as a batch.", metavar="NUMBER")
@flag_option("--resume", "With --trace: continue the rows in -o FOLDER/, or begin them.")
@text_option("--part-rows", "With --trace: rows of a file in -o FOLDER/ (default: 65536).", metavar="COUNT", kind=COUNT)
@json_option
@csv_option
@file_option(
    "Write to a file; its ending decides the form: .json, .csv, a picture as .svg, .png or .pdf, or a page as .html. "
    "With --trace the rows go there, to FOLDER/ in parts."
)
@gathered(target=Target)
@problem_asked
def command(
    asked: Asked,
    requests: str | None,
    layers: str | None,
    ways: tuple[str, ...],
    chunk: str | None,
    detail: bool,
    trace: str | None,
    target: Target,
) -> None:
    """What one step of a server moves: a batch of unequal requests, by the ways to run it, against the floor.

    With --trace it replays a trace step by step, without a clock: running requests decode first, then inputs are
    prefilled in their order, within --max-tokens and --max-requests. -o FILE or FOLDER/ gets a row a step.

    Example: iosim batch --requests '12 * 1:3000, 1:9000, 512:4608' --d 128 --heads 32 --kv-heads 8 --causal
    """
    from .answer import batch

    if trace is not None:
        target.replay(trace, asked, fields_of(asked, layers), requests, chunk, ways, detail)
        return
    target.check_alone()
    _ = target.form  # a name that no form has is refused before the work
    if requests is None:
        raise InputError("--requests", "nothing", "new tokens : all tokens, as 512:4608", "give --requests")
    fields: Fields = {**fields_of(asked, layers), **of_batch(ways, detail)}
    fields |= {"chunks": parse_axis(chunk, "--chunk", lambda text: parse_count(text, "--chunk")) if chunk else ()}
    write([(place.label, batch(requests, **place.fields, **fields)) for place in asked.places], target)


def write(found: Sequence[tuple[dict[str, object], Batched]], target: Target) -> None:
    """Write answers about a batch in the form asked for, or its picture, or its page."""
    if target.form in PICTURES:
        draw([answer for _, answer in found], str(target.path))
    else:
        answer_all(found, target.output)


def draw(found: Sequence[Batched], path: str) -> None:
    """Write the picture of a batch, or its page, to a file."""
    from ..commands.answer import emit
    from ..pictures.batch import BatchPicture, batch_page
    from ..pictures.draw import save

    if len(found) > 1:
        raise InputError("-o", path, "one SRAM for a picture", "run it once for each")
    say(found[0].notes)
    if path.lower().endswith((".html", ".htm")):
        emit(batch_page(found[0]), path)
    else:
        save(BatchPicture(found[0]), path)


def fields_of(asked: Asked, layers: str | None) -> Fields:
    """The arguments that batches and replays of traces take."""
    choice = asked.choice
    return {
        **counts(asked.given, required=("d",)),
        "layers": 1 if layers is None else parse_count(layers, "--layers"),
        "tiles": choice.tiles,
        "tile_multiple": choice.tile_multiple,
        "paper_model": choice.paper_model,
    }


def of_batch(ways: tuple[str, ...], detail: bool) -> Fields:
    """The arguments that only batches take."""
    return {"ways": [name for text in ways for name in text.split(",")], "detail": detail}
