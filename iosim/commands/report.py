"""`iosim report`: the page about a problem, written to a file or opened in a browser."""

from __future__ import annotations

import sys

import click

from ..counting.given import Asked
from ..errors import InputError
from ..files import form_of, passes_through
from .command import Need, named_command
from .options import (
    alone,
    chip_options,
    file_option,
    flag_option,
    memory_options,
    problem_asked,
    problem_options,
    text_option,
    tile_options,
    variant_options,
)

WITHOUT_TRACE = (Need("N", ("trace",)), Need("d", ("trace",)), Need("M", ("hardware", "tiles", "trace")))
trace_option = text_option(
    "--trace",
    "Show a file of iosim trace or iosim explain --trace (.csv, .jsonl, .parquet) in place of schedules: at most 4000 "
    "events.",
    metavar="FILE",
)


open_option = flag_option(
    "--open", "Open the page in a browser. Without -o its file is temporary.", parameter="in_browser"
)


def page_text(asked: Asked, trace: str | None) -> str:
    """The page as HTML, from the options of the command line."""
    if trace is not None:
        from ..pictures.trace_page import trace_page

        alone(asked)
        return trace_page(trace)
    from ..counting.count import count
    from ..pictures.page import page
    from ..pictures.traffic import traffic_chart
    from .answer import say

    choice, under = asked.choice, asked.under
    found = count(**choice._asdict(), **asked.fields)
    axes = {name: value for name, value in under.options.items() if value not in (None, False)}
    chart = traffic_chart(axes, choice.schedules, choice.tiles, under.multiple, found.M_bytes)
    say(under.notes)
    return page(found, chart, sys.argv[1:], choice.rule, choice.hardware)


@named_command(
    "report",
    needs=WITHOUT_TRACE,
    usual="core",
    first="heads causal mask hardware schedules tiles in_browser",
)
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@trace_option
@open_option
@file_option("Write to a file, FILE.html; - is stdout, which gets the page by default unless it is a terminal.")
@problem_asked
def command(asked: Asked, trace: str | None, in_browser: bool, path: str | None) -> None:
    """One self-contained HTML page: traffic against M, a player of tiles that move, counts, bounds, SRAM, the mask.

    With --open the name of the page's file is printed, and a browser shows it: schedules, or a kernel, move tile by
    tile.

    Example: iosim report --N 8192 --d 128 --M 100KB -o report.html
    """
    from .answer import emit

    form_of(path, "report")
    if in_browser:
        check_opened(path)
    if path is None and not in_browser and sys.stdout.isatty():
        hint = "a pipe gets the page, and --open shows it in a browser"
        raise InputError("-o", "nothing, and stdout is a terminal", "a file, as -o report.html", hint)
    text = page_text(asked, trace)
    if in_browser:
        open_page(text, path)
    else:
        emit(text, path)


def check_opened(path: str | None) -> None:
    """Raise InputError for a place of a page that no browser can open."""
    if path is not None and (path == "-" or passes_through(path)):
        raise InputError("-o", path, "a file, as -o page.html, with --open", "without --open stdout gets the page")


def open_page(text: str, path: str | None) -> None:
    """Write a page to a file, or to a temporary one, print the file's name, and open it in a browser. A note says so
    if there is none."""
    import webbrowser
    from pathlib import Path
    from tempfile import mkdtemp

    from .answer import emit, say

    page = Path(mkdtemp(prefix="iosim-")) / "report.html" if path is None else Path(path).resolve()
    emit(text, str(page))
    click.echo(page)
    if not webbrowser.open(page.as_uri()):
        say(["no browser was found: open this file with one, or name one in the variable BROWSER"])
