"""A folder of parts, on this machine or at an address as s3://bucket/sweep/, with _manifest.json that describes them.

A part gets its name when it is whole. The manifest names the question, the version and the files that decide the rows,
and has a hash of each part that was there when it was last written: every few seconds, and at the end. A run that
continues counts all other parts. A reader of data sets skips names that begin with `_`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from shutil import copyfileobj
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypedDict, cast

from ..errors import NO_PYARROW, CheckError, InputError, MissingError
from ..files import written_whole
from ..urls import FileSystem, file_system, is_url, make_folder, reported
from .executors import results
from .inputs import digest, this_maker
from .parts import make_pieces, part_name, write
from .row_text import LINES

if TYPE_CHECKING:
    from io import BytesIO

    from ..progress import Meter
    from .executors import Team
    from .parts import Work

MANIFEST = "_manifest.json"
UNFINISHED = re.compile(r"_(part-\d+|manifest)\.\w+\..+\.part")  # of a run that was killed
WRITABLE = "a folder that can be written"
AGAIN = "the sweep's own command line with --resume makes it again"
SECONDS_TO_APPEAR = 10  # of a part that another machine wrote
SECONDS_BETWEEN, SHARE_OF_TIME = 5, 20  # of writing the manifest, which takes at most one part in so many


class Written(NamedTuple):
    """A part that was written to its file."""

    part: int
    file: str
    rows: int
    bytes: int
    sha256: str


class About(TypedDict):
    """What a manifest says beside the work: the command line, and what the numbers mean."""

    argv: list[str]
    conventions: dict[str, str]


class Manifest(About):
    """What a folder says of itself. `run` is a hash of the version and of all arguments and files."""

    schema: int
    iosim: str
    run: str
    arguments: dict[str, object]
    format: str
    rows: int | None
    parts: int
    complete: bool
    files: list[dict[str, object]]


# ---------------------------------------------------------------- where the files are


class Disk:
    """What is used of a file system of fsspec, for the folders of this machine, which need no fsspec."""

    def ls(self, path: str, detail: bool) -> list[str]:
        return os.listdir(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def open(self, path: str, mode: str) -> BinaryIO:
        return cast("BinaryIO", open(path, mode))

    def makedirs(self, path: str, exist_ok: bool) -> None:
        os.makedirs(path, exist_ok=exist_ok)

    def rm_file(self, path: str) -> None:
        os.unlink(path)

    def invalidate_cache(self) -> None:
        return


class Place:
    """A folder of files by their names, at a path or an address. `option` named it."""

    def __init__(self, path: str, option: str = "-o"):
        if "\0" in path:
            raise InputError(option, path, WRITABLE, "a name has no zero byte")
        self.given, self.option = path, option
        self.path = path.rstrip("/") if is_url(path) else os.path.abspath(path)
        self.files, folder = file_system(path, option) if is_url(path) else (cast("FileSystem", Disk()), self.path)
        self.folder = folder.rstrip("/")

    def refused(self, allowed: str, why: str) -> InputError:
        """The error for this folder."""
        return InputError(self.option, self.given, allowed, why)

    def names(self) -> set[str]:
        """The names of all files; none if there is no folder."""
        self.files.invalidate_cache()
        try:
            return {path.rstrip("/").rpartition("/")[2] for path in self.files.ls(self.folder, detail=False)} - {""}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def size(self, name: str) -> int | None:
        """The bytes of a file; None if it is not there."""
        self.files.invalidate_cache()
        try:
            return self.files.size(f"{self.folder}/{name}")
        except FileNotFoundError:
            return None

    def open(self, name: str) -> BinaryIO:
        """A file to read. Raises FileNotFoundError if it is not there."""
        return self.files.open(f"{self.folder}/{name}", "rb")

    def clear(self) -> None:
        """Remove what killed processes were writing."""
        for name in filter(UNFINISHED.fullmatch, self.names()):
            with suppress(FileNotFoundError):
                self.files.rm_file(f"{self.folder}/{name}")

    @contextmanager
    def written(self, name: str) -> Iterator[str]:
        """The name of a temporary file of this machine. At the end it becomes the file, whole or not at all."""
        with written_whole(f"{self.path}/{name}") as temporary:
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())  # so that it survives a reboot

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Turn errors of the file system into one message."""
        if is_url(self.path):
            with reported(self.given, self.option):
                yield
            return
        try:
            yield
        except OSError as error:
            raise self.refused(WRITABLE, error.strerror or str(error)) from None


# ---------------------------------------------------------------- a run into a folder


class Folder:
    """A folder into which a run writes the parts of a sweep. `done` are those that are there, by number."""

    def __init__(self, place: Place, manifest: Manifest, done: dict[int, Written]):
        self.place, self.manifest, self.done, self.due = place, manifest, done, 0.0

    def missing(self) -> Iterator[int]:
        """The parts that are not there."""
        return (part for part in range(self.manifest["parts"]) if part not in self.done)

    def record(self, written: Written) -> None:
        """Record that a part is there. Raises InputError if it is not: its worker may have another disk."""
        until = time.monotonic() + SECONDS_TO_APPEAR
        while self.place.size(written.file) != written.bytes:
            if time.monotonic() > until:
                why = f"{written.file} is not there, though its worker wrote it"
                raise InputError(
                    self.place.option, self.place.given, "a folder that all workers share and can write", why
                )
            time.sleep(0.1)
        self.done[written.part] = written
        if time.monotonic() >= self.due:
            self.save()

    def save(self) -> None:
        """Write the manifest, whole or not at all."""
        begun, files = time.monotonic(), [self.done[part]._asdict() for part in sorted(self.done)]
        complete = len(files) == self.manifest["parts"]
        rows = sum(written.rows for written in self.done.values()) if complete else self.manifest["rows"]
        found = {**self.manifest, "rows": rows, "complete": complete, "files": files}
        with self.place.written(MANIFEST) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
        self.due = time.monotonic() + max(SECONDS_BETWEEN, SHARE_OF_TIME * (time.monotonic() - begun))


def write_part(path: str, work: Work, part: int) -> Iterator[Written]:
    """Write a part to its file in a folder."""
    place, name = Place(path), part_name(part, work.kind)
    with place.written(name) as temporary:
        rows, size = write(work, temporary, make_pieces(work, part)), os.path.getsize(temporary)
        with open(temporary, "rb") as file:
            sha256 = digest_of(file)
    yield Written(part, name, rows, size, sha256)


def write_folder(work: Work, path: str, about: About, resume: bool, team: Team | None, meter: Meter) -> None:
    """Write the parts of a sweep into a folder. With `resume`, those that an earlier run wrote stay."""

    def steps(written: Written) -> int:
        return work.steps_of(written.rows, len(work.chunks_of(written.part)))

    place = Place(path)
    with place.reported():
        folder = opened(place, work, about, resume)
        for written in folder.done.values():
            meter.skip(steps(written))
        task = partial(write_part, place.path)
        try:
            with closing(results(team, task, work, folder.missing(), ordered=False)) as made:
                for written in made:
                    folder.record(written)
                    meter.advance(steps(written))
        except BaseException:
            with suppress(InputError):  # it must not hide another error
                folder.save()
            raise
        folder.save()
        place.clear()


def opened(place: Place, work: Work, about: About, resume: bool) -> Folder:
    """The folder of a run. Raises InputError for a folder of another sweep, and without `resume` for one with parts."""
    manifest = manifest_of(work, about)
    make_folder(place.files, place.folder)
    names = {name for name in place.names() if not UNFINISHED.fullmatch(name)}
    found = read_manifest(place) if MANIFEST in names else None
    if names and not resume and (found is None or found["files"] or names != {MANIFEST}):
        hint = "--resume continues the sweep that is in it" if MANIFEST in names else f"it has {min(names)}"
        raise place.refused("a new or empty folder", hint)
    if names and found is None:
        raise place.refused("a new or empty folder", f"it has {min(names)}, and no {MANIFEST}")
    if found and found["run"] != manifest["run"]:
        other = ", ".join(differing(found["arguments"], manifest["arguments"]))
        raise place.refused("a folder that the same arguments began", f"these differ: {other}")
    listed = parts_in(found) if found else []
    folder = Folder(place, manifest, {one.part: one for one in listed if not fault_of(place, one)})
    folder.save()
    return folder


def manifest_of(work: Work, about: About) -> Manifest:
    """The manifest of a run before its parts are there."""
    maker = this_maker()
    described = {"iosim": maker.version, "iosim_files": maker.sources, **work.describe()}
    return {
        "schema": 1,
        "iosim": maker.version,
        **about,
        "run": run_of(described),
        "arguments": json.loads(json.dumps(described)),
        "format": work.kind,
        "rows": work.rows,
        "parts": len(work),
        "complete": False,
        "files": [],
    }


def run_of(arguments: Mapping[str, object]) -> str:
    """The name of a run: a hash of its arguments."""
    return digest(json.dumps(arguments, sort_keys=True))


def differing(found: Mapping[str, object], wanted: Mapping[str, object]) -> list[str]:
    """The keys in which two descriptions differ. For versions both are named."""
    found, wanted = apart(found), apart(wanted)
    names = [name for name in {**wanted, **found} if name not in wanted or found.get(name) != wanted[name]]
    shown = {"iosim": f"iosim {found.get('iosim')} (now {wanted.get('iosim')})", "iosim_files": "the files of iosim"}
    return [shown.get(name, name) for name in names]


def apart(described: Mapping[str, object]) -> dict[str, object]:
    """A description in which each file is a key of its own, and each option of the problem, with its values at all
    points, if `options` are listed."""
    flat: dict[str, object] = {}
    for name, value in described.items():
        if name == "options" and isinstance(value, list):
            flat |= {option: [point.get(option) for point in value] for point in value for option in point}
        elif name in ("load", "mask_files", "hardware_files") and isinstance(value, dict):
            flat |= {f"{name.removesuffix('_files')} {file}": sha256 for file, sha256 in value.items()}
        else:
            flat[name] = value
    return flat


# ---------------------------------------------------------------- what a folder says


def read_manifest(place: Place) -> Manifest:
    """The manifest of a folder. Raises InputError if there is none, or if it is not one that a sweep wrote."""
    try:
        with place.open(MANIFEST) as file:
            found = cast("Manifest", json.load(file))
        if found["run"] == run_of(found["arguments"]) and found["format"] in (*LINES, "parquet"):
            parts_in(found)
            return found
    except FileNotFoundError:
        raise InputError(
            place.option, place.given, "a folder that iosim sweep -o FOLDER/ wrote", f"no {MANIFEST}"
        ) from None
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InputError(
        place.option, place.given, f"a folder whose {MANIFEST} a sweep wrote", "it is damaged: take a new folder"
    )


def parts_in(manifest: Manifest) -> list[Written]:
    """The parts that a manifest lists. Raises ValueError if one is not a part of this sweep."""
    found = [Written(**one) for one in manifest["files"]]  # type: ignore[arg-type]
    for one in found:
        if one.part not in range(manifest["parts"]) or one.file != part_name(one.part, manifest["format"]):
            raise ValueError(one.file)
    return found


def fault_of(place: Place, written: Written) -> str:
    """What is wrong with a part: it is missing, or has not the bytes that were written. Empty if it is right."""
    size = place.size(written.file)
    if size is None:
        return "missing"
    if size != written.bytes:
        return f"has {size} bytes, and was written with {written.bytes}"
    with place.open(written.file) as file:
        return "" if digest_of(file) == written.sha256 else "changed"


def digest_of(file: BinaryIO) -> str:
    """The SHA-256 of an open file."""
    return hashlib.file_digest(cast("BytesIO", file), "sha256").hexdigest()


# ---------------------------------------------------------------- one file


def join(path: str, out: BinaryIO, advance: Callable[[int], object]) -> Manifest:
    """Write all rows of a folder, in the order of the sweep, and return its manifest."""
    place = Place(path, "--gather")
    with place.reported():
        manifest = read_manifest(place)
    parts, number = parts_in(manifest), manifest["parts"]
    if [one.part for one in parts] != [*range(number)]:
        there = f"{len(parts)} of {number} are there; the sweep's command line with --resume finishes it"
        raise InputError("--gather", path, "a folder with all parts of a sweep", there)
    files = as_written(place, parts, advance)
    if manifest["format"] == "parquet":
        join_parquet(files, out)
    else:
        join_lines(files, out, with_header=manifest["format"] == "csv")
    return manifest


def as_written(place: Place, parts: Iterable[Written], advance: Callable[[int], object]) -> Iterator[BinaryIO]:
    """The parts as open files. Each is compared with its hash before a byte of it is taken."""
    for one in parts:
        with place.reported():
            fault = fault_of(place, one)
        if fault:
            raise CheckError(f"{one.file} of {place.given}: {fault}; {AGAIN}")
        with place.open(one.file) as file:
            yield file
        advance(one.rows)


def join_lines(files: Iterable[BinaryIO], out: BinaryIO, with_header: bool) -> None:
    """Write the lines of all files. The header is that of the first."""
    for number, file in enumerate(files):
        header = file.readline() if with_header else b""
        out.write(b"" if number else header)
        copyfileobj(file, out)


def join_parquet(files: Iterable[BinaryIO], out: BinaryIO) -> None:
    """Write the groups of rows of all files."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingError(NO_PYARROW) from None
    writer = None
    for file in files:
        part = parquet.ParquetFile(file)
        writer = writer or parquet.ParquetWriter(out, part.schema_arrow)
        for group in range(part.num_row_groups):
            writer.write_table(part.read_row_group(group))
    if writer:
        writer.close()


def check_outside(path: str, out: str) -> None:
    """Raise InputError for a file inside a folder of parts, where readers of data sets would take it for one."""
    if os.path.realpath(path) == os.path.dirname(os.path.realpath(out)):
        raise InputError("-o", out, "a file outside the folder of the parts")
