"""Published bounds: formula, kind, source, validity. An order is never a floor: its constant is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

from .problem import Attention

FA1 = "Dao et al. 2022 (arXiv 2205.14135)"


@dataclass(frozen=True)
class Bound:
    """`words` over all heads (None where M is needed and missing, or where no number is claimed at one M); `valid`
    says whether the condition holds for this problem and M (None without M)."""

    name: str
    words: int | float | None
    kind: str
    source: str
    condition: str
    valid: bool | None


def compulsory_words(p: Attention) -> Any:
    """Every input read once and O written once: Nq d + Nk (d + dv) reads, Nq dv writes. K and V once a KV head."""
    return p.batch * (p.heads * p.N * (p.d + p.dv) + p.kv_heads * p.Nk * (p.d + p.dv))


def order_words(p: Attention, M_words: Any) -> Any:
    """N Nk d^2 / M over all heads: the order of FlashAttention's Theorem 2."""
    return p.instances * p.N * p.Nk * p.d * p.d / M_words


def bounds(p: Attention, M_words: int | None, attainable: int | None = None) -> list[Bound]:
    """The table of what is proven; `attainable` is the least traffic found by search."""
    known = M_words is not None and M_words > 0
    words: Any = M_words
    order = order_words(p, words) if known else None
    inside = p.d <= words <= p.N * p.d if known else None
    large = words >= p.d**2 if known else None
    saha = order if large else p.instances * p.N * p.Nk * p.d / sqrt(words) if known else None
    return [
        Bound("compulsory", compulsory_words(p), "floor", "each input read once, each output written once", "always",
              True),
        Bound("N^2 d^2 / M", order, "order; the constant is unknown", f"{FA1}, Theorem 2", "d <= M <= Nd", inside),
        Bound("Proposition 3", None, "existence, not a bound at one M", f"{FA1}, Proposition 3",
              "no exact algorithm has o(N^2 d^2 / M) for all M in [d, Nd]", inside),
        Bound("Saha and Ye 2024", saha, "order; the constant is unknown", "Saha and Ye 2024 (arXiv 2402.07443)",
              "M >= d^2: N^2 d^2 / M, any matrix product; M < d^2: N^2 d / sqrt(M), standard matrix product",
              True if known else None),
        Bound("attainable", attainable, "best known, from search", "iosim: least traffic over the schedules and tiles "
              "that really fit", "the searched space", attainable is not None if known else None),
    ]  # fmt: skip
