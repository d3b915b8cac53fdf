"""The count of one schedule with one tiling: its tiles, what one walk counts, and the frozen result."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ..core.folded import Folded
from ..core.problem import DENSE, Attention, as_moved, skips_tiles
from ..core.tiling import S, Tiling, allowed_sizes, further_sizes, paper_tiles, rule_name, tiles_text
from ..core.watchers import Capacity, Flops, Traffic
from ..errors import InputError
from ..schedules import SCHEDULES, Schedule, require
from ..search.best import best_tiles, footprint, footprint_of
from ..timing.products import SharedReads, unit_of
from .bounds import APART, floor_of, order_words
from .result import Result

if TYPE_CHECKING:
    from ..core.tiling import Rule
    from ..core.typing import Size
    from ..hardware import Hardware
    from ..timing.bound import TimeBound
    from ..timing.products import MatrixUnit
    from .typing import Counted

    Words = dict[str, tuple[Size, Size]]  # {tensor: (words read, words written)}, of one head

TILE_RULES = ("paper", "best")


def rules_of(schedule: Schedule, tiles: Rule | None, problem: Attention) -> tuple[Rule, ...]:
    """The tile rules of a schedule, or the tiles that are asked for. An ideal schedule has no tiles to choose."""
    if "ideal" in schedule.rules:
        return ("ideal",)
    if tiles == "ideal":
        raise InputError("--tiles", tiles, f"paper, best, or Br x Bc as in 128x64 with --schedule {schedule.name}")
    if tiles is not None:
        return (tiles,)
    if skips_tiles(schedule, problem) and problem.mask.tile_units:  # tiles change the mask, so there are no best ones
        return ("paper",)
    return schedule.rules


def choose_tiling(
    schedule: Schedule, rule: Rule, problem: Attention, M_bytes: int | None, multiple: int, chip: Hardware | None = None
) -> Tiling | None:
    """The tiling of a rule; None if nothing fits. On a chip the best tiles are those of least time. Raises InputError
    for given sizes that the schedule lacks."""
    if rule == "ideal":
        return Tiling(1, 1)
    if isinstance(rule, Tiling):
        check_sizes(schedule, rule)
        check_named(schedule, rule, problem)
        return rule
    if (named := named_tiles(schedule, rule, problem, M_bytes)) is not None:
        return named
    assert M_bytes is not None
    if rule == "best" and chip is not None:
        from ..timing.tiles import fastest_tiles

        found = fastest_tiles(schedule, problem, chip, M_bytes, multiple)
        return None if found is None else found.tiling
    if rule == "best":
        return best_tiles(schedule, problem, M_bytes, multiple)
    M_words = M_bytes // problem.word_bytes
    return paper_tiles(problem, M_words) if M_words else None


def check_named(schedule: Schedule, rule: Tiling, problem: Attention) -> None:
    """Raise InputError for tiles of other rows than --chunk says, where it is given too."""
    chunk = dict(problem.own).get("chunk")
    if chunk and schedule.reads("chunk") and chunk != rule.rows_q:
        raise InputError("--tiles", f"{rule.rows_q} rows", f"{chunk}, as --chunk says", "leave out one of the two")


def named_tiles(schedule: Schedule, rule: Rule, problem: Attention, M_bytes: object) -> Tiling | None:
    """The tiles that options of the problem name where the best are asked for; None if they name none."""
    return schedule.named_tiles(problem, M_bytes is not None) if rule == "best" else None


def needs_memory(schedule: Schedule, rule: Rule | None, problem: Attention) -> bool:
    """Whether a tile rule of a schedule needs M; None stands for its own rules."""
    rules = schedule.rules if rule is None else (rule,)
    return any(one in TILE_RULES and named_tiles(schedule, one, problem, None) is None for one in rules)


def check_sizes(schedule: Schedule, tiling: Tiling) -> None:
    """Raise InputError for tiles with sizes that a schedule lacks."""
    if not further_sizes(tiling).keys() <= set(schedule.more_tiles):
        raise InputError("--tiles", tiles_text(tiling), allowed_sizes(schedule.more_tiles))


def one_tiling(
    schedule: Schedule,
    tiles: Rule | None,
    which: int,
    p: Attention,
    M_bytes: int | None,
    multiple: int = 1,
    chip: Hardware | None = None,
) -> Tiling:
    """The tiles of one run: those asked for, else those of the schedule's first (0) or last (-1) rule.

    Raises InputError if they need M and it is not given, or if nothing fits.
    """
    rule = rules_of(schedule, tiles, p)[which]
    if M_bytes is None and needs_memory(schedule, rule, p):
        raise InputError("--tiles", str(tiles or "nothing"), "Br x Bc as in 64x64", f"or give --M for {rule} tiles")
    tiling = choose_tiling(schedule, rule, p.packed, M_bytes, multiple, chip)
    if tiling is None:
        raise InputError("--M", str(M_bytes), "an SRAM in which some tile fits", "give --tiles as 64x64")
    return tiling


def counted_tiling(result: Result) -> Tiling:
    """The tiles of a result that has any; Tiling(1, 1) if its schedule chooses none."""
    if result.Br is None or result.Bc is None:
        return Tiling(1, 1)
    return Tiling(result.Br, result.Bc, **result.more_tiles)


def run(
    schedule: Schedule,
    rule: Rule,
    problem: Attention,
    M_bytes: int | None,
    multiple: int = 1,
    chip: Hardware | None = None,
) -> Result:
    """The count of one schedule with one tile rule. Without M the floor of given tiles is that of an SRAM with
    room for them. On a chip it has a least time, and its accumulators and scores are in registers, unless its tiles are
    those of a paper; its floor is that of M and the registers together, whatever its tiles."""
    require(schedule, problem)
    label = rule_name(named_tiles(schedule, rule, problem, M_bytes) or rule)
    tiling = choose_tiling(schedule, rule, problem.packed, M_bytes, multiple, chip)
    if tiling is None:
        return Result(schedule.name, label, fits=False)
    together = problem
    if chip is not None:
        from ..timing.tiles import on_chip

        together = on_chip(problem, chip, stages=1)
        problem = together if label in ("best", "given") else problem
    packed = problem.packed
    counted = measure(schedule, packed, tiling)
    room = counted["smem_peak_bytes"] if M_bytes is None and label == "given" else M_bytes
    M_words = None if room is None else int(problem.on_chip_words(room))
    apart = schedule.family in APART
    standard = None if apart else total_of_ideal(SCHEDULES["standard"], with_plain_keys(problem))
    fits = None if M_bytes is None else counted["smem_peak_bytes"] <= M_bytes
    adds = sum(counted["tensors"][name]["reads"] for name in schedule.adds if name in counted["tensors"])
    once = counted["total"] - adds
    least = None if fits is False else floor_of(together, room, schedule.family, tiling.rows_q)
    found = Result(
        schedule=schedule.name,
        tiling=label,
        Br=None if label == "ideal" else tiling.rows_q,
        Bc=None if label == "ideal" else tiling.rows_k,
        more_tiles={name: size for name in schedule.more_tiles if (size := getattr(tiling, name)) is not None},
        fits=fits,
        limit=limit_of(fits, counted["least_smem_bytes"], M_bytes),
        flops_per_byte=counted["flops"] / counted["total_bytes"] if counted["total_bytes"] else None,
        ratio_to_order=counted["total"] / order_words(problem, M_words) if M_words and not apart else None,
        ratio_to_standard=counted["total"] / standard if standard else None,
        ratio_to_floor=counted["total"] / least if least else None,
        adds=adds,
        total_with_adds=once,
        ratio_to_floor_with_adds=once / least if least else None,
        **counted,
    )
    if chip is None:
        return found
    from ..timing.bound import time_at_least
    from .full_card import full_card_floor

    bound, full = time_at_least(schedule, packed, tiling, chip), least
    if fits is not False and schedule.family != "state":
        full = full_card_floor(problem, M_bytes, chip, schedule.name) if bound.blocks >= chip.sms else None
    return with_time(found, bound, full)


def with_time(result: Result, bound: TimeBound, full: int | None = None) -> Result:
    """A result with its least time on a chip, what binds, its thread blocks, what matrix units read there, and its
    words beside those that a full card needs."""
    return replace(
        result,
        ratio_to_full_card=result.total / full if full and result.total else result.ratio_to_full_card,
        at_least_seconds=bound.seconds,
        binds=bound.binds,
        blocks=None if result.tiling == "ideal" else bound.blocks,
        smem_read_words=None if result.tiling == "ideal" else bound.work.smem_read_words,
    )


def limit_of(fits: bool | None, least_smem_bytes: int, M_bytes: int | None) -> str | None:
    """The resource that is too small for tiles that do not fit, as in `Result.limit`; None if they fit."""
    if fits is not False or M_bytes is None:
        return None
    return "registers" if least_smem_bytes <= M_bytes else "shared memory"


@lru_cache(maxsize=16)
def total_of_ideal(schedule: Schedule, problem: Attention) -> int:
    """The words that a schedule without tiles moves; the same number is needed for each result of a problem."""
    return measure(schedule, problem, Tiling(1, 1))["total"]


def with_plain_keys(problem: Attention[S]) -> Attention[S]:
    """The problem with K and V of the type of Q and without scales, for schedules that cannot read others."""
    plain = problem.kv_scales == "none"
    return problem if plain else replace(problem, kv_scales="none", scale_dtype="fp32", kv_dtype=None)


def measure(schedule: Schedule, problem: Attention[S], tiling: Tiling[S], unit: MatrixUnit | None = None) -> Counted[S]:
    """The traffic, FLOPs and footprint that one walk counts, over all heads. Sizes may be arrays. Products read shared
    memory as `unit` does; without it as wgmma."""
    problem = as_moved(schedule, problem)
    traffic, flops, room, shared = Traffic(), Flops(), Capacity(), SharedReads(unit or unit_of(None, problem.dtype))
    dense = problem.mask is DENSE
    machine = Folded(problem, traffic, flops, shared, *([room] if dense else [])).run(schedule, tiling)
    need = footprint_of(room) if dense and not problem.divided else footprint(schedule, problem, tiling)
    tensors, n = with_initial_writes(traffic.tensors, schedule, problem, machine), problem.instances
    reads = n * sum(r for r, _ in tensors.values())
    writes = n * sum(w for _, w in tensors.values())
    read_bytes = n * sum(problem.in_bytes(machine.tensors[name], r) for name, (r, _) in tensors.items())
    write_bytes = n * sum(problem.in_bytes(machine.tensors[name], w) for name, (_, w) in tensors.items())
    counted = {
        "sram_peak_words": need.peak_words,
        "sram_peak_bytes": need.peak_bytes,
        "smem_peak_bytes": need.smem_bytes,
        "register_peak_bytes": need.register_bytes,
        "least_smem_bytes": need.least_smem_bytes,
        "reads": reads,
        "writes": writes,
        "total": reads + writes,
        "read_bytes": read_bytes,
        "write_bytes": write_bytes,
        "total_bytes": read_bytes + write_bytes,
        "flops": n * flops.total,
        "smem_read_words": None if "ideal" in schedule.rules else n * shared.total,
        "tensors": {name: {"reads": n * r, "writes": n * w} for name, (r, w) in tensors.items()},
        "steps": [{"reads": n * r, "writes": n * w} for r, w in traffic.launches],
    }
    return cast("Counted[S]", counted)


def with_initial_writes(tensors: Words, schedule: Schedule, problem: Attention[S], machine: Folded) -> Words:
    """The words of each tensor. If the problem counts them (`count_init`), they include the writes that fill tensors
    before the schedule starts."""
    found = dict(tensors)
    for name in schedule.initialised if problem.count_init else ():
        reads, writes = found.get(name, (0, 0))
        words: Size = 1
        for length in problem.shape(machine.tensors[name]):
            words = words * length
        found[name] = (reads, writes + words)
    return found
