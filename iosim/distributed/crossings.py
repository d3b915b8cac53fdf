"""Where the best of the three rings and exchanges of the P3 theorem changes: over GPUs, heads and tokens, exactly.

Over P GPUs, a ring that passes K and V receives (P - 1) beta Nk words a problem, one that passes Q
(P - 1) (alpha + 1) g N, where each row has its statistic (backward two), and Ulysses (P - 1) (alpha g N + beta Nk) / P,
where P divides the KV heads. alpha and beta are the words of a row and of a key, and g query heads share a KV head. In
a training step the rings' beta and alpha are larger, as K and V, or Q, come twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..core.problem import Attention


class Crossing(NamedTuple):
    """From which number of an axis on one scheme receives no more words than another."""

    better: str
    worse: str
    axis: str
    """`g`, the query heads that share a KV head; `P`, the GPUs; or `N`, the queries."""
    least: int | None
    """The least number of the axis; None if `most` says it."""
    most: int | None
    """The largest number of the axis; None if `least` says it."""
    here: int
    """The number of the problem."""
    text: str
    """A sentence."""


def widths(p: Attention, passes: str) -> tuple[int, int, int]:
    """The words of a row and of a key that an exchange moves, and of a key that a ring moves. In a training step only
    the ring sends its keys again."""
    one, both = p.d + p.dv, 2 * (p.d + p.dv)
    key = p.d if p.latent else one
    return {"forward": (one, key, key), "backward": (2 * p.d + p.dv, both, both), "step": (both, both, one + both)}[
        passes
    ]


def row_passed(p: Attention, passes: str) -> int:
    """The words of a row that a ring passes, with its statistics. A training step passes Q twice."""
    ahead, back = p.d + p.dv + 1, 2 * p.d + p.dv + 2
    return {"forward": ahead, "backward": back, "step": ahead + back}[passes]


def crossings(p: Attention, ranks: int, passes: str = "forward") -> list[Crossing]:
    """The crossings of a problem whose queries the GPUs divide. They hold under any mask, as all words are sent."""
    if ranks == 1 or p.N % ranks:
        return []
    (alpha, beta, ring), g = widths(p, passes), p.heads // p.kv_heads
    from_g = -(-(ranks * ring - beta) * p.Nk // (alpha * p.N))
    most_P = (alpha * g * p.N + beta * p.Nk) // (ring * p.Nk)
    most_N = ring * p.Nk // (row_passed(p, passes) * g)
    even = not p.kv_heads % ranks  # else Ulysses sends a KV head to several GPUs, which these formulas leave out
    found = [
        Crossing("ring", "ulysses", "g", from_g, None, g, ring_text(from_g, ranks, p, even)),
        Crossing("ring", "ulysses", "P", None, most_P, ranks, gpus_text(most_P, g, even)),
        Crossing("pass-q", "ring", "N", None, most_N, p.N, queries_text(most_N, p)),
    ]
    return found


def ring_text(least: int, ranks: int, p: Attention, even: bool) -> str:
    """The sentence on query heads that share a KV head. Where there are words of several types, they are not bytes."""
    where = f"from g >= {least:,} query heads a KV head on {ranks:,} GPUs"
    more = "no more" if p.cache_dtype == p.dtype else "no more words"
    limit = "" if even else " This leaves out that Ulysses sends some KV heads to several GPUs here."
    return f"The ring receives {more} than Ulysses {where}; here g = {p.heads // p.kv_heads}.{limit}"


def gpus_text(most: int, g: int, even: bool) -> str:
    """The sentence on GPUs."""
    up_to = f"With g = {g} it does so on up to {most:,} GPUs{'' if even else ' that divide the KV heads'}."
    return up_to if most > 1 else f"With g = {g} it never does so."


def queries_text(most: int, p: Attention) -> str:
    """The sentence on queries."""
    if most == 0:
        return "Passing Q never receives less than passing K and V here."
    up_to = f"up to N = {most} with Nk = {p.Nk}, in words with row statistics"
    return f"Passing Q receives no more than passing K and V {up_to}; here N = {p.N}."
