"""The answer of a count on a GPU that is named: what takes the least time there, what moves least, and what is next."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..answer import numbered
from ..core.tiling import further_sizes
from ..errors import InputError
from ..search.best import best_tiles
from ..timing.bound import RESOURCES, TimeBound, time_at_least
from ..units import microseconds
from ..verdict import NEAR, about, joined, times
from .columns import flags
from .result import Labelled, Result, tiles_said
from .state_bounds import DOCS as FLOORS_OF_STATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..hardware import Hardware
    from ..schedules import Schedule

R = TypeVar("R", bound=Result)
P = TypeVar("P", bound=tuple[Labelled, Result])


def fastest_of(results: Sequence[Result]) -> Result | None:
    """The result of least time of those that fit, as `in_order_of_time` says; None if none fits."""
    return next(iter(in_order_of_time([r for r in results if r.fits and r.at_least_seconds is not None])), None)


def in_order_of_time(results: Sequence[R]) -> list[R]:
    """Results by their least time; of times within a hundredth of the least, by the bytes that they move. Those without
    thread blocks, which are no kernels, come later, and those that do not fit come last."""
    least = min((seconds(r) for r in results if r.fits and r.blocks), default=0.0)

    def place(r: R) -> tuple[bool, bool, bool, float, int]:
        tie = seconds(r) <= NEAR * least
        return not r.fits, r.at_least_seconds is None, not r.blocks, 0.0 if tie else seconds(r), r.total_bytes or 0

    return sorted(results, key=place)


def seconds(result: Result) -> float:
    """The least seconds of a result that has them."""
    return result.at_least_seconds or 0.0


def named(result: Result) -> str:
    """A result by its schedule, tiles and options."""
    return result.schedule + tiles_said(result) + flags(vars(result).get("options") or {})


def lead_on_gpu(best: Result, chip: Hardware, name: str = "", none: str = "") -> str:
    """The sentence that leads: the least time, what binds, the bytes, and their floor. A library has a name, and `none`
    is the class of the floor of a schedule with a state, as `no exact algorithm`."""
    takes = f"{name or named(best)} takes at least {microseconds(seconds(best))} on {chip.name}"
    floors = beside_floors(best.ratio_to_floor, best.ratio_to_full_card, chip)
    if none and best.ratio_to_floor:
        ratio = times(best.ratio_to_floor, 1) if best.ratio_to_floor >= NEAR else f"less than {NEAR}"
        beside = "which is" if best.ratio_to_floor == 1 else f"{ratio} times"
        floors = f", {beside} what {none.replace('no', 'any', 1)} must move ({FLOORS_OF_STATE})"
    return f"{takes}: {RESOURCES[str(best.binds)]}; it moves {about(best.total_bytes or 0)}{floors}."


def leads_on_gpu(
    best: Result, published: Sequence[tuple[Labelled, Result]], chip: Hardware, none: str = ""
) -> list[str]:
    """The sentence on what takes the least time, with the class of a floor of states. Where that is a library, a second
    sentence is on the best of the other rows."""
    faster = faster_published(best, published)
    if faster is None:
        return [lead_on_gpu(best, chip, none=none)]
    tiles, found = faster
    splits = f" --splits {tiles.splits}" if tiles.splits > 1 else ""
    name = f"{tiles.label} ({found.schedule}{tiles_said(found)}{splits})"
    own = f"Of the rows that are no library's {named(best)} is the fastest, with at least {microseconds(seconds(best))}"
    return [lead_on_gpu(found, chip, name), f"{own}: {RESOURCES[str(best.binds)]}."]


def faster_published(best: Result, published: Sequence[P]) -> P | None:
    """The published tiles of least time, if they allow less than the best that was counted, as those of libraries that
    cut the keys at one query."""
    timed = [one for one in published if one[1].fits and one[1].at_least_seconds]
    found = min(timed, key=lambda one: seconds(one[1]), default=None)
    return None if found is None or NEAR * seconds(found[1]) >= seconds(best) else found


def beside_floors(one: float | None, full: float | None, chip: Hardware) -> str:
    """How far words are from what a full card needs, and from the floor of one multiprocessor, after a comma: `one` and
    `full` are their ratios to these floors. Empty without a floor."""
    if one is None:
        return ""
    alone = f"{'' if one == 1 else f'{times(one, 1)} times '}the floor of one multiprocessor"
    return (
        f", {alone}" if full in (None, one) else f", {times(full, 1)} times what a full {chip.name} needs and {alone}"
    )


def next_on_gpu(best: Result, results: Sequence[Result]) -> list[str]:
    """The sentence on the ways that take as long, and on the next one; none if there are no others. What has no thread
    blocks is no kernel, and its bound leaves out shared memory: one below the best says nothing."""
    timed = (r for r in results if r.fits and r.at_least_seconds and (r.blocks or seconds(r) >= seconds(best)))
    others = sorted((r for r in timed if r is not best), key=seconds)
    near = [r for r in others if seconds(r) <= NEAR * seconds(best)]
    after = next((r for r in others if r not in near), None)
    take = f"take{'s' * (len(near) == 1)} at least"
    parts = [f"{joined(map(named, near))} {take} {as_long(best, near[0])}"] if near else []
    if after:
        share = times(seconds(after), seconds(best))
        parts.append(f"{named(after)} is next, with at least {share} times as long: {RESOURCES[str(after.binds)]}")
    return ["; ".join(parts) + "."] if parts else []


def as_long(best: Result, shortest: Result) -> str:
    """The time of ways beside that of the best, which may be a hundredth longer where it moves fewer bytes."""
    return "as long" if seconds(shortest) >= seconds(best) else "99 % as long"


def least_traffic(
    schedule: Schedule, problem: Attention, best: Result, tiling: Tiling, chip: Hardware, M_bytes: int, multiple: int
) -> list[str]:
    """The sentence on the tiles that move least of the schedule that is best in time, and why they are not it; none if
    they are the same, or if none can be searched."""
    try:
        least = best_tiles(schedule, problem.packed, M_bytes, multiple)
    except InputError:  # --short-tile first, which is counted for one tiling at a time under some masks
        return []
    if least is None or (least.rows_q, least.rows_k) == (tiling.rows_q, tiling.rows_k):
        return []
    found, mine = (time_at_least(schedule, problem, t, chip) for t in (least, tiling))
    if found.work.total_bytes >= mine.work.total_bytes:
        return []
    fewer = f"{1 - found.work.total_bytes / mine.work.total_bytes:.0%}".replace("%", " %")
    sizes = tiles_said(Result(schedule.name, "best", Br=least.rows_q, Bc=least.rows_k, more_tiles=further_sizes(least)))
    moves = f"Of {schedule.name}'s tiles{sizes} moves least, {about(found.work.total_bytes)} ({fewer} fewer)"
    return [f"{moves}, but {why_slower(mine, found, chip)}."]


def why_slower(best: TimeBound, other: TimeBound, chip: Hardware) -> str:
    """Why tiles that move less are not the best: what takes longer, and how much."""
    longer = times(other.seconds, best.seconds)
    if other.seconds <= NEAR * best.seconds:
        return "takes at least as long, and leaves no room for a second block on a multiprocessor"
    if other.blocks < min(chip.sms, best.blocks):
        has = f"has {numbered(other.blocks, 'thread block')} for {chip.sms} multiprocessors"
        return f"{has}, so it takes at least {longer} times as long"
    if other.binds == "shared":
        share = times(other.work.smem_read_bytes, best.work.smem_read_bytes)
        return f"reads {share} times as much from shared memory, so it takes at least {longer} times as long"
    return f"takes at least {longer} times as long: {RESOURCES[other.binds]}"
