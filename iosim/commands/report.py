"""`iosim report`: the page about a problem, written to a file or opened in a browser."""

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
    flag_option,
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
@flag_option("--open", "Open the page in a browser. Without -o its file is temporary.", parameter="in_browser")
@file_option("Write to a file, FILE.html; - is stdout, which gets the page by default unless it is a terminal.")
def command(
    M: str | None,
    hardware: str | None,
    schedules: tuple[str, ...],
    tiles: str | None,
    tile_multiple: str,
    trace: str | None,
    in_browser: bool,
    path: str | None,
    **given: str | bool | None,
) -> None:
    """One self-contained HTML page: traffic against M, a player of tiles that move, counts, bounds, SRAM, the mask.

    With --open the name of the page's file is printed, and a browser shows it: schedules, or a kernel, move tile by
    tile.

    Example: iosim report --N 8192 --d 128 --M 100KB -o report.html
    """
    from .answer import emit

    form_of(path, "report")
    if in_browser and path is not None and (path == "-" or passes_through(path)):
        raise InputError("-o", path, "a file, as -o page.html, with --open", "without --open stdout gets the page")
    if path is None and not in_browser and sys.stdout.isatty():
        hint = "a pipe gets the page, and --open shows it in a browser"
        raise InputError("-o", "nothing, and stdout is a terminal", "a file, as -o report.html", hint)
    text = page_text(M, hardware, schedules, tiles, tile_multiple, trace, given)
    if in_browser:
        open_page(text, path)
    else:
        emit(text, path)


def open_page(text: str, path: str | None) -> None:
    """Write a page to a file, or to a temporary one, print the file's name, and open it in a browser. Raises
    MissingError if there is no browser."""
    import webbrowser
    from pathlib import Path
    from tempfile import mkdtemp

    from .answer import emit

    page = Path(mkdtemp(prefix="iosim-")) / "report.html" if path is None else Path(path).resolve()
    emit(text, str(page))
    click.echo(page)
    if not webbrowser.open(page.as_uri()):
        raise MissingError(f"no browser was found; open {page} with one, or name one in the variable BROWSER")
