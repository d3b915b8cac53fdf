"""`iosim gather`."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from ..commands.answer import emit
from ..commands.command import named_command
from ..commands.options import file_option, flag_option
from ..errors import InputError

if TYPE_CHECKING:
    from .gather import Parts


@named_command("gather")
@click.argument("folder", required=False)
@flag_option("--check", "Compare each part with its hash, and name every bad one, on stdout. Nothing is written.")
@flag_option("--quiet", "No progress on stderr.")
@file_option("The file, with the ending of the parts; - is stdout.")
def command(folder: str | None, check: bool, path: str | None, quiet: bool) -> None:
    """Join the parts of a sweep in a folder into one file. The file is the same as if the sweep had written it
    directly.

    Each part is compared with its hash before it is written. Memory does not grow with the number of rows. FOLDER may
    be an address as s3://bucket/sweep/.

    Example: iosim gather sweep/ -o out.csv
    """
    from ..files import form_of
    from ..progress import Meter
    from .command_sweep import describe
    from .gather import checked, complete, gather, looked_at

    if folder is None:
        raise InputError("FOLDER", "nothing", "the folder of a sweep", "as in iosim gather sweep/ -o out.csv")
    if check:
        if path is not None:
            raise InputError("-o", path, "nothing with --check, which writes no rows")
        found = looked_at(folder)
        with closing(Meter(rows_in(found), quiet)) as meter:
            result = checked(found, meter.advance)
        emit("".join(f"{line}\n" for line in result.lines()), None)
        sys.exit(0 if result.ok else 1)
    asked = form_of(path, "gather")
    parts = complete(folder)
    out = asked_file(path, asked, parts.format)
    with closing(Meter(rows_in(parts), quiet)) as meter:
        rows = gather(parts, out, meter.advance)
    if out != "-":
        describe(out, {"rows": rows, "format": parts.format, "conventions": parts.manifest["conventions"]})


def rows_in(parts: Parts) -> int:
    """The rows of the parts that are there, as their lines say."""
    return sum(lines[0].rows for lines in parts.found.values())


def asked_file(path: str | None, asked: str, kind: str) -> str:
    """The file that was asked for, with a name of the form `asked`. Raises InputError for one that parts of this kind
    cannot be joined into."""
    from ..files import check_file

    if path is None:
        raise InputError("-o", "nothing", f"a file that ends in .{kind}, or - for stdout")
    check_file(kind, path)
    if path != "-" and asked != kind:
        raise InputError("-o", path, f"a file that ends in .{kind}, as the parts do")
    return path
