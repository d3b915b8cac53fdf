"""The fastest tiles of generated kernels by the time model, as `iosim.fastest` and `iosim tune --by time` answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from ..answer import Answer, Column, Table, in_order
from ..core.problem import Attention
from ..counting.asked import asked
from ..counting.conditions import conditions
from ..counting.count import check_names
from ..counting.report import problem_row
from ..masks import parse_mask
from ..schedules import find_all
from . import fastest_tiles
from .fastest_tiles import LIMIT_SECONDS, FastestAnswer

if TYPE_CHECKING:
    from ..answer import Columns
    from ..core.keywords import ProblemOptions
    from ..core.typing import Mask
    from ..grid import Pieces
    from ..schedules.registry import SchedulesAsked
    from ..tables import Row

TILES: Columns[Row] = (
    Column("schedule", "string", "schedule"),
    Column("chosen_by", "string", "best in"),
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
    Column("in_full"),
)
SHOWN = ("schedule", "chosen_by", "tiles", "blocks", "us", "seconds_over_fastest", "bound_by", "sm_bytes")


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
        notes = [f"{name}: not predicted: {reason}" for name, reason in self.found.not_predicted.items()]
        head = f"generated kernels on {self.found.hardware.name}, times by the model\n"
        return [head, self.table(), *([""] if notes else []), *notes, "", sentence(self.found)]

    def to_dict(self) -> Row:
        return {
            "problem": problem_row(self.found.problem),
            "hardware": self.found.hardware.name,
            "limit_seconds": LIMIT_SECONDS,
            "results": self.to_rows(),
            "not_predicted": self.found.not_predicted,
            "answer": sentence(self.found),
            "notes": self.notes,
        }

    def summary(self) -> str:
        best = [f"; fastest: {r.fastest.schedule} {r.fastest.tiles}" for r in self.found.results[:1]]
        return f"{asked(self.found.problem)} on {self.found.hardware.name}{''.join(best)}"


def rows_of(found: FastestAnswer) -> list[Row]:
    """A row for the fastest tiles of each schedule, and one for its tiles of least traffic."""
    rows: list[Row] = []
    for one in found.results:
        for tiles in (one.fastest, one.least):
            if tiles is not None:
                share = tiles.seconds / found.results[0].fastest.seconds
                times = {"us": tiles.seconds * 1e6, "seconds_over_fastest": share}
                rows.append({**vars(one), **vars(tiles), "tiles": tiles.tiles, **times})
    return rows


def sentence(found: FastestAnswer) -> str:
    """The sentence that names the fastest tiles, their advantage, and the number of candidates."""
    if not found.results:
        return "No schedule can be predicted."
    one = found.results[0]
    best, least = one.fastest, one.least
    text = f"{best.schedule} with {best.tiles} is fastest by the model: {best.seconds * 1e6:.1f} us"
    if least is not None and (least.Br, least.Bc) != (best.Br, best.Bc):
        text += f", and {least.seconds / best.seconds:.2f}x faster than {least.tiles}, which moves least"
    how = f"all {one.candidates} candidates were predicted"
    if one.in_full < one.candidates:
        how = f"{one.candidates} candidates were predicted on a shorter problem, and {one.in_full} of them in full"
    return f"{text}; {how}."


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
    """The tiles with which generated kernels are fastest by the time model, as in `iosim tune --by time`: a Fastest.

    Each result also has the tiles of least traffic. `hardware` is a GPU whose rates were measured: `h100`, `h200`, or a
    file of `iosim calibrate`. Predictions take up to half a minute for each schedule. Other options are those of
    `count`. Raises InputError for whatever is not allowed.
    """
    taken = ("N", "d", "hardware", "paper_model", "schedules", "tile_multiple", "mask")
    check_names("fastest", options, taken)
    under = conditions(hardware, options, tile_multiple, paper_model)
    p = Attention(N, d, mask=parse_mask(mask), **under.options)
    names = [schedule.name for schedule in find_all(schedules)]
    return Fastest(fastest_tiles.fastest(p, hardware, names, under.multiple), under.notes)
