"""The least traffic over schedules, loop orders and tiles that really fit, and how far published tiles are from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Unpack

from ..core.problem import DENSE, Attention, mask_matters, narrowed
from ..core.tiling import Tiling
from ..counting.bounds import bounds, named_by, of_all_schedules
from ..counting.conditions import conditions
from ..counting.given import head_dimension, memory
from ..counting.names import takes_options
from ..counting.on_gpu import in_order_of_time, seconds
from ..counting.published import PUBLISHED, PublishedTiles, has_their_registers, tiles_of_gpus
from ..counting.result import Result, tiles_said
from ..counting.run import counted_tiling, run
from ..counting.sentence import moving_least
from ..errors import InputError
from ..hardware import load
from ..masks import parse_mask
from ..masks.visible import visible
from ..schedules import SCHEDULES, Schedule, applies, distinct, family_of, find, find_all, require, with_rule
from ..schedules.registry import check_family
from ..timing.blocks import blocks
from ..units import parse_bytes, parse_count, parse_range
from .best import Best, ResultWithBlocks, dominated
from .curve import choices, envelope, exact, free_steps, most_blocks, require_tokens, step_at, steps_within, widened
from .every_M import Curve
from .sides import sides_of

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import Rule, RuleName
    from ..counting.conditions import Conditions
    from ..hardware import Hardware
    from ..schedules.registry import SchedulesAsked

MOST_SHARES = 128  # of the keys, as libraries cut them


@takes_options()
def tune(
    N: int,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    least_blocks: int = 1,
    **options: Unpack[ProblemOptions],
) -> Best:
    """The least traffic of every schedule of softmax attention in an SRAM: a Best.

    The SRAM has M bytes (`100KB`, or in words `51200el`), or is that of a `hardware`, under the conditions that `count`
    names.

    The search covers the loop orders of the schedules and all tile sizes that are multiples of `tile_multiple`, ragged
    last tiles included. It also covers the options that a schedule lets `tune` choose (`splits`, `page_size`), unless
    they are given. The whole footprint must fit in M, and the bytes moved are compared. With `least_blocks`, only
    tilings with at least that number of thread blocks are searched. Other options are the fields of `Attention`.
    Raises InputError for whatever is not allowed.
    """
    under = conditions(hardware, options, tile_multiple, paper_model)
    problem, multiple = Attention(N, head_dimension(d), mask=parse_mask(mask), **under.options), under.multiple
    size = memory(M, hardware)
    if size is None:
        raise InputError(
            "--M",
            "nothing",
            "a size as in 100KB",
            "or --hardware h100, or --curve; in Python hardware='h100', or iosim.curve",
        )
    M_bytes = parse_bytes(size, problem.word_bytes)
    parse_count(least_blocks, "--least-blocks")
    asked = space_of(schedules, problem)
    problem = with_rule(problem, asked)
    if any(mask_matters(s, problem) and "ideal" not in s.rules for s in asked):
        require_tokens(problem)
    known = asked if not problem.divided or schedules else [s for s in asked if not (s.candidates or s.sizes)]
    by_time = under.chip is not None and least_blocks == 1
    space = known if least_blocks == 1 else searchable(known, problem, least_blocks)
    if by_time:
        found = in_order_of_time([fastest_on(s, problem, M_bytes, under, options) for s in space])
    else:
        found = [best_of(s, problem, M_bytes, multiple, options, least_blocks) for s in space]
        found.sort(key=lambda r: (not r.fits, r.total is None, r.total_bytes))
    also = moving_least(found, problem, M_bytes, under) if by_time else []
    fewest = min(
        (r for r in [*found, *also] if r.fits and r.total is not None), key=lambda r: r.total or 0, default=None
    )
    kernels = published_in(space, problem)
    if under.implies:
        chip = load(str(hardware))
        own = [*tiles_of_gpus({s.name for s in space}, problem, M_bytes, chip)]
        others = problem.N == 1 or not has_their_registers(chip)
        kernels = [c for c in kernels if not (c.short and others)] + [c for c in own if c not in PUBLISHED]
    published = [(c, of_published(c, problem, M_bytes, under)) for c in kernels]
    least, name = (fewest.total, fewest.schedule + tiles_said(fewest)) if fewest else (None, "")
    proven = named_by(bounds(problem, M_bytes, least, space[0].family if space else "attention"), name)
    if not schedules and multiple == least_blocks == 1 and not problem.divided and packed_way(problem) is None:
        proven = of_all_schedules(proven, len(space))
    left_out = tuple(s.name for s in asked if s not in space)
    costs = {r.schedule: (seconds(r) if by_time else r.total_bytes) or inf if r.fits else inf for r in found}
    hidden = {} if schedules else dominated(costs, {r.schedule: r.options for r in found})
    idle = (
        ()
        if schedules or not by_time
        else tuple(r.schedule for r in idle_of(found, under.chip) if r.schedule not in hidden)
    )
    under = under if by_time else under._replace(chip=None)
    return Best(problem, M_bytes, proven, found, published, multiple, least_blocks, left_out, hidden, idle, under=under)


def packed_way(p: Attention) -> Attention | None:
    """The problem with the query heads of a KV head packed; None if they are, or cannot be."""
    if p.gqa == "pack":
        return None
    try:
        packed = narrowed(p, gqa="pack", mask=DENSE if hides_nothing(p) else p.mask)
    except InputError:
        return None
    return packed if packed.packed.heads < p.heads else None


def hides_nothing(p: Attention) -> bool:
    """Whether every query sees every key."""
    try:
        seen = visible(p.mask, p.N, p.Nk)
    except InputError:
        return False
    return seen.pairs + seen.any_rows - seen.rows == p.N * p.Nk


def idle_of(found: Sequence[Result], chip: Hardware | None) -> list[Result]:
    """The results with fewer thread blocks than the chip has multiprocessors, and than the fastest has."""
    best = next((r for r in found if r.fits and r.blocks is not None), None)
    most = 0 if chip is None or best is None else min(chip.sms, best.blocks or 0)
    return [r for r in found if r.fits and r.blocks is not None and r.blocks < most]


def fastest_on(
    schedule: Schedule, problem: Attention, M_bytes: int, under: Conditions, given: Collection[str]
) -> ResultWithBlocks:
    """The result of least time of one schedule on the chip, over its tiles and over the options that are not given: of
    these the powers of two up to MOST_SHARES, because a long cache can be split in millions of ways."""
    rule: RuleName = "ideal" if "ideal" in schedule.rules else "best"
    tried = [
        ResultWithBlocks(**vars(run(schedule, rule, p, M_bytes, under.multiple, under.chip)), options=options)
        for options in choices(schedule, problem.packed, under.multiple, given)
        if all(value & (value - 1) == 0 and value <= MOST_SHARES for value in options.values())
        for p in [narrowed(problem, **options)]
    ]
    return in_order_of_time(tried)[0]


def best_of(
    schedule: Schedule, problem: Attention, M_bytes: int, multiple: int, given: Collection[str], least_blocks: int
) -> ResultWithBlocks:
    """The result of least traffic of one schedule, over its tiles and over the options that are not given.

    Without a least number of blocks the first value of each option is best (see `Schedule.chosen`). With such a number,
    the steps of the curve are compared.
    """
    rule: RuleName = "ideal" if "ideal" in schedule.rules else "best"
    if least_blocks == 1:
        options = next(choices(schedule, problem.packed, multiple, given))
        return count_with_blocks(schedule, rule, problem, M_bytes, multiple, options)
    steps = free_steps(schedule, problem, multiple, frozenset(given), least_blocks)
    if not steps:
        most = most_blocks(schedule, problem, multiple, given)
        return ResultWithBlocks(schedule.name, rule, fits=False, most_blocks=most)
    step = step_at(steps, M_bytes)
    if step is None:
        return ResultWithBlocks(schedule.name, rule, fits=False, needs_M_bytes=steps[0].M_bytes)
    step = widened(schedule, problem, step, M_bytes, multiple)
    tiles: Rule = rule if step.Br is None or step.Bc is None else Tiling(step.Br, step.Bc, **step.more_tiles)
    return replace(count_with_blocks(schedule, tiles, problem, M_bytes, multiple, step.options), tiling=rule)


def count_with_blocks(
    schedule: Schedule,
    rule: Rule,
    problem: Attention,
    M_bytes: int,
    multiple: int = 1,
    options: dict[str, int] | None = None,
) -> ResultWithBlocks:
    """The count and the blocks of one schedule with one tile rule, for a problem with these options."""
    problem = narrowed(problem, **(options or {}))
    return with_blocks(run(schedule, rule, problem, M_bytes, multiple), problem, options or {})


def of_published(tiles: PublishedTiles, problem: Attention, M_bytes: int, under: Conditions) -> ResultWithBlocks:
    """The count and the blocks of published tiles, in one SRAM or on a GPU, which has registers too."""
    options = {"splits": tiles.splits} if tiles.splits > 1 else {}
    problem = tiles.as_run(problem, under.implies)
    return with_blocks(run(find(tiles.schedule), tiles.tiles, problem, M_bytes, chip=under.chip), problem, options)


def with_blocks(result: Result, problem: Attention, options: dict[str, int]) -> ResultWithBlocks:
    """A result with its blocks, and with the options that were chosen for it."""
    if result.total is None:
        return ResultWithBlocks(**vars(result))
    many = blocks(find(result.schedule), problem, counted_tiling(result))
    return ResultWithBlocks(**{**vars(result), "options": options, "blocks": many})


def searchable(asked: list[Schedule], problem: Attention, least_blocks: int) -> list[Schedule]:
    """The schedules whose least traffic with `least_blocks` blocks is known at every M. Raises InputError if there is
    none."""
    space = [s for s in asked if exact(s, problem, least_blocks)]
    if not space:
        option = "--curve" if least_blocks == 1 else "--least-blocks"
        raise InputError(
            "--schedule",
            ", ".join(s.name for s in asked),
            "a schedule whose candidates are known",
            f"leave out {option}",
        )
    return space


def space_of(names: SchedulesAsked, problem: Attention) -> list[Schedule]:
    """The schedules asked for. If none is, all schedules of softmax attention that apply to this problem.

    Of names that stand for the same text and the same tiles, only the first is searched. Raises InputError for
    schedules of several families.
    """
    if not names:
        family = family_of(problem)
        return distinct((s for s in SCHEDULES.values() if s.family == family and applies(s, problem)), problem)
    chosen = find_all(names)
    for schedule in chosen:
        require(schedule, problem)
    check_family(chosen)
    return chosen


def published_in(space: list[Schedule], problem: Attention) -> list[PublishedTiles]:
    """Published tiles for the schedules that are searched and for this d."""
    names = {s.name for s in distinct(space, problem)}
    return [c for c in PUBLISHED if c.schedule in names and c.d in (None, problem.d)]


PAPER_M = (65_536, 98_304, 166_912, 232_448)  # SRAM that one block may use on a T4, V100, A100, H100, in bytes


@takes_options()
def curve(
    N: int,
    d: int,
    M: str | None = None,
    *,
    schedules: SchedulesAsked = (),
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    least_blocks: int = 1,
    **options: Unpack[ProblemOptions],
) -> Curve:
    """The least traffic against M, as in `iosim tune --curve`: a Curve. Its `steps` are all M at which the least
    traffic falls.

    With M, a range as `16KB:1MB`, they are those of the range, after the one that applies where it begins. The other
    arguments are those of `tune`. Of two `schedules` or more, `moves_less` says at which M each moves less than the
    others; there they may have tiles of their own, as `"flash1:paper,standard"`. Schedules whose best tiling is not
    known at every M are not searched; `left_out` names them. Raises InputError for whatever is not allowed.
    """
    sides = sides_of(schedules)
    problem = Attention(N, d, mask=parse_mask(mask), **options)  # type: ignore[misc]  # has no causal
    multiple = 1 if tile_multiple is None else parse_count(tile_multiple, "--tile-multiple")
    parse_count(least_blocks, "--least-blocks")
    within = None if M is None else parse_range(M, problem.word_bytes)
    found = curve_of(problem, [side.schedule for side in sides], multiple, least_blocks, options)
    found = replace(found, sides=tuple(sides))
    return found if within is None else replace(found, steps=steps_within(found.steps, *within), within=within)


def curve_of(
    problem: Attention,
    schedules: SchedulesAsked = (),
    tile_multiple: int = 1,
    least_blocks: int = 1,
    given: Collection[str] = (),
) -> Curve:
    """The least traffic of a problem against M; `given` names the options that are not searched."""
    asked = space_of(schedules, problem)
    problem = with_rule(problem, asked)
    space, own = searchable(asked, problem, least_blocks), {}
    for schedule in space:
        try:
            own[schedule.name] = [*free_steps(schedule, problem, tile_multiple, frozenset(given), least_blocks)]
        except InputError:
            stated = bool(schedule.candidates or schedule.sizes) and mask_matters(schedule, problem)
            if schedules or not stated or problem.mask.tile_units:
                raise  # otherwise it has too many pairs of tiles to count
    space = [s for s in space if s.name in own]
    steps = envelope(step for found in own.values() for step in found)
    published = []
    for choice in published_in(space, problem):
        for M in PAPER_M if choice.tiles == "paper" else (None,):
            result = run(find(choice.schedule), choice.tiles, choice.as_run(problem, gpu=False), M)
            needed = result.smem_peak_bytes
            published.append((choice, M, result, None if needed is None else step_at(steps, needed)))
    left_out = [s for s in asked if s not in space]
    return Curve(problem, space, left_out, steps, published, tile_multiple, least_blocks, own)
