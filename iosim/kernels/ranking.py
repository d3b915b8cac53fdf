"""Configurations of a kernel, best first, and a short table of them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from .explain import plain_value

if TYPE_CHECKING:
    from ..tables import Row, Rows
    from .explain import Explained


def ranked(answers: list[Explained]) -> list[Explained]:
    """The answers for configurations, best first: those that fit, then by predicted seconds.

    Ties are broken by the parts of the time, then by bytes, then by the programs that share a multiprocessor.
    """
    return sorted(answers, key=rank)


def rank(answer: Explained) -> tuple[float, ...]:
    """The key by which configurations are sorted."""
    time = answer.time
    parts = (time.seconds, time.block_seconds, time.l2_seconds) if time else (inf, inf, inf)
    return answer.fits is False, *parts, answer.total_bytes, -(answer.blocks_per_sm or 0)


def ranking(answers: list[Explained]) -> Rows:
    """A short row for each configuration."""
    return [row_of(answer) for answer in answers]


def row_of(answer: Explained) -> Row:
    """The numbers that decide the rank of a configuration."""
    return {
        **{name: plain_value(value) for name, value in answer.constants.items()},
        "warps": answer.num_warps,
        "stages": answer.num_stages,
        "fits": "-" if answer.fits is None else answer.fits,
        "programs_per_SM": answer.blocks_per_sm or "-",
        "bytes": answer.total_bytes,
        "predicted_us": f"{1e6 * answer.time.seconds:.1f}" if answer.time else "-",
    }
