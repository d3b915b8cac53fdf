"""Where each of some schedules moves least at one M, of every N of an axis: the answer of `iosim tune --over N`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np

from ..answer import Answer, Column, Columns, Pieces, Row, Table
from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..counting.asked import asked
from ..counting.columns import problem_row
from ..counting.conditions import conditions
from ..counting.given import memory, several
from ..counting.names import takes_options
from ..counting.notes import mask_notes
from ..counting.sweep import part_of, points_of_chunk, problems_of, run_all
from ..errors import InputError
from ..masks import parse_mask
from ..schedules import require
from ..schedules.registry import check_family
from ..units import format_bytes, parse_axis, parse_bytes, parse_count
from .sides import MovesLess, Side, lead_of, moves_less, sides_of, table_of
from .where import where_on_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.typing import Size
    from ..schedules.registry import SchedulesAsked

EVERY_N = "1:4096:+1"
SOME_N = "64:4096:+64"  # under a mask, where each length may take milliseconds


@dataclass(frozen=True, repr=False)
class OverN(Answer):
    """The answer of `over_N`: for each side, every N of an axis at which it moves less than all others.

    `problem` is that of the first N, and `implied` are the notes on what a GPU implies.
    """

    problem: Attention
    M_bytes: int
    axis: Sequence[int]
    moves_less: list[MovesLess]
    implied: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The sentence about the first side that moves less somewhere."""
        about = f" (N to {self.axis[-1]:,}, M = {format_bytes(self.M_bytes)}, d = {self.problem.d})"
        return lead_of(self.moves_less, about=about)

    @property
    def notes(self) -> list[str]:
        """Notes on what a GPU implies, and on schedules that skip nothing under the mask."""
        return [*self.implied, *mask_notes(self.problem, [one.side.schedule.name for one in self.moves_less])]

    def table(self) -> Table:
        rows = [{**one.row(), "N_last": self.axis[-1], "M_bytes": self.M_bytes} for one in self.moves_less]
        return Table(OVER_N, rows)

    def pieces(self) -> Pieces:
        return [self.answer, "", table_of(self.moves_less)]

    def to_dict(self) -> Row:
        return {
            "problem": {**problem_row(self.problem), "N": None, "Nk": None},
            "M_bytes": self.M_bytes,
            "N_first": self.axis[0],
            "N_last": self.axis[-1],
            "moves_less": [one.to_dict() for one in self.moves_less],
            "answer": self.answer,
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{asked(self.problem, self.M_bytes)}, over N to {self.axis[-1]:,}"


NUMBERS = ("from_N", "to_N", "gaps", "N", "N_last", "M_bytes", "below_bytes", "above_bytes")
OVER_N: Columns[Row] = (Column("schedule", "string"), Column("than", "string"), *map(Column[Row], NUMBERS))


@takes_options()
def over_N(
    N: str | Sequence[int] | None = None,
    d: int | None = None,
    M: int | str | None = None,
    *,
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> OverN:
    """Every N at which each of some schedules moves less than all others, at one M: an OverN.

    N is an axis, as `"64:8192:+64"` or a list; by default every N up to 4096, or every 64th under a mask. The SRAM has
    M bytes, or is that of a `hardware`. `schedules` are two or more, each with its best tiles or those after a colon,
    as `"flash1:paper,standard"`. Other options are those of `count`. Raises InputError for whatever is not allowed.
    """
    sides = sides_of(schedules)
    if len(sides) < 2:
        raise InputError("--schedule", sides[0].name if sides else "nothing", "two schedules or more, as flash1,flash2")
    if d is None:
        raise InputError("--d", "nothing", "a head dimension as 128", "give --d")
    under = conditions(hardware, options, tile_multiple, paper_model)
    size = memory(M, hardware)
    if size is None:
        raise InputError("--M", "nothing", "a size as in 100KB", "or --hardware h100")
    p = Attention(axis_of(N, mask), d, mask=parse_mask(mask), **under.options)
    for side in sides:
        require(side.schedule, cast("Attention", p))
    check_family([side.schedule for side in sides])
    M_bytes = parse_bytes(size, p.word_bytes)
    axis = cast("NDArray[np.int64]", p.N).tolist()
    (first,) = problems_of(part_of(p, slice(0, 1)), 1)
    bytes_of = cache(lambda side: against_N(side, p, M_bytes, under.multiple))

    def less(side: Side, others: tuple[Side, ...]) -> list[bool]:
        return [one < min(rest) for one, *rest in zip(*map(bytes_of, (side, *others)), strict=True)]

    found = moves_less(
        sides,
        lambda side, others: where_on_axis(less(side, others), axis),
        lambda side, N: bytes_of(side)[axis.index(N)],
    )
    return OverN(first, M_bytes, axis, found, under.notes)


def axis_of(N: str | Sequence[int] | None, mask: str | Mask) -> NDArray[np.int64]:
    """The lengths, in rising order. By default they are every N up to 4096, or every 64th under a mask, where each may
    take milliseconds."""
    text = str(N) if isinstance(N, int | str) else ",".join(map(str, N or ()))
    text = text or (EVERY_N if parse_mask(mask) is DENSE else SOME_N)
    if not several(text):
        raise InputError("--N", text, "an axis as 64:8192:+64, or none", "with --over N it is about several")
    return np.array(sorted(parse_axis(text, "--N", lambda part: parse_count(part, "--N"))))


def against_N(side: Side, p: Attention[Size], M_bytes: int, multiple: int) -> list[float]:
    """The bytes that a side moves at each N; inf where its best tiles or those given do not fit."""
    runs = [(side.schedule, side.rule)]
    length, points = np.size(p.N), points_of_chunk(p.mask, runs)
    found: list[float] = []
    for part in (slice(start, min(start + points, length)) for start in range(0, length, points)):
        count = part.stop - part.start
        (cells,) = run_all(part_of(p, part), np.full(count, M_bytes), runs, multiple, count, with_floor=False)
        moved, fits = (np.broadcast_to(np.asarray(cells[name], object), (count,)) for name in ("total_bytes", "fits"))
        given = isinstance(side.rule, Tiling)
        found += [inf if a is None or (given and not b) else int(a) for a, b in zip(moved, fits, strict=True)]
    return found
