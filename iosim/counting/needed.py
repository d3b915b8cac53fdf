"""What softmax attention needs at least, whatever its schedule and tiles are: bytes of HBM, FLOPs and exponentials.

A claimed time is judged by it, of one problem and of a batch. Its bytes are those of the compulsory floor, in the type
of each tensor: a query that sees one key has p = 1, so that only its V and its O move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem import TENSORS, narrowed
from ..masks.visible import Visible, visible
from ..timing.bound import rates_of, times_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.problem import Attention
    from ..hardware import Hardware


def needed_by_problem(p: Attention) -> dict[str, int]:
    """The least work of one problem, {resource: bytes, FLOPs or exponentials}. InputError for a mask of tiles."""
    return needed_by(p, [(visible(p.mask, p.N, p.Nk), 1)])


def problem_times(p: Attention, chip: Hardware) -> dict[str, float]:
    """The least seconds of each resource of a GPU for one problem."""
    return times_of(needed_by_problem(p), rates_of(chip, p.dtype))


def needed_by(p: Attention, seen: Iterable[tuple[Visible, int]]) -> dict[str, int]:
    """The least work of several problems: (what the queries of one head see, the number of such problems). `p` has
    their heads and types. A visible score takes its products and one exponential."""
    each = [[times * many for many in one] for one, times in seen]
    several = Visible(*map(sum, zip(*each, strict=True)))
    scores = (several.pairs + several.any_rows - several.rows) * p.heads * p.batch
    words = needed_words(p, several)
    memory = sum(int(p.in_bytes(TENSORS[name], many)) for name, many in words.items())
    return {"memory": memory, "matrix": 2 * scores * (p.d + p.dv), "exp": scores}


def needed_words(p: Attention, seen: Visible) -> dict[str, int]:
    """The words of each tensor that move at least, over all heads. A key that only queries of one key see needs its V
    alone, which is a part of K in latent rows."""
    one = narrowed(p, N=1, Nk=1)
    of_v = {"V", "Vscale", *(("Kscale",) if p.latent else ())}
    found = {}
    for name in ("Q", *p.cache_tensors, "O"):
        axes, rows = TENSORS[name].axes, seen.any_keys if name in of_v else seen.keys
        if name in "QO":
            found[name] = (seen.rows if name == "Q" else seen.any_rows) * p.heads * p.batch * one.length(axes[1])
            continue
        if axes[0] == "scale_rows" and not p.scale_words:
            rows = min(rows, 1)  # one scale for all
        words = rows * one.length(axes[1])
        if name == "K" and p.latent:
            words += (seen.any_keys - seen.keys) * min(p.dv, one.k_words)
        found[name] = words * p.kv_heads * p.batch
    return found
