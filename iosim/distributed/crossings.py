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

    @property
    def text(self) -> str:
        """A sentence."""
        where = f"up to {self.axis} = {self.most}" if self.least is None else f"from {self.axis} = {self.least} on"
        what = f"{self.better} receives no more words than {self.worse}"
        return f"{what} {where}; here {self.axis} = {self.here}."


def widths(p: Attention, passes: str) -> tuple[int, int, int, int]:
    """The words of a row and of a key that an exchange moves, and of a key and of a row, with its statistics, that a
    ring passes. In a training step only the ring sends its keys again, or Q."""
    one, both = p.d + p.dv, 2 * (p.d + p.dv)
    key, ahead, back = p.d if p.latent else one, one + 1, 2 * p.d + p.dv + 2
    return {
        "forward": (one, key, key, ahead),
        "backward": (2 * p.d + p.dv, both, both, back),
        "step": (both, both, one + both, ahead + back),
    }[passes]


def crossings(p: Attention, ranks: int, passes: str = "forward") -> list[Crossing]:
    """The crossings of a problem whose queries the GPUs divide. They hold under any mask, as all words are sent. Those
    of Ulysses leave out that it sends a KV head to several GPUs where there are fewer than GPUs."""
    if ranks == 1 or p.N % ranks:
        return []
    (alpha, beta, ring, row), g = widths(p, passes), p.heads // p.kv_heads
    from_g = -(-(ranks * ring - beta) * p.Nk // (alpha * p.N))
    most_P = (alpha * g * p.N + beta * p.Nk) // (ring * p.Nk)
    return [
        Crossing("ring", "ulysses", "g", from_g, None, g),
        Crossing("ring", "ulysses", "P", None, most_P, ranks),
        Crossing("pass-q", "ring", "N", None, ring * p.Nk // (row * g), p.N),
    ]
