"""`iosim gather`."""

from __future__ import annotations

from typing import cast

import click

from ..errors import InputError
from .options import file_option, flag_option, named_command


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
    from ..files import form_of
    from ..progress import Meter
    from ..sweeps.gather import complete, gather
    from .sweep import describe

    asked = form_of(path, "gather")
    manifest = complete(folder)
    kind = str(manifest["format"])
    if path is None:
        raise InputError("-o", "nothing", f"a file that ends in .{kind}, or - for stdout")
    if path == "-" and kind == "parquet":
        raise InputError("-o", path, "a file, for Parquet")
    if path != "-" and asked != kind:
        raise InputError("-o", path, f"a file that ends in .{kind}, as the parts do")
    meter = Meter(cast("int", manifest["rows"]), quiet)
    try:
        gather(folder, manifest, path, meter.advance)
    finally:
        meter.close()
    if path != "-":
        describe(path, {name: manifest[name] for name in ("rows", "format", "conventions")})
