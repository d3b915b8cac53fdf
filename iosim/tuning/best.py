"""The answer of `tune`: the least traffic of each schedule in an SRAM, beside published tiles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ..answer import Answer, Column, Columns, Pieces, Row, Table, in_order
from ..counting.asked import asked, header
from ..counting.bounds import Bound, as_row, bounds_table
from ..counting.columns import COLUMNS, flags, more_columns, problem_columns, problem_row
from ..counting.conditions import PAPER, Conditions
from ..counting.notes import notes_on_mask, notes_on_tiles
from ..counting.published import floor_line, times_line
from ..counting.result import (
    ADDS,
    MORE_TILES,
    PLACES,
    RESULT,
    TIMES,
    Result,
    add_columns,
    least_of,
    more_sizes,
    tile_sizes,
    tiles_legend,
    tiles_said,
    verdict,
)
from ..counting.sentence import answer_of, lead_lines, reason_lines, winners
from ..schedules import SCHEDULES
from ..timing.bound import without_rates
from ..verdict import joined

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..counting.published import PublishedTiles


@dataclass(frozen=True, repr=False)
class ResultWithBlocks(Result):
    """A result with the options of the problem that were chosen for it. Its blocks are counted without a GPU too.

    If no tiling with the least number of blocks fits, one of the last two fields says why. `needs_M_bytes` is the least
    M at which such a tiling fits. If no tiling has that many blocks, `most_blocks` is the most that any has.
    """

    options: dict[str, int] = field(default_factory=dict, hash=False)
    needs_M_bytes: int | None = None
    most_blocks: int | None = None


@dataclass(frozen=True, repr=False)
class Best(Answer):
    """The answer of `tune`. `results` has the best tiles of each schedule, by rising traffic. Those that do not fit
    come last.

    `published` has published tiles and their results. `left_out` names the schedules that were not searched, because
    their best tiling with `least_blocks` blocks is not known. `dominated` are those that the table leaves out unless
    `every` row is shown, with the schedule that moves no more; `idle` those with fewer blocks than multiprocessors.
    `under` are the conditions of a GPU.
    """

    problem: Attention
    M_bytes: int
    bounds: list[Bound]
    results: list[ResultWithBlocks]
    published: list[tuple[PublishedTiles, ResultWithBlocks]]
    tile_multiple: int = 1
    least_blocks: int = 1
    left_out: tuple[str, ...] = ()
    dominated: Mapping[str, str] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    every: bool = False
    under: Conditions = PAPER

    @property
    def kept(self) -> Best:
        """The answer without the results of dominated and of idle schedules."""
        gone = {*self.dominated, *self.idle}
        return replace(self, results=[result for result in self.results if result.schedule not in gone])

    @property
    def M_words(self) -> int:
        """The words that M holds, in the problem's element type."""
        return self.M_bytes // self.problem.word_bytes

    @property
    def winner(self) -> ResultWithBlocks | None:
        """The result of least traffic; None if nothing fits."""
        return self.results[0] if self.results and self.results[0].fits else None

    def ratio(self, result: Result) -> float | None:
        """The bytes of a result over those of the winner; None if either has none."""
        best = self.winner
        if best is None or not best.total_bytes or result.total_bytes is None:
            return None
        return result.total_bytes / best.total_bytes

    def table(self) -> Table:
        cells = {**problem_row(self.problem), "M_bytes": self.M_bytes, "M_words": self.M_words}
        known: Columns[Entry] = [*problem_columns(cells), *ENTRY, *OF_RESULT]
        entries = [*self.of_search(), *self.of_publications()]
        tried = [entry.result for entry in entries]
        none_fits = ["needs_M_bytes", "most_blocks"] * (self.least_blocks > 1)
        chosen = ["options"] * any(result.options for result in tried)
        more = more_columns(self.problem, [result.more_tiles for result in tried])
        added = [column.name for column in add_columns(tried)]
        timed = ["at_least_seconds", "binds", "ratio_to_full_card"] * (self.under.chip is not None)
        names = (
            "role",
            "label",
            *COLUMNS,
            "ratio_to_winner",
            "blocks",
            *timed,
            "dominated_by",
            *none_fits,
            *chosen,
            *more,
        )
        return Table(in_order(known, (*names, *added)), entries)

    def of_search(self) -> list[Entry]:
        """The best tiles of each schedule."""
        return [Entry("best", "", r, self.ratio(r), self.dominated.get(r.schedule)) for r in self.results]

    def of_publications(self) -> list[Entry]:
        """Published tiles."""
        return [Entry("published", tiles.label, result, self.ratio(result)) for tiles, result in self.published]

    def pieces(self) -> Pieces:
        left_out = "not searched: " + ", ".join(self.left_out) + "\n" if self.left_out else ""
        columns: Columns[Entry] = [*ENTRY, *OF_RESULT]
        seen = self if self.every else self.kept
        usual = ON_GPU if self.under.chip else SHOWN
        wanted = (*usual, *(column.name for column in add_columns(seen.results)))
        found = Table(columns, seen.of_search(), shown=in_order(columns, wanted), best=winners(seen.results))
        known = Table(columns, self.of_publications(), shown=in_order(columns, ("label", *usual)))
        published: Pieces = [self.of_whom(), known, ""] if self.published else []
        above = header(self.problem, self.M_bytes) + winner_line(self) + left_out
        hidden = [] if self.every else [*lines_on_dominated(self.dominated), *line_on_idle(self.idle)]
        timed = [*floor_line(self.under.chip, self.problem), *times_line(self.under.chip, self.problem, self.results)]
        legend = tiles_legend(seen.results)
        tables: Pieces = [above, found, *legend, *timed, *hidden, "", *published, bounds_table(self.bounds)]
        return [*lead_lines(self.kept), *tables, "", *reason_lines(self.kept)]

    def of_whom(self) -> str:
        """The line above published tiles. On a GPU it says where their kernels keep S and O."""
        apart = dict.fromkeys(tiles.label for tiles, result in self.published if result.register_peak_bytes)
        if not apart or self.problem.divided:
            return "published:"
        return f"published, with S and O of {joined(apart)} in 256 KiB of registers beside M:"

    def to_dict(self) -> Row:
        names = [result.schedule for result in self.results]
        return {
            "problem": problem_row(self.problem),
            "sram": {"M_bytes": self.M_bytes, "M_words": self.M_words},
            "space": space_json(names, self.left_out, self.tile_multiple, self.least_blocks),
            "bounds": [as_row(bound) for bound in self.bounds],
            "winner": None if self.winner is None else self.result_json(self.winner),
            "results": [self.result_json(result) for result in self.results],
            "published": [
                {"label": tiles.label, "source": tiles.source, **self.result_json(result)}
                for tiles, result in self.published
            ],
            "answer": answer_of(self.kept),
            "notes": self.notes,
        }

    def result_json(self, result: ResultWithBlocks) -> Row:
        """A result as the keys of its JSON."""
        values = {**result.to_dict(), "ratio_to_winner": self.ratio(result)}
        values["dominated_by"] = self.dominated.get(result.schedule)
        if self.least_blocks == 1:
            del values["needs_M_bytes"], values["most_blocks"]
        return values

    def summary(self) -> str:
        return f"{asked(self.problem, self.M_bytes)}{least_of(self.results)}"

    @property
    def notes(self) -> list[str]:
        """Notes on what a GPU implies, on schedules that skip nothing under the mask, and on tiles that tensor cores
        cannot use. Those of a GPU are made for tensor cores."""
        unknown = without_rates(self.under.chip, self.problem.dtype)
        tiles = [] if self.under.chip else notes_on_tiles(self)
        return [*self.under.notes, *unknown, *notes_on_mask(self), *tiles]


# ---------------------------------------------------------------- columns and texts


class Entry(NamedTuple):
    """The best tiles of a schedule, or published tiles, with their bytes over those of the winner."""

    role: str
    label: str
    result: ResultWithBlocks
    ratio_to_winner: float | None
    dominated_by: str | None = None


def why_none_fits(r: ResultWithBlocks) -> str:
    """The reason why no tiling with the least number of blocks fits; an empty string if none is known."""
    if r.most_blocks is not None:
        return f"none: at most {r.most_blocks} block" + "s" * (r.most_blocks != 1)
    return "" if r.needs_M_bytes is None else f"none: needs {r.needs_M_bytes:,} B"


ENTRY: Columns[Entry] = (
    Column("role", "string"),
    Column("label", "string", "choice"),
    Column("ratio_to_winner", "number", "x least", ".3f"),
    Column("dominated_by", "string"),
)
BLOCKS: Columns[ResultWithBlocks] = (
    Column("chosen", None, "tiles", lambda r: (tile_sizes(r).strip() or r.tiling) + flags(r.options)),
    Column("blocks", heading="blocks", spare=2),
    Column("fit", None, "fits", lambda r: why_none_fits(r) or verdict(r)),
    Column("smem", None, "SRAM bytes", spare=1, of=lambda r: r.smem_peak_bytes),
    Column("needs_M_bytes"),
    Column("most_blocks"),
    Column("options", "string", of=lambda r: more_sizes(r.options)),
)
ALL: Columns[ResultWithBlocks] = (*BLOCKS, *RESULT, *TIMES[1:], *PLACES, MORE_TILES, *ADDS)
OF_RESULT: Columns[Entry] = [column.within(lambda entry: entry.result) for column in ALL]
SHOWN = (
    "schedule",
    "chosen",
    "blocks",
    "fit",
    "smem",
    "total",
    "total_bytes",
    "ratio_to_winner",
    "ratio_to_floor",
)


ON_GPU = (*(name for name in SHOWN if name != "ratio_to_winner"), "us", "binds")
"""The columns for people where a GPU is named: tiles are compared by time."""


def dominated(costs: Mapping[str, float], chosen: Mapping[str, Collection[str]]) -> dict[str, str]:
    """The schedules that cost no less than the one that dominates them, with its name.

    `costs` are those of each schedule, infinite where nothing fits. `chosen` names the options that were chosen for it:
    a schedule whose options are given is kept.
    """
    found: dict[str, str] = {}
    for name, cost in costs.items():
        schedule = SCHEDULES[name]
        least = costs.get(schedule.dominated_by, inf)
        if least < inf and least <= cost and {*schedule.chosen} <= {*chosen[name]}:
            found[name] = schedule.dominated_by
    return found


def lines_on_dominated(names: Mapping[str, str], verb: str = "move no less than") -> list[str]:
    """The line on the schedules that a table leaves out. `verb` says how they compare with the others."""
    if not names:
        return []
    others = " or ".join(dict.fromkeys(names.values()))
    return [f"left out: {', '.join(names)} ({len(names)} that {verb} {others}); --all shows them"]


def line_on_idle(names: Sequence[str]) -> list[str]:
    """The line on the schedules that leave multiprocessors idle."""
    why = "with fewer thread blocks than the multiprocessors could take"
    return [f"left out: {', '.join(names)}, {why}; --all shows them"] if names else []


def winner_line(best: Best) -> str:
    """The line that says which schedule and tiles move least with so many blocks; none if any number will do."""
    if best.least_blocks == 1:
        return ""
    least, winner = f"least with {best.least_blocks} blocks", best.winner
    if winner is None or winner.total_bytes is None:
        return f"{least}: none that fits\n"
    tiles = tiles_said(winner) + flags(winner.options)
    return f"{least}: {winner.schedule}{tiles}, {winner.total:,} words, {winner.total_bytes:,} B\n"


def space_json(schedules: Sequence[str], left_out: Sequence[str], tile_multiple: int, least_blocks: int) -> Row:
    """The space that was searched, for the key `space` of the JSON."""
    return {
        "schedules": list(schedules),
        "left_out": list(left_out),
        "tile_multiple": tile_multiple,
        "least_blocks": least_blocks,
        "tiles": "every Br x Bc of these multiples, last tiles ragged, the whole footprint inside M",
        "options": "splits whose shares hold a key tile; pages of 1 to 256 rows, powers of two; what is given is fixed",
        "least": "bytes over all heads",
    }
