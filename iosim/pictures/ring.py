"""The picture of a ring: the bytes of a mean decoding step against its rows, beside the least of its class (D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.problem import Attention
from ..counting.given import counts
from ..counting.state_floors import best_ring
from ..counting.state_heads import heads_of_problem
from ..drawing.asked import Asked, PictureKind
from ..drawing.chart import Chart, ChartLine
from ..drawing.picture import Picture
from ..drawing.sheet import Sheet
from ..errors import InputError
from ..schedules.state import FEATURES, NORMALISE, RULE
from ..tuning.ring import row_of

if TYPE_CHECKING:
    from ..counting.given import Given

LEAST = "D2: no scheme of a state and rows (k, u) moves less"


def of_ring(asked: Asked) -> Picture:
    """The picture for the heads of a rule."""
    p = Attention(**{**counts(cast("Given", asked.values), required=("d",)), "N": 1, "Nk": 1})
    if not p[RULE] or p[FEATURES] or p[NORMALISE]:
        raise InputError("--picture", "ring", "--rule, without --features and --normalise", "as --rule gdn")
    heads = heads_of_problem(p)
    best = best_ring(heads.state_bytes, heads.row_bytes)
    rows = [row_of(heads, length, best) for length in range(1, 4 * best + 1)]
    x = [float(row.rows) for row in rows]
    least = min(row.total_bytes for row in rows)
    lines = [
        ChartLine("a ring, mean step", x, [row.total_bytes for row in rows], [True] * len(x)),
        ChartLine(LEAST, x, [least] * len(x), [True] * len(x), "floor", "floor"),
    ]
    title = f"Decoding with a ring: {p[RULE]}, d = {p.d}, dv = {p.dv}; {best} rows are best"
    return Picture(Sheet(title, [Chart("", "rows", "total_bytes", lines)]))


RING = PictureKind(of_ring, needs=("d",), ignores=("N", "M", "hardware", "tiles", "schedules"))
