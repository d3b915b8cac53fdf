"""The fastest tiles of generated kernels by the time model, as `iosim.fastest` answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from ..core.problem import Attention
from ..counting.asked import asked
from ..counting.count import KEYWORDS, check_names
from ..masks import parse_mask
from ..notebook import Answer
from ..schedules import find_all
from ..units import parse_count
from . import fastest_tiles
from .fastest_tables import fastest_json, fastest_pieces, fastest_rows

if TYPE_CHECKING:
    from ..core.typing import Mask
    from ..counting.typing import ProblemOptions
    from ..grid import Pieces
    from ..schedules.registry import SchedulesAsked
    from ..tables import Row


@dataclass(frozen=True, repr=False)
class Fastest(Answer):
    """The answer of `fastest`."""

    found: fastest_tiles.FastestAnswer
    """The schedules, the fastest first, each with its fastest tiles and with those of least traffic."""

    def pieces(self) -> Pieces:
        return fastest_pieces(self.found)

    def to_rows(self) -> list[Row]:
        return fastest_rows(self.found)

    def to_dict(self) -> Row:
        return fastest_json(self.found)

    def summary(self) -> str:
        best = [f"; fastest: {r.fastest.schedule} {r.fastest.tiles}" for r in self.found.results[:1]]
        return f"{asked(self.found.problem)} on {self.found.hardware.name}{''.join(best)}"


def fastest(
    N: int,
    d: int,
    hardware: str,
    *,
    schedules: SchedulesAsked = (),
    tile_multiple: int = 1,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Fastest:
    """The tiles with which generated kernels are fastest by the time model, as in `iosim tune --by time`: a Fastest.

    Each result also has the tiles of least traffic. `hardware` is a GPU whose rates were measured: `h100`, `h200`, or a
    file of `iosim calibrate`. Predictions take up to half a minute for each schedule. Other options are those of
    `count`. Raises InputError for whatever is not allowed.
    """
    taken = ("N", "d", "hardware", "schedules", "tile_multiple", "mask")
    check_names("fastest", options, KEYWORDS, taken)
    p = Attention(N, d, mask=parse_mask(mask), **options)
    names = [schedule.name for schedule in find_all(schedules)]
    multiple = parse_count(tile_multiple, "--tile-multiple")
    return Fastest(fastest_tiles.fastest(p, hardware, names, multiple))
