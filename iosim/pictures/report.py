"""`iosim.report`: the page about a problem, as Python gets it or writes it to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ..core.options import flag
from ..core.tiling import tiles_text
from ..counting.given import Asked, Choice
from ..counting.names import takes_options
from ..counting.sweep_axes import schedule_names
from ..files import form_of, written_whole

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked
    from ..schedules.registry import SchedulesAsked


@takes_options()
def report(
    N: int,
    d: int,
    M: int | str | None = None,
    *,
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    path: str | None = None,
    **options: Unpack[ProblemOptions],
) -> str:
    """The HTML text of a page about a problem: traffic against M, a player of tiles that move, counts, bounds, SRAM.

    The options are those of `count`. `path` is a file that the page is written to as well, as `report.html`. Raises
    InputError for whatever is not allowed.
    """
    from .command_report import page_text

    form_of(path, "report")
    given = {"N": N, "d": d, "mask": str(mask), **options}
    texts = {name: value if isinstance(value, bool) else str(value) for name, value in given.items()}
    names, rule = tuple(schedule_names(schedules)), None if tiles is None else tiles_text(tiles)
    multiple = None if tile_multiple is None else str(tile_multiple)
    choice = Choice(None if M is None else str(M), hardware, names, rule, multiple, paper_model)
    asked = {**texts, "M": choice.M, "hardware": hardware, "schedule": ",".join(names), "tiles": rule}
    asked |= {"tile_multiple": multiple, "paper_model": paper_model}
    words = [flag(name) if value is True else f"{flag(name)} {value}" for name, value in asked.items() if value]
    text = page_text(Asked(texts, choice), ["report", *words])
    if path is not None:
        with written_whole(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
    return text
