"""Where answers go: data on stdout or in a file that is written whole or not at all; rich only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from ..errors import InputError

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class Output:
    """The form and the place of an answer: JSON, CSV or text, on stdout (None or `-`) or in a file."""

    as_json: bool = False
    as_csv: bool = False
    path: str | None = None

    @classmethod
    def asked(cls, as_json: bool, as_csv: bool, path: str | None) -> Output:
        """The output in the form asked for; where none is, in the form of the file's name: FILE.json, FILE.csv."""
        ending = "" if as_json or as_csv else (path or "").lower()
        return cls(as_json or ending.endswith(".json"), as_csv or ending.endswith(".csv"), path)

    @property
    def on_stdout(self) -> bool:
        return self.path in (None, "-")

    @property
    def on_terminal(self) -> bool:
        """Whether a person reads stdout."""
        return self.on_stdout and sys.stdout.isatty()


def emit(text: str, path: str | None) -> None:
    """Write a text to a file, atomically, or to stdout (None or `-`)."""
    if path in (None, "-"):
        click.echo(text, nl=False)
        return
    from ..files import written_whole

    assert path is not None
    with written_whole(path) as temporary, open(temporary, "w", newline="") as file:
        file.write(text)


def answer(
    rows: Rows,
    json: Mapping[str, object] | None,
    output: Output,
    text: str | None = None,
    columns: tuple[str, ...] | None = None,
) -> None:
    """Write one answer in the form asked for: JSON, CSV, a rich table on a terminal, else plain text."""
    from .. import tables

    if output.as_json and output.as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    if output.as_json:
        emit(tables.to_json(json or {}, sys.argv[1:]), output.path)
    elif output.as_csv:
        emit(tables.to_csv(rows, columns), output.path)
    elif output.on_terminal:
        tables.print_rich(rows) if text is None else show(text)
    else:
        emit((tables.table(rows) if text is None else text) + "\n", output.path)


def show(text: str) -> None:
    """Print a text on a terminal; tables and lines that are too wide for it are broken, without cutting a number."""
    import shutil

    from ..terminal import fit

    click.echo(fit(text, shutil.get_terminal_size().columns))
