"""The columns of a count and of a sweep, in their order: those of the problem, then those of a result (result.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..answer import Column, Row, Type, types_of
from ..core.options import MASKS, OF_EVERY_PROBLEM, SIZES, TYPES, find_option, option_names
from .result import ADDS, MORE_TILES, PLACES, RESULT, TIMES

if TYPE_CHECKING:
    from ..core.problem import Attention


ALWAYS = tuple(option.name for option in (*SIZES, *TYPES, *MASKS) if option.name != "dv")
PROBLEM_COLUMNS = (*ALWAYS, "M_bytes", "M_words")
RESULT_COLUMNS = tuple(column.name for column in RESULT if column.type is not None)
COLUMNS = PROBLEM_COLUMNS + RESULT_COLUMNS
DIVIDED = tuple(column.name for column in PLACES)
ADDED = tuple(column.name for column in ADDS)
TIMED = tuple(column.name for column in TIMES if column.type is not None)
OTHERS: dict[str, Type] = {"hardware": "string"}  # that are no options and do not hold integers


def option_columns() -> tuple[str, ...]:
    """The columns of options, which a row has where they are not at their defaults."""
    return tuple(name for name in option_names() if name not in (*ALWAYS, "dv"))


def every_column() -> tuple[str, ...]:
    """All columns that a count or a sweep may have."""
    return (*COLUMNS, "dv", *option_columns(), *DIVIDED, "tile_multiple", "hardware", "more_tiles")


def type_of(name: str) -> Type:
    """The type of a column of a problem, which is that of its option."""
    option = find_option(name)
    return option.kind.type if option else OTHERS.get(name, "integer")


def types_of_count() -> dict[str, Type]:
    """The type of each column that a count or a sweep may have, by its name."""
    of_result = types_of((*RESULT, *TIMES, *PLACES, MORE_TILES, *ADDS))
    return {name: of_result.get(name, type_of(name)) for name in (*every_column(), *TIMED, *ADDED)}


def problem_columns(cells: Row) -> list[Column[object]]:
    """The columns of a problem, with the same cells in every row."""
    return [Column(name, type_of(name)).always(cell) for name, cell in cells.items()]


def more_columns(problem: Attention, more_tiles: Iterable[object]) -> tuple[str, ...]:
    """The columns at the end of a row: options that are not at their defaults, and `more_tiles` if any tiling has more
    sizes than Br and Bc. So a row holds everything on which its counts depend."""
    unusual = [name for name, value in problem.unusual().items() if name not in (*ALWAYS, "dv")]
    values = ["dv"] if isinstance(problem.dv, int) and problem.dv != problem.d else []
    divided = DIVIDED if problem.divided else ()
    return (*values, *unusual, *divided, *(["more_tiles"] if any(more_tiles) else []))


def flags(options: Mapping[str, int]) -> str:
    """Options as the command line takes them, after a space."""
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in options.items())


def problem_row(p: Attention) -> Row:
    """The fields of a problem as cells."""
    return {name: getattr(p, name) for name in option_names()} | given_row(p)


def given_row(p: Attention) -> Row:
    """The options of a problem as cells, without those of schedules that are at their defaults."""
    named = {name: value for name, value in p.values().items() if name in OF_EVERY_PROBLEM} | dict(p.own)
    return {**named, "mask": str(p.mask), "kv_dtype": p.cache_dtype}
