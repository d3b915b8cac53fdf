"""The rows of the question of `--what` at all points of a grid.

Their number is not known in advance. So parts and progress of such a sweep are counted in grid points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, cast

from ..answer import Row, Type, types_of
from ..cells import Chunk
from ..core.tiling import tiles_text
from ..counting.columns import PROBLEM_COLUMNS, option_columns, types_of_count
from ..counting.sweep_axes import Asking, AxisValue, own_axis, split
from ..errors import InputError, InternalError, suggestion
from ..points import COUNT, Point, askers, own_options, question
from ..tables import finite

if TYPE_CHECKING:
    from ..counting.given import Fields
    from ..counting.sweep_axes import Sweep


def asking(what: str, values: dict[str, AxisValue]) -> Asking | None:
    """The additions of a sweep of the question `what` to a sweep of counts; None for `count`. Its own options are taken
    out of `values`. Raises InputError for an option that the question does not have."""
    own: dict[str, Sequence[object]] = {}
    asked = None if what == COUNT else question(what)
    if asked and asked.names_schedules and (named := split(values.pop("schedules", None))):
        own["schedules"] = [",".join(named)]
    for name, option in own_options().items():
        value = values.pop(name, None)
        if value is None or value is False:
            continue
        if what not in askers(name):
            raise InputError(option.flag, f"--what {what}", " or ".join(f"--what {one}" for one in askers(name)))
        own[name] = own_axis(option, value)
    return asked and Asking(own, asked.every_M)


def of_point() -> tuple[str, ...]:
    """The columns of a grid point that a row may have."""
    return (*PROBLEM_COLUMNS, "dv", *option_columns(), "tile_multiple", "hardware")


def types_of_rows(what: str) -> dict[str, Type]:
    """The type of each column that a row of a question may have at a grid point, by its name."""
    own: dict[str, Type] = {name: option.kind.type for name, option in own_options().items()}
    return {**types_of_count(), "tiles": "string", **own, **types_of(question(what).columns())}


class Asked:
    """The rows of a question at all points of a grid, in numbered chunks of one point each.

    They are in the order of `Chunks`, with tiles fastest. `columns` are the columns asked for. By default they are
    those of the first points: one point for each mask, type, option, tiles, and own option that decides on columns.
    """

    unit = "points"
    int64 = True

    def __init__(self, plan: Sweep, what: str, columns: tuple[str, ...] = ()):
        self.plan, self.what, self.question = plan, what, question(what)
        if plan.tiles and self.question.finds_tiles:
            given = ",".join(map(tiles_text, plan.tiles))
            raise InputError("--tiles", given, f"nothing with --what {what}, which finds the tiles")
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
        return asked or self.question.points_of_part

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
            return [cast("Row", finite({**before, **row})) for row in self.question.rows(point)]
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
        question."""
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
        branches = {*BRANCHES, *self.question.decides}
        branches |= {"M"} if self.plan.hardware else set()  # a GPU may lack a type
        firsts = product(*(range(length) if name in branches else [0] for name, length in self.lengths.items()))
        numbers = [self.number(places) for places in firsts]
        rows = [self.columns_of(self.point(numbers[0])), *(row for number in numbers for row in self.rows(number))]
        known = tuple(dict.fromkeys([*(name for row in rows for name in row), *self.question.later()]))
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
