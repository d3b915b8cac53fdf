"""`iosim memory`."""

from __future__ import annotations

from ..counting.given import counts
from ..errors import InputError
from .answer import Output, answer
from .options import COUNT, SIZE, D, flag_option, named_command, outputs, size_options, text_option, tiles_option


@named_command("memory", needs=(D,), axes=("n", "tiles"))
@text_option("--N", "Queries: an axis as in 1024,4096 or 1024:32768:x2.", metavar="COUNTS", kind=COUNT)
@size_options
@text_option("--budget", "The largest N whose tensors fit in this much memory, as in 12GB.", metavar="SIZE",
             kind=SIZE, also=("memory", "hbm"))  # fmt: skip
@tiles_option("Bytes of tiles on chip: Br x Bc, or several as in 64x64,128x64.")
@flag_option("--grid", "With --N and --tiles: which program has which rows.", parameter="as_grid")
@outputs
def command(
    n: str | None, budget: str | None, tiles: str | None, as_grid: bool, output: Output, **given: str | bool | None
) -> None:  # fmt: skip
    """Bytes of scores, inputs, row statistics and KV cache; the largest N for a memory budget; tiles on chip.

    Example: iosim memory --N 1024:32768:x2 --d 128 --heads 16
    """
    from ..core.problem import Attention
    from ..studies import memory
    from ..studies.memory_tables import memory_grid

    ways = {"--budget": budget, "--tiles": tiles, "--N": n}
    asked = {name for name, value in ways.items() if value is not None}
    allowed = {"--N", "--tiles"} if as_grid else set(ways)
    if asked != allowed if as_grid else len(asked) != 1:
        found = " and ".join(sorted(asked)) or "nothing"
        raise InputError("memory", found, "one of --N, --budget, --tiles; or --grid with --N and --tiles")
    values = counts(given, required=("d",))
    Nk: int | None = values.pop("Nk", None)
    p = Attention(1, **values)  # the functions set its length
    if tiles is not None:
        rows = memory.tiles_on_chip(tiles, p) if n is None else memory.grid(n, tiles, p)
    elif n is not None:
        rows = memory.sizes_of_axis(n, p, Nk)
    else:
        rows = memory.largest_lengths(str(budget), p, Nk)
    answer(rows, {"results": rows}, output, [memory_grid(rows)])
