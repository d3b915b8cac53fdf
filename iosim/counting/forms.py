"""Forms: the inequalities behind the floors, for one instance and a memory of M words.

The proofs are in docs/floors.md. All arithmetic is in Python integers, so rounding never lifts a floor above what is
proven. A form is about the query heads that share one KV head. |E| is the number of visible pairs of the queries that
see two keys or more, and n is dv times the number of these queries. A segment in which X words are available does work
of at most g(X), and all segments do at least Z. Any number of segments K, and any lambda, weights and parts give a
valid floor, so their choice needs no proof.

    form      bounds               Z                                g(X)
    simple    reads                |E| dv                           max(X^2 dv / (4 d (d + dv)), X dv)
    latent    reads + n            the same for V in K              the same
    I         reads + n            |E| (d + dv - lambda)            G(lambda) = max(X^2 / (16 lambda), (X/3)^(3/2))
    II        reads + n + |E|      |E| (d + dv)                     G(d); latent II has a Z and a g of its own
    backward  reads + n'           |E|                              max(X^2 / (4 Pi), X), with the Pi of `backward_form`
    I', II'   as I and II with n'  that of `gradients_form`         G(lambda)
    I'', II'' as I and II with n'  that of `weighted_form`          G(lambda)

Writes are at least n, of gradients n'.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from math import isqrt, sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..masks.visible import Visible

BITS = 64  # of the fractions to which g and Z are rounded up
Weights = tuple[int, int, int]  # h, a and b of `weighted_form`


class Form(NamedTuple):
    """One inequality for one instance: reads + written + price >= A, the least R that the account of docs/floors.md
    allows.

    g(X) is the larger of `square` X^2 and the root of `other[0]` X^k with k = `other[1]`. `cross` is the X at which
    both are equal, rounded down. `written` is 0 for a form about reads alone.
    """

    name: str
    lam: Fraction | None
    work: Fraction
    square: Fraction
    other: tuple[Fraction, int]
    cross: int
    price: int
    written: int
    weights: Weights | None = None

    def most(self, X: int) -> int:
        """g(X) 2^BITS, rounded up."""
        (over, under), (factor, power) = self.square.as_integer_ratio(), self.other
        top, bottom = factor.as_integer_ratio()
        return max(-((-over * X * X << BITS) // under), root_above(top * X**power << 2 * BITS, bottom))

    def needed(self) -> int:
        """Z 2^BITS, rounded up."""
        top, bottom = self.work.as_integer_ratio()
        return -((-top << BITS) // bottom)

    def reached(self, M: int, K: int) -> int:
        """The least integer that the left side of the inequality without the price may be, for K segments in M words.

        Segments of Y or Y - 1 words, r of them with Y, do the work Z. All but the first begin with M words.
        """
        need, Y = self.needed(), self.enough(K)
        low = self.most(Y - 1)
        r = -((K * low - need) // (self.most(Y) - low))
        return K * (Y - 1) + r - (K - 1) * M - self.price

    def enough(self, K: int) -> int:
        """The least Y with K g(Y) >= Z. It is guessed in floats, and then found near the guess."""
        need, (factor, power) = self.needed(), self.other
        each = need / (K << BITS)
        guess = min(sqrt(each / self.square), (each * each / factor) ** (1 / power))
        first, last = max(1, int(guess * (1 - 1e-12))), int(guess * (1 + 1e-12)) + 2
        return first + bisect_left(range(first, last), True, key=lambda Y: K * self.most(Y) >= need)

    def segments(self, M: int) -> set[int]:
        """The numbers of segments worth trying: the whole numbers beside Z / g(X), for the whole X that is best. Where
        (X - M) / g(X) is largest, X is 2M, 3M, or beside `cross`."""
        top, bottom = 0, 1
        for X in (2 * M, 3 * M, self.cross, self.cross + 1):
            most = self.most(X)
            if (X - M) * bottom > top * most:
                top, bottom = X - M, most
        K = self.needed() // bottom
        return {max(1, K), K + 1}

    def best(self, M: int) -> tuple[int, int]:
        """The pair (words, K) of the best number of segments; of equal ones the least."""
        words, less = max((self.reached(M, K), -K) for K in self.segments(M))
        return words, -less


def root_above(top: int, bottom: int) -> int:
    """The least integer y with y^2 >= top / bottom."""
    least = -(-top // bottom)
    return isqrt(least - 1) + 1 if least else 0


def cube_form(
    name: str, work: Fraction | int, lam: Fraction, price: int | None, written: int, weights: Weights | None = None
) -> Form:
    """A form with G(lambda)."""
    cross = int(256 * lam * lam / 27)
    return Form(name, lam, Fraction(work), 1 / (16 * lam), (Fraction(1, 27), 3), cross, price or 0, written, weights)


def form_one(pairs: int, d: int, dv: int, lam2: int, written: int, price: int | None = None) -> Form:
    """Form I with lambda = lam2 / 2. With a price it is form II: Z contains the whole of d + dv, and lambda = d."""
    lam = Fraction(lam2, 2)
    return cube_form(
        "I" if price is None else "II", pairs * (d + dv - (lam if price is None else 0)), lam, price, written
    )


def latent_form(pairs: int, d: int, dv: int, written: int) -> Form:
    """Form II of latent attention. Both roots are equal at sqrt(X) = 16 d^2 / (3^(3/2) s)."""
    norm = d * d + dv * dv
    cross = 256 * d**4 // (27 * norm)
    square = Fraction(norm, 16 * d * d)
    return Form("latent II", None, Fraction(pairs * norm), square, (Fraction(norm, 27), 3), cross, pairs, written)


def product_form(name: str, pairs: Fraction | int, cross: int, written: int) -> Form:
    """The form with Z = |E| and g(X) = max(X^2 / cross, X): a segment of X words completes at most so many pairs."""
    return Form(name, None, Fraction(pairs), Fraction(1, cross), (Fraction(1), 2), cross, 0, written)


def simple_form(pairs: int, d: int, dv: int) -> Form:
    """The form for the reads of any algorithm that computes the scores and the products p v, and sums them in any
    way."""
    return product_form("simple", pairs, 4 * d * (d + dv), 0)


def pairs_of_gradients(d: int, dv: int) -> int:
    """4 Pi: a segment of X words of a backward pass completes at most X^2 / (4 Pi) pairs, or X."""
    return 8 * (d + dv) * (2 * d + dv) if dv <= 2 * d else 4 * (4 * d * dv + (2 * d + dv) ** 2)


def backward_form(seen: Visible, d: int, dv: int) -> Form:
    """The form for the reads of a backward pass, plus the words of dQ, dK and dV that depend on some visible pair."""
    return product_form("backward", seen.pairs, pairs_of_gradients(d, dv), gradients(seen, d, dv))


def gradients(seen: Visible, d: int, dv: int) -> int:
    """n': the words of dQ, dK and dV that depend on a visible pair."""
    return d * (seen.rows + seen.keys) + dv * seen.keys


PARTS, COARSE = 512, 16  # of s in `gradients_form`, and the steps in which the best part is sought first
HALF = Fraction(isqrt(2 ** (2 * BITS - 1)), 2**BITS)  # the largest such u with 2 u^2 <= 1


def gradients_form(seen: Visible, d: int, dv: int, h: int, price: int | None = None) -> Form:
    """Form I' of a backward pass; with a price form II'. They are for a small M, and hold for any d and dv.

    For s = h / PARTS and b = 1 - s^2: lambda = b d, and Z = |E| (2 u dv + 2 d s), in form I' less lambda |E|.
    """
    s = Fraction(h, PARTS)
    lam = d * (1 - s * s)
    work = seen.pairs * max(Fraction(0), 2 * HALF * dv + 2 * d * s - (lam if price is None else 0))
    return cube_form("I'" if price is None else "II'", work, lam, price, gradients(seen, d, dv))


WHOLE = 64  # y = a / WHOLE and z = b / WHOLE in `weighted_form`


def weighted_form(seen: Visible, d: int, dv: int, weights: Weights, price: int | None = None) -> Form:
    """Form I'' of a backward pass whose p words come from s and p words alone; with a price form II''.

    Of the weights h, a, b: sqrt(t) = h / PARTS, y = a / WHOLE, z = b / WHOLE, nu is nearly 2 sqrt(t (1 - t)), lambda =
    min(nu d / y, dv / z), and Z = |E| ((y + z) dv + 2 z sqrt(t) d), in form I'' less lambda z^2 |E|.
    """
    h, a, b = weights
    root, y, z, nu = Fraction(h, PARTS), Fraction(a, WHOLE), Fraction(b, WHOLE), Fraction(nearly(h), PARTS)
    lam = min(nu * d / y, dv / z)
    one = (y + z) * dv + 2 * z * root * d - (lam * z * z if price is None else 0)
    work = seen.pairs * max(Fraction(0), one)
    return cube_form("I''" if price is None else "II''", work, lam, price, gradients(seen, d, dv), weights)


def nearly(h: int) -> int:
    """The largest whole v with v / PARTS <= 2 sqrt(t (1 - t)), for sqrt(t) = h / PARTS."""
    return isqrt(4 * h * h * (PARTS**2 - h * h)) // PARTS


def lambdas(M: int, d: int, dv: int) -> set[int]:
    """Good choices of 2 lambda for form I: the best real number, rounded down and up, from 1 to 2 d.

    Let c = 256/27 and s = d + dv. If T = M is best, the best lambda is s/2. Otherwise it is the zero of the derivative
    of (c lambda^2 - M)(s - lambda) / lambda^3.
    """
    s = d + dv
    # 2 lambda = 2 (sqrt(M^2 + 3 c s^2 M) - M) / (c s)
    inner = (isqrt(27 * M * (27 * M + 768 * s * s)) - 27 * M) // (128 * s)
    return {max(1, min(lam2, s, 2 * d)) for lam2 in (inner, inner + 1)}


def forward_forms(seen: Visible, d: int, dv: int, M: int) -> Iterator[Form]:
    """The forms of the forward pass, for one instance."""
    written = dv * seen.rows
    yield simple_form(seen.pairs, d, dv)
    yield form_one(seen.pairs, d, dv, 2 * d, written, price=seen.pairs)
    for lam2 in sorted(lambdas(M, d, dv)):
        yield form_one(seen.pairs, d, dv, lam2, written)


def latent_forms(seen: Visible, d: int, dv: int, M: int) -> Iterator[Form]:
    """The forms of the forward pass in which V is a part of K, for one instance."""
    written = dv * seen.rows
    yield product_form("latent", seen.pairs, 4 * d * (d + dv), written)
    yield latent_form(seen.pairs, d, dv, written)


def backward_forms(seen: Visible, d: int, dv: int, M: int) -> Iterator[Form]:
    """The forms of the backward pass, for one instance."""
    yield backward_form(seen, d, dv)
    for less, price in ((1, None), (0, seen.pairs)):
        yield gradients_form(seen, d, dv, best_part(d, dv, M, less), price)
        yield weighted_form(seen, d, dv, best_weights(d, dv, M, less), price)


def best_part(d: int, dv: int, M: int, less: int) -> int:
    """A good h of `gradients_form`: of form I' if `less` is 1, of form II' if it is 0. It is found in floats, since any
    h from 0 to PARTS - 1 gives a floor. floor_arrays.py finds the same one."""

    def value(h: int) -> float:
        s = h / PARTS
        lam = d * (1 - s * s)
        return for_one_pair(sqrt(2) * dv + 2 * d * s - less * lam, lam, M)

    near = max(range(0, PARTS, COARSE), key=value)
    return max(range(max(0, near - COARSE + 1), min(PARTS, near + COARSE)), key=value)


def for_one_pair(Z: float, lam: float, M: int) -> float:
    """T Z / G(M + T) for one pair, at the best real T. This and M words are the account's least R, if many segments are
    needed."""
    X = min(max(lam * lam * 256 / 27, 2 * M), 3 * M)
    return (X - M) * Z * min(16 * lam / (X * X), sqrt(27) / (X * sqrt(X)))


FIRST, STEP = 367, 12  # of h; with t < 1/2, h < 363, less work has the same lambda
STEPS = ((8, 4), (4, 2), (2, 1), (1, 1))  # of h and of the other weight, around the best that was found before
AROUND = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if x or y]


def best_weights(d: int, dv: int, M: int, less: int) -> Weights:
    """Good h, a, b of `weighted_form`: of form I'' if `less` is 1, of form II'' if it is 0. They are found in floats,
    since any of them give a floor. floor_arrays.py finds the same ones.

    If dv >= d, b is WHOLE, else a is. With less of the other, lambda is larger, so for each h some lambdas are tried.
    """
    most, best = 0.0, (PARTS - 1, WHOLE)
    tried = [(h, k) for h in range(FIRST, PARTS, STEP) for k in wholes(h, d, dv, M)]
    for wide, high in ((0, 0), *STEPS):
        if wide:
            h, k = best
            near = ((h + wide * x, k + high * y) for x, y in AROUND)
            tried = [(max(1, min(PARTS - 1, h)), max(1, min(WHOLE, k))) for h, k in near]
        for h, k in tried:
            found = weighted_value(h, k, d, dv, M, less)
            if found > most:
                most, best = found, (h, k)
    h, k = best
    return (h, k, WHOLE) if dv >= d else (h, WHOLE, k)


def wholes(h: int, d: int, dv: int, M: int) -> Iterator[int]:
    """The weights a or b to try for one h: those of the largest lambda, of the best one for a large M, and of the
    lambdas between which X = M + T is where both parts of G are equal."""
    each = nearly(h) / PARTS * d
    one, most = (each, dv) if dv >= d else (dv, each)
    start = sqrt(54 * M / 256)
    for lam in (most, (dv + 2 * h / PARTS * d) / 2, start, start * 1.11, start * sqrt(1.5)):
        yield max(1, min(WHOLE, int(WHOLE * one / min(lam, most))))


def weighted_value(h: int, k: int, d: int, dv: int, M: int, less: int) -> float:
    """`for_one_pair` of `weighted_form`, with h and the weight that is not WHOLE."""
    y, z = (k / WHOLE, 1.0) if dv >= d else (1.0, k / WHOLE)
    lam = min(nearly(h) / PARTS * d / y, dv / z)
    return for_one_pair((y + z) * dv + 2 * z * (h / PARTS) * d - less * lam * z * z, lam, M)
