"""Questions that `sweep --what NAME` may ask at each grid point, and where they stand.

A folder with such a question has a file `points.py` with a Question, which its manifest names. It imports what answers
the question only when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Never, cast

from .answer import Columns, Rows
from .errors import InputError, suggestion
from .options import Option
from .wings import found_in, rows

if TYPE_CHECKING:
    from .core.tiling import Rule

COUNT = "count"
"""What a sweep asks without --what. Its rows are made many at once, so it is no Question."""
HOUSE = {"tune": ("iosim.tuning", "points:TUNE")}
USUAL_POINTS = 64


Values = dict[str, Any]  # type: ignore[explicit-any]  # each option has a type of its own


class Point(NamedTuple):
    """A grid point: the fields of its problem, and the options of the question about it. The accumulators and the
    multiple that a GPU implies are among them."""

    fields: Values
    M_bytes: int | None
    hardware: str | None
    schedules: tuple[str, ...]
    tiles: Rule | None
    tile_multiple: int
    own: Values
    """The options that only this question has."""
    paper_model: bool

    @property
    def place(self) -> Values:
        """What says how large M is: its bytes, or a GPU."""
        return {"M": self.M_bytes} if self.hardware is None else {"hardware": self.hardware}


class Question(NamedTuple):
    """A command that a sweep may ask at each point."""

    rows: Callable[[Point], Rows]
    """The rows at a point, as its --csv has them."""
    columns: Callable[[], Columns[Never]]
    """All columns that a row may have."""
    own: tuple[Option, ...] = ()
    """Its options that `count` lacks. Those with values are axes."""
    decides: tuple[str, ...] = ()
    """Those of them whose value decides which columns there are."""
    later: Callable[[], Iterable[str]] = tuple
    """Columns that the first points may lack, because nothing fits there."""
    finds_tiles: bool = False
    """Whether it takes no --tiles, because it finds them."""
    names_schedules: bool = False
    """Whether its schedules are not those of `iosim schedules`, so that it reads their names itself."""
    every_M: bool = False
    """Whether --M and --hardware may be given together: every M on every GPU."""
    points_of_part: int = USUAL_POINTS
    """The points of a part, which should take half a second or more."""


@cache
def places() -> dict[str, tuple[str, str]]:
    """{name of a question: (its package, its place in it)}."""
    found: dict[str, tuple[str, str]] = {}
    for name, place in each_place():
        found.setdefault(name, place)
    return found


def each_place() -> Iterator[tuple[str, tuple[str, str]]]:
    """Names of questions and their places, one by one: whoever stops early asks no other package."""
    yield from HOUSE.items()
    yield from ((name, (package, place)) for package, name, place in rows(lambda wing: wing.points))


def names() -> tuple[str, ...]:
    """What --what may name."""
    return (COUNT, *places())


def known(what: str) -> str:
    """The name of a question. Raises InputError for any other text."""
    if what not in names():
        raise InputError("--what", what, ", ".join(names()), suggestion(what, names()))
    return what


def question(what: str) -> Question:
    """The question of this name, which is not `count`."""
    return cast("Question", found_in(*places()[what]))


def asked_of(what: str, trait: Literal["names_schedules", "every_M"]) -> bool:
    """Whether a question has a trait, which `count` never has."""
    return what != COUNT and bool(getattr(question(what), trait))


def own_options() -> dict[str, Option]:
    """The options that some question has and `count` lacks, by name."""
    found: dict[str, Option] = {}
    for option in every_own():
        found.setdefault(option.name, option)
    return found


def every_own() -> Iterator[Option]:
    """The options of one question after the other. Several may have one of the same name."""
    return (option for _, place in each_place() for option in cast("Question", found_in(*place)).own)


def own_option(name: str) -> Option:
    """The option of this name."""
    return next(option for option in every_own() if option.name == name)


def askers(name: str) -> tuple[str, ...]:
    """The questions that have an option of this name."""
    return tuple(what for what in places() if name in (option.name for option in question(what).own))
