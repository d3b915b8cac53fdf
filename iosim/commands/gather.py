"""`iosim gather`."""

from __future__ import annotations

from contextlib import closing

import click

from ..errors import InputError
from .command import named_command
from .options import file_option, flag_option


@named_command("gather")
@click.argument("folder")
@flag_option("--quiet", "No progress on stderr.")
@file_option("The file, with the ending of the parts; - is stdout.")
def command(folder: str, path: str | None, quiet: bool) -> None:
    """Join the parts of a sweep in a folder into one file. The file is the same as if the sweep had written it
    directly.

    Each part is compared with its hash. Memory does not grow with the number of rows.

    Example: iosim gather sweep/ -o out.csv
    """
    from ..files import check_file, form_of
    from ..progress import Meter
    from ..sweeps.gather import complete, gather
    from .sweep import describe

    asked = form_of(path, "gather")
    manifest = complete(folder)
    kind = manifest["format"]
    if path is None:
        raise InputError("-o", "nothing", f"a file that ends in .{kind}, or - for stdout")
    check_file(kind, path)
    if path != "-" and asked != kind:
        raise InputError("-o", path, f"a file that ends in .{kind}, as the parts do")
    with closing(Meter(manifest["rows"] or 0, quiet)) as meter:
        gather(folder, manifest, path, meter.advance)
    if path != "-":
        describe(path, {"rows": manifest["rows"], "format": kind, "conventions": manifest["conventions"]})
