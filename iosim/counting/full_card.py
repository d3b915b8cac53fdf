"""What a full card needs: the floor for as many busy thread blocks as a GPU has multiprocessors.

The floor of docs/floors.md gives the memory of one multiprocessor to all heads in turn. If each of p multiprocessors
does at most a p-th of the work, each must read the rows and keys of its part: theorem P1 of docs/distributed-proofs.md,
with HBM in the place of the links, where no word lies on a multiprocessor at the start.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, isqrt
from typing import TYPE_CHECKING

from ..schedules import SCHEDULES
from .bounds import floor_of
from .floors import seen_by_group

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..hardware import Hardware


def full_card_floor(problem: Attention, M_bytes: int | None, chip: Hardware, schedule: str) -> int | None:
    """The least words over all heads if every multiprocessor does an equal share of the work, each with an SRAM of M:
    at least the floor of one multiprocessor. None where no floor is known, and for what is not a forward pass."""
    family = SCHEDULES[schedule].family
    least = floor_of(problem, M_bytes, family)
    if least is None or family != "attention" or problem.dropout is not None or problem.mask.tile_units:
        return least
    d, dv = problem.d, problem.dv
    row, key = d + dv, d if problem.latent else d + dv
    seen, groups = seen_by_group(problem, None), problem.batch * problem.kv_heads
    share = Fraction(groups * (seen.pairs + seen.any_rows - seen.rows), chip.sms)
    busy = balanced_floor(groups * seen.pairs, share, row * key if dv <= d else 4 * d * dv, 0)
    return max(least, busy)


def root_above(square: Fraction | int) -> int:
    """The least integer y with y^2 >= `square`; 0 if that is not positive."""
    least = ceil(square)
    return isqrt(least - 1) + 1 if least > 0 else 0


def balanced_floor(pairs: int, most: Fraction, pi: int, held: int) -> int:
    """P1: each device does at most `most` of the work of `pairs` pairs, and rows may be laid out freely.

    `held` is the words at the start, copies counted, and the output words.
    """
    if most >= 4 * pi:  # each device needs 2 sqrt(pi most) words for this much work
        return max(0, root_above(4 * pi * pairs**2 / most) - held)
    return max(0, pairs - held)
