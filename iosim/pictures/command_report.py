"""`iosim report`: the page about a problem, written to a file or opened in a browser."""

from __future__ import annotations

import sys

from ..commands.command import M_OR_TILES, D, N, named_command
from ..commands.open_page import check_opened, open_option, open_page
from ..commands.options import (
    chip_options,
    file_option,
    memory_options,
    problem_asked,
    problem_options,
    tile_options,
    variant_options,
)
from ..counting.given import Asked
from ..errors import InputError
from ..files import form_of


def page_text(asked: Asked, argv: list[str]) -> str:
    """The page as HTML, of a question. `argv` are the words that asked it."""
    from ..commands.answer import say
    from ..counting.count import count
    from .page import page
    from .traffic import traffic_chart

    choice, under = asked.choice, asked.under
    found = count(**choice._asdict(), **asked.fields)
    axes = {name: value for name, value in under.options.items() if value not in (None, False)}
    chart = traffic_chart(axes, choice.schedules, choice.tiles, under.multiple, found.M_bytes)
    say(under.notes)
    return page(found, chart, argv, choice.rule, choice.hardware)


@named_command(
    "report",
    needs=(N, D, M_OR_TILES),
    usual="core",
    first="heads causal mask hardware schedules tiles in_browser",
)
@problem_options
@memory_options
@tile_options
@variant_options
@chip_options
@open_option
@file_option("Write to a file, FILE.html; - is stdout, which gets the page by default unless it is a terminal.")
@problem_asked
def command(asked: Asked, in_browser: bool, path: str | None) -> None:
    """One self-contained HTML page: traffic against M, a player of tiles that move, counts, bounds, SRAM, the mask.

    With --open the name of the page's file is printed, and a browser shows it: schedules move tile by tile.

    Example: iosim report --N 8192 --d 128 --M 100KB -o report.html
    """
    from ..commands.answer import emit

    form_of(path, "report")
    if in_browser:
        check_opened(path)
    if path is None and not in_browser and sys.stdout.isatty():
        hint = "a pipe gets the page, and --open shows it in a browser"
        raise InputError("-o", "nothing, and stdout is a terminal", "a file, as -o report.html", hint)
    text = page_text(asked, sys.argv[1:])
    if in_browser:
        open_page(text, path)
    else:
        emit(text, path)
