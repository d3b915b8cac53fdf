"""The answer of `count`: the problem, the SRAM, the bounds, and a result for each schedule and tiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..answer import Answer, Column, Columns, Pieces, Row, Table, in_order, numbered
from ..schedules import SCHEDULES, Schedule
from ..schedules.registry import suggested
from ..verdict import class_line
from ..version import __version__
from .asked import asked, header
from .bounds import Bound, as_row, bounds_table
from .columns import COLUMNS, PROBLEM_COLUMNS, given_row, more_columns, problem_columns, problem_row
from .conditions import PAPER, Conditions
from .notes import notes_on_adds, notes_on_mask, notes_on_tiles, room_notes
from .published import Published, floor_line, published_line, times_line
from .result import (
    ADDS,
    MORE_TILES,
    MOVES,
    NEEDS,
    ORDER,
    PLACES,
    RESULT,
    SHARED,
    SMEM_READS,
    TIMES,
    add_columns,
    least_of,
    tiles_legend,
)
from .sentence import answer_of, lead_lines, leaders, reason_lines

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .result import Result


@dataclass(frozen=True, repr=False)
class Report(Answer):
    """The answer of `count`: the problem, the SRAM, the bounds, and a result for each schedule and tiling."""

    problem: Attention
    """The problem that was counted."""
    M_bytes: int | None
    """The SRAM in bytes; None if it was not given."""
    bounds: list[Bound]
    """The bounds that are proven for this problem, in words over all heads (as `iosim bounds` shows them)."""
    results: list[Result]
    """A result for each schedule and tile rule, in the order of the schedules."""
    version: str = __version__
    """The version of iosim that counted."""
    tiles: str | None = None
    """The tiles that were asked for: `paper`, `best`, or Br x Bc; None for the rules of each schedule."""
    detail: bool = False
    """Whether the rows are those of each tensor and of each launch."""
    published: Sequence[Published] = ()
    """Counts of published tiles that fit on the GPU that was named."""
    under: Conditions = PAPER
    """The conditions of the count, of which only the multiple of best tiles and the notes are read."""

    @property
    def M_words(self) -> int | None:
        """The words of the problem's `dtype` that M holds, rounded down."""
        return None if self.M_bytes is None else self.M_bytes // self.problem.word_bytes

    @property
    def answer(self) -> str:
        """The sentences on the schedule that wins, its advantage, the reason, and its distance from the floor."""
        return answer_of(self)

    def __getitem__(self, key: str | Schedule | tuple[str | Schedule, str]) -> Result:
        """The result of `report["flash1", "paper"]`, a schedule and a tile rule.

        `report["flash1"]` is the schedule's first result that fits, or its first one if none does. Raises KeyError if
        the schedule or the tile rule was not counted.
        """
        named, tiling = key if isinstance(key, tuple) else (key, None)
        name = named.name if isinstance(named, Schedule) else named
        found = [r for r in self.results if r.schedule == name and tiling in (None, r.tiling)]
        if not found:
            there = ", ".join(str((r.schedule, r.tiling)) for r in self.results)
            meant = "" if name in SCHEDULES else f"{suggested(str(name))} ".lstrip()
            raise KeyError(f"{key!r} was not counted; {meant}there is {there}")
        return next((r for r in found if r.fits), found[0])

    def __iter__(self) -> Iterator[Result]:
        """The results, in their order."""
        return iter(self.results)

    def __len__(self) -> int:
        """The number of results."""
        return len(self.results)

    def __contains__(self, key: object) -> bool:
        """Whether the report has a schedule, a pair (schedule, tiling), or a result."""
        return any(key in (r.schedule, (r.schedule, r.tiling)) or key == r for r in self.results)

    def table(self) -> Table:
        return self.details() if self.detail else self.counts()

    def counts(self) -> Table:
        """A row for each result, with the columns of a sweep. Published tiles come last."""
        known: Columns[Result] = [*self.of_problem(), *RESULT, *TIMES, *PLACES, MORE_TILES, *ADDS]
        added, timed = add_columns(self.results), TIMES if self.under.chip else ()
        more = more_columns(self.problem, [r.more_tiles for r in self.results])
        names = (*COLUMNS, *(c.name for c in timed), *more, *(c.name for c in added))
        needs = (*NEEDS[:-1], *(PLACES if self.problem.divided else (SHARED,)))
        shown = (*needs, *MOVES, *timed, *added, *([ORDER, SMEM_READS] if self.detail else ()))
        rows = [*self.results, *(result for _, result in self.published)]
        return Table(in_order(known, names), rows, shown=shown, best=leaders(self), tall=True)

    def details(self) -> Table:
        """A row for the words of each tensor and of each launch."""
        return Table([*in_order(self.of_problem(), PROBLEM_COLUMNS), *DETAIL], detail_rows(self.results))

    def of_problem(self) -> list[Column[object]]:
        """The columns of the problem and the SRAM."""
        return problem_columns({**given_row(self.problem), "M_bytes": self.M_bytes, "M_words": self.M_words})

    def pieces(self) -> Pieces:
        answer = [*lead_lines(self), header(self.problem, self.M_bytes)]
        details: Pieces = ["", bounds_table(self.bounds), "", self.details()] if self.detail else []
        reasons = reason_lines(self)
        below = [*published_line(self.published, self.problem), *details, *([""] if reasons else []), *reasons]
        said = [*tiles_legend(self.results), *class_line(answer)]
        return [
            *answer,
            self.counts(),
            *said,
            *floor_line(self.under.chip, self.problem),
            *times_line(self.under.chip, self.problem, self.results),
            *below,
        ]

    def to_dict(self) -> Row:
        return {
            "problem": problem_row(self.problem),
            "sram": {"M_bytes": self.M_bytes, "M_words": self.M_words},
            "bounds": [as_row(bound) for bound in self.bounds],
            "results": [result.to_dict() for result in self.results],
            "published": [{"label": t.label, "source": t.source, **result.to_dict()} for t, result in self.published],
            "answer": self.answer,
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{asked(self.problem, self.M_bytes)}; {numbered(len(self), 'result')}{least_of(self.results)}"

    @property
    def notes(self) -> list[str]:
        """Notes on what a GPU implies and which rates it leaves out, on schedules that skip nothing under the mask,
        and on tiles that tensor cores cannot use. Only those who ask for the best tiles alone hear of tensor cores."""
        from ..timing.bound import without_rates

        unknown = without_rates(self.under.chip, self.problem.dtype)
        tiles = notes_on_tiles(self) if self.tiles == "best" and not self.under.chip else []
        room = room_notes(self.problem, self.M_bytes, self.results, self.under.multiple)
        return [*self.under.notes, *unknown, *notes_on_mask(self), *notes_on_adds(self.results), *tiles, *room]


DETAIL: Columns[Row] = (
    Column("schedule", "string", "schedule"),
    Column("tiling", "string", "tiling"),
    Column("Br"),
    Column("Bc"),
    Column("fits", "boolean"),
    Column("part", "string", "part"),
    Column("reads", heading="reads"),
    Column("writes", heading="writes"),
)


def detail_rows(results: list[Result]) -> list[Row]:
    """The words of each tensor and of each launch, with the result that they belong to."""
    rows: list[Row] = []
    for r in results:
        parts = [(f"tensor {name}", words) for name, words in r.tensors.items()]
        parts += [(f"launch {number}", words) for number, words in enumerate(r.steps, 1)]
        rows += [{**vars(r), "part": part, **words} for part, words in parts]
    return rows
