"""A folder of parts: _manifest.json describes them, and _parts.jsonl has a line with a hash for each part.

A part is written completely before its line, and both are on disk before the next part. So after a fault at any
moment every line has its part. A run that continues reads the lines, checks each part by its hash, and counts the
others. A share is one of several runs into one folder, each of which makes its own parts and has a file of lines of its
own.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

from ..errors import CheckError, InputError
from ..units import parse_count
from ..version import __version__
from .identity import check_maker, digest, maker_of_process, this_maker
from .parts import Parts, Written, differing, part_name
from .place import file_digest, place_of

if TYPE_CHECKING:
    from .place import Place, Record

    Checked = Callable[[Written], object]

ALLOWED = "a share as 7/100: the seventh of a hundred"


class Share(NamedTuple):
    """The `number`-th of so many shares, from 1 on. Parts are dealt out in turn, so that all take about as long."""

    number: int = 1
    of: int = 1

    def parts(self, total: int) -> range:
        """The numbers of its parts."""
        return range(self.number - 1, total, self.of)

    def named(self, name: str) -> str:
        """The name of its own file beside those of other shares: `_parts-7-of-100.jsonl` for `_parts.jsonl`."""
        base, ending = os.path.splitext(name)
        return name if self.of == 1 else f"{base}-{self.number}-of-{self.of}{ending}"


WHOLE = Share()
"""A run that makes all parts."""


def parse_share(text: str | None) -> Share:
    """The share that a text as 7/100 names; all parts for None. Raises InputError, which names --share."""
    if text is None:
        return WHOLE
    number, slash, of = text.partition("/")
    if not slash:
        raise InputError("--share", text, ALLOWED)
    share = Share(*(parse_count(part, "--share") for part in (number, of)))
    if share.number > share.of:
        raise InputError("--share", text, f"{ALLOWED}; here from 1/{share.of} to {share.of}/{share.of}")
    return share


def share_of(name: str, of_whole: str) -> Share | None:
    """The share whose file has this name; None if the name is not that of a share's file."""
    base, ending = map(re.escape, os.path.splitext(of_whole))
    found = re.fullmatch(rf"{base}-(\d+)-of-(\d+){ending}", name)
    return Share(*map(int, found.groups())) if found else None


MANIFEST, JOURNAL, LOCK = "_manifest.json", "_parts.jsonl", "_lock"
OLD_MANIFEST, OLD_JOURNAL, OLD_LOCK = "manifest.json", "parts.jsonl", "lock"  # of iosim 0.2
OF_PART = re.compile(r"(_?)part-(\d{8,})\.\w+(\..+\.part)?")
UNFINISHED = re.compile(r"_(part-\d+\.\w+|(manifest|parts)[\w-]*\.jsonl?)\..+\.part")  # of a run that was killed
SAME_ARGUMENTS = "a folder that the same arguments began"
SECONDS_TO_APPEAR = 10  # of a part that another machine wrote


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
    """A folder into which one run writes the parts of a sweep, or of its share. `done` are those that are already
    there, by number."""

    def __init__(self, place: Place, manifest: Manifest, share: Share, done: dict[int, Written], record: Record):
        self.place, self.manifest, self.share, self.done, self.add = place, manifest, share, done, record

    def missing(self) -> Iterator[int]:
        """The parts that are not there."""
        return (part for part in self.share.parts(self.manifest["parts"]) if part not in self.done)

    def record(self, written: Written) -> None:
        """Record that a part is there. Raises InputError if it is not: its worker may have another disk."""
        until = time.monotonic() + SECONDS_TO_APPEAR
        while self.place.size(written.file) != written.bytes:
            if time.monotonic() > until:
                why = f"{written.file} is not there, though its worker wrote it"
                raise InputError("-o", self.place.path, "a folder that all workers share and can write", why)
            time.sleep(0.1)
        self.add(line_of(written, self.manifest["run"]))
        self.done[written.part] = written

    def finish(self) -> None:
        """Write the manifest with all parts, if all are there, and remove what killed workers left."""
        clear(self.place, self.share, self.done)
        done = self.done if self.share == WHOLE else found_once(lines_in(self.place, self.manifest["run"]))
        if len(done) == self.manifest["parts"]:
            write_manifest(self.place, completed(self.manifest, done), self.share)


@contextmanager
def opened(
    path: str,
    work: Parts,
    about: About,
    resume: bool,
    checked: Checked = lambda written: None,
    share: Share = WHOLE,
) -> Iterator[Folder]:
    """The folder of a run. No other run can open it until this one ends, for whatever reason; runs of other shares can.

    `about` is added to the description of the work in the manifest. `checked` is called with each part that is
    already there. Raises InputError for a folder of other arguments, and without `resume` for a folder with
    parts.
    """
    place = place_of(path)
    manifest = manifest_of(work, about)
    with place.reported(), ExitStack() as held:
        place.make()
        held.enter_context(place.locked(LOCK, shared=share != WHOLE))
        if share != WHOLE:
            held.enter_context(place.locked(share.named(LOCK)))
        check_folder(place, manifest, resume, share)
        done = there(place, manifest, share) if resume else {}
        for written in done.values():
            checked(written)
        clear(place, share, done)
        lines = [line_of(done[part], manifest["run"]) for part in sorted(done)]
        record = held.enter_context(place.journal(share.named(JOURNAL), lines))
        begin(place, manifest, share, done)
        yield Folder(place, manifest, share, done, record)


def begin(place: Place, manifest: Manifest, share: Share, done: dict[int, Written]) -> None:
    """Write the manifest. A share leaves that of the other shares, unless it says that all parts are there."""
    if share == WHOLE:
        for name in journals(place.names()):
            if name != JOURNAL:  # its lines are in the journal of this run
                place.remove(name)
    found = None if share == WHOLE else manifest_in(place)
    if found is None or (found["complete"] and len(done) < len(share.parts(manifest["parts"]))):
        write_manifest(place, manifest, share)


def clear(place: Place, share: Share, done: Mapping[int, Written]) -> None:
    """Remove what a run left that was killed: unfinished files, and parts that are not `done`. A share leaves those of
    others."""
    for name in place.names():
        found = OF_PART.fullmatch(name)
        if found is None:
            own = share == WHOLE or name.startswith(tuple(f"{share.named(one)}." for one in (JOURNAL, MANIFEST)))
            is_left = own and bool(UNFINISHED.fullmatch(name))
        else:
            part, unfinished = int(found[2]), bool(found[1] or found[3])
            is_left = part % share.of == share.number - 1 and (unfinished or part not in done)
        if is_left:
            place.remove(name)


def manifest_of(work: Parts, about: About) -> Manifest:
    """The manifest of a run before its parts are there."""
    check_maker("this process", maker_of_process())
    described = {"iosim": __version__, "iosim_files": this_maker().sources, **work.describe()}
    return {
        "schema": 1,
        "iosim": __version__,
        **about,
        "run": run_of(described),
        "arguments": json.loads(json.dumps(described)),
        "format": work.kind,
        "rows": work.rows,
        "parts": len(work),
        "complete": False,
        "files": [],
    }


def run_of(arguments: dict[str, object]) -> str:
    """The name of a run: a hash of its arguments."""
    return digest(json.dumps(arguments, sort_keys=True))


def completed(manifest: Manifest, done: dict[int, Written]) -> Manifest:
    """A manifest with all parts."""
    files = [done[part]._asdict() for part in sorted(done)]
    return {**manifest, "rows": sum(written.rows for written in done.values()), "complete": True, "files": files}


# ---------------------------------------------------------------- what is in a folder before a run


def check_folder(place: Place, manifest: Manifest, resume: bool, share: Share) -> None:
    """Raise InputError for a folder of another sweep, of other files, or, without `resume`, with parts."""
    names = {name for name in place.names() if not UNFINISHED.fullmatch(name) and not name.startswith(LOCK)}
    runs = {run for name in journals(names) for run, _ in read_journal(place, name)}
    is_begun = bool(names & {MANIFEST, OLD_MANIFEST, OLD_JOURNAL} or journals(names))
    found = manifest_in(place)
    as_new = names <= {MANIFEST, JOURNAL} and found is not None and not runs  # began, and made nothing
    if resume or share != WHOLE:
        if is_begun:
            check_same(place, manifest, found, runs)
            check_share(place, share, names, resume)
            return
    elif is_begun and not as_new:
        raise InputError("-o", place.path, "a new folder", "--resume continues the sweep that is in it")
    if names and not as_new:
        raise InputError("-o", place.path, "a new or empty folder", f"it has {min(names)}")


def check_same(place: Place, manifest: Manifest, found: Manifest | None, runs: set[str]) -> None:
    """Raise InputError for a folder of other arguments. Lines without a manifest still name their run."""
    if found and found["run"] != manifest["run"]:
        other = differing(found["arguments"], manifest["arguments"])
        raise InputError("-o", place.path, SAME_ARGUMENTS, f"these differ: {', '.join(other)}")
    if runs - {manifest["run"]} or place.names() & {OLD_MANIFEST, OLD_JOURNAL}:
        raise InputError("-o", place.path, SAME_ARGUMENTS, "take a new folder")


def check_share(place: Place, share: Share, names: set[str], resume: bool) -> None:
    """Raise InputError for a share of another number than those of a folder, and for one that is there already."""
    others = {one.of for name in names if (one := share_of(name, JOURNAL))} - {share.of}
    if share != WHOLE and others:
        raise InputError("--share", f"{share.number}/{share.of}", f"shares of {min(others)}, which this folder has")
    if not resume and any(read_journal(place, share.named(JOURNAL))):
        raise InputError("-o", place.path, "a folder without parts of this share", "--resume continues")


def there(place: Place, manifest: Manifest, share: Share) -> dict[int, Written]:
    """The parts of a share that an earlier run with the same arguments wrote, each checked by its hash."""
    lines, done = lines_in(place, manifest["run"]), dict[int, Written]()
    for part in share.parts(manifest["parts"]):
        for written in lines.get(part, ()):
            if written.file == part_name(part, manifest["format"]) and not fault_of(place, written):
                done[part] = written
    return done


def fault_of(place: Place, written: Written) -> str:
    """What is wrong with a part: it is missing, or has not the bytes that were written. Empty if it is right."""
    size = place.size(written.file)
    if size is None:
        return "missing"
    if size != written.bytes:
        return f"has {size} bytes, and was written with {written.bytes}"
    with place.fetched(written.file) as file:
        return "" if file_digest(file) == written.sha256 else "changed"


# ---------------------------------------------------------------- the manifest


def write_manifest(place: Place, manifest: Manifest, share: Share = WHOLE) -> None:
    """Write the manifest, whole or not at all."""
    place.write_text(MANIFEST, json.dumps(sealed(manifest), indent=1) + "\n", share.named(MANIFEST))


def read_manifest(place: Place) -> Manifest:
    """The manifest of a folder, also of one that iosim 0.2 wrote. Raises CheckError if it is damaged, InputError if
    there is none."""
    found = manifest_in(place)
    if found is None and not place.names() & {MANIFEST, OLD_MANIFEST}:
        raise InputError("folder", place.path, "a folder that iosim sweep -o FOLDER/ wrote", f"it has no {MANIFEST}")
    if found is None:
        raise CheckError(
            f"the manifest of {place.path} is damaged; the sweep's own command line with --resume writes it again"
        )
    return found


def manifest_in(place: Place) -> Manifest | None:
    """The manifest of a folder; None if it is damaged, or if there is none."""
    text = place.text(MANIFEST)
    if text is None:
        text = place.text(OLD_MANIFEST)
    return None if text is None else cast("Manifest | None", opened_seal(text))


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


# ---------------------------------------------------------------- the lines of the parts


def line_of(written: Written, run: str) -> str:
    """The line of a part."""
    return json.dumps(sealed({**written._asdict(), "run": run})) + "\n"


def journals(names: Iterable[str]) -> list[str]:
    """The files of lines among these names: that of a whole run, and those of shares."""
    return sorted(name for name in names if name == JOURNAL or share_of(name, JOURNAL))


def read_journal(place: Place, name: str) -> Iterator[tuple[str, Written]]:
    """(the run, a part) for each unchanged line. A part without such a line is counted again."""
    for line in (place.text(name) or "").splitlines():
        if (found := opened_seal(line)) and {*found} == {*Written._fields, "run"}:
            yield str(found.pop("run")), Written(**found)  # type: ignore[arg-type]


def lines_in(place: Place, run: str) -> dict[int, list[Written]]:
    """What the lines of a run say of each part, the newest last. Two lines differ if a part was made again."""
    found: dict[int, list[Written]] = {}
    for name in journals(place.names()):
        for whose, written in read_journal(place, name):
            if whose == run:
                found.setdefault(written.part, []).append(written)
    return found


def found_once(lines: Mapping[int, list[Written]]) -> dict[int, Written]:
    """The parts about which all lines say the same."""
    return {part: written[0] for part, written in lines.items() if len({*written}) == 1}
