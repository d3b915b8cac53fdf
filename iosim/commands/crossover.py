"""`iosim crossover`."""

from __future__ import annotations

from ..errors import InputError
from .answer import Output, answer
from .options import COUNT, D, N, named_command, outputs, text_option


@named_command("crossover", needs=(N, D), axes=("d", "dtype"))
@text_option("--N", "Queries.", metavar="COUNT", kind=COUNT)
@text_option("--Nk", "Keys (default: N).", metavar="COUNT")
@text_option("--d", "Head dimensions, as in 64,128,256.", metavar="COUNTS")
@text_option("--dtype", "Types in HBM, as in fp16,fp32.", default="fp16", show_default=True, metavar="TYPES")
@text_option("--acc-dtype", "Type of what is accumulated on chip and of l, m (default: --dtype).", metavar="TYPE")
@text_option("--tile-multiple", "Use only tile sizes that are multiples of this.", default="1", show_default=True)
@outputs
def command(
    n: str | None, nk: str | None, d: str | None, dtype: str, acc_dtype: str | None, tile_multiple: str, output: Output
) -> None:  # fmt: skip
    """The M from which on one schedule moves less than another, exact to the byte, for one dense head.

    Example: iosim crossover --N 8192 --d 64,128,256
    """
    from ..core.problem import Attention
    from ..counting.given import counts
    from ..tuning import crossover
    from ..units import parse_axis, parse_count

    values = counts({"n": n, "nk": nk}, required=("N",))
    if d is None:
        raise InputError("--d", "nothing", "head dimensions as in 64,128", "give --d")
    heads = parse_axis(d, "--d", lambda text: parse_count(text, "--d"))
    multiple = parse_count(tile_multiple, "--tile-multiple")
    types = dict.fromkeys(part.strip() for part in dtype.split(","))
    problems = [Attention(d=size, dtype=t, acc_dtype=acc_dtype, **values) for size in heads for t in types]
    found = crossover.crossover_rows([c for p in problems for c in crossover.crossovers(p, multiple)])
    answer(found, {"crossovers": found}, output)
