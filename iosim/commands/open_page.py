"""The option --open, and pages that a browser shows."""

from __future__ import annotations

import click

from ..errors import InputError
from ..files import passes_through
from .options import flag_option

open_option = flag_option(
    "--open", "Open the page in a browser. Without -o its file is temporary.", parameter="in_browser"
)


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
