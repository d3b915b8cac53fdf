"""Floors: the least words that any exact algorithm of a class can move, with true constants, for any mask.

The proofs are in docs/floors.md. All arithmetic is in Python integers, so rounding never lifts a floor above what is
proven. The forms below are for the query heads that share one KV head. |P| is the number of visible pairs of the
queries that see two keys or more, and n is dv times the number of these queries. A run is cut into segments of T reads,
and X = M + T. Any T >= 1 and any lambda from 1/2 to d give a valid floor, so their choice needs no proof.

    simple    reads          >= T |P| dv / max(X^2 dv / (4 d (d + dv)), X dv)
    I         reads + n      >= T |P| (d + dv - lambda) / G(lambda)
    II        reads + n      >= T |P| (d + dv) / G(d) - |P|
              G(lambda) = max(X^2 / (16 lambda), (X/3)^(3/2));  writes >= n
    backward  reads + n'     >= 12 T |P| / max(X^2 / (4 d^2), 12 X);  n' words are written (d = dv)

If one memory of M words cannot do all of the work, M^2 / X is added to I, II and backward.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple, overload

from ..errors import InputError
from ..masks.visible import Visible, visible
from ..units import dtype_bytes, parse_bytes

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size

CLASS = (
    "exact attention by standard products: each score sums d products of q and k, each output one product of p and v "
    "for every visible key; in any order and tiles, with any recomputation"
)
BACKWARD_CLASS = (
    "exact gradients by the five standard products, with P stored or computed again, LSE and D for free; in any order "
    "and tiles, with any recomputation"
)


class Floor(NamedTuple):
    """The least words, and the numbers with which they can be computed again by hand.

    `words` (reads and writes) and `reads` are over all heads and batches. `form` says which statement gives `words`:
    compulsory, simple, I, II or backward. `T` and `lam` (lambda) are those of the form, or None if it has none.
    `M_words` is None if M was not given. An instance is the query heads that share a KV head, in one batch; there are
    `instances` of them. `pairs` (|P|), `rows`, `written` (n) and `writes` (the compulsory ones) are of one instance.
    For I, II and backward, words / instances = the right side of the form + writes - written.
    """

    words: int
    reads: int
    form: str
    T: int | None
    lam: float | None
    M_words: int | None
    pairs: int
    rows: int
    written: int
    d: int
    dv: int
    writes: int
    instances: int


class Form(NamedTuple):
    """One inequality for one instance: reads + written >= T Z / G(X) - price. Without `writes` it is about reads alone.

    Z / G(X) is the smaller of two square roots: that of `square` / X^4, and that of `other[0]` / (`other[1]` X^k) with
    k = `other[2]`. `cross` is the X at which both are equal, rounded down. `ends` says whether M^2 / X is added if
    Z > G(M).
    """

    name: str
    lam: float | None
    square: int
    other: tuple[int, int, int]
    cross: int
    price: int
    writes: bool
    ends: bool

    def reached(self, M: int, T: int) -> int:
        """The least integer that the left side of the inequality may be, for this M and T."""
        X = M + T
        top, factor, power = self.other
        more = M * M if self.ends and self.beyond(M) else 0
        # (r + price) X - more is an integer. So it is at least T X Z / G rounded up, which is the root of a square.
        first = root_above(T * T * self.square, X * X)
        second = root_above(T * T * X * X * top, factor * X**power)
        return -(-(min(first, second) + more) // X) - self.price

    def beyond(self, M: int) -> bool:
        """Whether Z > G(M)."""
        top, factor, power = self.other
        return self.square > M**4 and top > factor * M**power

    def best(self, M: int) -> tuple[int, int]:
        """The pair (words, T) of the best T. It is M, or 2M if k = 3, or the T between them that makes X = `cross`."""
        power = self.other[2]
        if self.cross <= 2 * M:
            return self.reached(M, M), M
        if power == 3 and self.cross >= 3 * M:
            return self.reached(M, 2 * M), 2 * M
        return max((self.reached(M, T), T) for T in (self.cross - M, self.cross + 1 - M))


def root_above(top: int, bottom: int) -> int:
    """The least integer y with y^2 >= top / bottom."""
    least = -(-top // bottom)
    return isqrt(least - 1) + 1 if least else 0


def form_one(pairs: int, d: int, dv: int, lam2: int, price: int | None = None) -> Form:
    """Form I with lambda = lam2 / 2. With a price it is form II: Z contains the whole of d + dv, and lambda = d."""
    work = pairs * (2 * (d + dv) - (lam2 if price is None else 0))  # twice Z
    name = "I" if price is None else "II"
    cross = 64 * lam2**2 // 27
    return Form(name, lam2 / 2, (4 * work * lam2) ** 2, (27 * work**2, 4, 3), cross, price or 0, True, True)


def simple_form(pairs: int, d: int, dv: int) -> Form:
    """The form for the reads of any algorithm that computes the scores and the products p v. It may sum them in any
    way, also by fast matrix multiplication."""
    cross = 4 * d * (d + dv)
    return Form("simple", None, (cross * pairs) ** 2, (pairs**2, 1, 2), cross, 0, False, False)


def backward_form(pairs: int, d: int) -> Form:
    """The form for the reads of a backward pass, plus the words of dQ, dK and dV that depend on some visible pair."""
    cross = 48 * d * d
    return Form("backward", None, (cross * pairs) ** 2, (pairs**2, 1, 2), cross, 0, True, True)


def latent_form(pairs: int, d: int, dv: int) -> Form:
    """Form II of latent attention. Both roots are equal at sqrt(X) = 16 d^2 / (3^(3/2) s)."""
    norm = d * d + dv * dv
    cross = 256 * d**4 // (27 * norm)
    return Form("II", None, (16 * d * d * pairs) ** 2, (27 * pairs**2 * norm, 1, 3), cross, pairs, True, True)


def lambdas(M: int, d: int, dv: int) -> set[int]:
    """Good choices of 2 lambda for form I: the best real number, rounded down and up, from 1 to 2 d.

    Let c = 256/27 and s = d + dv. If T = M is best, the best lambda is s/2. Otherwise it is the zero of the derivative
    of (c lambda^2 - M)(s - lambda) / lambda^3.
    """
    s = d + dv
    # 2 lambda = 2 (sqrt(M^2 + 3 c s^2 M) - M) / (c s)
    inner = (isqrt(27 * M * (27 * M + 768 * s * s)) - 27 * M) // (128 * s)
    return {max(1, min(lam2, s, 2 * d)) for lam2 in (inner, inner + 1)}


def forms(seen: Visible, d: int, dv: int, M: int) -> Iterable[Form]:
    """The forms of the forward pass, for one instance."""
    yield simple_form(seen.pairs, d, dv)
    yield form_one(seen.pairs, d, dv, 2 * d, price=seen.pairs)
    for lam2 in sorted(lambdas(M, d, dv)):
        yield form_one(seen.pairs, d, dv, lam2)


def floor(problem: Attention, M: int | str | None = None, tiles: Tiling | None = None) -> Floor:
    """The floor of attention's forward pass, for an SRAM of M (bytes, `100KB`, or words as `51200el`).

    Without M it is the compulsory traffic. InputError if the mask depends on tiles and they are not given, or if its
    visible pairs cannot be counted in reasonable time.
    """
    return forward_floor(problem, sram_words(problem, M), tiles)


def check_dropout(problem: Attention) -> None:
    """Raise InputError if there is dropout. An algorithm that knows which pairs are dropped needs fewer inputs."""
    if problem.dropout is not None:
        raise InputError("dropout", "given", "no dropout, for a floor", "dropped pairs may leave inputs out")


def forward_floor(problem: Attention, M_words: int | None, tiles: Tiling | None = None) -> Floor:
    """The floor of attention's forward pass, for an SRAM of `M_words` words; the compulsory traffic for None."""
    check_dropout(problem)
    return floor_of_seen(problem, seen_by_group(problem, tiles), M_words)


def selected_floor(problem: Attention, M_words: int | None, tiles: Tiling | None = None) -> Floor:
    """The floor of attention in which each query sees the keys of any `top_k` blocks.

    A choice is a mask. All queries may choose the same blocks, so only the keys of one query must be read.
    """
    check_dropout(problem)
    from ..schedules.selected import KEY_BLOCK, TOP_K

    keys, rows = problem[TOP_K] * problem[KEY_BLOCK], problem.N * (problem.heads // problem.kv_heads)
    several = keys > 1
    seen = Visible(several * rows * keys, several * rows, several * keys, rows, keys)
    return floor_of_seen(problem, seen, M_words)


def floor_of_seen(problem: Attention, seen: Visible, M_words: int | None) -> Floor:
    """The floor of a forward pass in which the query heads of a group see `seen`."""
    d, dv = problem.d, problem.dv
    if problem.latent:
        return mla_floor(problem, M_words, seen=seen)
    reads = d * (seen.rows + seen.keys) + dv * seen.any_keys
    found = forms(seen, d, dv, M_words) if M_words and seen.pairs else ()
    return highest(problem, seen, M_words, (reads, dv * seen.any_rows), dv * seen.rows, found)


def backward_floor(problem: Attention, M_words: int | None, tiles: Tiling | None = None) -> Floor:
    """The floor of the gradients dQ, dK, dV, for an SRAM of `M_words` words. For d != dv it is the compulsory
    traffic."""
    check_dropout(problem)
    seen, d, dv = seen_by_group(problem, tiles), problem.d, problem.dv
    reads = d * (seen.rows + seen.keys) + dv * (seen.keys + seen.any_rows)
    writes = d * (seen.rows + seen.keys) + dv * seen.any_keys
    found = [backward_form(seen.pairs, d)] if M_words and seen.pairs and d == dv else []
    return highest(problem, seen, M_words, (reads, writes), d * (seen.rows + 2 * seen.keys), found)


def mla_floor(
    problem: Attention, M_words: int | None, tiles: Tiling | None = None, seen: Visible | None = None
) -> Floor:
    """The floor of latent attention, where V is the first dv <= d words of each row of K, so one read serves both.

    simple: reads + n >= T |P| dv / max(X^2 dv / (4 d (d + dv)), X dv). II, with s^2 = d^2 + dv^2:
    reads + n >= T |P| s^2 / max(s^2 X^2 / (16 d^2), s (X/3)^(3/2)) - |P|.
    """
    seen, d, dv = seen or seen_by_group(problem, tiles), problem.d, problem.dv
    if dv > d:
        raise InputError("--dv", dv, f"at most --d {d}, because V is part of K")
    reads = d * (seen.rows + seen.keys) + dv * (seen.any_keys - seen.keys)
    simple = simple_form(seen.pairs, d, dv)._replace(writes=True, ends=True)
    found = [simple, latent_form(seen.pairs, d, dv)] if M_words and seen.pairs else []
    return highest(problem, seen, M_words, (reads, dv * seen.any_rows), dv * seen.rows, found)


def seen_by_group(problem: Attention, tiles: Tiling | None) -> Visible:
    """What the query heads that share one KV head see. All heads have the same mask."""
    one, group = visible(problem.mask, problem.N, problem.Nk, tiles), problem.heads // problem.kv_heads
    return one._replace(pairs=group * one.pairs, rows=group * one.rows, any_rows=group * one.any_rows)


def highest(
    problem: Attention,
    seen: Visible,
    M_words: int | None,
    compulsory: tuple[int, int],
    written: int,
    found: Iterable[Form],
) -> Floor:
    """The largest of the compulsory words (reads, writes) and the words that forms give, over all heads and batches.

    A run of several instances contains a run of each of them in the same M, so their floors add up.
    """
    least_reads, least_writes = compulsory
    words, form, length, lam = sum(compulsory), "compulsory", None, None
    for one in found:
        reached, T = one.best(M_words or 0)
        # Forms with `writes` are bounds on reads + written, and at least `written` words are written.
        total = reached + (0 if one.writes else least_writes)
        least_reads = max(least_reads, reached - (written if one.writes else 0))
        if one.writes:
            total += least_writes - written
        if total > words:
            words, form, length, lam = total, one.name, T, one.lam
    instances = problem.batch * problem.kv_heads
    return Floor(
        words=instances * words,
        reads=instances * least_reads,
        form=form,
        T=length,
        lam=lam,
        M_words=M_words,
        pairs=seen.pairs,
        rows=seen.rows,
        written=written,
        d=problem.d,
        dv=problem.dv,
        writes=least_writes,
        instances=instances,
    )


def sram_words(problem: Attention, M: int | str | None) -> int | None:
    """The words that an SRAM of M holds."""
    return None if M is None else held_words(problem, parse_bytes(M, problem.word_bytes))


@overload
def held_words(problem: Attention, M_bytes: int) -> int: ...


@overload
def held_words(problem: Attention[Size], M_bytes: Size) -> Size: ...


def held_words(problem: Attention[Size], M_bytes: Size) -> Size:
    """The most words that M bytes hold: those of the narrowest type."""
    return (M_bytes + problem.register_bytes) // narrowest_bytes(problem)


def narrowest_bytes(problem: Attention[Size]) -> int:
    """The bytes of a word of the narrowest type among Q, K and V, and the accumulators."""
    return min(problem.word_bytes, problem.acc_bytes, dtype_bytes(problem.cache_dtype))
