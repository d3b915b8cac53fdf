"""A sweep cut into parts: whole chunks of its grid, each of about the same number of rows.

A part is identified by its number. Its rows follow from the grid, so no list of parts or points is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from ..core.tiling import tiles_text
from ..counting.sweep import Chunks
from ..files import written_whole
from ..points import COUNT, names_schedules
from .identity import NO_INPUTS, Inputs, atoms_of, digest, digest_of_atom
from .place import Place, file_digest
from .questions import Asked
from .row_text import CSV, JSON, Lines, Out, Rows, header, lines, write_lines, write_parquet

if TYPE_CHECKING:
    from ..cells import Chunk
    from ..counting.sweep_axes import Sweep
    from .folder import Share

    Piece: TypeAlias = Lines | Chunk

T = TypeVar("T", covariant=True)

SHOWN_VALUES = 64  # a longer axis is described by its ends and a hash
FILES = {
    "load": "load",
    "mask_files": "mask",
    "hardware_files": "hardware",
}  # descriptions of files, and what messages call one
FORMS = {"csv": CSV, "jsonl": JSON}


class Written(NamedTuple):
    """A part that was written to its file."""

    part: int
    file: str
    rows: int
    bytes: int
    sha256: str


class Parts(Protocol):
    """Rows in numbered parts, and all that decides their bytes."""

    @property
    def kind(self) -> str: ...

    @property
    def inputs(self) -> Inputs: ...

    @property
    def chunks(self) -> Rows: ...

    @property
    def rows(self) -> int | None: ...

    def __len__(self) -> int: ...

    def chunks_of(self, part: int) -> range: ...

    def steps_of(self, rows: int, chunks: int) -> int: ...

    def describe(self) -> Mapping[str, object]: ...


@dataclass(frozen=True)
class Work:
    """A sweep in parts of about `part_rows` rows; 0 means the usual number. `kind` is csv, jsonl or parquet.

    The command `what` is asked at each point. `columns` are the columns of another command than `count`, if they are
    known. `inputs` are the files that it needs. Workers get this object.
    """

    plan: Sweep
    kind: str
    part_rows: int = 0
    inputs: Inputs = NO_INPUTS
    what: str = COUNT
    columns: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the description only, because the schedules of a chunk cannot be pickled."""
        columns = () if self.what == COUNT else self.chunks.shown
        return type(self), (self.plan, self.kind, self.part_rows, self.inputs, self.what, columns)

    @cached_property
    def chunks(self) -> Chunks | Asked:
        with self.inputs.in_use():
            return Chunks(self.plan) if self.what == COUNT else Asked(self.plan, self.what, self.columns)

    @cached_property
    def rows_of_part(self) -> int:
        """The rows of a part, rounded to whole chunks."""
        return self.chunks.rows_of_part(self.part_rows)

    @property
    def rows(self) -> int | None:
        """The rows of all parts; None if their number is not known before they are made."""
        return self.plan.rows if self.what == COUNT else None

    @property
    def steps(self) -> int:
        """The end of the progress: the number of rows, or of grid points if the rows are not known."""
        return self.plan.rows if self.what == COUNT else len(self.chunks)

    def steps_of(self, rows: int, chunks: int) -> int:
        """The progress for some rows or chunks: the number of rows, or of grid points if the rows are not known."""
        return rows if self.what == COUNT else chunks

    def steps_of_share(self, share: Share) -> int:
        """The end of the progress of a share. Its parts are as large as all others, but for the last."""
        parts = len(self)
        return round(self.steps * len(share.parts(parts)) / parts)

    def __len__(self) -> int:
        return self.chunks.first_row(len(self.chunks) - 1) // self.rows_of_part + 1

    def chunks_of(self, part: int) -> range:
        """The numbers of the chunks of a part: those whose first row is among its rows."""
        return range(*(self.chunks.at_row(k * self.rows_of_part) for k in (part, part + 1)))

    def describe(self) -> dict[str, object]:
        """Everything that decides the bytes of the parts, except the version of iosim, as values of JSON."""
        plan = self.plan
        return {
            "what": self.what,
            "format": self.kind,
            "part_rows": self.rows_of_part,
            **{name: None if values is None else axis_text(values) for name, values in plan.sizes.items()},
            "dtype": [list(pair) for pair in plan.types],
            "mask": [mask_text(mask) for mask in plan.masks],
            "hardware": list(plan.hardware),
            **({"paper_model": True} if plan.paper_model else {}),
            "options": axis_text([dict(point) for point in plan.options]),
            **{name: axis_text(values) for name, values in plan.own.items()},
            "tile_multiple": plan.multiples,
            "schedule": [] if names_schedules(self.what) else [[s.name for s, _ in plan.runs(m)] for m in plan.masks],
            "tiles": [tiles_text(rule) for rule in plan.tiles],
            "columns": list(self.chunks.shown),
            **self.inputs.describe(),
        }


def axis_text(values: Sequence[object]) -> object:
    """An axis as it is; a long axis as its ends, its length and a hash."""
    if len(values) <= SHOWN_VALUES:
        return list(values)
    return {"first": values[0], "last": values[-1], "values": len(values), "sha256": digest(repr(values))}


def mask_text(mask: object) -> object:
    """A mask's text, with a hash of the content of each file that it names."""
    found = [sha256 for atom in atoms_of(mask) if (sha256 := digest_of_atom(atom))]
    return [str(mask), *found] if found else str(mask)


def part_name(part: int, kind: str) -> str:
    """The name of a part's file. Names sort in the order of rows."""
    return f"part-{part:08d}.{kind}"


# ---------------------------------------------------------------- what is made of a part


class Task(Protocol[T]):
    """Makes something of a part, piece by piece."""

    def __call__(self, work: Parts, part: int) -> Iterator[T]: ...


@dataclass(frozen=True)
class Job(Generic[T]):
    """A task for the parts of a sweep. It can be sent to another process."""

    task: Task[T]
    work: Parts

    def prepare(self) -> None:
        """Register the schedules of the files of --load in this process."""
        self.work.inputs.prepare()

    def pieces(self, part: int) -> Iterator[T]:
        """What the task makes of a part."""
        with self.work.inputs.in_use():
            yield from self.task(self.work, part)


def make_chunks(work: Parts, part: int) -> Iterator[Chunk]:
    """The rows of a part, a chunk at a time."""
    return (work.chunks[k] for k in work.chunks_of(part))


def make_lines(work: Parts, part: int) -> Iterator[Lines]:
    """The rows of a part as lines, a chunk at a time."""
    return (Lines(lines(rows, FORMS[work.kind]), len(rows)) for rows in make_chunks(work, part))


def make_pieces(work: Parts, part: int) -> Iterator[Piece]:
    """The rows of a part as they go into a file: lines, or chunks for Parquet."""
    return make_lines(work, part) if work.kind in FORMS else make_chunks(work, part)


def write(work: Parts, out: Out, pieces: Iterable[Piece], advance: Callable[[int], object] = lambda steps: None) -> int:
    """Write pieces to a file, and return the number of rows. `advance` is called with the steps of each piece."""
    total = 0

    def counted() -> Iterator[Piece]:
        nonlocal total
        for piece in pieces:
            yield piece
            total += len(piece)
            advance(work.steps_of(len(piece), piece.chunks if isinstance(piece, Lines) else 1))

    if work.kind == "parquet":
        write_parquet(work.chunks, out, cast("Iterator[Chunk]", counted()))
    else:
        write_lines(header(work.chunks.shown) if work.kind == "csv" else b"", out, cast("Iterator[Lines]", counted()))
    return total


@dataclass(frozen=True)
class WritePart:
    """Writes a part to its file in a folder, whole or not at all."""

    place: Place

    def __call__(self, work: Parts, part: int) -> Iterator[Written]:
        name = part_name(part, work.kind)
        with self.place.written(name) as temporary:
            rows = write(work, temporary, make_pieces(work, part))
            size, sha256 = os.path.getsize(temporary), file_digest(temporary)
        yield Written(part, name, rows, size, sha256)


@dataclass(frozen=True)
class PutLines:
    """Writes the lines of a part to a file of its own in a folder of this machine, from which they are taken."""

    folder: str

    def __call__(self, work: Parts, part: int) -> Iterator[Lines]:
        path, pieces = os.path.join(self.folder, part_name(part, work.kind)), make_lines(work, part)
        with written_whole(path) as temporary:
            rows = write_lines(b"", temporary, pieces)
        yield Lines(path, rows, len(work.chunks_of(part)))


def differing(found: Mapping[str, object], wanted: Mapping[str, object]) -> list[str]:
    """The keys in which two descriptions differ. Options of the problem count as separate keys, and so do files. For
    versions both are named."""
    found, wanted = apart(found), apart(wanted)
    names = [name for name in {**wanted, **found} if name not in wanted or found.get(name) != wanted[name]]
    shown = {"iosim": f"iosim {found.get('iosim')} (now {wanted.get('iosim')})", "iosim_files": "the files of iosim"}
    return [shown.get(name, name) for name in names]


def apart(described: Mapping[str, object]) -> dict[str, object]:
    """A description in which each file is a key of its own, and each option of the problem, with its values at all
    points, if `options` are listed."""
    points, flat = described.get("options"), {**described}
    if isinstance(points, list) and points:
        del flat["options"]
        flat |= {name: [point.get(name) for point in points] for name in points[0]}
    for name, shown in FILES.items():
        files = flat.pop(name, {})
        flat |= {f"{shown} {file}": sha256 for file, sha256 in files.items()} if isinstance(files, dict) else {}
    return flat
