"""The tiles that allow the least time, as `iosim.fastest` and `iosim tune --by time` answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from ..answer import Answer, Column, Columns, Pieces, Row, Table, in_order, numbered
from ..core.problem import Attention
from ..counting.asked import asked as asked_text
from ..counting.columns import problem_row
from ..counting.conditions import conditions, names_of
from ..counting.names import takes_options
from ..masks import parse_mask
from ..schedules import find_all
from ..tuning.timed_tiles import FastestAnswer, TimedTiles
from .bound_tiles import TIE, fastest_by_bound, goodness, goodness_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..counting.given import Asked
    from ..hardware import Hardware
    from ..schedules.registry import SchedulesAsked

TILES: Columns[Row] = (
    Column("schedule", "string", "schedule"),
    Column("chosen_by", "string"),
    Column("best_in", None, "best in"),
    Column("Br"),
    Column("Bc"),
    Column("tiles", None, "tiles"),
    Column("seconds", "number"),
    Column("us", None, "us", ".1f"),
    Column("bound_by", "string", "bound by"),
    Column("sm_bytes", heading="bytes", cell="bytes", spare=2),
    Column("blocks", heading="blocks", spare=1),
    Column("seconds_over_fastest", "number", "x fastest", ".3f"),
    Column("candidates"),
)
SHOWN = ("schedule", "best_in", "tiles", "blocks", "us", "seconds_over_fastest", "bound_by", "sm_bytes")

NEAR = f"time, to {TIE - 1:.0%}"  # the name of the row that is best in time, where near times are ties


@dataclass(frozen=True, repr=False)
class Fastest(Answer):
    """The answer of `fastest`."""

    found: FastestAnswer
    """The schedules, the fastest first, each with its fastest tiles and with those of least traffic."""
    notes: tuple[str, ...] = ()
    """Notes on what the GPU implies."""

    def table(self) -> Table:
        return Table(TILES, rows_of(self.found), shown=in_order(TILES, SHOWN), best=[0])

    def pieces(self) -> Pieces:
        absent = [f"{name}: no time: {reason}" for name, reason in self.found.not_predicted.items()]
        return [sentence(self.found), head_of(self.found), self.table(), "", *absent, *goodness_lines()]

    def to_dict(self) -> Row:
        return {
            "problem": problem_row(self.found.problem),
            "hardware": self.found.hardware.name,
            "kept": dict(goodness()),
            "results": self.to_rows(),
            "not_predicted": self.found.not_predicted,
            "answer": sentence(self.found),
            "notes": self.notes,
        }

    def summary(self) -> str:
        best = [f"; fastest: {r.fastest.schedule} {r.fastest.tiles}" for r in self.found.results[:1]]
        return f"{asked_text(self.found.problem)} on {self.found.hardware.name}{''.join(best)}"


def rows_of(found: FastestAnswer) -> list[Row]:
    """A row for the fastest tiles of each schedule, one for its tiles of least traffic, and one for published tiles."""
    rows: list[Row] = []
    names = {one.fastest.schedule for one in found.results}
    for one in found.results:
        known = {one.fastest.schedule} | ({tiles.schedule for tiles in found.published} - names if not rows else set())
        own = [tiles for tiles in found.published if tiles.schedule in known]
        for tiles in (one.fastest, one.least, *own):
            if tiles is not None:
                times = {
                    "us": tiles.seconds * 1e6,
                    "seconds_over_fastest": tiles.seconds / found.least_seconds,
                    "best_in": NEAR if tiles.chosen_by == "time" else tiles.chosen_by,
                }
                rows.append({**vars(one), **vars(tiles), "tiles": tiles.tiles, **times})
    return rows


def head_of(found: FastestAnswer) -> str:
    """The line above the table: what the times are."""
    chip = found.hardware
    cached = " with an ideal L2" if chip.l2_bytes else ""
    peaks = f"times at the peaks of {chip.name}{cached}, in whole blocks on {chip.sms} multiprocessors"
    shares = f"{peaks}, each with its share"
    return f"{shares}\n{NEAR}: the fewest bytes within that of the schedule's least time\n"


def sentence(found: FastestAnswer) -> str:
    """The sentence that names the fastest tiles, their advantage, and the number of candidates."""
    if not found.results:
        return "No schedule has a time."
    one = found.results[0]
    best = one.fastest
    text = f"{best.schedule} with {best.tiles} {time_text(best, found.hardware)}"
    near = f"{TIE - 1:.0%} of the least time, {one.least_seconds * 1e6:,.1f} us"
    why = f"of {one.candidates:,} tilings it moves the fewest bytes within {near}"
    return f"{text}; {why}." + idle(found, best)


def time_text(tiles: TimedTiles, chip: Hardware) -> str:
    """The words on a time in whole blocks. It is a bound if arithmetic decides, or if all multiprocessors work. If the
    HBM decides and some are idle, the others may have more than their share of its rate."""
    us = f"{tiles.seconds * 1e6:,.1f} us"
    if tiles.bound_by == "memory" and tiles.blocks % chip.sms:
        return f"takes {us} if a multiprocessor has its share of the HBM's rate and no more"
    return f"takes at least {us}"


def idle(found: FastestAnswer, best: TimedTiles) -> str:
    """The sentence about multiprocessors that the blocks leave idle, and on splits that take less time; empty if there
    are none."""
    sms = found.hardware.sms
    if best.blocks >= sms:
        return ""
    text = f" It has only {numbered(best.blocks, 'block')} for {sms} multiprocessors"
    if found.split is None:
        return f"{text}."
    splits, tiles = found.split
    told = f"--schedule {tiles.schedule} --splits {splits} has {tiles.blocks:,} and takes {tiles.seconds * 1e6:,.1f} us"
    return f"{text}: {told}."


@takes_options()
def fastest(
    N: int,
    d: int,
    hardware: str,
    *,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Fastest:
    """The tiles that allow the least time on a GPU, as in `iosim tune --by time`: a Fastest.

    The time is the bound of `roofline` in whole thread blocks. Each result also has the tiles of least traffic, and
    published tiles stand beside them. Other options are those of `count`. Raises InputError for whatever is not
    allowed.
    """
    under = conditions(hardware, options, tile_multiple, paper_model)
    p = Attention(N, d, mask=parse_mask(mask), **under.options)
    names = [schedule.name for schedule in find_all(schedules)]
    return Fastest(fastest_by_bound(p, hardware, names, under.multiple), under.notes)


def shown(asked: Asked) -> list[tuple[Row, Fastest]]:
    """The answers of `iosim tune --by time` for each GPU that is named, with progress on stderr."""
    from ..progress import under_way

    choice, under, parts = asked.choice, asked.under, list[tuple[Row, Fastest]]()
    names = names_of(choice.hardware)
    for name in names:
        with under_way() as tell:

            def progress(share: float, tell: Callable[[str], None] = tell) -> None:
                tell(f"{share:.0%} of the tiles have a time")

            found = fastest_by_bound(asked.problem, name, choice.schedules, under.multiple, progress)
        parts.append(({"hardware": name} if len(names) > 1 else {}, Fastest(found, under.notes)))
    return parts
