"""Counts of schedules for a problem and an SRAM size: the question of `iosim count` about one pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from ..core.problem import Attention
from ..core.tiling import read_tiles, tiles_text
from ..masks import parse_mask
from ..schedules import (
    CORE,
    SCHEDULES,
    Schedule,
    applies,
    distinct,
    family_of,
    find_all,
    reads_cache,
    usual,
    with_rule,
)
from ..units import parse_bytes
from .bounds import Bound, bounds, named_by
from .conditions import Conditions, conditions
from .given import memory, without_memory
from .names import takes_options
from .notes import keys_notes
from .published import Published, tiles_of_gpus
from .report import Report
from .result import tiles_said
from .run import needs_memory, rules_of, run
from .sentence import moving_least, room_of

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked
    from ..hardware import Hardware
    from ..schedules.registry import SchedulesAsked
    from .result import Result


@takes_options()
def count(
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
    **options: Unpack[ProblemOptions],
) -> Report:
    """The words that schedules move between HBM and an SRAM of M: a Report. `iosim.count` (question.py) says what the
    options are; it also counts a backward pass and a whole step."""
    under = conditions(hardware, options, tile_multiple, paper_model, tiles)
    problem, M, asked = Attention(N, d, mask=parse_mask(mask), **under.options), memory(M, hardware), read_tiles(tiles)
    M_bytes = None if M is None else parse_bytes(M, problem.word_bytes)
    chosen, problem, under = asked_or_usual(schedules, problem, under)
    if M_bytes is None and any(needs_memory(s, asked, problem) for s in chosen):
        raise without_memory()
    results = [
        run(schedule, rule, problem, M_bytes, under.multiple, under.chip)
        for schedule in chosen
        for rule in rules_of(schedule, asked, problem)
    ]
    text = None if asked is None else tiles_text(asked)
    proven = proven_bounds(problem, M_bytes, [*results, *moving_least(results, problem, M_bytes, under)])
    found = Report(problem, M_bytes, proven, results, tiles=text, under=under)
    if M_bytes is None or asked is not None or not under.implies:
        return found
    from ..hardware import load

    chip, names = load(str(hardware)), {s.name for s in chosen}
    return replace(found, published=[*count_published(found, M_bytes, names, chip)])


def count_published(found: Report, M_bytes: int, names: Collection[str], chip: Hardware) -> Iterator[Published]:
    """The counts of published tiles that fit, each once."""

    def clipped(r: Result, p: Attention) -> tuple[str, str, int, int]:
        return r.schedule, p.gqa, min(r.Br or p.N, p.packed.N), min(r.Bc or p.Nk, p.Nk)

    seen = set[tuple[str, str, int, int]]()
    for tiles in tiles_of_gpus(names, found.problem, M_bytes, chip):
        p = tiles.as_run(found.problem)
        result = run(SCHEDULES[tiles.schedule], tiles.tiles, p, M_bytes, chip=chip)
        if result.fits and clipped(result, p) not in seen:
            seen.add(clipped(result, p))
            yield Published(tiles, replace(result, tiling=tiles.short))


def proven_bounds(problem: Attention, M_bytes: int | None, results: list[Result]) -> list[Bound]:
    """The bounds of each family that was counted, with its least traffic that fits. Without M they are those of an SRAM
    with room for the given tiles that move least."""
    found: list[Bound] = []
    for family in dict.fromkeys(SCHEDULES[r.schedule].family for r in results):
        of_family = [r for r in results if SCHEDULES[r.schedule].family == family]
        fitting = [r for r in of_family if r.fits is not False and r.total is not None]
        least = min(fitting, key=lambda r: r.total or 0, default=None)
        room = None if least is None else room_of(least, M_bytes)
        attainable = None if least is None or room is None else least.total
        name = least.schedule + tiles_said(least) if least else ""
        found += named_by(bounds(problem, M_bytes if room is None else room, attainable, family), name)
    return found


def default_schedules(problem: Attention) -> list[Schedule]:
    """The schedules of a count that names none, of those that can read its keys: each text once, and under `visit_all`
    also as one that skips hidden tiles."""
    names = usual(family_of(problem) == "state")
    if names[0] not in CORE:
        near = SCHEDULES[names[0]].about(problem)  # its own faults are for whoever runs it
        return [s for name in names if applies(s := SCHEDULES[name], near)]
    return distinct((s for name in names if reads_cache(s := SCHEDULES[name], problem)), problem)


def asked_or_usual(
    asked: SchedulesAsked, problem: Attention, under: Conditions
) -> tuple[Sequence[Schedule], Attention, Conditions]:
    """(the schedules asked for, else the usual ones; the problem, with the rule that they take; the conditions, with a
    note on usual ones that are left out)."""
    named = find_all(asked)
    notes = () if named else keys_notes(problem)
    chosen = named or default_schedules(problem)
    return chosen, with_rule(problem, chosen), under._replace(notes=(*under.notes, *notes))
