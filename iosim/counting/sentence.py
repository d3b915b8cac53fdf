"""The answer of a count in sentences: the verdict on its results, with the tensors that make the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem import narrowed
from ..core.tiling import Tiling
from ..errors import InputError
from ..schedules import SCHEDULES
from ..verdict import NEAR as NEAR
from ..verdict import Way, about, best_of, joined, nothing_fits, times, verdict
from ..verdict import above as above
from .bounds import floor_of
from .columns import flags
from .floors import held_words
from .least_room import name_with, needed
from .result import Answered, Result, tiles_said
from .run import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.problem import Attention
    from .conditions import Conditions

BASELINE = "standard"  # results are compared with it if it was counted, as in `ratio_to_standard`
MAIN = 0.8  # tensors are named until they explain this share of a difference


def answer_of(report: Answered) -> str:
    """The answer of a count, as one text."""
    return " ".join([*lead_lines(report), *reason_lines(report)])


def lead_lines(report: Answered) -> list[str]:
    """The answer in a sentence for each family of the schedules that were counted: the least result, what it moves,
    and how far that is from the floor."""
    return [lines_of(report, found)[0] for found in by_family(report.results).values()]


def reason_lines(report: Answered) -> list[str]:
    """The sentences that say what comes next and why; none if schedules of several families were counted."""
    families = by_family(report.results)
    return [line for found in families.values() for line in lines_of(report, found)[1:]] if len(families) == 1 else []


def winners(results: Sequence[Result]) -> list[int]:
    """The indices of the winning results, one for each family."""
    found = [winner_of(of_family) for of_family in by_family(results).values()]
    return [k for k, result in enumerate(results) if any(result is winner for winner in found)]


def leaders(report: Answered) -> list[int]:
    """The indices of the rows that the first sentence names, of results and the published ones behind them."""
    found = winners(report.results)
    if report.under.chip is None or len(found) != 1:
        return found
    from .on_gpu import faster_published

    faster = faster_published(report.results[found[0]], report.published)
    return [len(report.results) + k for k, one in enumerate(report.published) if one is faster] or found


def winner_of(results: Sequence[Result]) -> Result | None:
    """The result of one family that is best of those that fit, or that may fit; None if none does. On a GPU it takes
    the least time, else it moves the fewest bytes."""
    if any(r.at_least_seconds is not None for r in results):
        from .on_gpu import fastest_of

        return fastest_of(results)
    counted = [r for r in results if r.total_bytes is not None]
    ways = [Way("", r.total_bytes or 0, r.fits) for r in counted]
    best = best_of(ways)
    return next((r for r, way in zip(counted, ways, strict=True) if way is best), None)


def by_family(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each family of schedules, in their order."""
    families: dict[str, list[Result]] = {}
    for result in results:
        families.setdefault(SCHEDULES[result.schedule].family, []).append(result)
    return families


def lines_of(report: Answered, results: Sequence[Result]) -> list[str]:
    """The verdict on the results of one family."""
    counted = [r for r in results if r.total_bytes is not None]
    if (best := winner_of(results)) is not None and report.under.chip is not None:
        return lines_on_gpu(report, best, counted)
    if best is None:
        return [none_fits(report, results)]
    ways = [as_way(report.problem, report.M_bytes, r) for r in counted]
    of_way = dict(zip(map(id, ways), counted, strict=True))
    baseline = next((way for way in ways if of_way[id(way)].schedule == BASELINE), None)
    memory = room_of(best, report.M_bytes)
    return verdict(ways, "move", memory, baseline, lambda *pair: why(*(of_way[id(way)] for way in pair)))


def lines_on_gpu(report: Answered, best: Result, counted: Sequence[Result]) -> list[str]:
    """The verdict on a GPU: what takes the least time, what moves least, and what is next."""
    from .on_gpu import leads_on_gpu, least_traffic, next_on_gpu

    chip, M_bytes, schedule = report.under.chip, report.M_bytes, SCHEDULES[best.schedule]
    assert chip is not None
    lines = leads_on_gpu(best, report.published, chip, class_of(report.problem, M_bytes, best))
    if best.tiling == "best" and M_bytes is not None:
        p = narrowed(report.problem, **(vars(best).get("options") or {}))
        tiling = Tiling(best.Br or 1, best.Bc or 1, **best.more_tiles)
        lines += least_traffic(schedule, p, best, tiling, chip, M_bytes, report.under.multiple)
    return [*lines, *next_on_gpu(best, counted)]


def none_fits(report: Answered, results: Sequence[Result]) -> str:
    """The sentence for the case that nothing fits: what needs least, the smallest tiles of each schedule included, or
    what has most thread blocks of those that are too few."""
    most = [(vars(r).get("most_blocks") or 0, r.schedule) for r in results]
    if all(blocks for blocks, _ in most):
        blocks, name = max(most)
        return f"No tiling that was counted has so many thread blocks: {name} has the most, {blocks:,}."
    chosen = [r for r in results if r.tiling == "given" and r.total_bytes is not None]
    multiple = report.under.multiple
    smallest = [
        Way(name_with(r, multiple), 0, False, vars(r).get("needs_M_bytes") or needed(r, report.problem, multiple))
        for r in results
        if r not in chosen
    ]
    return nothing_fits([*(as_way(report.problem, report.M_bytes, r) for r in chosen), *smallest], report.M_bytes)


def moving_least(results: Sequence[Result], problem: Attention, M_bytes: int | None, under: Conditions) -> list[Result]:
    """On a GPU, the counts of the tiles that move least of each schedule that is best in time, as the answer names
    them; none elsewhere, nor where they cannot be searched."""
    if under.chip is None or M_bytes is None:
        return []
    best = [results[k] for k in winners(results) if results[k].tiling == "best"]
    ways = [(SCHEDULES[r.schedule], narrowed(problem, **(vars(r).get("options") or {}))) for r in best]
    try:
        return [run(schedule, "best", p, M_bytes, under.multiple) for schedule, p in ways]
    except InputError:
        return []


def as_way(problem: Attention, M_bytes: int | None, result: Result) -> Way:
    """A result as the verdict compares it. Words stand beside the bytes if words of several widths move."""
    moved, words, share = result.total_bytes or 0, result.total or 0, result.ratio_to_floor
    name = result.schedule + tiles_said(result) + flags(vars(result).get("options") or {})
    family, held = SCHEDULES[result.schedule].family, room_of(result, M_bytes)
    least = floor_of(problem, held, family, result.Br) or 0 if share else 0
    shown, floor = cost_and_floor(problem, words, moved, least)
    shown = "" if share is None else shown
    room = result.smem_peak_bytes or result.sram_peak_bytes or 0
    none = class_of(problem, held, result) if share else ""
    return Way(name, moved, result.fits, room, share, floor, shown, none)


def cost_and_floor(problem: Attention, words: int, moved: int, least: int) -> tuple[str, str]:
    """(what moves, the floor after `can move`) for people: bytes, or words where words of several widths move, because
    floors are in words."""
    if moved == words * problem.word_bytes and problem.cache_dtype == problem.dtype:
        return about(moved), f"less than {about(least * problem.word_bytes)}"
    return f"{words:,} words ({about(moved)})", f"fewer than {least:,} words"


def class_of(problem: Attention, M_bytes: int | None, result: Result) -> str:
    """The class of the floor of a schedule with a state; empty for any other."""
    if SCHEDULES[result.schedule].family != "state":
        return ""
    from .state_bounds import state_floor

    return state_floor(problem, None if M_bytes is None else held_words(problem, M_bytes), result.Br).of_class


def room_of(result: Result, M_bytes: int | None) -> int | None:
    """The SRAM of a result's floor: without M, one with room for given tiles."""
    return result.smem_peak_bytes if M_bytes is None and result.tiling == "given" else M_bytes


def why(best: Result, other: Result) -> str:
    """The tensors that move more in another result than in the best one, as many as explain most of the difference."""
    words = {name: (moved(best, name), moved(other, name)) for name in other.tensors}
    more = {name: its - mine for name, (mine, its) in words.items() if its > mine}
    texts: dict[str, list[str]] = {}
    for name in main_of(more):
        mine, its = words[name]
        texts.setdefault(f" {times(its, mine)} times as much" if mine else " through HBM", []).append(name)
    verbs = {True: ("goes", "go"), False: ("moves", "move")}
    parts = [f"{joined(names)} {verbs['HBM' in text][len(names) > 1]}{text}" for text, names in texts.items()]
    return joined(parts) if parts else ""


def moved(result: Result, name: str) -> int:
    """The words of a tensor that a result reads and writes."""
    return sum(result.tensors.get(name, {}).values())


def main_of(more: dict[str, int]) -> list[str]:
    """The tensors with the largest differences: as many as explain most of the sum. Equal ones stay together."""
    order, found, reached = sorted(more, key=lambda name: -more[name]), list[str](), 0
    for name in order:
        if reached >= MAIN * sum(more.values()) and more[name] != more[found[-1]]:
            break
        found.append(name)
        reached += more[name]
    return found
