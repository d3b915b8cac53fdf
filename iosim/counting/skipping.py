"""Notes on masks and query heads that save nothing, and on the schedules or options with which they do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.problem import DENSE, every
from ..schedules import SCHEDULES, applies
from .sentence import joined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.problem import Attention
    from ..schedules import Schedule


def mask_notes(problem: Attention, names: Iterable[str]) -> list[str]:
    """A note if the problem has a mask and some of the schedules skip nothing under it; else nothing."""
    blind = [SCHEDULES[name] for name in dict.fromkeys(names) if blind_to_mask(SCHEDULES[name], problem)]
    if not blind:
        return []
    one = len(blind) == 1
    text = f"{joined(s.name for s in blind)} {'skips' if one else 'skip'} nothing under mask {problem.mask}: "
    text += f"{'its' if one else 'their'} words and FLOPs are those of dense attention"
    found = {schedule.name: sister_that_skips(schedule, problem) for schedule in blind}
    same = [f"{s.name} is {name} with hidden tiles skipped" for name, s in found.items() if s and same_text(s, name)]
    others = dict.fromkeys(f"{s.name} skips hidden tiles" for s in found.values() if s)
    return ["; ".join([text, *(same or others)])]


def group_notes(problem: Attention) -> list[str]:
    """A note if a single query is decoded and the query heads of a group read K and V each for themselves."""
    if problem.gqa != "repeat" or not every(problem.N == 1) or every(problem.kv_heads == problem.heads):
        return []
    return ["each query head reads K and V for itself; with --gqa pack the query heads of a KV head share them, as in "
            "decoding kernels"]  # fmt: skip


def same_text(schedule: Schedule, name: str) -> bool:
    """Whether a schedule has the text of the one with this name."""
    return schedule.text is SCHEDULES[name].text


def blind_to_mask(schedule: Schedule, problem: Attention) -> bool:
    """Whether a mask hides scores of a schedule but saves it no word: it skips no tile, and it is not made for this
    mask alone."""
    if problem.mask is DENSE or problem.packed.mask is DENSE or schedule.skips:
        return False
    return schedule.about(replace(problem, mask=DENSE)).mask is DENSE


def sister_that_skips(schedule: Schedule, problem: Attention) -> Schedule | None:
    """The schedule that has the same text and skips hidden tiles; else the first that skips them with the same outer
    loop."""
    skipping = [
        s for s in SCHEDULES.values()
        if s.skips and s.family == schedule.family and s.outer == schedule.outer and applies(s, problem)
    ]  # fmt: skip
    return next((s for s in skipping if s.text is schedule.text), next(iter(skipping), None))
