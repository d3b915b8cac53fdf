"""Joins the parts of a folder into one file, and checks them. Memory does not grow with their number.

Nothing that a folder says is believed: its parts have the names of the plan, each once, and lie inside the folder. A
part is read and compared with its hash before a byte of it is written.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from ..answer import numbered
from ..errors import CheckError, InputError, MissingError
from ..files import written_whole
from ..urls import is_url
from .folder import (
    LOCK,
    MANIFEST,
    OLD_JOURNAL,
    OLD_LOCK,
    OLD_MANIFEST,
    UNFINISHED,
    Manifest,
    fault_of,
    journals,
    lines_in,
    read_manifest,
    run_of,
)
from .parts import FORMS, Written, part_name
from .place import Local, Place, place_of

Progress = Callable[[int], object]
"""A function that is called with the number of rows of each part."""
BLOCK_BYTES = 2**20
AGAIN = "the sweep's own command line with --resume makes it again"


@dataclass(frozen=True)
class Parts:
    """The parts of a folder that was looked at: where they are, what its manifest says, and each part by its number,
    with all that lines say of it."""

    place: Place
    manifest: Manifest
    found: Mapping[int, list[Written]]

    @property
    def format(self) -> str:
        return self.manifest["format"]

    @property
    def total(self) -> int:
        """The number of parts of the whole sweep."""
        return self.manifest["parts"]

    def __iter__(self) -> Iterator[Written]:
        """The parts in the order of the sweep. Of a part with several lines it is the one with its bytes."""
        for part in sorted(self.found):
            first, *more = self.found[part]
            yield next((one for one in (first, *more) if more and not fault_of(self.place, one)), first)


def looked_at(path: str) -> Parts:
    """The parts of a folder, as far as they are there. Raises CheckError for a manifest that no sweep wrote."""
    if os.path.isfile(path):
        raise InputError("folder", path, "a folder that iosim sweep -o FOLDER/ wrote, and not a file")
    place = place_of(path)
    with place.reported():
        manifest = read_manifest(place)
        listed = [written_of(one) for one in manifest["files"]] if manifest["complete"] else []
        found = {one.part: [one] for one in listed} if listed else lines_in(place, manifest["run"])
    parts = Parts(place, manifest, found)
    if why := wrong(parts, listed):
        raise CheckError(f"the manifest of {place.path} is not one that a sweep wrote: {why}")
    return parts


def written_of(found: dict[str, object]) -> Written:
    """A part of a manifest. Raises CheckError for other keys, or values of other types."""
    kinds = {"part": int, "file": str, "rows": int, "bytes": int, "sha256": str}
    if {name: type(value) for name, value in found.items()} != kinds:
        raise CheckError(f"the manifest is not one that a sweep wrote: a part is {found}")
    return Written(**found)  # type: ignore[arg-type]


def wrong(parts: Parts, listed: list[Written]) -> str:
    """What a manifest says that no sweep writes; an empty text if there is nothing."""
    manifest = parts.manifest
    if parts.format not in (*FORMS, "parquet"):
        return f"format {parts.format!r}"
    if manifest["run"] != run_of(manifest["arguments"]):
        return "its arguments are those of another run"
    if manifest["complete"] and [one.part for one in listed] != [*range(parts.total)]:
        return f"it has other parts than 0 to {parts.total - 1}, each once"
    if manifest["complete"] and sum(one.rows for one in listed) != manifest["rows"]:
        return f"its parts have not {manifest['rows']} rows"
    for part, lines in parts.found.items():
        names = {line.file for line in lines} - {part_name(part, parts.format)}
        if names or not 0 <= part < parts.total:
            return f"part {part} is called {min(names, default=part)!r}"
    return ""


def complete(folder: str) -> Parts:
    """The parts of a folder. Raises an error, which says what to do, if some are missing."""
    parts = looked_at(folder)
    if len(parts.found) < parts.total:
        allowed, there = "a folder with all parts of a sweep", f"{len(parts.found)} of {parts.total} are there"
        raise InputError("folder", folder, allowed, f"{there}; the sweep's command line with --resume finishes it")
    return parts


# ---------------------------------------------------------------- one file


def gather(parts: Parts, out: str, progress: Progress) -> int:
    """Write all rows of a folder, in the order of the sweep: to a file, whole or not at all, or to stdout (`-`). Return
    their number."""
    join = join_parquet if parts.format == "parquet" else join_lines
    if out == "-":
        return join(parts, sys.stdout.buffer, progress)
    check_outside(parts.place, out)
    with written_whole(out) as temporary, open(temporary, "wb") as file:
        return join(parts, file, progress)


def check_outside(place: Place, out: str) -> None:
    """Raise InputError for a file inside the folder, where readers of data sets would take it for a part."""
    if is_url(out) or not isinstance(place, Local):
        inside = out.rpartition("/")[0].rstrip("/") == place.path.rstrip("/")
    else:
        inside = os.path.realpath(place.path) == os.path.dirname(os.path.realpath(out))
    if inside:
        raise InputError("-o", out, "a file outside the folder of the parts")


@contextmanager
def as_written(place: Place, written: Written) -> Iterator[BinaryIO]:
    """A part as an open file, after its bytes were compared with their hash."""
    try:
        with place.fetched(written.file) as path, open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != written.sha256:
                raise damaged(place, written)
            file.seek(0)
            yield file
    except FileNotFoundError:
        raise damaged(place, written) from None


def damaged(place: Place, written: Written) -> CheckError:
    """The error for a part that is not as it was written."""
    return CheckError(f"{written.file} of {place.path} is not as it was written; {AGAIN}")


def wrong_rows(place: Place, written: Written, rows: int) -> CheckError:
    """The error for a part with another number of rows than its line says."""
    return CheckError(f"{written.file} of {place.path} has {rows} rows and not {written.rows}; {AGAIN}")


def join_lines(parts: Parts, out: BinaryIO, progress: Progress) -> int:
    """Write the lines of all parts, and return their number. The header is that of the first."""
    with_header, first, total = parts.format == "csv", b"", 0
    for written in parts:
        with as_written(parts.place, written) as file:
            header = file.readline() if with_header else b""
            rows = sum(block.count(b"\n") for block in blocks(file))
            if rows != written.rows:
                raise wrong_rows(parts.place, written, rows)
            if written.part and header != first:
                raise CheckError(f"{written.file} of {parts.place.path} has other columns than the first part; {AGAIN}")
            first = header
            file.seek(len(header) if written.part else 0)
            for block in blocks(file):
                out.write(block)
        total += rows
        progress(rows)
    return total


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file, in blocks."""
    while block := file.read(BLOCK_BYTES):
        yield block


def join_parquet(parts: Parts, out: BinaryIO, progress: Progress) -> int:
    """Write the groups of rows of all parts, and return the number of rows."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'") from None
    writer, total = None, 0
    for written in parts:
        with as_written(parts.place, written) as file, parquet.ParquetFile(file) as part:
            if part.metadata.num_rows != written.rows:
                raise wrong_rows(parts.place, written, part.metadata.num_rows)
            writer = writer or parquet.ParquetWriter(out, part.schema_arrow)
            for group in range(part.num_row_groups):
                writer.write_table(part.read_row_group(group))
        total += written.rows
        progress(written.rows)
    if writer:
        writer.close()
    return total


# ---------------------------------------------------------------- a check


class Checked(NamedTuple):
    """What was found in a folder: the parts as they were written and their rows, the number of parts that are not made
    yet, and what is wrong with each other file."""

    good: int
    rows: int
    not_made: int
    bad: dict[str, str]

    @property
    def ok(self) -> bool:
        return not self.not_made and not self.bad

    def lines(self) -> Iterator[str]:
        """A line for each bad file, and the numbers."""
        for name, fault in self.bad.items():
            yield f"{name}: {fault}"
        are, were = ("is", "it was") if self.good == 1 else ("are", "they were")
        yield f"{numbered(self.good, 'part')} with {numbered(self.rows, 'row')} {are} as {were} written"
        if self.bad:
            yield f"{len(self.bad)} files are not; the sweep's own command line with --resume makes such parts again"
        if self.not_made:
            yield f"{self.not_made} parts are not made yet; the sweep's own command line with --resume makes them"


def checked(parts: Parts, progress: Progress) -> Checked:
    """Every part of a folder compared with its line, and the files that belong to no part."""
    rows, bad = 0, dict[str, str]()
    for written in parts:
        if fault := fault_of(parts.place, written):
            bad[written.file] = fault
        else:
            rows += written.rows
        progress(written.rows)
    good = len(parts.found) - len(bad)
    ours = {part_name(part, parts.format) for part in parts.found}
    for name in sorted(parts.place.names() - ours):
        if not is_own(name):
            bad[name] = "not a part of this sweep, and readers of data sets take it for one"
    return Checked(good, rows, parts.total - len(parts.found), bad)


def is_own(name: str) -> bool:
    """Whether a file is one that a sweep leaves beside its parts."""
    known = name in (MANIFEST, OLD_MANIFEST, OLD_JOURNAL, OLD_LOCK) or name.startswith(LOCK)
    return known or bool(journals([name]) or UNFINISHED.fullmatch(name))
