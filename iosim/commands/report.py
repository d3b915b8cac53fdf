"""`iosim report` and `iosim play`: the page about a problem, written to a file or opened in a browser."""

from __future__ import annotations

import sys

import click

from ..counting.given import counts, memory
from ..errors import InputError, MissingError
from ..files import form_of, passes_through
from .options import (
    Need,
    alone,
    chip_options,
    file_option,
    memory_options,
    named_command,
    problem_options,
    text_option,
    tile_options,
    variant_options,
)

WITHOUT_TRACE = (Need("N", ("trace",)), Need("d", ("trace",)), Need("M", ("hardware", "trace")))
trace_option = text_option(
    "--trace",
    "Show a file of iosim trace or iosim explain --trace (.csv, .jsonl, .parquet) in place of schedules: at most 4000 "
    "events.",
    metavar="FILE",
)


def page_text(
    M: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, trace: str | None, given: dict[str, str | bool | None],
) -> str:  # fmt: skip
    """The page as HTML, from the options of the command line."""
    if trace is not None:
        from ..pictures.trace_page import trace_page

        multiple_of = tile_multiple if tile_multiple != "1" else None
        alone(given, tiles=tiles, tile_multiple=multiple_of, schedule=schedules, M=M,
              hardware=hardware)  # fmt: skip
        return trace_page(trace)
    from ..counting import count
    from ..pictures.page import page
    from ..pictures.traffic import traffic_chart
    from ..units import parse_count

    values = counts(given)
    size = memory(M, hardware)
    if size is None:
        raise InputError("--M", "nothing", "a size as in 100KB", "or --hardware")
    multiple = parse_count(tile_multiple, "--tile-multiple")
    found = count.count(M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, **values)
    chart = traffic_chart({k: v for k, v in values.items() if v not in (None, False)}, schedules, tiles, multiple,
                          found.M_bytes)  # fmt: skip
    return page(found, chart, sys.argv[1:], tiles, multiple, hardware)


@named_command("report", needs=WITHOUT_TRACE, usual="core")
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@trace_option
@file_option("Write to a file, FILE.html; - is stdout, which gets the page by default unless it is a terminal.")
def command(
    M: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, trace: str | None, path: str | None, **given: str | bool | None,
) -> None:  # fmt: skip
    """One self-contained HTML page: traffic against M, a player of tiles that move, counts, bounds, SRAM, the mask.

    Example: iosim report --N 8192 --d 128 --M 100KB -o report.html
    """
    from .answer import emit

    form_of(path, "report")
    if path is None and sys.stdout.isatty():
        raise InputError("-o", "nothing, and stdout is a terminal", "a file, as -o report.html", "a pipe gets the page")
    emit(page_text(M, hardware, schedules, tiles, tile_multiple, trace, given), path)


@named_command("play", needs=WITHOUT_TRACE, usual="core")
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@trace_option
@file_option("Keep the page in FILE.html; by default its file is temporary.")
def play(
    M: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, trace: str | None, path: str | None, **given: str | bool | None,
) -> None:  # fmt: skip
    """The page of iosim report, opened in a browser: schedules, or a kernel, move tile by tile. The name of its file is
    printed.

    Example: iosim play --N 8192 --d 128 --M 100KB --schedule flash1,flash2
    """
    import webbrowser
    from pathlib import Path
    from tempfile import mkdtemp

    from .answer import emit

    form_of(path, "report")
    if path is not None and (path == "-" or passes_through(path)):
        raise InputError("-o", path, "a file, as -o page.html", "iosim report writes the page to stdout")
    text = page_text(M, hardware, schedules, tiles, tile_multiple, trace, given)
    page = Path(mkdtemp(prefix="iosim-")) / "play.html" if path is None else Path(path).resolve()
    emit(text, str(page))
    click.echo(page)
    if not webbrowser.open(page.as_uri()):
        raise MissingError(f"no browser was found; open {page} with one, or name one in the variable BROWSER")
