"""Proven statements about the least traffic of a problem, as `iosim.bounds` answers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Unpack

from ..answer import Answer, Pieces, Row, Table, numbered
from ..core.options import OF_EVERY_PROBLEM, READ_BY_STATES
from ..core.problem import DENSE, Attention, narrowed
from ..counting.asked import asked, header
from ..counting.bounds import Bound, answer_of_bounds, as_row, bounds_table, of_all_schedules, reached_lines
from ..counting.bounds import bounds as bounds_of
from ..counting.columns import problem_row
from ..counting.conditions import conditions
from ..counting.count import count, default_schedules
from ..counting.floors import held_words
from ..counting.given import Fields, head_dimension, memory
from ..counting.names import takes_options
from ..counting.report import Report
from ..errors import InputError
from ..masks import parse_mask
from ..schedules import SCHEDULES, Schedule, applies, distinct, family_of
from ..schedules.flash import SHORT_TILE
from .least import packed_way, space_of, tune

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask


@dataclass(frozen=True, repr=False)
class Bounds(Answer):
    """The answer of `bounds`: each statement with its words, its kind, and the condition under which it holds."""

    report: Report
    """The problem and the SRAM."""
    bounds: Sequence[Bound]
    """The statements: floors, orders, and the least traffic that was found."""

    def __getitem__(self, name: str) -> Bound:
        """The bound of this name. Raises KeyError if there is none."""
        return {bound.name: bound for bound in self.bounds}[name]

    def __iter__(self) -> Iterator[Bound]:
        """The bounds, in their order."""
        return iter(self.bounds)

    @property
    def answer(self) -> str:
        """The proven floor and its distance from the best known, in a sentence."""
        return answer_of_bounds(self.bounds)

    @property
    def notes(self) -> list[str]:
        """Notes on what a GPU implies, on words of several types in one SRAM, and on scales of K and V, which no bound
        counts."""
        p = self.report.problem
        scales = "no bound counts the scales of K and V; the words of schedules, as attainable, contain them"
        words = notes_on_words(p, self.report.M_bytes)
        return [*self.report.under.notes, *words, *([] if p.kv_scales == "none" else [scales])]

    def table(self) -> Table:
        return bounds_table(self.bounds, csv="--csv")

    def pieces(self) -> Pieces:
        asked = header(self.report.problem, self.report.M_bytes)
        reached = reached_lines(self.bounds)
        return [self.answer, asked, self.table(), *([""] if reached else []), *reached]

    def to_dict(self) -> Row:
        return {
            "problem": problem_row(self.report.problem),
            "sram": {"M_bytes": self.report.M_bytes, "M_words": self.report.M_words},
            "bounds": [as_row(bound) for bound in self.bounds],
            "answer": self.answer,
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{asked(self.report.problem, self.report.M_bytes)}; {numbered(len(self.bounds), 'bound')}"


def notes_on_words(p: Attention, M_bytes: int | None) -> list[str]:
    """A note if the floors count more words in the SRAM than the orders do."""
    held = None if M_bytes is None else held_words(p, M_bytes)
    if M_bytes is None or held == p.on_chip_words(M_bytes):
        return []
    return [f"the floors count M as {held:,} words, of the narrowest type; the orders count it in words of {p.dtype}"]


@takes_options(reads=(*OF_EVERY_PROBLEM, *READ_BY_STATES))
def bounds(
    N: int,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    mask: str | Mask = "dense",
    backward: bool = False,
    **options: Unpack[ProblemOptions],
) -> Bounds:
    """Proven statements about the least traffic, each with its kind and validity: a Bounds.

    With `backward` they are about the gradients dQ, dK and dV. With M, or the SRAM of a `hardware`, the last statement
    is the least traffic of all schedules and tiles, whose query heads share a KV head or do not. Under a mask that
    `tune` refuses, it is the least traffic that `count` finds. Options are those of `count`. Raises InputError for
    whatever is not allowed.
    """
    under, M = conditions(hardware, options, 1, paper_model), memory(M, hardware)
    d = head_dimension(d)
    problem = Attention(N, d, mask=parse_mask(mask), **under.options)
    family = "backward" if backward else family_of(problem)
    own = [s for s in SCHEDULES.values() if s.family == "backward" and applies(s, problem)] if backward else None
    counted = [
        s
        for s in (default_schedules(problem) if own is None else own)
        if M is not None or "ideal" in s.rules  # whose tiles need no M
    ]
    if not counted:
        found = Report(problem, None, bounds_of(problem, None, family=family), [])
    else:
        found = count(N, d, M, schedules=counted, mask=mask, **under.options)
    found = replace(found, under=under)
    if M is None:
        return Bounds(found, of_all_schedules(found.bounds, None))
    packed, first = packed_way(problem), {SHORT_TILE.name: "first"}
    try:
        space = space_of((), problem) if own is None else distinct(own, problem)
        searches = {"": searched(problem, M, () if own is None else space)}
    except InputError:
        return Bounds(found, found.bounds)
    if packed is not None:
        searches[" --gqa pack"] = searched(packed, M, () if own is None else space)
    try:
        ending = [s for s in space if problem.mask is not DENSE and s.reads(SHORT_TILE.name)]
        searches[" --short-tile first"] = searched(narrowed(problem, **first), M, ending) if ending else []
    except InputError:  # documents, and masks of tiles, are not searched so
        pass
    least = least_known(searches)
    return Bounds(found, least if problem.divided else of_all_schedules(least, len(space)))


def searched(p: Attention, M: int | str, space: Sequence[Schedule]) -> list[Bound]:
    """The bounds with the least traffic of some schedules, or of all."""
    unnamed = ("N", "d", "mask", "choice_rows", "dropout")
    options: Fields = {name: value for name, value in p.values().items() if name not in unnamed}
    return tune(p.N, p.d, M, schedules=space, mask=p.mask, **options).bounds


def least_known(searches: Mapping[str, Sequence[Bound]]) -> list[Bound]:
    """The bounds of the first search, with the least of those that were found: {what was asked for: bounds}."""
    found = [bounds[-1]._replace(by=bounds[-1].by + flags) for flags, bounds in searches.items() if bounds]
    return [*searches[""][:-1], min(found, key=lambda one: inf if one.words is None else one.words)]
