"""The schedules of attention that a kernel of somebody else may be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.folded import Folded
from ..core.problem import DENSE, Attention, mask_matters
from ..core.tiling import Tiling
from ..core.watchers import Traffic
from ..errors import IosimError
from . import SCHEDULES, Schedule

if TYPE_CHECKING:
    from ..core.machine import ScheduleText

PROFILE_TILES = (16, 32, 48, 64, 80, 96, 112, 128, 160, 176, 192, 224, 256)
NOT_FOR_IT = IosimError, AttributeError, TypeError  # what a schedule raises that is for decoding, or for pages


def ways(problem: Attention) -> list[tuple[Schedule, Attention]]:
    """The attention schedules with tiles, each with the problem as it may read it: under a mask, one that can visit
    hidden tiles is there twice. Of those that move the same words, only the first is there."""
    found: dict[tuple[ScheduleText, bool], tuple[Schedule, Attention]] = {}
    tiled = [s for s in SCHEDULES.values() if s.family == "attention" and "ideal" not in s.rules]
    for p in (replace(problem, visit_all=False), replace(problem, visit_all=True)):
        for schedule in tiled:
            found.setdefault((schedule.text, mask_matters(schedule, p)), (schedule, p))
    return list(found.values())


def number_of_launches(schedule: Schedule, problem: Attention) -> int:
    """The number of launches of a schedule; 0 if it is for other problems."""
    traffic = Traffic()
    try:
        Folded(replace(problem, mask=DENSE), traffic).run(schedule, Tiling(16, 16))
        return len(traffic.launches)
    except NOT_FOR_IT:
        return 0
