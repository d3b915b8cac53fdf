"""The least M for a goal, as `iosim tune --at-most` and `--x-floor` answer it: the curve of least traffic backwards.

The least bytes fall with M, so the first step of the curve that moves few enough is at the least M. What is proven
below it follows from the floor: what runs in some M runs in a larger one too. So a floor above the goal at one M
excludes every smaller M. The ratio to the floor rises inside a step and falls between two, so a goal for it holds in
stretches of M.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Unpack, cast

from ..answer import Answer, Column, Columns, Pieces, Row, Table
from ..core.arrays import last_true
from ..core.problem import Attention
from ..counting.asked import asked
from ..counting.bounds import CLASSES, FLOORS, no_exact, none_of_class
from ..counting.columns import flags, problem_row
from ..counting.conditions import conditions
from ..counting.floors import held_words, in_narrowest
from ..counting.names import takes_options
from ..counting.result import tiles_legend, tiles_said
from ..errors import InputError
from ..hardware import Hardware, load
from ..masks import parse_mask
from ..options import flag_of
from ..tables import at_most as not_below
from ..units import binary, format_bytes, parse_bytes, parse_count, parse_factor
from .best import dominated, lines_on_dominated, space_json
from .curve import CurveStep, step_at
from .every_M import OF_SCHEDULE, STEP, Curve, problem_line, size_of, step_row
from .least import curve_of
from .where import Where, where

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..schedules import Schedule
    from ..schedules.registry import SchedulesAsked

GOALS = ("at_most", "x_floor")
MOST_STRETCHES = 10  # that people see


@takes_options()
def least_M(
    N: int,
    d: int,
    *,
    at_most: int | str | None = None,
    x_floor: float | str | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    least_blocks: int = 1,
    **options: Unpack[ProblemOptions],
) -> AtMost | WithinFloor:
    """The least M for one of two goals, exact to the byte: an AtMost or a WithinFloor.

    - `at_most`: the bytes that are moved over all heads, as `64MiB`.
    - `x_floor`: the words that are moved over the floor, as 1.2.
    - `hardware`: a GPU whose SRAM is compared with that M, with the conditions that `count` names.
    - Other arguments are those of `curve`.

    Raises InputError for whatever is not allowed.
    """
    check_goal([name for name, goal in zip(GOALS, (at_most, x_floor), strict=True) if goal is not None])
    under = conditions(hardware, options, tile_multiple, paper_model)
    problem = Attention(N, d, mask=parse_mask(mask), **under.options)
    parse_count(least_blocks, "--least-blocks")
    chip = None if hardware is None else load(hardware)
    found = curve_of(problem, schedules, under.multiple, least_blocks, options)
    if x_floor is not None:
        check_floor(found.space[0])
        return WithinFloor(found, chip, under.notes, parse_factor(x_floor, "--x-floor"))
    return AtMost(found, chip, under.notes, parse_bytes(at_most or 0, problem.word_bytes, "--at-most"), bool(schedules))


def check_goal(goals: Sequence[str], others: Mapping[str, object] | None = None) -> None:
    """Raise InputError unless there is one goal, for two goals, and for `others` (values by option) beside it."""
    if not goals:
        raise InputError("--at-most", "nothing", "a size as in 64MiB", "or give --x-floor 1.2")
    flags = [flag_of(name) for name in goals]
    beside = [*flags[1:], *(option for option, value in (others or {}).items() if value is not None)]
    if beside:
        raise InputError(beside[0], f"with {flags[0]}", f"{flags[0]} alone, which asks for an M", "leave out one")


def check_floor(schedule: Schedule) -> None:
    """Raise InputError for a schedule of a family without a floor for each M."""
    if schedule.family not in FLOORS:
        found, allowed = f"{schedule.name} ({schedule.family})", f"of a family with a floor: {', '.join(FLOORS)}"
        raise InputError("--schedule", found, f"with --x-floor a schedule {allowed}", "or ask for --at-most 64MiB")


# ---------------------------------------------------------------- what both answers have


@dataclass(frozen=True, repr=False)
class LeastM(Answer):
    """The least M for a goal. `chip` is a GPU whose SRAM is compared with it, and `every` row is shown, or some.
    `implied` are the notes on what a GPU implies."""

    curve: Curve
    chip: Hardware | None
    implied: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what a GPU implies."""
        return self.implied

    @property
    def problem(self) -> Attention:
        """The problem that was asked about."""
        return self.curve.problem

    @property
    def family(self) -> str:
        """The family of the schedules that were searched."""
        return self.curve.space[0].family

    @property
    def backward(self) -> bool:
        """Whether gradients are computed."""
        return self.family == "backward"

    @property
    def lines(self) -> list[str]:
        """The sentences of the answer."""
        raise NotImplementedError

    def floor_words(self, M_words: int | None) -> int:
        """The floor in words for an SRAM of so many words; without any, the compulsory words."""
        return FLOORS[self.family](self.problem, M_words).words

    def floor_at(self, M_bytes: int) -> int:
        """The floor in words at an M in bytes."""
        return self.floor_words(held_words(self.problem, M_bytes))

    def row(self, step: CurveStep) -> Row:
        """A step of the curve as a row."""
        return step_row(self.problem, step, self.family)

    def head(self) -> list[str]:
        """The lines above the table: the answer, the problem, and the schedules that were not searched."""
        left_out = ", ".join(schedule.name for schedule in self.curve.left_out)
        beyond = [f"not searched: {left_out}"] if left_out else []
        return [*self.lines, problem_line(self.problem), *beyond, ""]

    def shared_json(self) -> Row:
        """The keys of the JSON that both answers have."""
        names, left_out = [s.name for s in self.curve.space], [s.name for s in self.curve.left_out]
        return {
            "problem": problem_row(self.problem),
            "space": space_json(names, left_out, self.curve.tile_multiple, self.curve.least_blocks),
            "class": CLASSES.get(self.family),
            "answer": " ".join(self.lines),
            "notes": self.notes,
        }

    def chip_json(self, fits: bool) -> Row:
        """The named GPU as a key of the JSON, if there is one. `fits` says whether the goal is reached in its SRAM."""
        if self.chip is None:
            return {}
        return {"hardware": {"name": self.chip.name, "M_bytes": self.chip.sram_bytes, "fits": fits}}

    def of_chip(self) -> str:
        """The SRAM of the named GPU in words: `H100-SXM has 232448 B (227 KiB) for a thread block`."""
        assert self.chip is not None
        return f"{self.chip.name} has {format_bytes(self.chip.sram_bytes)} for a thread block"


def chosen(step: CurveStep) -> str:
    """A step by its schedule, tiles and chosen options: `flash2 (196x1)`."""
    tiles = (tiles_said(step) + flags(step.options)).strip()
    return step.schedule + (f" ({tiles.replace(' (', ', ').rstrip(')')})" if tiles else "")


# ---------------------------------------------------------------- at most so many bytes


@dataclass(frozen=True, repr=False)
class AtMost(LeastM):
    """The least M at which some schedule moves at most `most_bytes`. `named` says whether the schedules were named."""

    most_bytes: int
    named: bool = False
    every: bool = False

    @property
    def step(self) -> CurveStep | None:
        """The step of the curve at that M; None if no schedule moves so little at any M."""
        return first_step(self.curve.steps, self.most_bytes)

    @property
    def M_bytes(self) -> int | None:
        """That M in bytes; None if there is none."""
        return None if self.step is None else self.step.M_bytes

    @property
    def impossible(self) -> bool:
        """Whether the compulsory words alone are more than the goal, so that no algorithm of the class reaches it."""
        return self.family in FLOORS and self.above(None)

    @cached_property
    def none_below(self) -> int | None:
        """The M in bytes below which no algorithm of the class reaches the goal; None if nothing is proven."""
        if self.family not in FLOORS or self.impossible:
            return None
        most = 1
        while self.above(most):
            most *= 2
        words = int(last_true(self.above, most)) + 1
        M_bytes = in_narrowest(self.problem, words) - self.problem.register_bytes
        return M_bytes if words > 1 and M_bytes > 1 else None

    def above(self, M_words: int | None) -> bool:
        """Whether the floor for an SRAM of so many words is above the goal, if each word has the narrowest type."""
        return in_narrowest(self.problem, self.floor_words(M_words)) > self.most_bytes

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each schedule: its least M, or the least that it moves at any M. By rising M."""
        steps = {name: first_step(own, self.most_bytes) for name, own in self.curve.own.items() if own}
        costs = {name: inf if step is None else step.M_bytes for name, step in steps.items()}
        options = {name: step.options if step else {} for name, step in steps.items()}
        hidden = {} if self.named else dominated(costs, options)
        return [
            {**self.reached(name, steps[name]), "dominated_by": hidden.get(name)}
            for name in sorted(costs, key=lambda name: (costs[name], self.curve.own[name][-1].total_bytes))
        ]

    def reached(self, name: str, step: CurveStep | None) -> Row:
        """The row of one schedule."""
        if step is not None:
            return {**self.row(step), "ratio_to_least_M": step.M_bytes / (self.M_bytes or 1)}
        never = dict.fromkeys(("M_bytes", "M_words", "floor_words", "ratio_to_floor", "ratio_to_least_M"))
        return {**self.row(self.curve.own[name][-1]), **never, "from_M": "never", "chosen": None}

    def table(self) -> Table:
        return Table([*REACHED, *filled(self.rows)], self.rows)

    def pieces(self) -> Pieces:
        seen = [row for row in self.rows if self.every or not row["dominated_by"]]
        hidden = {str(row["schedule"]): str(row["dominated_by"]) for row in self.rows if row["dominated_by"]}
        left_out = [] if self.every else lines_on_dominated(hidden, "need no less M than")
        return [*self.head(), Table(REACHED, seen), *left_out]

    @property
    def lines(self) -> list[str]:
        goal, step = format_bytes(self.most_bytes), self.step
        if self.impossible:
            least = format_bytes(in_narrowest(self.problem, self.floor_words(None)))
            return [f"{no_exact(self.backward)} moves at most {goal}, at any M: it moves {least} or more."]
        if step is None:
            last = self.curve.steps[-1] if self.curve.steps else None
            why = f"the least is {format_bytes(last.total_bytes)}, by {chosen(last)}" if last else "nothing fits"
            return [f"No schedule here moves at most {goal}, at any M: {why}.", *self.proven()]
        found = f"{size_of(self.problem, step.M_bytes)}: {chosen(step)} moves {format_bytes(step.total_bytes)} there."
        return [f"The least M for at most {goal} is {found}", *self.proven(), *self.on_chip()]

    def proven(self) -> list[str]:
        """The sentence on what the floor proves of a smaller M."""
        if self.none_below is None:
            return [] if self.M_bytes is None else ["No floor proves anything about a smaller M."]
        below = "with less" if self.none_below == self.M_bytes else f"below M = {format_bytes(self.none_below)}"
        return [f"{none_of_class(self.backward)} does so {below}: the floor proves it."]

    def on_chip(self) -> list[str]:
        """The sentence on the SRAM of the named GPU."""
        if self.chip is None:
            return []
        there = step_at(self.curve.steps, self.chip.sram_bytes)
        if there is not None and there.total_bytes <= self.most_bytes:
            return [f"{self.of_chip()}: enough."]
        least = f"the least there is {format_bytes(there.total_bytes)}, by {chosen(there)}" if there else "nothing fits"
        return [f"{self.of_chip()}: too little; {least}."]

    def to_dict(self) -> Row:
        winner = next((row for row in self.table() if self.step and row["schedule"] == self.step.schedule), None)
        fits = self.chip is not None and self.M_bytes is not None and self.M_bytes <= self.chip.sram_bytes
        return {
            **self.shared_json(),
            "at_most_bytes": self.most_bytes,
            "M_bytes": self.M_bytes,
            "M_words": None if winner is None else winner["M_words"],
            "none_below_M_bytes": self.none_below,
            "impossible": self.impossible,
            "winner": winner,
            "results": self.to_rows(),
            **self.chip_json(fits),
        }

    def summary(self) -> str:
        found = "none" if self.M_bytes is None else format_bytes(self.M_bytes)
        return f"{asked(self.problem)}, at most {binary(self.most_bytes)}; least M: {found}"


def first_step(steps: Sequence[CurveStep], most_bytes: int) -> CurveStep | None:
    """The step of an envelope at the least M at which at most so many bytes move; None if there is none."""
    return next((step for step in steps if step.total_bytes <= most_bytes), None)


# ---------------------------------------------------------------- within a factor of the floor


@dataclass(frozen=True, repr=False)
class WithinFloor(LeastM):
    """The M at which the least traffic is within a factor of the floor of that M."""

    factor: Fraction
    every: bool = False

    @cached_property
    def most(self) -> int:
        """An M in bytes beyond which nothing changes: the traffic does not fall, and the floor is compulsory."""
        most, least = self.curve.steps[-1].M_bytes, self.floor_words(None)
        while self.floor_at(most) > least:
            most *= 2
        return most

    @cached_property
    def where(self) -> Where:
        """The M in bytes at which it is so. Both the traffic and the floor fall with M."""

        steps = self.curve.steps

        def within(low: int, high: int) -> bool | None:
            first, last = step_at(steps, low), step_at(steps, high)
            if last is None or last.total > self.factor * self.floor_at(max(low, steps[0].M_bytes)):
                return False
            return True if first and first.total <= self.factor * self.floor_at(high) else None

        return where(within, self.most if steps else 1)

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each stretch, with the step of the curve where it begins."""
        found: list[Row] = []
        for part in self.where.stretches:
            step, row = step_at(self.curve.steps, part.whole.first), self.where.row(part)
            last = row["to_M_bytes"]
            assert step is not None
            found.append({**self.row(step), **row, "to_M": "no end" if last is None else format_bytes(part.whole.last)})
        return found

    def table(self) -> Table:
        return Table([*STRETCH, *filled(self.rows)], self.rows)

    def pieces(self) -> Pieces:
        seen = self.rows if self.every else self.rows[:MOST_STRETCHES]
        some = f"{len(seen)} of {len(self.rows)} stretches, those of most doublings of M first; --all shows every one"
        steps = [step_at(self.curve.steps, cast("int", row["from_M_bytes"])) for row in seen]
        below = [*tiles_legend(filter(None, steps)), *([some] if len(seen) < len(self.rows) else [])]
        return [*self.head(), Table(STRETCH, seen), *below, *self.meaning()]

    def meaning(self) -> list[str]:
        """The lines on the floor, and on an SRAM that holds no row of Q."""
        row = self.problem.d * self.problem.word_bytes
        small = f"an M below {format_bytes(row)} holds less than one row of Q; --curve begins there"
        below = bool(self.where.places) and self.where.places[0].first < row
        return [f"floor: {none_of_class(self.backward).replace('No', 'no', 1)} moves less", *[small] * below]

    @property
    def lines(self) -> list[str]:
        goal = f"within a factor of {float(self.factor):g} of the floor"
        if not self.where.places:
            return [f"The least traffic is {goal} at no M{self.nearest()}."]
        first, always = self.where.places[0].first, self.where.always_from
        if first == always:
            return [f"The least traffic is {goal} from M = {size_of(self.problem, first)} on.", *self.on_chip()]
        ends = f"from M = {format_bytes(always)} on" if always else "but not at every large M"
        lead = f"The least traffic is {goal} {ends}, and at no M below {format_bytes(first)}."
        text = self.where.text(lambda M: size_of(self.problem, M))
        return [lead, *[f"Its longest range is {text}."] * (len(self.where.places) > 1), *self.on_chip()]

    def nearest(self) -> str:
        """The clause on the M at which the ratio is least."""
        floors = [(step, self.floor_at(step.M_bytes)) for step in self.curve.steps]
        ratios = {step.total / floor: step for step, floor in floors if floor}
        if not ratios:
            return ": the floor is 0 words, as no query sees a key" if floors else ": nothing fits"
        least = min(ratios)
        return f": the nearest is a factor of {least:.4g}, at M = {format_bytes(ratios[least].M_bytes)}"

    def on_chip(self) -> list[str]:
        """The sentence on the SRAM of the named GPU."""
        if self.chip is None:
            return []
        there = step_at(self.curve.steps, self.chip.sram_bytes)
        if there is None:
            return [f"{self.of_chip()}: nothing fits."]
        floor = self.floor_at(self.chip.sram_bytes)
        share = (
            f"is within a factor of {not_below(there.total / floor)} of the floor" if floor else "has no floor above 0"
        )
        return [f"{self.of_chip()}: the least there, by {chosen(there)}, {share}."]

    def to_dict(self) -> Row:
        sram, found = 0 if self.chip is None else self.chip.sram_bytes, self.where
        inside = any(one.first <= sram <= (found.end_of(one) or sram) for one in found.places)
        return {
            **self.shared_json(),
            "x_floor": float(self.factor),
            **found.longest_row(),
            "always_from_M_bytes": found.always_from,
            "first_M_bytes": found.places[0].first if found.places else None,
            "stretches": self.to_rows(),
            "intervals": found.rows(),
            **self.chip_json(inside),
        }

    def summary(self) -> str:
        first = f"from M = {format_bytes(self.where.stretches[0].whole.first)}" if self.where.places else "at no M"
        return f"{asked(self.problem)}, within {float(self.factor):g} of the floor; {first}"


# ---------------------------------------------------------------- columns

SEEN = {column.name: column for column in (*STEP, *OF_SCHEDULE)}
MOVED = (replace(SEEN["total"], spare=1), replace(SEEN["total_bytes"], spare=0))
DOMINATED: Column[Row] = Column("dominated_by", "string")
OVER_FLOOR = (SEEN["floor_words"], SEEN["ratio_to_floor"])
REACHED: Columns[Row] = (
    SEEN["schedule"],
    SEEN["Br"],
    SEEN["Bc"],
    SEEN["chosen"],
    Column("from_M", None, "least M"),
    SEEN["M_bytes"],
    SEEN["M_words"],
    Column("ratio_to_least_M", "number", "x least M", ".3f", 2),
    *MOVED,
    *OVER_FLOOR,
    DOMINATED,
)
STRETCH: Columns[Row] = (
    SEEN["from_M"],
    Column("to_M", None, "to M"),
    Column("from_M_bytes"),
    Column("to_M_bytes"),
    Column("gaps", heading="gaps"),
    *(SEEN[name] for name in ("schedule", "Br", "Bc", "chosen")),
    *MOVED,
    *OVER_FLOOR,
)


def filled(rows: Sequence[Row]) -> list[Column[Row]]:
    """The columns of options and further tile sizes that some row fills."""
    return [column for column in OF_SCHEDULE if any(row.get(column.name) for row in rows)]
