"""Forms: the inequalities behind the floors, for one instance and a memory of M words.

The proofs are in docs/floors.md. All arithmetic is in Python integers, so rounding never lifts a floor above what is
proven. A form is about the query heads that share one KV head. |E| is the number of visible pairs of the queries that
see two keys or more, and n is dv times the number of these queries. A run is cut into segments of T reads, and
X = M + T. Any T >= 1 and any lambda from 1/2 to d give a valid floor, so their choice needs no proof.

    simple    reads          >= T |E| dv / max(X^2 dv / (4 d (d + dv)), X dv);  latent: reads + n, V in K
    I         reads + n      >= T |E| (d + dv - lambda) / G(lambda)
    II        reads + n      >= T |E| (d + dv) / G(d) - |E|;  latent II: the same for V in K, with a G of its own
              G(lambda) = max(X^2 / (16 lambda), (X/3)^(3/2));  writes >= n
    backward  reads + n'     >= T |E| / max(X^2 / (4 Pi), X), Pi = 2 (d + dv)(2d + dv);  n' words are written
    I', II'   reads + n'     >= T Z / G(lambda) - price, for gradients: Z and lambda as in `gradients_form`

If one memory of M words cannot do all of the work, M^2 / X is added to each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..masks.visible import Visible


class Form(NamedTuple):
    """One inequality for one instance: reads + written >= T Z / G(X) - price.

    Z / G(X) is the smaller of two square roots: that of `square[0]` / (`square[1]` X^4), and that of `other[0]` /
    (`other[1]` X^k) with k = `other[2]`. `cross` is the X at which both are equal, rounded down. `written` is 0 for a
    form about reads alone.
    """

    name: str
    lam: float | None
    square: tuple[int, int]
    other: tuple[int, int, int]
    cross: int
    price: int
    written: int

    def reached(self, M: int, T: int) -> int:
        """The least integer that the left side of the inequality may be, for this M and T."""
        X = M + T
        (over, under), (top, factor, power) = self.square, self.other
        if over * factor > top * under * X ** (4 - power):  # the second root is the smaller one
            over, under = top * X ** (4 - power), factor
        # (r + price) X - more is an integer. So it is at least T X Z / G rounded up, which is the root of a square.
        root = root_above(T * T * over, X * X * under)
        more = M * M if self.beyond(M) else 0
        return -(-(root + more) // X) - self.price

    def beyond(self, M: int) -> bool:
        """Whether Z > G(M)."""
        (over, under), (top, factor, power) = self.square, self.other
        return over > under * M**4 and top > factor * M**power

    def lengths(self, M: int) -> list[int]:
        """The T worth trying: M, 2M, and the two around the T that makes X = `cross`. Any T >= 1 is valid.

        From X = 2M and `cross` on, T Z / G falls: if `cross` < 3M, 2M is too long. For k = 3 it falls from X = 3M on.
        """
        twice = [2 * M] if self.cross >= 3 * M else []
        around = [] if twice and self.other[2] == 3 else [self.cross - M, self.cross + 1 - M]
        return [T for T in (M, *twice, *around) if T >= 1]

    def best(self, M: int) -> tuple[int, int]:
        """The pair (words, T) of the best T; of equal ones the least."""
        words, less = max((self.reached(M, T), -T) for T in self.lengths(M))
        return words, -less


def root_above(top: int, bottom: int) -> int:
    """The least integer y with y^2 >= top / bottom."""
    least = -(-top // bottom)
    return isqrt(least - 1) + 1 if least else 0


def form_one(pairs: int, d: int, dv: int, lam2: int, written: int, price: int | None = None) -> Form:
    """Form I with lambda = lam2 / 2. With a price it is form II: Z contains the whole of d + dv, and lambda = d."""
    work = pairs * (2 * (d + dv) - (lam2 if price is None else 0))  # twice Z
    name = "I" if price is None else "II"
    cross = 64 * lam2**2 // 27
    return Form(name, lam2 / 2, ((4 * work * lam2) ** 2, 1), (27 * work**2, 4, 3), cross, price or 0, written)


def latent_form(pairs: int, d: int, dv: int, written: int) -> Form:
    """Form II of latent attention. Both roots are equal at sqrt(X) = 16 d^2 / (3^(3/2) s)."""
    norm = d * d + dv * dv
    cross = 256 * d**4 // (27 * norm)
    return Form("latent II", None, ((16 * d * d * pairs) ** 2, 1), (27 * pairs**2 * norm, 1, 3), cross, pairs, written)


def product_form(name: str, pairs: int, cross: int, written: int) -> Form:
    """The form T |E| / max(X^2 / cross, X), in which a segment of X words completes at most the larger number of
    pairs."""
    return Form(name, None, ((cross * pairs) ** 2, 1), (pairs**2, 1, 2), cross, 0, written)


def simple_form(pairs: int, d: int, dv: int) -> Form:
    """The form for the reads of any algorithm that computes the scores and the products p v, and sums them in any
    way."""
    return product_form("simple", pairs, 4 * d * (d + dv), 0)


def backward_form(seen: Visible, d: int, dv: int) -> Form:
    """The form for the reads of a backward pass, plus the words of dQ, dK and dV that depend on some visible pair.

    Of dV it counts at most 2d columns: with more, the segment bound of the proof does not hold.
    """
    columns = min(dv, 2 * d)
    return product_form("backward", seen.pairs, 8 * (d + columns) * (2 * d + columns), gradients(seen, d, columns))


def gradients(seen: Visible, d: int, columns: int) -> int:
    """n': the words of dQ, dK and of some columns of dV that depend on a visible pair."""
    return d * (seen.rows + seen.keys) + columns * seen.keys


PARTS, COARSE = 512, 16  # of s in `gradients_form`, and the steps in which the best part is sought first
BITS = 64
HALF = isqrt(2 ** (2 * BITS - 1))  # u 2^BITS for the largest such u with 2 u^2 <= 1


def gradients_form(seen: Visible, d: int, dv: int, h: int, price: int | None = None) -> Form:
    """Form I' of a backward pass; with a price form II'. They are for a small M, and hold for any d and dv.

    For s = h / PARTS and b = 1 - s^2: lambda = b d, and Z = |E| (2 u dv + 2 d s), in form I' less lambda |E|. All
    numbers below are these ones times PARTS^2, and the work also times 2^BITS.
    """
    lam = d * (PARTS**2 - h * h)
    weights = 2 * PARTS**2 * HALF * dv + (2 * d * h * PARTS << BITS) - (lam << BITS if price is None else 0)
    work, unit = seen.pairs * max(0, weights), PARTS**2 << BITS
    return Form(
        "I'" if price is None else "II'",
        lam / PARTS**2,
        ((16 * lam * work) ** 2, (PARTS**2 * unit) ** 2),
        (27 * work**2, unit**2, 3),
        256 * lam**2 // (27 * PARTS**4),
        price or 0,
        gradients(seen, d, dv),
    )


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
    yield gradients_form(seen, d, dv, best_part(d, dv, M, less=1))
    yield gradients_form(seen, d, dv, best_part(d, dv, M, less=0), price=seen.pairs)


def best_part(d: int, dv: int, M: int, less: int) -> int:
    """A good h of `gradients_form`: of form I' if `less` is 1, of form II' if it is 0. It is found in floats, since any
    h from 0 to PARTS - 1 gives a floor. floor_arrays.py finds the same one."""

    def value(h: int) -> float:
        """T Z / G(X) for one pair, at the best real T."""
        s = h / PARTS
        lam = d * (1 - s * s)
        Z = sqrt(2) * dv + 2 * d * s - less * lam
        X = min(max(lam * lam * 256 / 27, 2 * M), 3 * M)
        return (X - M) * Z * min(16 * lam / (X * X), sqrt(27) / (X * sqrt(X)))

    near = max(range(0, PARTS, COARSE), key=value)
    return max(range(max(0, near - COARSE + 1), min(PARTS, near + COARSE)), key=value)
