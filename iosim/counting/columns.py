"""The columns of a count and of a sweep, in their order: those of the problem, then those of a result (result.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..answer import Column
from .result import PLACES, RESULT

if TYPE_CHECKING:
    from ..answer import Type
    from ..core.problem import Attention
    from ..tables import Row


PROBLEM_COLUMNS = ("N", "Nk", "d", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "M_bytes", "M_words")
RESULT_COLUMNS = tuple(column.name for column in RESULT if column.type is not None)
COLUMNS = PROBLEM_COLUMNS + RESULT_COLUMNS
OPTIONS = (
    "lse", "keep_p", "elementwise", "count_init", "splits", "page_size", "gqa", "register_bytes", "stages", "latent",
    "top_k", "key_block", "kv_dtype", "kv_scales",
)  # fmt: skip
DIVIDED = tuple(column.name for column in PLACES)
EVERY_COLUMN = (*COLUMNS, "dv", *OPTIONS, *DIVIDED, "tile_multiple", "hardware", "more_tiles")
OF_PROBLEM: dict[str, Type] = {  # the types of columns of a problem that do not hold integers
    "dtype": "string", "acc_dtype": "string", "mask": "string", "lse": "boolean", "keep_p": "boolean",
    "count_init": "boolean", "gqa": "string", "latent": "boolean", "kv_dtype": "string", "kv_scales": "string",
    "hardware": "string",
}  # fmt: skip


def problem_columns(cells: Row) -> list[Column[object]]:
    """The columns of a problem, with the same cells in every row."""
    return [Column(name, OF_PROBLEM.get(name, "integer")).always(cell) for name, cell in cells.items()]


def more_columns(problem: Attention, more_tiles: Iterable[object]) -> tuple[str, ...]:
    """The columns at the end of a row: options that are not at their defaults, and `more_tiles` if any tiling has more
    sizes than Br and Bc. So a row holds everything on which its counts depend."""
    unusual = [name for name in OPTIONS if getattr(problem, name) != getattr(type(problem), name)]
    values = ["dv"] if isinstance(problem.dv, int) and problem.dv != problem.d else []
    divided = DIVIDED if problem.divided else ()
    return (*values, *unusual, *divided, *(["more_tiles"] if any(more_tiles) else []))


def flags(options: Mapping[str, int]) -> str:
    """Options as the command line takes them, after a space."""
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in options.items())
