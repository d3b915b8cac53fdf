"""The least traffic at every M, as `iosim.curve` answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from .least import Curve, trace_curve

if TYPE_CHECKING:
    from ..core.typing import Mask
    from ..counting.typing import ProblemOptions
    from ..schedules.registry import SchedulesAsked


def curve(
    N: int,
    d: int,
    *,
    schedules: SchedulesAsked = (),
    tile_multiple: int = 1,
    mask: str | Mask = "dense",
    least_blocks: int = 1,
    **options: Unpack[ProblemOptions],
) -> Curve:
    """The least traffic against M, as in `iosim tune --curve`: a Curve. Its `steps` are all M at which the least
    traffic falls.

    The arguments are those of `tune`, without M. Schedules whose best tiling is not known at every M are not searched;
    `left_out` names them. Raises InputError for whatever is not allowed.
    """
    return trace_curve(
        N, d, schedules=schedules, tile_multiple=tile_multiple, mask=mask, least_blocks=least_blocks, **options
    )
