"""Joins the parts of a folder into one file. Memory does not grow with their number."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from ..errors import CheckError, InputError, MissingError
from ..files import written_whole
from .folder import read_manifest, writing
from .parts import Written, file_digest

if TYPE_CHECKING:
    from .folder import Manifest

Progress = Callable[[int], object]
"""A function that is called with the number of rows of each part."""
BLOCK_BYTES = 2**20


def complete(folder: str) -> Manifest:
    """The manifest of a folder. Raises an error, which says what to do, if parts are missing."""
    with writing(folder):
        manifest = read_manifest(folder)
    if not manifest["complete"]:
        raise InputError(
            "folder", folder, "a folder with all parts of a sweep", "the sweep's command line with --resume finishes it"
        )
    return manifest


def parts_of(manifest: Manifest) -> Iterator[Written]:
    """The parts of a manifest, in order."""
    for found in manifest["files"]:
        yield Written(**found)  # type: ignore[arg-type]


def gather(folder: str, manifest: Manifest, out: str, progress: Progress) -> None:
    """Write all rows of a folder, in the order of the sweep: to a file, whole or not at all, or to stdout (`-`)."""
    join = join_parquet if manifest["format"] == "parquet" else join_lines
    if out == "-":
        join(folder, manifest, sys.stdout.buffer, progress)
        return
    with written_whole(out) as temporary, open(temporary, "wb") as file:
        join(folder, manifest, file, progress)


def join_lines(folder: str, manifest: Manifest, out: BinaryIO, progress: Progress) -> None:
    """Write the lines of all parts. The header is that of the first."""
    for written in parts_of(manifest):
        copy_part(folder, written, out, header=manifest["format"] == "csv" and written.part > 0)
        progress(written.rows)


def copy_part(folder: str, written: Written, out: BinaryIO, header: bool) -> None:
    """Copy a part and check its hash. If its first line is a `header`, it is left out."""
    path, found = os.path.join(folder, written.file), hashlib.sha256()
    try:
        with open(path, "rb") as file:
            if header:
                found.update(file.readline())
            while block := file.read(BLOCK_BYTES):
                found.update(block)
                out.write(block)
    except FileNotFoundError:
        raise damaged(path) from None
    if found.hexdigest() != written.sha256:
        raise damaged(path)


def damaged(path: str) -> CheckError:
    """The error for a damaged part."""
    return CheckError(f"{path} is not as it was written; the sweep's own command line with --resume makes it again")


def join_parquet(folder: str, manifest: Manifest, out: BinaryIO, progress: Progress) -> None:
    """Write the groups of rows of all parts."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'") from None
    writer = None
    for written in parts_of(manifest):
        path = os.path.join(folder, written.file)
        if not os.path.isfile(path) or file_digest(path) != written.sha256:
            raise damaged(path)
        with parquet.ParquetFile(path) as part:
            writer = writer or parquet.ParquetWriter(out, part.schema_arrow)
            for group in range(part.num_row_groups):
                writer.write_table(part.read_row_group(group))
        progress(written.rows)
    if writer:
        writer.close()
