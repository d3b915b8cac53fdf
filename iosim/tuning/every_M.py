"""The least traffic at every M, or in a range of M: the answer of `curve`, and where it is farthest above the floor.

The least traffic is a staircase, and the floor falls with M. So the gap of a step is largest at its last byte of M.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING

from ..answer import Answer, Column, Columns, Pieces, Row, Table, in_order, numbered, rounded
from ..counting.asked import asked, size_line
from ..counting.bounds import bounds, floor_of
from ..counting.columns import flags, problem_row
from ..counting.notes import mask_notes
from ..counting.result import Result, more_sizes, tile_sizes, tiles_legend
from ..units import binary, format_bytes
from .best import space_json
from .curve import CurveStep
from .sides import MovesLess, Side, lead_of, over_M, table_of

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..counting.published import PublishedTiles
    from ..schedules import Schedule

KIB = 1024
MOST_ROWS, FALL = 40, 0.8  # a longer table shows a row where the traffic is at most FALL times that of the row above
STRETCHES = {  # ranges of M in words; the best loop order changes at about 0.17 d^2 and at d^2
    "from d to d^2/2 words": (lambda d: d, lambda d: d * d / 2),
    "from d^2/2 to 4 d^2 words": (lambda d: d * d / 2, lambda d: 4 * d * d),
    "above 4 d^2 words": (lambda d: 4 * d * d, lambda d: inf),
}


@dataclass(frozen=True)
class Gap:
    """The least traffic beside the floor at one M: `words` moved by `schedule`, and the floor in words."""

    M_bytes: int
    schedule: str
    words: int
    floor_words: int

    @property
    def ratio(self) -> float:
        """The words moved over the floor."""
        return self.words / self.floor_words


@dataclass(frozen=True, repr=False)
class Curve(Answer):
    """The answer of `curve`: the steps of the least traffic, and published tiles at the M that they need.

    Each entry of `published` has four parts: the tiles, the M in bytes that their rule was given (or None), their
    result, and the step of the least traffic at the M that they need. `own` has the steps of each schedule. `within`
    are the first and the last M asked for, in bytes; None for every M. `sides` are the schedules that were named, with
    their tiles. The table for people shows `every` row, or some.
    """

    problem: Attention
    space: list[Schedule]
    left_out: list[Schedule]
    steps: list[CurveStep]
    published: list[tuple[PublishedTiles, int | None, Result, CurveStep | None]]
    tile_multiple: int = 1
    least_blocks: int = 1
    own: dict[str, list[CurveStep]] = field(default_factory=dict, hash=False)
    within: tuple[int, int] | None = None
    every: bool = False
    sides: tuple[Side, ...] = ()

    @cached_property
    def moves_less(self) -> list[MovesLess]:
        """For each schedule that was named, every M at which it moves less than the others; none of a single one, nor
        of those whose best tiles are not known with registers or stages."""
        divided, own = self.problem.divided, self.own
        sides = [side for side in self.sides if not divided or side.rule != "best" or side.schedule.name in own]
        return over_M(sides, self.problem, self.tile_multiple, own) if len(sides) > 1 else []

    @property
    def notes(self) -> list[str]:
        """Notes on named schedules that skip nothing under the mask."""
        return mask_notes(self.problem, [one.side.schedule.name for one in self.moves_less])

    def table(self) -> Table:
        return self.table_of(self.steps)

    def table_of(self, steps: Sequence[CurveStep]) -> Table:
        """A row for each of these steps."""
        filled = [column for column in OF_SCHEDULE if any(getattr(step, column.name) for step in steps)]
        columns = [*STEP, *filled]
        blocks = ["blocks"] * (self.least_blocks > 1)
        names = ("from_M", "schedule", "chosen", *blocks, "total", "total_bytes", "ratio_to_order", "ratio_to_floor")
        rows = [step_row(self.problem, step, self.space[0].family) for step in steps]
        return Table(columns, rows, shown=in_order((*STEP, *OF_SCHEDULE), names))

    def some(self) -> list[CurveStep]:
        """The steps that people see: all of a short curve. Else those at which the traffic has fallen enough, and the
        last one. A curve without a range begins at M = d words."""
        if self.every or len(self.steps) <= MOST_ROWS:
            return self.steps
        *before, last = self.steps
        chosen: list[CurveStep] = []
        for step in before:
            large = self.within or step.M_bytes >= self.problem.d * self.problem.word_bytes
            if large and (not chosen or step.total_bytes <= FALL * chosen[-1].total_bytes):
                chosen.append(step)
        return [*chosen, last]

    def known(self) -> Table:
        """Published tiles at the M that they need."""
        return Table(PUBLISHED, [published_row(*entry) for entry in self.published])

    @property
    def answer(self) -> str:
        """The sentences on where a schedule that was named moves less than the others, and on where the gap to the
        floor is largest, in each range of M."""
        return " ".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """These sentences."""
        less = [lead_of(self.moves_less, partial(size_of, self.problem))] if self.moves_less else []
        return [*less, *answer_lines(self)]

    def pieces(self) -> Pieces:
        p = self.problem
        blocks = f" with {self.least_blocks} blocks" if self.least_blocks > 1 else ""
        names = ", ".join(schedule.name for schedule in self.space)
        left_out = "not searched: " + ", ".join(schedule.name for schedule in self.left_out)
        range_of_M = f" for M {between(*self.within)}" if self.within else ""
        some = self.some()
        less: Pieces = [table_of(self.moves_less), ""] if self.moves_less else []
        return [
            *self.lines,
            problem_line(p),
            f"least traffic{blocks} over {names}{range_of_M}: {numbered(len(self.steps), 'breakpoint')}",
            *([left_out] if self.left_out else []),
            "",
            *less,
            self.table_of(some),
            *tiles_legend(some),
            *line_on_some(len(some), len(self.steps), bool(self.within)),
            "",
            "published, at the M that they need:",
            self.known(),
        ]

    def to_dict(self) -> Row:
        names, left_out = [s.name for s in self.space], [s.name for s in self.left_out]
        return {
            "problem": problem_row(self.problem),
            "space": space_json(names, left_out, self.tile_multiple, self.least_blocks),
            "curve": self.to_rows(),
            "published": self.known().to_rows(),
            **({"moves_less": [self.less_json(one) for one in self.moves_less]} if self.moves_less else {}),
            "answer": self.answer,
        }

    def less_json(self, one: MovesLess) -> Row:
        """Where a side moves less, with the M from which on it always does in words too."""
        M = one.where.always_from
        words = None if M is None else M // self.problem.word_bytes
        share = None if words is None else round(words / self.problem.d**2, 4)
        return {**one.to_dict(), "M_words": words, "M_over_d2": share}

    def summary(self) -> str:
        return f"{asked(self.problem)}; {numbered(len(self.steps), 'breakpoint')}"


# ---------------------------------------------------------------- rows and columns

STEP: Columns[Row] = (
    Column("M_bytes"),
    Column("from_M", None, "from M"),
    Column("M_words"),
    Column("schedule", "string", "schedule"),
    Column("Br"),
    Column("Bc"),
    Column("chosen", None, "tiles"),
    Column("total", heading="total words"),
    Column("total_bytes", heading="bytes", cell="bytes", spare=4),
    Column("order_words", "number"),
    Column("saha_ye_words", "number"),
    Column("compulsory_words"),
    Column("floor_words"),
    Column("ratio_to_floor", "number", "x floor", ".3f"),
    Column("ratio_to_order", "number", "x N^2d^2/M", ".3f", 3),
)
OF_SCHEDULE: Columns[Row] = (  # there if some step has them
    Column("blocks", heading="blocks", spare=2),
    Column("options", "string"),
    Column("more_tiles", "string"),
)
PUBLISHED: Columns[Row] = (
    Column("label", "string", "choice"),
    Column("schedule", "string"),
    Column("Br"),
    Column("Bc"),
    Column("tiles", None, "tiles", lambda row: f"{row['Br']}x{row['Bc']}"),
    Column("needs", None, "needs"),
    Column("rule_M", None, "rule's M", spare=5),
    Column("rule_M_bytes"),
    Column("M_bytes"),
    Column("total", heading="total words"),
    Column("total_bytes"),
    Column("least_bytes"),
    Column("ratio_to_least", "number", "x least", ".3f"),
    Column("source", "string"),
)


def step_row(p: Attention, step: CurveStep, family: str) -> Row:
    """A step of the curve, with the bounds at its M in words."""
    words = {b.name.removeprefix(f"{family}: "): b.words for b in bounds(p, step.M_bytes, family=family)}
    order, floor = words.get("N^2 d^2 / M"), words.get("floor") or None
    return {
        **vars(step),
        "from_M": format_bytes(step.M_bytes),
        "M_words": step.M_bytes // p.word_bytes,
        "chosen": (tile_sizes(step).strip() or "ideal") + flags(step.options),
        "order_words": order,
        "saha_ye_words": words.get("Saha and Ye 2024"),
        "compulsory_words": words["compulsory"],
        "ratio_to_order": step.total / order if order else None,
        "floor_words": floor,
        "ratio_to_floor": step.total / floor if floor else None,
        "options": more_sizes(step.options),
        "more_tiles": more_sizes(step.more_tiles),
    }


def published_row(tiles: PublishedTiles, rule_M: int | None, r: Result, least: CurveStep | None) -> Row:
    """Published tiles at the M that they really need, their result, and the least traffic there. `rule_M` is the M that
    their rule was given."""
    assert r.smem_peak_bytes is not None and r.total_bytes is not None  # tiles were given
    best = None if least is None else least.total_bytes
    return {
        **vars(r),
        "label": tiles.label,
        "needs": format_bytes(r.smem_peak_bytes),
        "rule_M": None if rule_M is None else format_bytes(rule_M),
        "rule_M_bytes": rule_M,
        "M_bytes": r.smem_peak_bytes,
        "least_bytes": best,
        "ratio_to_least": r.total_bytes / best if best else None,
        "source": tiles.source,
    }


def problem_line(p: Attention) -> str:
    """The line on a problem without an M."""
    return f"{size_line(p)}, {p.dtype}, {p.acc_dtype} accumulators{p.cache_text}, mask {p.mask}"


def size_of(p: Attention, M_bytes: int) -> str:
    """An M in bytes, words and units of d^2 words: `8,640 B (8.44 KiB, 4,320 fp16 words, 1.05 d^2)`."""
    words = M_bytes // p.word_bytes
    also = [binary(M_bytes)] if M_bytes >= KIB else []
    return f"{M_bytes:,} B ({', '.join([*also, f'{words:,} {p.dtype} words', f'{rounded(words / p.d**2)} d^2'])})"


def between(first: int, last: int) -> str:
    """A range of M in bytes: `from 16384 B (16 KiB) to 1048576 B (1 MiB)`."""
    return f"from {format_bytes(first)} to {format_bytes(last)}"


def line_on_some(shown: int, steps: int, in_range: bool) -> list[str]:
    """The line below a table that does not show all steps."""
    if shown == steps:
        return []
    which = f"each the first at which the traffic is at most {FALL} times that of the row above; --all shows every one"
    start, more = ("", "") if in_range else ("from M = d words on, ", ", and --M 16KB:1MB is a range")
    return [f"{shown} of {steps:,} breakpoints: {start}{which}{more}"]


# ---------------------------------------------------------------- the gap to the floor


def ends_of_steps(found: Curve) -> list[tuple[int, CurveStep]]:
    """(the last byte of M, the step) of each step of a curve, in the order of M. The last step has no end, unless the
    curve is that of a range of M."""
    ends = [after.M_bytes - 1 for after in found.steps[1:]] + ([found.within[1]] if found.within else [])
    return [*zip(ends, found.steps, strict=False)]


def answer_lines(found: Curve) -> list[str]:
    """The sentence about a curve: where the gap to the floor is largest, in each range of M."""
    p, ends = found.problem, ends_of_steps(found)
    stretches = {
        f"for M {name}": [one for one in ends if low(p.d) <= one[0] // p.word_bytes < high(p.d)]
        for name, (low, high) in STRETCHES.items()
    }
    if found.within:
        stretches = {f"for M {between(*found.within)}": ends}
    gaps = {name: gap for name, some in stretches.items() if (gap := worst(p, found.space[0].family, some))}
    if not gaps:
        return [
            "No gap is known: there is no floor here, or no step of the curve in the range where it means something."
        ]
    where = "" if found.within else ", from M = d words on"
    lead = f"The least traffic is at most {max(gap.ratio for gap in gaps.values()):.3f} times the floor{where}."
    return [lead, *(f"{name[0].upper()}{name[1:]}: {gap.ratio:.3f} times, {at(p, gap)}." for name, gap in gaps.items())]


def worst(p: Attention, family: str, ends: Sequence[tuple[int, CurveStep]]) -> Gap | None:
    """The largest gap at the last bytes of steps, the first of equal ones. None if there is none, for a family without
    a floor, and under a mask for which the floor cannot be counted.

    The floor falls with M. So no gap of a part of the steps is above its most words over its last floor, and a part
    that cannot have the largest one is left out.
    """
    found: Gap | None = None
    parts = [ends] if ends else []
    while parts:
        part = parts.pop()
        M_bytes, step = part[-1]
        least = floor_of(p, M_bytes, family)
        if not least:
            return None
        if found and max(step.total for _, step in part) / least <= found.ratio:
            continue
        if len(part) == 1:
            found = Gap(M_bytes, step.schedule, step.total, least)
        else:
            parts += [part[len(part) // 2 :], part[: len(part) // 2]]
    return found


def at(p: Attention, gap: Gap) -> str:
    """The schedule and the M of a gap: `flash2 at M = 31431 B = 0.959 d^2 words`."""
    return f"{gap.schedule} at M = {gap.M_bytes:,} B = {rounded(gap.M_bytes // p.word_bytes / p.d**2)} d^2 words"
