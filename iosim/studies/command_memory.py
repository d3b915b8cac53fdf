"""`iosim memory`."""

from __future__ import annotations

from ..commands.answer import Output, answer_all
from ..commands.command import D, named_command
from ..commands.options import (
    COUNT,
    SIZE,
    flag_option,
    model_option,
    outputs,
    problem_asked,
    size_options,
    text_option,
    tiles_option,
)
from ..counting.given import Asked, counts
from ..counting.layers import LAYERS


@named_command("memory", needs=(D,), axes=("N", "tiles"))
@text_option("--N", "Queries: an axis as in 1024,4096 or 1024:32768:x2.", metavar="COUNTS", kind=COUNT)
@size_options
@model_option
@text_option(
    "--budget",
    "The largest N whose tensors fit in this much memory, as in 12GB.",
    metavar="SIZE",
    kind=SIZE,
    also=("memory", "hbm"),
)
@tiles_option("Bytes of tiles on chip: Br x Bc, or several as in 64x64,128x64.")
@text_option(
    "--layers",
    "With --N: the KV cache of so many layers, and what they keep for a backward pass; or kinds of layers, as "
    "'gdn*36, attention*12': states beside KV.",
    metavar="LAYERS",
    kind=LAYERS,
)
@flag_option("--grid", "With --N and --tiles: show the rows of each program.", parameter="as_grid")
@outputs
@problem_asked
def command(asked: Asked, N: str | None, budget: str | None, layers: str | None, as_grid: bool, output: Output) -> None:
    """Bytes of scores, inputs, row statistics and KV cache; what layers keep for a backward pass; the largest N for a
    memory budget; tiles on chip.

    Example: iosim memory --N 1024:32768:x2 --d 128 --heads 16
    """
    from ..core.problem import Attention
    from .memory import memory_of

    values = counts(asked.given, required=("d",))
    Nk: int | None = values.pop("Nk", None)
    found = memory_of(Attention(1, **values), N, Nk, budget, asked.choice.tiles, as_grid, layers)
    answer_all([({}, found)], output)
