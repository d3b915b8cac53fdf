"""Tiles ranked by the least time that they allow on a GPU: the bound with an ideal L2, in whole thread blocks.

A multiprocessor works at its share of the peaks. Blocks are spread over the multiprocessors, and the one that has most
decides: 133 equal blocks on 132 of them take twice the time of a block. Under a mask whose hidden tiles are skipped,
blocks differ and are taken as balanced. Nothing is fitted. Times within TIE of the least are ties, which go to fewer
bytes, then to fewer operations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from math import log
from typing import TYPE_CHECKING, TypedDict

from ..core.problem import mask_matters, narrowed
from ..core.tiling import Tiling
from ..counting.count import default_schedules
from ..counting.published import tiles_of_gpus
from ..errors import InputError
from ..hardware import Hardware, configs_folder, load
from ..schedules import SCHEDULES, Schedule, find, find_all, require
from ..schedules.decode import SPLITS
from ..schedules.registry import check_family
from ..search.best import best_tiles, footprint
from ..timing.blocks import blocks
from ..tuning.timed_tiles import FastestAnswer, FastestTiles, Progress, TimedTiles, share_of_all, sizes_up_to
from .ideal_roofline import peaks, rows_of, work_by_kind

if TYPE_CHECKING:
    from ..core.problem import Attention

TIE = 1.05  # what the bound leaves out decides between times that differ less
NOTHING_FITS = "no candidate fits the shared memory of a block"


def fastest_by_bound(
    problem: Attention,
    hardware: str,
    schedules: str | Sequence[str] = (),
    multiple: int = 1,
    progress: Progress = lambda share: None,
) -> FastestAnswer:
    """The tiles of each schedule that allow the least time on a GPU, those of least traffic, and published tiles."""
    chip = load(hardware)
    peaks(chip, problem)
    asked = find_all(schedules) or [s for s in default_schedules(problem) if "ideal" not in s.rules]
    check_family(asked)
    found = FastestAnswer(problem, chip, [], {})
    for number, schedule in enumerate(asked):
        require(schedule, problem)
        share_of_all(progress, number, len(asked), 0)
        one = ranked(schedule, problem, chip, multiple)
        if one is None:
            found.not_predicted[schedule.name] = NOTHING_FITS
        else:
            found.results.append(one)
        found.published.extend(of_publications(schedule, problem, chip))
    firsts = in_order([one.fastest for one in found.results])
    found.results.sort(key=lambda one: firsts.index(one.fastest))
    return replace(found, split=faster_split(found, multiple) if firsts else None)


def faster_split(found: FastestAnswer, multiple: int) -> tuple[int, TimedTiles] | None:
    """(splits, tiles) of a schedule that splits the keys and takes less time than the first; None if no multiprocessor
    is idle, or none takes less."""
    first, chip, tried = found.results[0].fastest, found.hardware, list[tuple[int, TimedTiles]]()
    if first.blocks >= chip.sms:
        return None
    given = found.problem[SPLITS] if "splits" in find(first.schedule).chosen else 1
    numbers = {chip.sms * times // first.blocks * given for times in (1, 2)}
    own = find(first.schedule).family
    for schedule, splits in product(
        (s for s in SCHEDULES.values() if "splits" in s.chosen and s.family == own), numbers
    ):
        p = narrowed(found.problem, splits=splits)
        with suppress(InputError):
            require(schedule, p)
            if at_least(schedule, p, Tiling(first.Br, first.Bc), chip).seconds < first.seconds / TIE:
                one = ranked(schedule, p, chip, multiple)
                tried += [(splits, one.fastest)] if one else []
    return min(tried, key=lambda one: one[1].seconds, default=None)


def ranked(schedule: Schedule, problem: Attention, chip: Hardware, multiple: int) -> FastestTiles | None:
    """The tiles of one schedule that allow the least time; None if no candidate fits."""
    p, M_bytes = problem.packed, chip.sram_bytes
    every = [Tiling(*pair) for pair in product(*(sizes_up_to(length) for length in (p.N, p.Nk)))]
    fitting = [t for t in every if footprint(schedule, p, t).smem_bytes <= M_bytes]
    whole = [t for t in fitting if t.rows_q % multiple == t.rows_k % multiple == 0]
    if not whole:
        return None
    least = best_tiles(schedule, p, M_bytes, multiple)
    tried = [*whole, *([least] if least and least not in whole else [])]
    timed = [at_least(schedule, problem, tiling, chip) for tiling in tried]
    best, quickest = in_order(timed)[0], min(tiles.seconds for tiles in timed)
    lowest = None if least is None else at_least(schedule, problem, least, chip, "traffic")
    return FastestTiles(best, lowest, len(tried), quickest)


def of_publications(schedule: Schedule, problem: Attention, chip: Hardware) -> list[TimedTiles]:
    """Published tiles of kernels for GPUs, which keep S and O in registers."""
    published = tiles_of_gpus({schedule.name}, problem, chip.sram_bytes, chip.sms)
    return [
        at_least(find(t.schedule), t.as_run(problem, gpu=False), t.tiles, chip, t.short)
        for t in published
        if isinstance(t.tiles, Tiling)
    ]


def at_least(schedule: Schedule, problem: Attention, tiling: Tiling, chip: Hardware, by: str = "time") -> TimedTiles:
    """The least time of a schedule with one tiling, in whole blocks."""
    launches = work_by_kind(schedule, problem.packed, tiling).launches
    row = rows_of(schedule, tiling, problem, tiling, launches, chip, chip.sram_bytes)[-1]
    many = blocks(schedule, problem, tiling)
    turns = max(1.0, chip.sms / many) if mask_matters(schedule, problem) else -(-many // chip.sms) * chip.sms / many
    sizes = tiling.rows_q, tiling.rows_k
    seconds = row.bound_seconds * turns
    steps = row.work.exps + row.work.other_ops
    return TimedTiles(schedule.name, by, *sizes, seconds, row.bound_binds, row.work.total_bytes, many, steps)


def in_order(found: Sequence[TimedTiles]) -> list[TimedTiles]:
    """Tiles, the best first: by time in steps of TIE from the least, then by bytes, then by operations."""
    least = min((one.seconds for one in found), default=1.0)

    def place(one: TimedTiles) -> tuple[int, int, int]:
        return int(log(one.seconds / least, TIE) + 1e-9), one.sm_bytes, one.operations

    return sorted(found, key=place)


class Goodness(TypedDict):
    """How good the ranking is against kept measurements (validation/ranking.py writes it).

    Of generated kernels: the measured time of the first of the ranking over that of the fastest, and the median rank
    correlation. Of PyTorch's kernels: the measured time over the bound.
    """

    gpu: str
    shapes: int
    kernels: int
    first_over_fastest: list[float]
    rank_correlation: float
    calls: int
    time_over_bound: list[float]


@cache
def goodness() -> Goodness:
    """What was found on the kept measurements; lists have the least, the median and the most."""
    text = (configs_folder() / "measured" / "ranking.json").read_text(encoding="utf-8")
    found: Goodness = json.loads(text)
    return found


def goodness_lines() -> list[str]:
    """The lines on how good the ranking is."""
    kept = goodness()
    least, median, most = (f"{share:.3g}" for share in kept["first_over_fastest"])
    low, middle, high = (f"{share:.3g}" for share in kept["time_over_bound"])
    return [
        f"how good this ranking is: of {kept['shapes']} problems with {kept['kernels']} generated kernels measured on "
        f"an {kept['gpu']}, its first tiles took {least} to {most} times as long as the fastest (median {median}; rank "
        f"correlation {kept['rank_correlation']:.2f})",
        f"{kept['calls']} kept calls of PyTorch's fused kernels took {low} to {high} times their bound (median "
        f"{middle})",
    ]
