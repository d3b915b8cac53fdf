"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import InputError, suggestion
from .wings import Forms, rows

WRITABLE = "a file in a folder that can be written"
TEXT = ("txt", "text", "log", "out", "md")
ANSWER: Forms = {"text": TEXT, "json": ("json",), "csv": ("csv",)}
"""{form: the file endings that ask for it}, of most answers. A name without an ending gets the first form."""
PAGE: Forms = {"html": ("html", "htm")}
PICTURE: Forms = {"png": ("png",), "svg": ("svg",), "pdf": ("pdf",)}
EVENTS: Forms = {
    "csv": ("csv", "txt"),
    "jsonl": ("jsonl", "ndjson"),
    "parquet": ("parquet",),
    "perfetto": ("json", "perfetto-trace"),
}
OF_THE_HOUSE = {
    "answers": ANSWER,
    "picture": PICTURE,
    "said picture": {**PICTURE, **ANSWER},
    "page": PAGE,
    "events": EVENTS,
}
SPREADSHEETS = ("xlsx", "xls", "ods")


def forms_of(writer: str) -> Forms:
    """The forms that a command writes, as its wing's manifest says; else those of most answers."""
    if writer in OF_THE_HOUSE:
        return OF_THE_HOUSE[writer]
    return next((forms for _, name, forms in rows(lambda wing: wing.forms) if name == writer), ANSWER)


def form_of(path: str | None, writer: str, required: bool = False) -> str:
    """The form that the ending of a file's name asks for. InputError for an ending that the writer does not know.

    stdout, a stream and a name without an ending get the first form of the writer; with `required` they are refused.
    """
    forms = forms_of(writer)
    ending = re.search(r"[^/.]\.([A-Za-z][A-Za-z0-9-]*)$", path or "")
    if ending is None or path is None or passes_through(path):
        if required:
            raise InputError("-o", path or "nothing", f"a file that ends in {endings_of(writer)}", "as -o picture.svg")
        return next(iter(forms))
    found = ending[1].lower()
    for form, endings in forms.items():
        if found in endings:
            return form
    raise InputError("-o", path, f"a file that ends in {endings_of(writer)}", other_writers(found, writer))


def check_form(form: str, writer: str) -> None:
    """Raise InputError for a --format that the writer does not know."""
    if form not in forms_of(writer):
        raise InputError("--format", form, ", ".join(forms_of(writer)), suggestion(form, forms_of(writer)))


def check_file(form: str, path: str | None) -> None:
    """Raise InputError for Parquet on stdout."""
    if form == "parquet" and path in (None, "-"):
        raise InputError("-o", path or "nothing", "a file, for Parquet")


def endings_of(writer: str) -> str:
    """The main endings of a writer, as a text such as `.csv or .parquet`."""
    *names, last = [f".{endings[0]}" for endings in forms_of(writer).values()]
    return f"{', '.join(names)} or {last}" if names else last


def other_writers(ending: str, writer: str) -> str:
    """The hint for an ending that a writer does not know: the commands that know it, or the ending that was meant."""
    if ending in SPREADSHEETS:
        return "a spreadsheet opens .csv" if "csv" in forms_of(writer) else ""
    others = [name for _, name, forms in rows(lambda wing: wing.forms) if any(ending in one for one in forms.values())]
    if others:
        return f"{' and '.join(f'iosim {name}' for name in others)} can write .{ending}"
    return suggestion(ending, [endings[0] for endings in forms_of(writer).values()])


def passes_through(path: str) -> bool:
    """Whether a path is a device, a FIFO or an open stream: something that exists and is no regular file.

    It is written to and never replaced, and no temporary file is put beside it.
    """
    return bool(re.match(r"/dev/(std|fd/)|/proc/", path)) or (os.path.exists(path) and not os.path.isfile(path))


@contextmanager
def written_whole(path: str, option: str = "-o") -> Iterator[str]:
    """The name of a temporary file to write. At the end it becomes `path`. After an error no file is left.

    If `path` is a symbolic link, the link stays and its target is replaced. An address as s3://bucket/name is written
    through fsspec. `option` is named in messages.
    """
    if "\0" in path:
        raise InputError(option, path, WRITABLE, "a name has no zero byte")
    from .urls import is_url, uploaded

    if is_url(path):
        with uploaded(path, option) as temporary:
            yield temporary
        return
    try:
        with through(path) if passes_through(path) else replaced(os.path.realpath(path)) as temporary:
            yield temporary
    except (OSError, UnicodeError) as error:
        raise InputError(option, path, WRITABLE, getattr(error, "strerror", None) or str(error)) from None


@contextmanager
def through(path: str) -> Iterator[str]:
    """The name of a temporary file, whose content is copied into `path` at the end."""
    from shutil import copyfileobj
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        temporary = os.path.join(folder, "whole")
        yield temporary
        with open(temporary, "rb") as found, open(path, "wb") as out:
            copyfileobj(found, out)


@contextmanager
def replaced(target: str) -> Iterator[str]:
    """The name of a temporary file beside the target. At the end it takes the target's place. Readers of data sets skip
    a name that begins with `_`."""
    folder, name = os.path.split(target)
    unique = f"{os.getpid()}-{os.urandom(4).hex()}"  # even if several machines share a folder
    temporary = os.path.join(folder, f"_{name.lstrip('_')}.{unique}.part")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
