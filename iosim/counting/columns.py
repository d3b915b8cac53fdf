"""The columns of a count and of a sweep, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..tables import Tiled


PROBLEM_COLUMNS = ("N", "Nk", "d", "batch", "heads", "kv_heads", "dtype", "acc_dtype", "mask", "M_bytes", "M_words")
RESULT_COLUMNS = (
    "schedule", "tiling", "Br", "Bc", "fits", "sram_peak_words", "sram_peak_bytes", "reads", "writes", "total",
    "read_bytes", "write_bytes", "total_bytes", "flops", "ratio_to_bound", "ratio_to_standard",
    "ratio_to_floor",
)  # fmt: skip
COLUMNS = PROBLEM_COLUMNS + RESULT_COLUMNS
OPTIONS = (
    "lse", "keep_p", "elementwise", "count_init", "splits", "page_size", "gqa", "register_bytes", "stages", "latent",
    "top_k", "key_block", "kv_dtype", "kv_scales",
)  # fmt: skip
DIVIDED = ("smem_peak_bytes", "register_peak_bytes", "limit")  # for tiles in registers
EVERY_COLUMN = (*COLUMNS, "dv", *OPTIONS, *DIVIDED, "tile_multiple", "hardware", "more_tiles")


def more_columns(problem: Attention, more_tiles: Iterable[object]) -> tuple[str, ...]:
    """The columns at the end of a row: options that are not at their defaults, and `more_tiles` if any tiling has more
    sizes than Br and Bc. So a row holds everything on which its counts depend."""
    unusual = [name for name in OPTIONS if getattr(problem, name) != getattr(type(problem), name)]
    values = ["dv"] if isinstance(problem.dv, int) and problem.dv != problem.d else []
    divided = DIVIDED if problem.divided else ()
    return (*values, *unusual, *divided, *(["more_tiles"] if any(more_tiles) else []))


def more_sizes(sizes: Mapping[str, object]) -> str:
    """Tile sizes as `--tiles` takes them after the first slash: `depth=8/rows_o=4`."""
    return "/".join(f"{name}={size}" for name, size in sizes.items())


def tile_sizes(result: Tiled) -> str:
    """Tile sizes as `--tiles` takes them, after a space; an empty string if there are none."""
    if not result.Br:
        return ""
    return f" {result.Br}x{result.Bc}" + ("/" + more_sizes(result.more_tiles) if result.more_tiles else "")


def flags(options: Mapping[str, int]) -> str:
    """Options as the command line takes them, after a space."""
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in options.items())
