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
    from ..grid import Pieces
    from ..notebook import Answer
    from ..tables import Rows


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


def answer(
    rows: Rows,
    json: Mapping[str, object] | None,
    output: Output,
    text: str | Pieces | None = None,
    columns: tuple[str, ...] | None = None,
) -> None:
    """Write an answer in the form asked for: JSON, CSV, or text.

    Without `text`, the text is a table of the rows. The CSV has `columns`, or all columns without them.
    """
    from .. import grid, tables

    pieces = [grid.Grid(rows)] if text is None else [text] if isinstance(text, str) else text
    if output.as_json and output.as_csv:
        raise InputError("--json", "--csv as well", "one of the two")
    if output.as_json:
        emit(tables.to_json(json or {}, sys.argv[1:]), output.path)
    elif output.as_csv:
        emit(tables.to_csv(rows, columns), output.path)
    elif output.on_terminal:
        grid.print_pieces(pieces)
    else:
        emit(grid.plain(pieces) + "\n", output.path)


def say(notes: Iterable[str]) -> None:
    """Write notes for people to stderr; on a terminal, lines break between words. If stderr cannot be written to, the
    notes are lost and the answer stays."""
    with suppress(OSError):
        for text in notes:
            lines = [f"note: {text}"]
            if sys.stderr.isatty():
                import shutil
                from textwrap import wrap

                width = shutil.get_terminal_size().columns
                lines = wrap(lines[0], width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
            click.echo("\n".join(lines), err=True)


class Part(NamedTuple):
    """The answer to one of several questions: `label` distinguishes it from the others. `notes` are for stderr."""

    label: Mapping[str, object]
    rows: Rows
    json: Mapping[str, object] | None
    text: Pieces
    notes: Sequence[str] = ()


def part_of(label: Mapping[str, object], found: Answer, output: Output) -> Part:
    """A function's answer as a part of a command's answer."""
    as_data = output.as_json or output.as_csv
    json = found.to_dict() if output.as_json else None
    return Part(label, found.to_rows() if output.as_csv else [], json, [] if as_data else found.pieces(), found.notes)


def answer_all(parts: Sequence[Part], output: Output) -> None:
    """Write the answers to one or several questions, and their notes to stderr. Several answers are a list
    `answers` in JSON, and follow each other in CSV. Each has its label."""
    say(notes_of(parts))
    if len(parts) == 1:
        (one,) = parts
        answer(one.rows, one.json, output, one.text)
        return
    rows = [{**part.label, **row} for part in parts for row in part.rows]
    names = dict.fromkeys(name for row in rows for name in row)
    json = {"answers": [{**part.label, **(part.json or {})} for part in parts]}
    text = [piece for k, part in enumerate(parts) for piece in (*[""] * bool(k), *title(part.label), *part.text)]
    answer([{name: row.get(name) for name in names} for row in rows], json, output, text)


def notes_of(parts: Sequence[Part]) -> list[str]:
    """The notes of all answers. Of notes that differ only in numbers there is the first, and how many are like it."""
    alike: dict[str, list[str]] = {}
    for note in (note for part in parts for note in part.notes):
        alike.setdefault(re.sub(r"\d+", "", note), []).append(note)
    several = [list(dict.fromkeys(notes)) for notes in alike.values()]
    return [f"{first} (and {len(more)} more like this)" if more else first for first, *more in several]


def title(label: Mapping[str, object]) -> list[str]:
    """The line above one of several answers; M and the schedule are in the answer itself."""
    return [f"{name} {value}" for name, value in label.items() if name == "hardware"]
