"""Published bounds: formula, kind, source, validity. An order is never a floor: its constant is unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from math import sqrt
from typing import Any

from .problem import DENSE, Attention

SEARCHED = "best known, from search"
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


def bounds(p: Attention, M_words: int | None, attainable: int | None = None, family: str = "attention") -> list[Bound]:
    """The table of what is proven about a family; `attainable` is the least traffic found by search."""
    return FAMILIES.get(family, attention_bounds)(p, M_words, attainable)


def of_dense(table: Callable[..., list[Bound]]) -> Callable[..., list[Bound]]:
    """What is proven of dense attention says nothing under a mask, which may leave out inputs and products."""

    @wraps(table)
    def checked(p: Attention, M_words: int | None, attainable: int | None = None) -> list[Bound]:
        found = table(p, M_words, attainable)
        if p.mask is DENSE:
            return found
        return [
            b if b.kind == SEARCHED else replace(b, condition=f"dense attention; {b.condition}", valid=False)
            for b in found
        ]

    return checked


@of_dense
def attention_bounds(p: Attention, M_words: int | None, attainable: int | None = None) -> list[Bound]:
    """Softmax attention."""
    known = M_words is not None and M_words > 0
    words: Any = M_words
    order = order_words(p, words) if known else None
    inside = p.d <= words <= p.N * p.d if known else None
    large = words >= p.d**2 if known else None
    beyond = "M <= Nd; " if known and words > p.N * p.d else ""  # there the inputs are more than the order
    saha = order if large else p.instances * p.N * p.Nk * p.d / sqrt(words) if known else None
    return [
        Bound("compulsory", compulsory_words(p), "floor", "each input read once, each output written once", "always",
              True),
        Bound("N^2 d^2 / M", order, "order; the constant is unknown", f"{FA1}, Theorem 2", "d <= M <= Nd", inside),
        Bound("Proposition 3", None, "existence, not a bound at one M", f"{FA1}, Proposition 3",
              "no exact algorithm has o(N^2 d^2 / M) for all M in [d, Nd]", inside),
        Bound("Saha and Ye 2024", saha, "order; the constant is unknown", "Saha and Ye 2024 (arXiv 2402.07443)",
              beyond + "M >= d^2: N^2 d^2 / M, any matrix product; M < d^2: N^2 d / sqrt(M), standard matrix product",
              not beyond if known else None),
        searched("attainable", attainable, known),
    ]  # fmt: skip


def searched(name: str, attainable: int | None, known: bool) -> Bound:
    return Bound(name, attainable, SEARCHED, "iosim: the least of the schedules and tiles counted here that "
                 "really fit", "the searched space", attainable is not None if known else None)  # fmt: skip


def matmul_bounds(p: Attention, M_words: int | None, attainable: int | None = None) -> list[Bound]:
    """C = A B with A (N, d), B (d, Nk): standard multiplication, every product a_ik b_kj formed."""
    matrices = (p.N * p.d, p.d * p.Nk, p.N * p.Nk)
    order = p.instances * p.N * p.d * p.Nk / sqrt(M_words) if M_words else None
    large = M_words < min(matrices) if M_words else None
    return [
        Bound("matmul: compulsory", p.instances * sum(matrices), "floor", "A and B read once, C written once", "always",
              True),
        Bound("matmul: n m p / sqrt(M)", order, "order; the constant is unknown",
              "Hong and Kung 1981 (STOC), red-blue pebble game", "standard product; M below each matrix", large),
        Bound("matmul: 2 n m p / sqrt(M)", None if order is None else 2 * order,
              "leading term, reached; lower-order terms left out", "Smith et al. 2017 (arXiv 1702.02017)",
              "standard product; M below each matrix", large),
        searched("matmul: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


@of_dense
def softmax_bounds(p: Attention, M_words: int | None, attainable: int | None = None) -> list[Bound]:
    """P = softmax(S) of an N x Nk matrix: no order in M, since three words of SRAM allow 1.5 times the floor."""
    words = 2 * p.instances * p.N * p.Nk
    return [
        Bound("softmax: compulsory", words, "floor", "S read once, P written once", "always", True),
        searched("softmax: attainable", attainable, bool(M_words)),
    ]


def linear_bounds(p: Attention, M_words: int | None, attainable: int | None = None) -> list[Bound]:
    """Linear attention: each input once is reached as soon as the d x dv state is on chip."""
    state = p.d * p.dv + p.d
    return [
        Bound("linear: compulsory", p.instances * (p.N * (p.d + p.dv) + p.Nk * (p.d + p.dv)), "floor; reached",
              "Q, K, V read once, O written once", "always; reached for M > d dv + d",
              M_words > state if M_words else None),
        searched("linear: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


@of_dense
def backward_bounds(p: Attention, M_words: int | None, attainable: int | None = None) -> list[Bound]:
    """Gradients of softmax attention: at least Q, K, V, dO are read and dQ, dK, dV written."""
    words = p.batch * (p.heads * p.N * (2 * p.d + p.dv) + 2 * p.kv_heads * p.Nk * (p.d + p.dv))
    order = order_words(p, M_words) if M_words else None
    inside = p.d <= M_words <= p.N * p.d if M_words else None
    return [
        Bound("backward: compulsory", words, "floor", "Q, K, V, dO read once, dQ, dK, dV written once", "always", True),
        Bound("backward: N^2 d^2 / M", order, "order reached by Algorithm 4; the constant is unknown",
              f"{FA1}, Theorem 5", "d <= M <= Nd", inside),
        searched("backward: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


FAMILIES = {
    "matmul": matmul_bounds,
    "softmax": softmax_bounds,
    "linear": linear_bounds,
    "backward": backward_bounds,
}
APART = tuple(
    FAMILIES
)  # what is not attention's forward pass: held neither against N^2 d^2 / M nor against Algorithm 0
