"""The least traffic over schedules, loop orders and tiles that really fit, and how far published tiles are from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..counting.bounds import Bound, bounds
from ..counting.count import OPTIONS, Result, check_names, run
from ..errors import InputError
from ..masks import parse_mask
from ..schedules import SCHEDULES, Schedule, find, find_all, require
from ..schedules.registry import FA1, FA2
from ..units import parse_bytes, parse_count
from . import curve
from .thread_blocks import blocks


@dataclass(frozen=True)
class Choice:
    """Tiles that someone published: a rule or Br x Bc, for a schedule, and where they stand; for one `d` or for all."""

    label: str
    schedule: str
    tiles: str
    source: str
    d: int | None = None


TAKEN = ("N", "d", "M", "schedules", "tile_multiple", "mask", "least_blocks")  # beside fields of Attention
PAIRS = ("128x128", "128x64", "64x128", "64x64")
CUTLASS = "the kernel behind PyTorch's EFFICIENT_ATTENTION, as it ran on an H200"
PUBLISHED = (
    Choice("FlashAttention", "flash1", "paper", f"{FA1}, Algorithm 1, line 1"),
    Choice("FlashAttention, block-sparse", "block-sparse", "paper", f"{FA1}, Algorithm 5"),
    *(Choice("FlashAttention-2", "flash2", t, f"{FA2}, section 3.3: {{64, 128}} x {{64, 128}}") for t in PAIRS),
    *(Choice("FlashAttention-2", "block-sparse-q", t, f"{FA2}, section 3.3, tiles skipped") for t in PAIRS),
    Choice("memory-efficient", "memory-efficient", "64x64", CUTLASS, d=64),
    Choice("memory-efficient", "memory-efficient", "64x128", CUTLASS, d=128),
)


@dataclass(frozen=True)
class Found(Result):
    """A result with the options of the problem that were chosen for it, and its blocks (see tuning/thread_blocks.py).

    Where least blocks were asked for and nothing fits: the M in bytes from which on something does, or, where no tiling
    has so many, the most blocks there are."""

    options: dict[str, int] = field(default_factory=dict, hash=False)
    blocks: int | None = None
    needs_M_bytes: int | None = None
    most_blocks: int | None = None


@dataclass(frozen=True)
class Tuned:
    """What `tune` answers. `results` has the best of each schedule, least traffic first, what does not fit last.
    `left_out` are schedules whose best tiling with so many blocks is not known."""

    problem: Attention
    M_bytes: int
    bounds: list[Bound]
    results: list[Found]
    published: list[tuple[Choice, Found]]
    tile_multiple: int = 1
    least_blocks: int = 1
    left_out: tuple[str, ...] = ()

    @property
    def M_words(self) -> int:
        return self.M_bytes // self.problem.word_bytes

    @property
    def winner(self) -> Found | None:
        return self.results[0] if self.results and self.results[0].fits else None

    def ratio(self, result: Result) -> float | None:
        """Its bytes over the winner's."""
        best = self.winner
        if best is None or not best.total_bytes or result.total_bytes is None:
            return None
        return result.total_bytes / best.total_bytes


def tune(
    N: int, d: int, M: int | str, *, schedules: str | Sequence[str] = (), tile_multiple: int = 1, mask: Any = "dense",
    least_blocks: int = 1, **options: Any,
) -> Tuned:  # fmt: skip
    """Search every schedule of softmax attention for its least traffic in an SRAM of M bytes (`100KB`, `51200el`).

    The space: the schedules' own loop orders, all tile sizes that are multiples of `tile_multiple`, ragged last tiles
    included, the whole footprint inside M, and what a schedule lets choose (`splits`, `page_size`) unless it is given.
    Least is in bytes. `least_blocks`: only what gives a GPU so many thread blocks. Other options are the fields of
    `Attention`.
    """
    check_names("tune", options, OPTIONS, TAKEN)
    problem = Attention(N, d, mask=parse_mask(mask), **options)
    M_bytes = parse_bytes(M, problem.word_bytes)
    parse_count(tile_multiple, "--tile-multiple")
    parse_count(least_blocks, "--least-blocks")
    asked = space_of(schedules, problem)
    if any(curve.hidden(s, problem) and "ideal" not in s.rules for s in asked):
        curve.require_tokens(problem)
    space = asked if least_blocks == 1 else searchable(asked, problem, least_blocks)
    found = [best_of(s, problem, M_bytes, tile_multiple, options, least_blocks) for s in space]
    found.sort(key=lambda r: (not r.fits, r.total is None, r.total_bytes))
    least = min((r.total for r in found if r.fits and r.total is not None), default=None)
    published = [(c, counted(find(c.schedule), c.tiles, problem, M_bytes)) for c in published_in(space, problem)]
    proven = bounds(problem, M_bytes // problem.word_bytes, least, space[0].family if space else "attention")
    left_out = tuple(s.name for s in asked if s not in space)
    return Tuned(problem, M_bytes, proven, found, published, tile_multiple, least_blocks, left_out)


def best_of(
    schedule: Schedule, problem: Attention, M_bytes: int, multiple: int, given: Iterable[str], least_blocks: int
) -> Found:
    """The least of one schedule over its tiles and over what may be chosen. Without a number of blocks the first value
    of each option is best (see `Schedule.chosen`), else all of them are compared."""
    rule = "ideal" if "ideal" in schedule.rules else "best"
    if least_blocks == 1:
        options = next(curve.choices(schedule, problem.packed, multiple, given))
        return counted(schedule, rule, problem, M_bytes, multiple, options)
    steps = curve.free_steps(schedule, problem, multiple, given, least_blocks)
    if not steps:
        most = curve.most_blocks(schedule, problem, multiple, given)
        return Found(schedule.name, rule, fits=False, most_blocks=most)
    step = curve.least(steps, M_bytes)
    if step is None:
        return Found(schedule.name, rule, fits=False, needs_M_bytes=steps[0].M_bytes)
    step = curve.widened(schedule, problem, step, M_bytes, multiple)
    tiles = rule if step.Br is None else f"{step.Br}x{step.Bc}"
    return replace(counted(schedule, tiles, problem, M_bytes, multiple, step.options), tiling=rule)


def counted(
    schedule: Schedule, rule: str, problem: Attention, M_bytes: int, multiple: int = 1, options: Any = None
) -> Found:
    """One run, with its blocks."""
    problem = replace(problem, **(options or {}))
    result = run(schedule, rule, problem, M_bytes, multiple)
    if result.total is None:
        return Found(**vars(result))
    sizes = (result.Br or 1, result.Bc or 1)
    tiling = Tiling(*sizes, **result.more_tiles)
    return Found(**vars(result), options=options or {}, blocks=blocks(schedule, problem, tiling))


def searchable(asked: list[Schedule], problem: Attention, least_blocks: int) -> list[Schedule]:
    """The schedules whose least traffic is known at every M, and with so many blocks."""
    space = [s for s in asked if curve.exact(s, problem, least_blocks)]
    if not space:
        option = "--curve" if least_blocks == 1 else "--least-blocks"
        raise InputError("--schedule", ", ".join(s.name for s in asked), "a schedule whose candidates are known",
                         f"leave out {option}")  # fmt: skip
    return space


def space_of(names: str | Sequence[str], problem: Attention) -> list[Schedule]:
    """The schedules asked for, or all of softmax attention that are about this problem. Without a mask a schedule that
    differs from another one only in that it skips tiles is the same, and stands once."""
    if not names:
        space = [s for s in SCHEDULES.values() if s.family == "attention" and s.about(problem) == problem]
        if problem.mask is not DENSE:
            return space
        first: dict[Any, Schedule] = {}
        for schedule in space:
            first.setdefault(schedule.text, schedule)
        return list(first.values())
    chosen = find_all(names)
    for schedule in chosen:
        require(schedule, problem)
    if len({s.family for s in chosen}) > 1:
        families = ", ".join(f"{s.name} ({s.family})" for s in chosen)
        raise InputError("--schedule", families, "schedules of one family, since others compute something else")
    return chosen


def published_in(space: list[Schedule], problem: Attention) -> list[Choice]:
    """Published choices for the schedules that are searched and for this head dimension."""
    names = {s.name for s in space}
    return [c for c in PUBLISHED if c.schedule in names and c.d in (None, problem.d)]


@dataclass(frozen=True)
class Curve:
    """What `tune --curve` answers: the steps of the least traffic, and what is published, each at the M it needs.

    `published` has (choice, M in bytes that its rule was given or None, what it moves, the least at the M it needs).
    """

    problem: Attention
    space: list[Schedule]
    left_out: list[Schedule]
    steps: list[curve.Step]
    published: list[tuple[Choice, int | None, Result, curve.Step | None]]
    tile_multiple: int = 1
    least_blocks: int = 1
    own: dict[str, list[curve.Step]] = field(default_factory=dict, hash=False)  # the steps of each schedule


PAPER_M = (65_536, 98_304, 166_912, 232_448)  # what one block may use of a T4, V100, A100, H100, in bytes


def trace_curve(
    N: int, d: int, *, schedules: str | Sequence[str] = (), tile_multiple: int = 1, mask: Any = "dense",
    least_blocks: int = 1, **options: Any,
) -> Curve:  # fmt: skip
    """The least traffic against M: every M in bytes at which it falls, from the first that holds any tiles.

    A schedule with a search of its own and no candidates is not in the space; `left_out` names it.
    """
    check_names("trace_curve", options, OPTIONS, TAKEN)
    problem = Attention(N, d, mask=parse_mask(mask), **options)
    parse_count(tile_multiple, "--tile-multiple")
    parse_count(least_blocks, "--least-blocks")
    asked = space_of(schedules, problem)
    space = searchable(asked, problem, least_blocks)
    own = {s.name: curve.free_steps(s, problem, tile_multiple, options, least_blocks) for s in space}
    steps = curve.envelope(step for found in own.values() for step in found)
    published = []
    for choice in published_in(space, problem):
        for M in PAPER_M if choice.tiles == "paper" else (None,):
            result = run(find(choice.schedule), choice.tiles, problem, M)
            needed = result.sram_peak_bytes
            published.append((choice, M, result, None if needed is None else curve.least(steps, needed)))
    left_out = [s for s in asked if s not in space]
    return Curve(problem, space, left_out, steps, published, tile_multiple, least_blocks, own)
