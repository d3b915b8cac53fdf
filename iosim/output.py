"""Where answers go: data on stdout or in a file that is written whole or not at all; rich only on a terminal."""

from __future__ import annotations

import sys
from typing import Any

import click

from .errors import InputError


def emit(text: str, path: str | None) -> None:
    """Write a text to a file, atomically, or to stdout (None or `-`)."""
    if path in (None, "-"):
        click.echo(text, nl=False)
        return
    from .files import whole

    assert path is not None
    with whole(path) as temporary, open(temporary, "w", newline="") as file:
        file.write(text)


def answer(
    rows: Any, json: Any, as_json: bool, as_csv: bool, path: str | None, text: str | None = None, columns: Any = None
) -> None:
    """One answer in the form asked for: JSON, CSV, a rich table on a terminal, else plain text."""
    from . import report

    if as_json and as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    if as_json:
        emit(report.to_json(json, sys.argv[1:]), path)
    elif as_csv:
        emit(report.to_csv(rows, columns), path)
    elif path in (None, "-") and sys.stdout.isatty():
        report.print_rich(rows) if text is None else show(text)
    else:
        emit((report.table(rows) if text is None else text) + "\n", path)


def show(text: str) -> None:
    """A text on a terminal: tables and lines that are too wide for it are broken, without cutting a number."""
    import shutil

    from .narrow import fit

    click.echo(fit(text, shutil.get_terminal_size().columns))
