"""A folder of parts: manifest.json describes them, and parts.jsonl has a line with a hash for each part.

A part is written completely before its line, and both are on disk before the next part. So after a fault at any
moment every line has its part. A run that continues reads the lines, checks each part by its hash, and counts the
others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypedDict, cast

from .. import __version__
from ..errors import CheckError, InputError
from ..files import written_whole
from .identity import digest, this_maker
from .parts import Work, Written, differing, file_digest, keep, part_name

if TYPE_CHECKING:
    from collections.abc import Callable

    Checked = Callable[[Written], object]

MANIFEST, JOURNAL, LOCK = "manifest.json", "parts.jsonl", "lock"
UNFINISHED = re.compile(r"(part-\d+\.\w+|manifest\.json|parts\.jsonl)\..+\.part")  # files of a run that was killed


class About(TypedDict):
    """What a manifest says beside the work: the command line, and what the numbers mean."""

    argv: list[str]
    conventions: dict[str, str]


class Manifest(About):
    """What a folder says of itself. `run` is a hash of the version and all arguments; `files` are there at the end."""

    schema: int
    iosim: str
    run: str
    arguments: dict[str, object]
    format: str
    rows: int | None
    parts: int
    complete: bool
    files: list[dict[str, object]]


class Folder:
    """A folder into which one run writes the parts of a sweep. `done` are the parts that are already there, by
    number."""

    def __init__(self, path: str, manifest: Manifest, done: dict[int, Written], journal: TextIO):
        self.path, self.manifest, self.done, self.journal = path, manifest, done, journal

    def missing(self, work: Work) -> Iterator[int]:
        """The parts that are not there."""
        return (part for part in range(len(work)) if part not in self.done)

    def record(self, written: Written) -> None:
        """Record that a part is there."""
        self.journal.write(line_of(written, self.manifest["run"]))
        self.journal.flush()
        os.fsync(self.journal.fileno())
        self.done[written.part] = written

    def finish(self) -> None:
        """Write the manifest with all parts, and remove what killed workers left."""
        clear(self.path)
        files = [self.done[part]._asdict() for part in sorted(self.done)]
        rows = sum(written.rows for written in self.done.values())
        write_manifest(self.path, {**self.manifest, "rows": rows, "complete": True, "files": files})


@contextmanager
def opened(
    path: str, work: Work, about: About, resume: bool, checked: Checked = lambda written: None
) -> Iterator[Folder]:
    """The folder of a run. No other run can open it until this one ends, for whatever reason.

    `about` is added to the description of the work in the manifest. `checked` is called with each part that is
    already there. Raises InputError for a folder of other arguments, and without `resume` for a folder with
    parts.
    """
    with writing(path):
        os.makedirs(path, exist_ok=True)
        with locked(path):
            manifest = manifest_of(work, about)
            done = continued(path, work, manifest, checked) if resume else {}
            if not resume:
                check_new(path)
            clear(path)
            begin(path, manifest, done)
            with open(os.path.join(path, JOURNAL), "a", encoding="utf-8") as journal:
                yield Folder(path, manifest, done, journal)


def clear(path: str) -> None:
    """Remove the unfinished files of a run that was killed."""
    for name in os.listdir(path):
        if UNFINISHED.fullmatch(name):
            os.unlink(os.path.join(path, name))


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the file system into one message."""
    if "\0" in path:
        raise InputError("-o", path, "a folder that can be written", "a name has no zero byte")
    try:
        yield
    except OSError as error:
        raise InputError("-o", path, "a folder that can be written", error.strerror or str(error)) from None


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a folder. The system releases it when this process ends, even if it is killed."""
    with open(os.path.join(path, LOCK), "a") as file:
        try:
            import fcntl
        except ImportError:  # a system without such locks
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError("-o", path, "a folder that no other run writes to", "wait, or end the other run") from None
        yield


def manifest_of(work: Work, about: About) -> Manifest:
    """The manifest of a run before its parts are there."""
    described = {"iosim": __version__, "iosim_files": this_maker().sources, **work.describe()}
    return {
        "schema": 1,
        "iosim": __version__,
        **about,
        "run": digest(json.dumps(described, sort_keys=True)),
        "arguments": json.loads(json.dumps(described)),
        "format": work.kind,
        "rows": work.rows,
        "parts": len(work),
        "complete": False,
        "files": [],
    }


def check_new(path: str) -> None:
    """Raise InputError for a folder that is not empty. A folder that a run began without writing a part is allowed."""
    names = {name for name in os.listdir(path) if name != LOCK and not UNFINISHED.fullmatch(name)}
    if names == {MANIFEST, JOURNAL} and not any(read_journal(path)) and manifest_in(path):
        return
    if MANIFEST in names or JOURNAL in names:
        raise InputError("-o", path, "a new folder", "--resume continues the sweep that is in it")
    if names:
        raise InputError("-o", path, "a new or empty folder", f"it has {min(names)}")


def continued(path: str, work: Work, manifest: Manifest, checked: Checked) -> dict[int, Written]:
    """The parts that an earlier run with the same arguments wrote, each checked by its hash."""
    names = set(os.listdir(path)) - {LOCK}
    if not names & {MANIFEST, JOURNAL}:
        check_new(path)
        return {}
    found = manifest_in(path) or manifest  # lines without a manifest still name their run
    if found["run"] != manifest["run"]:
        other = differing(found["arguments"], manifest["arguments"])
        raise InputError("-o", path, "a folder that the same arguments began", f"these differ: {', '.join(other)}")
    done = {}
    for run, written in read_journal(path):
        if run != manifest["run"]:
            raise InputError("-o", path, "a folder that the same arguments began", "take a new folder")
        whole = written.file == part_name(written.part, work.kind) and 0 <= written.part < len(work)
        if whole and is_there(path, written):
            done[written.part] = written
            checked(written)
    return done


def is_there(path: str, written: Written) -> bool:
    """Whether the file of a part still has the bytes that were written."""
    file = os.path.join(path, written.file)
    whole = os.path.isfile(file) and os.path.getsize(file) == written.bytes
    return whole and file_digest(file) == written.sha256


def begin(path: str, manifest: Manifest, done: Mapping[int, Written]) -> None:
    """Write the manifest, and lines for only those parts that are there."""
    with written_whole(os.path.join(path, JOURNAL)) as temporary:
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(line_of(done[part], manifest["run"]) for part in sorted(done))
        keep(temporary)
    write_manifest(path, manifest)


def write_manifest(path: str, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    with written_whole(os.path.join(path, MANIFEST)) as temporary:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(sealed(manifest), indent=1) + "\n")
        keep(temporary)
    keep(path)


def read_manifest(path: str) -> Manifest:
    """The manifest of a folder. Raises CheckError if it is damaged, InputError if there is none."""
    file = os.path.join(path, MANIFEST)
    found = manifest_in(path)
    if found is None and not os.path.exists(file):
        raise InputError("folder", path, "a folder that iosim sweep -o FOLDER/ wrote", f"it has no {MANIFEST}")
    if found is None:
        raise CheckError(f"{file} is damaged; the sweep's own command line with --resume writes it again")
    return found


def manifest_in(path: str) -> Manifest | None:
    """The manifest of a folder; None if it is damaged, or if there is none."""
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8", errors="replace") as text:
            return cast("Manifest | None", opened_seal(text.read()))
    except FileNotFoundError:
        return None


def sealed(values: Mapping[str, object]) -> dict[str, object]:
    """The values with their hash, so that any change is found."""
    return {**values, "seal": digest(json.dumps(values))}


def opened_seal(text: str) -> dict[str, object] | None:
    """The sealed values of a text; None if the text was changed."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    values = {name: value for name, value in found.items() if name != "seal"} if isinstance(found, dict) else {}
    return values if values and found == sealed(values) else None


def line_of(written: Written, run: str) -> str:
    """The line of a part."""
    return json.dumps(sealed({**written._asdict(), "run": run})) + "\n"


def read_journal(path: str) -> Iterator[tuple[str, Written]]:
    """(the run, a part) for each unchanged line. A part without such a line is counted again."""
    try:
        with open(os.path.join(path, JOURNAL), encoding="utf-8", errors="replace") as file:
            for line in file:
                if found := opened_seal(line):
                    yield str(found.pop("run")), Written(**found)  # type: ignore[arg-type]
    except FileNotFoundError:
        return
