"""`iosim crossover`."""

from __future__ import annotations

from typing import Any

import click

from ..errors import InputError
from ..options import outputs, text_option


@click.command("crossover")
@text_option("--N", "Queries.", metavar="COUNT")
@text_option("--Nk", "Keys (default: N).", metavar="COUNT")
@text_option("--d", "Head dimensions, as in 64,128,256.", metavar="COUNTS")
@text_option("--dtype", "Types in HBM, as in fp16,fp32.", default="fp16", show_default=True, metavar="TYPES")
@text_option("--acc-dtype", "Type of what is accumulated on chip and of l, m (default: the same).", metavar="TYPE")
@text_option("--tile-multiple", "Keep to tiles that are multiples of this.", default="1", show_default=True)
@outputs
def command(n: Any, nk: Any, d: Any, dtype: str, acc_dtype: Any, tile_multiple: Any, as_json: bool, as_csv: bool,
            path: Any) -> None:  # fmt: skip
    """The M from which on one schedule moves less than another, exact to the byte, for one dense head.

    Example: iosim crossover --N 8192 --d 64,128,256
    """
    from .. import crossover
    from ..options import counts
    from ..output import answer
    from ..problem import Attention
    from ..units import parse_axis, parse_count

    values = counts({"n": n, "nk": nk}, required=("N",))
    if d is None:
        raise InputError("--d", "nothing", "head dimensions as in 64,128", "give --d")
    heads = parse_axis(d, "--d", lambda text: parse_count(text, "--d"))
    multiple = parse_count(tile_multiple, "--tile-multiple")
    types = dict.fromkeys(part.strip() for part in dtype.split(","))
    problems = [Attention(d=size, dtype=t, acc_dtype=acc_dtype, **values) for size in heads for t in types]
    found = crossover.rows([c for p in problems for c in crossover.crossovers(p, multiple)])
    answer(found, {"crossovers": found}, as_json, as_csv, path)
