"""A schedule of someone else: a tile of queries sees all keys at once, so that softmax needs no second thought.

The two formulas are derived by hand, from the sentence above and not from the text below. `iosim verify` compares them.
"""

from dataclasses import replace

from iosim import Schedule
from iosim.masks import parse_mask
from iosim.steps.softmax import accumulate, scores, softmax_rows, zeros


def text(chip, p, t):
    """S of a tile of queries, whole, then O."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q, k = chip.load("Q", i), chip.load("K")
        s = chip.compute("S", (i, p.Nk), scores, q, k)
        chip.free(q, k)
        chip.update(s, softmax_rows)
        v, o = chip.load("V"), chip.compute("O", (i, p.dv), zeros)
        chip.update(o, accumulate, s, v)
        chip.store(o, "O", i)


def without_a_mask(p):
    """it has no mask"""
    return p if str(p.mask) == "dense" else replace(p, mask=parse_mask("dense"))


def traffic(p, t):
    """K and V come once for each tile of queries."""
    tiles = -(-p.N // t.rows_q)
    return {"Q": (p.N * p.d, 0), "K": (tiles * p.Nk * p.d, 0), "V": (tiles * p.Nk * p.dv, 0), "O": (0, p.N * p.dv)}


def footprint(p, t):
    """S with Q and K, or S with V and O."""
    rows = min(t.rows_q, p.N)
    return rows * p.Nk + max((rows + p.Nk) * p.d, (rows + p.Nk) * p.dv)


WHOLE_ROWS = Schedule(
    "whole-rows",
    text,
    "whole rows of S on chip",
    source="an example",
    about=without_a_mask,
    exact_traffic=traffic,
    footprint=footprint,
    formula="R = N d + Nk (d + dv) Tr, W = N dv",
    state="a tile of Q with whole rows of S on chip; nothing waits in HBM",
)
