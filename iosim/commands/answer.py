"""Answers of commands, as JSON, CSV or text, on stdout or in a file. Only a terminal gets tables by rich."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from ..errors import InputError

if TYPE_CHECKING:
    from ..answer import Answer, Pieces, Row, Table, Type
    from ..timing.claim import Judged

    Part = tuple[Mapping[str, object], Answer]
    """A label, and the answer to one of several questions. The label tells it from the others."""


class Output(NamedTuple):
    """The form of an answer (JSON, CSV or text), and its place: a file, or stdout for None and `-`."""

    as_json: bool = False
    as_csv: bool = False
    path: str | None = None

    @classmethod
    def asked(cls, as_json: bool, as_csv: bool, path: str | None) -> Output:
        """The output in the form asked for, else in the form that the file's name asks for: FILE.json, FILE.csv."""
        if as_json or as_csv or path in (None, "-"):
            return cls(as_json, as_csv, path)
        from ..files import form_of

        form = form_of(path, "answers")
        return cls(form == "json", form == "csv", path)

    @property
    def on_stdout(self) -> bool:
        """Whether the answer goes to stdout."""
        return self.path in (None, "-")

    @property
    def on_terminal(self) -> bool:
        """Whether the answer goes to a terminal, where a person reads it."""
        return self.on_stdout and sys.stdout.isatty()


def emit(text: str, path: str | None) -> None:
    """Write a text to a file, whole or not at all, or to stdout (None or `-`)."""
    if path in (None, "-"):
        click.echo(text, nl=False)
        return
    from ..files import written_whole

    assert path is not None
    with written_whole(path) as temporary, open(temporary, "w", newline="") as file:
        file.write(text)


def exit_if_impossible(claims: Iterable[Judged | None]) -> None:
    """End with exit code 1 if any claim is impossible."""
    if any(claim is not None and not claim.possible for claim in claims):
        sys.exit(1)


def say(notes: Iterable[str]) -> None:
    """Write notes for people to stderr. If stderr cannot be written to, the notes are lost and the answer stays."""
    with suppress(OSError):
        for text in notes:
            tell(f"note: {text}")


def tell(text: str) -> None:
    """Write a text to stderr. On a terminal its lines break between words."""
    if sys.stderr.isatty():
        from shutil import get_terminal_size

        from ..grid import wrapped

        width = get_terminal_size().columns
        text = "\n".join(part for line in text.split("\n") for part in wrapped(line, width))
    click.echo(text, err=True)


def answer_all(
    parts: Sequence[Part], output: Output, above: Pieces = (), more: Mapping[str, object] | None = None
) -> None:
    """Write the answers to one or several questions in the form asked for, and their notes to stderr.

    Several answers are a list `answers` in JSON, and follow each other in CSV. Each has its label. In text they stand
    below the pieces `above`. JSON also has the keys of `more`.
    """
    from .. import grid, tables

    if output.as_json and output.as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    if output.as_json:
        emit(tables.to_json({**json_of(parts), **(more or {})}, sys.argv[1:]), output.path)
    elif output.as_csv:
        rows = table_of(parts)
        emit(tables.to_csv(rows.to_rows(), tuple(rows.types())), output.path)
    elif output.on_terminal:
        grid.print_pieces([*above, *pieces_of(parts)])
    else:
        emit(grid.plain([*above, *pieces_of(parts)]) + "\n", output.path)
    say(notes_of(parts))


def json_of(parts: Sequence[Part]) -> Mapping[str, object]:
    """The keys of the JSON."""
    if len(parts) == 1:
        return parts[0][1].to_dict()
    return {"answers": [{**label, **found.to_dict()} for label, found in parts]}


def table_of(parts: Sequence[Part]) -> Table:
    """The rows of the CSV, with their columns. Several answers may have different columns: their cells are empty where
    an answer lacks a column."""
    from ..answer import Column, Table, type_of

    if len(parts) == 1:
        return parts[0][1].table()
    types: dict[str, Type] = {}
    rows: list[Row] = []
    for label, found in parts:
        own = found.table()
        if own.rows:
            types |= {name: type_of(value) for name, value in label.items() if name not in types or value is not None}
            types |= own.types()
        rows += [{**label, **row} for row in own]
    return Table([Column(name, kind) for name, kind in types.items()], rows)


def pieces_of(parts: Sequence[Part]) -> Pieces:
    """The text of the answers. An empty line stands between two of them."""
    if len(parts) == 1:
        return parts[0][1].pieces()
    return [
        piece for k, (label, found) in enumerate(parts) for piece in (*[""] * bool(k), *title(label), *found.pieces())
    ]


def notes_of(parts: Sequence[Part]) -> list[str]:
    """The notes of all answers. Of notes that differ only in numbers there is the first, and how many are like it."""
    alike: dict[str, list[str]] = {}
    for note in (note for _, found in parts for note in found.notes):
        alike.setdefault(re.sub(r"\d+", "", note), []).append(note)
    several = [list(dict.fromkeys(notes)) for notes in alike.values()]
    return [f"{first} (and {len(more)} more like this)" if more else first for first, *more in several]


def title(label: Mapping[str, object]) -> list[str]:
    """The line above one of several answers; M and the schedule are in the answer itself."""
    return [f"{name} {value}" for name, value in label.items() if name == "hardware"]
