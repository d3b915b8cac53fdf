"""A sweep cut into parts: whole chunks of its grid, each of about the same number of rows.

A part is identified by its number. Its rows follow from the grid, so no list of parts or points is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, cast

from ..core.tiling import tiles_text
from ..counting.sweep import Chunks
from ..points import COUNT, asked_of
from .inputs import NO_INPUTS, Inputs, atoms_of, digest, digest_of_atom
from .questions import Asked
from .row_text import LINES, Out, header, write_lines, write_parquet

if TYPE_CHECKING:
    from ..cells import Chunk
    from ..counting.sweep_axes import Sweep

    Piece: TypeAlias = tuple[int, bytes | Chunk]

SHOWN_VALUES = 64  # a longer axis is described by its ends and a hash


@dataclass(frozen=True)
class Work:
    """A sweep in parts of about `part_rows` rows; 0 means the usual number. `kind` is csv, jsonl or parquet.

    The question `what` is asked at each point. `columns` are the columns of another question than `count`, if they are
    known. `inputs` are the files that it needs. Other processes get this object.
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
        return self.rows or len(self.chunks)

    def steps_of(self, rows: int, chunks: int) -> int:
        """The progress for some rows or chunks."""
        return rows if self.what == COUNT else chunks

    def __len__(self) -> int:
        return self.chunks.first_row(len(self.chunks) - 1) // self.rows_of_part + 1

    def chunks_of(self, part: int) -> range:
        """The numbers of the chunks of a part: those whose first row is among its rows."""
        return range(*(self.chunks.at_row(k * self.rows_of_part) for k in (part, part + 1)))

    def describe(self) -> dict[str, object]:
        """Everything that decides the bytes of the parts, except the version of iosim, as values of JSON."""
        plan, names_them = self.plan, asked_of(self.what, "names_schedules")
        schedules = [] if names_them else [[s.name for s, _ in plan.runs(mask)] for mask in plan.masks]
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
            "schedule": schedules,
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
    """The name of a part's file."""
    return f"part-{part:08d}.{kind}"


# ---------------------------------------------------------------- what is made of a part


def make_chunks(work: Work, part: int) -> Iterator[Chunk]:
    """The rows of a part, a chunk at a time."""
    return (work.chunks[k] for k in work.chunks_of(part))


def make_pieces(work: Work, part: int) -> Iterator[Piece]:
    """(the number of rows, the rows) of each chunk of a part: as lines, or as they are for Parquet."""
    lines = LINES.get(work.kind)
    return ((len(rows), lines(rows) if lines else rows) for rows in make_chunks(work, part))


def write(work: Work, out: Out, pieces: Iterable[Piece], advance: Callable[[int], object] = lambda steps: None) -> int:
    """Write pieces to a file, and return the number of rows. `advance` is called with the steps of each piece."""
    total = 0

    def counted() -> Iterator[bytes | Chunk]:
        nonlocal total
        for rows, piece in pieces:
            yield piece
            total += rows
            advance(work.steps_of(rows, 1))

    if work.kind == "parquet":
        write_parquet(work.chunks, out, cast("Iterator[Chunk]", counted()))
    else:
        write_lines(header(work.chunks.shown) if work.kind == "csv" else b"", out, cast("Iterator[bytes]", counted()))
    return total
