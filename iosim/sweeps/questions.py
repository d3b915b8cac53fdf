"""The command of a sweep at each grid point: `count`, whose rows are made many at once, or another command.

The rows of another command follow the columns of their point. Their number is not known in advance. So parts and
progress of such a sweep are counted in grid points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Never, cast

from ..answer import Column, Columns, Row, Rows, Type, types_of
from ..cells import Chunk
from ..core.tiling import Rule, tiles_text
from ..counting.columns import PROBLEM_COLUMNS, option_columns, types_of_count
from ..errors import InputError, InternalError, suggestion
from ..options import flag_of
from ..tables import finite
from .own_options import COUNT, OWN

if TYPE_CHECKING:
    from ..counting.given import Fields
    from ..counting.sweep_axes import Sweep

POINTS_OF_PART = {"tune": 128}  # half a second or more: a point takes from milliseconds to seconds
USUAL_POINTS = 64


def of_point() -> tuple[str, ...]:
    """The columns of a grid point that a row may have."""
    return (*PROBLEM_COLUMNS, "dv", *option_columns(), "tile_multiple", "hardware")


class Point(NamedTuple):
    """A grid point: the fields of its problem, and the options of the question about it. The accumulators and the
    multiple that a GPU implies are among them."""

    fields: Fields
    M_bytes: int | None
    hardware: str | None
    schedules: tuple[str, ...]
    tiles: Rule | None
    tile_multiple: int
    own: Fields
    paper_model: bool


def rows_of_tune(p: Point) -> Rows:
    from ..tuning import least
    from ..tuning.inverse import GOALS, check_goal, least_M

    own = {**p.own}
    by, curve, predict = own.pop("by", None), own.pop("curve", False), own.pop("predict", None)
    if by == "time":
        if own or curve:
            raise InputError("--by", f"time with {flag_of(min(own, default='curve'))}", "one of the two")
        return rows_of_fastest(p, predict)
    if predict is not None:
        raise InputError("--predict", predict, "with --by time")
    searched: Fields = {"schedules": p.schedules, "tile_multiple": p.tile_multiple, **p.fields, **own}
    if {*own} & {*GOALS}:
        M = p.M_bytes if p.hardware is None else None
        check_goal([name for name in GOALS if name in own], {"--M": M, "--curve": curve or None})
        return least_M(hardware=p.hardware, paper_model=p.paper_model, **searched).to_rows()
    if not curve:
        place = {"M": p.M_bytes} if p.hardware is None else {"hardware": p.hardware}
        return least.tune(**place, paper_model=p.paper_model, **searched).to_rows()
    if p.M_bytes is not None:
        raise InputError("--M", p.M_bytes, "nothing with --curve, which goes over every M", "leave out one of the two")
    return least.curve(**searched).to_rows()


def rows_of_fastest(p: Point, predict: str | None) -> Rows:
    from ..studies.fastest import fastest

    if p.hardware is None:
        raise InputError("--by", "time", "with --hardware, as h100: see iosim hardware")
    asked: Fields = {"hardware": p.hardware, "schedules": p.schedules, "tile_multiple": p.tile_multiple, **p.fields}
    return fastest(paper_model=p.paper_model, predict=predict, **asked).to_rows()


def rows_of_cache(p: Point) -> Rows:
    from ..tracing.cache_answer import cache

    found = (
        (s, cache(M=p.M_bytes, tiles=p.tiles, schedule=s, tile_multiple=p.tile_multiple, **p.fields, **p.own))
        for s in p.schedules or ("flash1",)
    )
    return [{"schedule": name, **row} for name, answer in found for row in answer.to_rows()]


def rows_of_check(p: Point) -> Rows:
    from ..studies.check import check

    return check(tiles=p.tiles, schedules=p.schedules, **p.fields, **p.own).to_rows()


def rows_of_roofline(p: Point) -> Rows:
    from ..studies.roofline import roofline

    if p.hardware is None:
        raise InputError("--hardware", "nothing", "a preset, with --what roofline")
    return roofline(
        hardware=p.hardware,
        paper_model=p.paper_model,
        M=p.M_bytes,
        schedules=p.schedules,
        tiles=p.tiles,
        tile_multiple=p.tile_multiple,
        **p.fields,
        **p.own,
    ).to_rows()


def rows_of_links(p: Point) -> Rows:
    from ..distributed.answer import links

    place = {"M": p.M_bytes} if p.hardware is None else {"hardware": p.hardware}
    multiple = p.tile_multiple if p.tile_multiple != 1 else None
    return links(paper_model=p.paper_model, tile_multiple=multiple, **place, **p.fields, **p.own).to_rows()


QUESTIONS: dict[str, Callable[[Point], Rows]] = {
    "tune": rows_of_tune,
    "cache": rows_of_cache,
    "check": rows_of_check,
    "roofline": rows_of_roofline,
    "links": rows_of_links,
}
WITHOUT_TILES = ("tune", "links")  # they find the tiles


def columns_of_tune() -> Columns[Never]:
    from ..studies.fastest import TILES
    from ..tuning.best import ENTRY, OF_RESULT
    from ..tuning.every_M import OF_SCHEDULE, STEP
    from ..tuning.inverse import REACHED, STRETCH

    return (*TILES, *ENTRY, *OF_RESULT, *STEP, *REACHED, *STRETCH, *OF_SCHEDULE)


def columns_of_cache() -> Columns[Never]:
    from ..tracing.cache_answer import RESULTS

    return (Column("schedule", "string"), *RESULTS)


def columns_of_check() -> Columns[Never]:
    from ..studies.judged_runs import TOLERANCE, check_columns

    return [column for dtype in TOLERANCE for column in check_columns(dtype)]


def columns_of_roofline() -> Columns[Never]:
    from ..studies.roofline import LAUNCH

    return LAUNCH


def columns_of_links() -> Columns[Never]:
    from ..distributed.answer import OF_GPUS, OF_PAIR, RESULT

    return (Column("schedules", "string"), *OF_GPUS, *RESULT, *OF_PAIR)


COLUMNS = {
    "tune": columns_of_tune,
    "cache": columns_of_cache,
    "check": columns_of_check,
    "roofline": columns_of_roofline,
    "links": columns_of_links,
}


def types_of_rows(what: str) -> dict[str, Type]:
    """The type of each column that a row of a command may have at a grid point, by its name."""
    own: dict[str, Type] = {name: own.option.kind.type for name, own in OWN.items()}
    return {**types_of_count(), "tiles": "string", **own, **types_of(COLUMNS[what]())}


def found_later(what: str) -> Iterable[str]:
    """The columns that the first points may lack. Nothing may fit there, so a roofline may lack all of its own."""
    later = {"tune": ("blocks", "options", "more_tiles"), "roofline": tuple(types_of(columns_of_roofline()))}
    return later.get(what, ())


def known_question(what: str) -> str:
    """The name of a command whose rows a sweep may have. Raises InputError for any other."""
    if what not in (COUNT, *QUESTIONS):
        raise InputError("--what", what, ", ".join((COUNT, *QUESTIONS)), suggestion(what, (COUNT, *QUESTIONS)))
    return what


class Asked:
    """The rows of a command at all points of a grid, in numbered chunks of one point each.

    They are in the order of `Chunks`, with tiles fastest. `columns` are the columns asked for. By default they are
    those of the first points: one point for each mask, type, option, tiles, and own option that decides on columns.
    """

    unit = "points"
    int64 = True

    def __init__(self, plan: Sweep, what: str, columns: tuple[str, ...] = ()):
        if plan.tiles and what in WITHOUT_TILES:
            given = ",".join(map(tiles_text, plan.tiles))
            raise InputError("--tiles", given, f"nothing with --what {what}, which finds the tiles")
        self.plan, self.what, self.ask = plan, what, QUESTIONS[what]
        axes: dict[str, Sequence[object]] = {
            "tile_multiple": plan.multiples,
            "options": plan.options,
            "type": plan.types,
            "mask": plan.masks,
            **{name: values for name, values in plan.sizes.items() if values is not None},
            **plan.own,
            "tiles": plan.tiles or (None,),
        }
        self.lengths = {name: len(values) for name, values in axes.items()}
        self.shown = columns or self.columns(plan.columns)

    def __len__(self) -> int:
        return prod(self.lengths.values())

    def rows_of_part(self, asked: int = 0) -> int:
        """The points of a part."""
        return asked or POINTS_OF_PART.get(self.what, USUAL_POINTS)

    def first_row(self, number: int) -> int:
        return number

    def at_row(self, row: int) -> int:
        return min(len(self), row)

    def __getitem__(self, number: int) -> Chunk:
        """The rows of a grid point."""
        rows = self.rows(number)
        if not self.plan.columns and (more := {name for row in rows for name in row} - {*self.shown}):
            raise InternalError(f"columns that the first points of a sweep lack: {', '.join(sorted(more))}")
        return Chunk.of(rows, self.shown)

    def rows(self, number: int) -> list[Row]:
        """The rows of a grid point, with the columns of the point first."""
        point = self.point(number)
        before = self.columns_of(point)
        try:
            return [cast("Row", finite({**before, **row})) for row in self.ask(point)]
        except InputError as error:
            raise InputError(error.where, error.found, error.allowed, self.place(error.hint, before)) from None

    def place(self, hint: str, before: Row) -> str:
        """A hint, with the grid point that it is about."""
        several = [name for name, length in self.lengths.items() if length > 1]
        names = {"M": ["hardware"] if self.plan.hardware else ["M_bytes"], "type": ["dtype", "acc_dtype"]}
        shown = [name for axis in several for name in names.get(axis, [axis]) if name in before]
        at = ", ".join(f"{name} {before[name]}" for name in shown)
        return "; ".join(part for part in (hint, f"at {at}" if at else "") if part)

    def point(self, number: int) -> Point:
        """A grid point."""
        plan, at = self.plan, dict[str, int]()
        for name in reversed(self.lengths):
            number, at[name] = divmod(number, self.lengths[name])
        dtype, acc_dtype = plan.types[at["type"]]
        sizes = {name: values[at[name]] for name, values in plan.sizes.items() if values is not None}
        M_bytes = sizes.pop("M", None)
        fields: Fields = {**plan.options[at["options"]], **sizes}
        fields |= {"dtype": dtype, "acc_dtype": acc_dtype, "mask": plan.masks[at["mask"]]}
        return Point(
            fields,
            M_bytes,
            plan.hardware[at["M"]] if plan.hardware else None,
            plan.schedules,
            plan.tiles[at["tiles"]] if plan.tiles else None,
            plan.multiples[at["tile_multiple"]],
            {name: values[at[name]] for name, values in plan.own.items()},
            plan.paper_model,
        )

    def columns_of(self, point: Point) -> Row:
        """The columns of a point: its problem, the axes that are not at their defaults, and the options of the
        command."""
        from ..core.problem import Attention

        problem, M_bytes = Attention(**point.fields), point.M_bytes
        known: dict[str, object] = {name: getattr(problem, name, None) for name in of_point()}
        known |= {"mask": str(point.fields["mask"]), "tile_multiple": point.tile_multiple, "hardware": point.hardware}
        known |= {"M_bytes": M_bytes, "M_words": None if M_bytes is None else M_bytes // problem.word_bytes}
        before = {name: known[name] for name in self.of_point}
        before |= {name: value for name, value in point.own.items() if value is not True}
        return before | ({"tiles": tiles_text(point.tiles)} if point.tiles is not None else {})

    @property
    def of_point(self) -> list[str]:
        """The columns of a point: the problem, and the axes that are not at their defaults."""
        shown = {*replace(self.plan, columns=()).shown, *(["hardware"] if self.plan.hardware else [])}
        return [name for name in of_point() if name in shown]

    @property
    def types(self) -> dict[str, Type]:
        """The type of each column that a row may have, by its name."""
        return types_of_rows(self.what)

    def columns(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of the first points, in the order in which they appear; or those asked for."""
        branches = {*BRANCHES, *(name for name in self.plan.own if name in OWN and OWN[name].decides)}
        branches |= {"M"} if self.plan.hardware else set()  # a GPU may lack a type
        firsts = product(*(range(length) if name in branches else [0] for name, length in self.lengths.items()))
        numbers = [self.number(places) for places in firsts]
        rows = [self.columns_of(self.point(numbers[0])), *(row for number in numbers for row in self.rows(number))]
        known = tuple(dict.fromkeys([*(name for row in rows for name in row), *found_later(self.what)]))
        for name in asked:
            if name not in known:
                raise InputError("--columns", name, ", ".join(known), suggestion(name, known))
        return asked or known

    def number(self, places: Sequence[int]) -> int:
        """The number of the grid point with these indices of the axes."""
        found = 0
        for place, length in zip(places, self.lengths.values(), strict=True):
            found = found * length + place
        return found


BRANCHES = ("options", "type", "mask", "tiles", "tile_multiple")  # axes that may change the set of columns
